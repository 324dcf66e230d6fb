// A GPU that was not asked for is never touched: no context is created on it. Each case runs in a process of its own.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "support/pipeline_runs.h"

namespace volpipe {
namespace {

using namespace testing_support;

/// Whether the driver holds a primary context for the device in this process.
bool has_context(int device) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  const auto get_state = reinterpret_cast<int (*)(int, unsigned*, int*)>(dlsym(driver, "cuDevicePrimaryCtxGetState"));
  unsigned flags = 0;
  int active = -1;
  if (get_state(device, &flags, &active) != 0) std::abort();
  return active != 0;
}

int device_count() { return int(list_devices().size()) - 1; }

int contexts_after_listing() {
  why_cuda_unusable(0);
  choose_device("auto", true);
  int contexts = 0;
  for (int device = 0; device < device_count(); ++device) contexts += has_context(device);
  return contexts;
}

/// 0 when a pipeline on the last device left a context there and nowhere else.
int fault_after_a_run_on_the_last_device() {
  const int last = device_count() - 1;
  const auto context = make_context(Device::cuda(last));
  Images images;
  images.emplace(
      "image",
      random_volume(*context,
                    {oblique_grid({30, 20, 10}), DataType::int16, 1, ImageKind::image, ComponentAxis::none, 1.0}, 1));
  run_pipeline(
      *context,
      pipeline_of(R"({"op": "resample", "spacing": 1}, {"op": "normalize"}, {"op": "clip", "percentiles": [1, 99]})"),
      std::move(images));
  for (int device = 0; device < last; ++device)
    if (has_context(device)) return 1;
  return has_context(last) ? 0 : 2;
}

class DeviceGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_cuda_unusable(0); !reason.empty()) GTEST_SKIP() << reason;
    testing::GTEST_FLAG(death_test_style) = "threadsafe";
  }
};

TEST_F(DeviceGpu, ListingAndChoosingCreateNoContext) {
  EXPECT_EXIT(std::_Exit(contexts_after_listing()), testing::ExitedWithCode(0), "");
}

TEST_F(DeviceGpu, ARunTouchesItsOwnDeviceOnly) {
  EXPECT_EXIT(std::_Exit(fault_after_a_run_on_the_last_device()), testing::ExitedWithCode(0), "");
  if (device_count() < 2) GTEST_SKIP() << "the part about other devices needs two";
}

}  // namespace
}  // namespace volpipe
