// Times the separable maps on one CUDA device against their goals: median of 20 runs, 512^3 float32, events around each
// run with work queued ahead, so that the host's share is not in it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "stages/gather/compose.h"
#include "stages/separable/executors.h"
#include "../support/separable_reference.h"

using namespace volpipe;

namespace {

constexpr int kRuns = 20;

struct Timing {
  double median, best;
};

class Bench {
 public:
  Bench(DeviceContext& context, std::int64_t n)
      : context_(context), input_(context.to_device(random_volume(testing::info_of({n, n, n})))), n_(n) {}

  template <class Work>
  Timing time(const Work& work) {
    for (int i = 0; i < 3; ++i) work();
    context_.synchronize();
    std::vector<double> times;
    for (int run = 0; run < kRuns; ++run) {
      for (int i = 0; i < 6; ++i) copy();
      const auto begin = context_.record_time();
      work();
      const auto end = context_.record_time();
      times.push_back(context_.elapsed_ms(*begin, *end));
    }
    std::sort(times.begin(), times.end());
    return {times[times.size() / 2], times.front()};
  }

  void copy() { apply("{\"op\":\"pad\"}"); }

  void apply(const std::string& entry) {
    const GridMap map = testing::map_of(entry.c_str(), input_.info());
    apply_map(context_, input_, map, 0);
  }

  /// B-spline coefficients of a mirrored image.
  void prefilter(const char* name, Interpolation spline, double goal) {
    GridMap map = identity_map(input_.info());
    for (AxisMatrix& matrix : map.matrices) matrix = prefilter_axis(n_, spline, Boundary::mirror, 0);
    map.computes = true;
    run(name, map, goal);
  }

  void stage(const char* name, const std::string& entry, double goal) {
    run(name, testing::map_of(entry.c_str(), input_.info()), goal);
  }

  void run(const char* name, const GridMap& map, double goal) {
    const Timing t = time([&] { apply_map(context_, input_, map, 0); });
    report(name, t, double(input_.info().bytes() + map.output.bytes()), goal);
  }

  void slices(const char* name, const std::string& entry, bool planes) {
    const GridMap map = testing::map_of(entry.c_str(), input_.info());
    SliceWork work;
    if (planes) work = {.columns = n_, .rows = n_, .slices = n_, .x = &map.matrices[0], .y = &map.matrices[1]};
    else work = {.columns = n_ * n_, .rows = n_, .slices = 1, .y = &map.matrices[2]};
    Buffer output =
        context_.allocate(std::size_t(work.output_columns() * work.output_rows() * work.slices) * sizeof(float));
    const Timing t = time([&] { cuda::filter_slices(context_, work, input_.data(), output.data()); });
    report(name, t, double(input_.info().bytes() + output.bytes()), 0);
  }

  static void report(const char* name, const Timing& t, double bytes, double goal) {
    std::printf("%-34s %8.3f ms  (best %7.3f) %7.0f GB/s", name, t.median, t.best, bytes / t.median / 1e6);
    if (goal > 0) std::printf("   goal %5.2f ms   x%.2f", goal, t.median / goal);
    std::printf("\n");
    std::fflush(stdout);
  }

 private:
  static Volume random_volume(const VolumeInfo& info) {
    std::uint32_t state = 1;
    return testing::volume_from(info, [&](std::int64_t) {
      state = state * 1664525u + 1013904223u;
      return float(state >> 8) / 16777216.f;
    });
  }

  DeviceContext& context_;
  Volume input_;
  std::int64_t n_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t n = argc > 1 ? std::atoll(argv[1]) : 512;
  if (const std::string reason = why_cuda_unusable(0); !reason.empty()) {
    std::printf("skipped: %s\n", reason.c_str());
    return 0;
  }
  const auto context = make_context(Device::cuda(0));
  Bench bench(*context, n);
  const std::string size = std::to_string(n * 3 / 4);
  const std::string linear = R"({"op":"resize","antialias":false,"size":)" + size + "}";
  const std::string spline = R"({"op":"resize","antialias":false,"interpolation":"bspline3","size":)" + size + "}";
  bench.stage("copy (pad by 0)", R"({"op":"pad"})", 0.26);
  bench.stage("flip x", R"({"op":"flip","axes":"x"})", 0.28);
  bench.stage("flip xyz", R"({"op":"flip","axes":"xyz"})", 0.28);
  bench.stage("permute zyx", R"({"op":"permute","order":"zyx"})", 0.34);
  bench.stage("permute yxz", R"({"op":"permute","order":"yxz"})", 0.34);
  bench.stage("permute zxy", R"({"op":"permute","order":"zxy"})", 0.34);
  bench.stage("pad reflect 16", R"({"op":"pad","before":16,"after":16,"boundary":"reflect"})", 0.32);
  bench.stage("pad reflect 3", R"({"op":"pad","before":3,"after":3,"boundary":"reflect"})", 0.32);
  bench.stage("crop start 3", R"({"op":"crop","start":[3,3,3],"size":)" + std::to_string(n - 8) + "}", 0.28);
  bench.stage("resize linear x0.75", linear, 0.24);
  bench.stage("resize bspline3 x0.75", spline, 1.8);
  bench.stage("gaussian 1", R"({"op":"gaussian","sigma":1})", 0.75);
  bench.stage("gaussian 2", R"({"op":"gaussian","sigma":2})", 0.9);
  bench.stage("gaussian 4", R"({"op":"gaussian","sigma":4})", 1.3);
  bench.prefilter("prefilter bspline3", Interpolation::bspline3, 1.0);
  bench.prefilter("prefilter bspline5", Interpolation::bspline5, 0);
  std::printf("parts:\n");
  bench.slices("  bspline3 x,y", spline, true);
  bench.slices("  bspline3 z (512^2 columns)", spline, false);
  for (const char* sigma : {"1", "2", "4"}) {
    const std::string entry = std::string(R"({"op":"gaussian","sigma":)") + sigma + "}";
    bench.slices((std::string("  gaussian x,y sigma ") + sigma).c_str(), entry, true);
    bench.slices((std::string("  gaussian z sigma ") + sigma).c_str(), entry, false);
  }
  return 0;
}
