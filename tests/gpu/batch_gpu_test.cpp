// Runs over many items on a GPU: streams beside each other, short memory, what comes out.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "pipeline/runner.h"
#include "support/pipeline_runs.h"

namespace volpipe {
namespace {

class BatchGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_cuda_unusable(0); !reason.empty()) GTEST_SKIP() << reason;
    std::string name = (std::filesystem::temp_directory_path() / "volpipe-batch-XXXXXX").string();
    ASSERT_TRUE(mkdtemp(name.data()));
    root_ = name;
    const auto context = make_context(Device::cpu());
    for (unsigned i = 0; i < kItems; ++i) {
      VolumeInfo info;
      info.geometry = testing_support::oblique_grid({63 + i % 7, 47 + i, 69});
      info.dtype = i % 2 ? DataType::int16 : DataType::float32;
      io::write(testing_support::random_volume(*context, info, i), root_ + "/in/v" + std::to_string(i) + ".nii.gz");
    }
  }
  void TearDown() override {
    if (!root_.empty()) std::filesystem::remove_all(root_);
  }

  RunRecord run(const std::string& output, std::size_t device_memory = 0, int threads = 0,
                const std::string& device = "cuda:0") const {
    RunOptions options;
    options.output_directory = root_ + "/" + output;
    options.device = choose_device(device, false);
    options.device_memory = device_memory;
    options.threads = threads;
    options.allow_fallback = true;
    options.seed = 7;
    RunObserver nobody;
    return run_items(pipeline_, collect_items(pipeline_, {root_ + "/in"}, ""), options, std::atomic<int>{0}, nobody);
  }

  static std::string bytes_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void expect_same_files(const std::string& a, const std::string& b) const {
    for (unsigned i = 0; i < kItems; ++i) {
      const std::string name = "/v" + std::to_string(i) + ".nii.gz", expected = bytes_of(root_ + "/" + a + name);
      EXPECT_FALSE(expected.empty());
      EXPECT_EQ(expected, bytes_of(root_ + "/" + b + name)) << name;
    }
  }
  static std::size_t items_with(const RunRecord& run, const std::string& code) {
    std::size_t count = 0;
    for (const ItemRecord& item : run.items)
      for (const Notice& notice : item.warnings) count += notice.code == code;
    return count;
  }

  static constexpr unsigned kItems = 24;
  std::string root_;
  Pipeline pipeline_ = testing_support::pipeline_of(
      R"({"op": "reorient", "axes": "LPI"}, {"op": "resample", "spacing": [1.5, 1.5, 1.5], "interpolation": "bspline3"},
         {"op": "noise", "kind": "gaussian", "std": 3}, {"op": "gaussian", "sigma": 1}, {"op": "normalize"})");
};

TEST_F(BatchGpu, ResultsAreTheSameWhateverRunsBesideThem) {
  const RunRecord first = run("first");
  ASSERT_EQ(first.count(ItemStatus::ok), kItems);
  for (const ItemRecord& item : first.items) {
    ASSERT_EQ(item.device, "cuda:0") << item.fallback_reason;
    EXPECT_EQ(item.transfers.h2d_count, 1);
    EXPECT_EQ(item.transfers.d2h_count, 1);
  }
  run("again");
  run("one", 0, 1);
  run("sixteen", 0, 16);
  for (const char* other : {"again", "one", "sixteen"}) expect_same_files("first", other);
}

TEST_F(BatchGpu, OtherDevicesAndSeveralGiveTheSameFiles) {
  if (!why_cuda_unusable(1).empty()) GTEST_SKIP() << "needs two GPUs";
  run("first");
  for (const char* device : {"cuda:1", "cuda:0,1", "cuda:1,0", "cuda:all"}) {
    // Again and again, so that host memory goes back and is pinned anew.
    for (int repeat = 0; repeat < 3; ++repeat) {
      const std::string output = std::string("on ") + device + std::to_string(repeat);
      const RunRecord record = run(output, 0, 0, device);
      for (const ItemRecord& item : record.items) ASSERT_TRUE(item.device.starts_with("cuda:")) << item.fallback_reason;
      expect_same_files("first", output);
    }
  }
}

TEST_F(BatchGpu, WhatDoesNotFitRunsInSlabs) {
  run("whole");
  std::size_t most = 0;
  const Items items = collect_items(pipeline_, {root_ + "/in"}, "");
  for (const Item& item : items.items) {
    Notices notices;
    const ImageInfos infos{{"image", io::read_info(item.images.at("image"), notices)}};
    most = std::max(most, make_plan(pipeline_, infos, {7, item.id, 0}).peak_device_bytes);
  }
  const RunRecord small = run("slabs", most * 3 / 4);
  ASSERT_EQ(small.count(ItemStatus::ok), kItems);
  EXPECT_GE(items_with(small, "slabs"), 1u);
  for (const ItemRecord& item : small.items) EXPECT_EQ(item.device, "cuda:0") << item.fallback_reason;
  const auto context = make_context(Device::cpu());
  for (unsigned i = 0; i < kItems; ++i) {
    Notices notices;
    const std::string name = "/v" + std::to_string(i) + ".nii.gz";
    const Volume a = io::read({root_ + "/whole" + name, {}, {}, {}, {}}, Buffer::host, notices);
    const Volume b = io::read({root_ + "/slabs" + name, {}, {}, {}, {}}, Buffer::host, notices);
    const auto x = testing_support::values_of(a), y = testing_support::values_of(b);
    ASSERT_EQ(x.size(), y.size());
    // Means over slabs may round another way: 4 ulp of mean / std, which is subtracted and below 64.
    for (std::size_t v = 0; v < x.size(); ++v) ASSERT_NEAR(x[v], y[v], 64 * 4 * 0x1p-24) << name << " " << v;
  }
}

TEST_F(BatchGpu, WhatFitsInNoSlabRunsOnTheCpu) {
  const RunRecord tiny = run("tiny", 2000);
  ASSERT_EQ(tiny.count(ItemStatus::ok), kItems);
  EXPECT_EQ(items_with(tiny, "fallback"), kItems);
  for (const ItemRecord& item : tiny.items) EXPECT_EQ(item.device, "cpu");
}

TEST_F(BatchGpu, MemoryOfTheDeviceIsFlatOverManyItems) {
  const RunRecord once = run("once");
  Items many = collect_items(pipeline_, {root_ + "/in"}, "");
  const std::vector<Item> few = many.items;
  for (int round = 1; round < 42; ++round)
    for (Item item : few) {
      item.stem += "_" + std::to_string(round);
      item.id = item.stem;
      many.items.push_back(item);
    }
  ASSERT_GE(many.items.size(), 1000u);
  RunOptions options;
  options.output_directory = root_ + "/many";
  options.device = choose_device("cuda:0", false);
  RunObserver nobody;
  const RunRecord record = run_items(pipeline_, many, options, std::atomic<int>{0}, nobody);
  EXPECT_EQ(record.count(ItemStatus::ok), many.items.size());
  // At most three items are on the device at a time, the largest three or the same ones as before.
  std::size_t largest = 0;
  for (const ItemRecord& item : once.items)
    for (const ImageRecord& image : item.inputs) largest = std::max(largest, image.info.bytes());
  EXPECT_LE(record.peak_device_bytes, once.peak_device_bytes + 3 * 4 * largest);
}

}  // namespace
}  // namespace volpipe
