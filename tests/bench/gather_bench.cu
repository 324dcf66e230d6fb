// Times cuda::gather on one CUDA device against its goals: median of 20 runs, 512^3, events around each run with work
// queued ahead, so that the host's share is not in it. Coefficients are taken as they are: the prefilter is not in it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "../support/separable_reference.h"
#include "stages/gather/executors.h"

using namespace volpipe;

namespace {

constexpr int kRuns = 20;

class Bench {
 public:
  Bench(DeviceContext& context, std::int64_t n)
      : context_(context),
        n_(n),
        output_(context.allocate(std::size_t(n * n * n) * sizeof(float))),
        busy_(context.allocate(std::size_t(n * n * n) * sizeof(float))) {}

  /// 20 degrees about an oblique axis through the middle.
  GatherWork rotation(Interpolation interpolation, DataType type = DataType::float32, double degrees = 20) const {
    const double angle = degrees * 3.14159265358979323846 / 180, c = std::cos(angle), s = std::sin(angle);
    const double u[3] = {1 / std::sqrt(14.0), 2 / std::sqrt(14.0), 3 / std::sqrt(14.0)};
    const double cross[3][3] = {{0, -u[2], u[1]}, {u[2], 0, -u[0]}, {-u[1], u[0], 0}};
    GatherWork work;
    work.target_size = work.window_end = {n_, n_, n_};
    const double middle = double(n_ - 1) / 2;
    std::int64_t stride = 1;
    for (int row = 0; row < 3; ++row) {
      const auto a = std::size_t(row);
      work.start.offset[a] = middle;
      for (int column = 0; column < 3; ++column) {
        const double m = (row == column ? c : 0) + s * cross[row][column] + (1 - c) * u[row] * u[column];
        work.start.linear[row][std::size_t(column)] = m;
        work.start.offset[a] -= m * middle;
      }
      work.source[a] = {.size = n_, .offset = 0, .stride = stride, .begin = 0, .end = n_};
      stride *= n_;
    }
    work.component_stride = stride;
    work.interpolation = interpolation;
    work.input_type = type;
    const bool moves = interpolation == Interpolation::nearest || interpolation == Interpolation::label_linear;
    work.output_type = moves ? type : DataType::float32;
    return work;
  }

  void time(const std::string& name, const GatherWork& work, double goal = 0) {
    const Volume& input = input_of(work.input_type);
    const auto run = [&] { cuda::gather(context_, work, input.data(), output_.data()); };
    for (int i = 0; i < 3; ++i) run();
    std::vector<double> times;
    for (int i = 0; i < kRuns; ++i) {
      const GatherWork busy = rotation(Interpolation::nearest);
      for (int ahead = 0; ahead < 3; ++ahead) cuda::gather(context_, busy, output_.data(), busy_.data());
      const auto begin = context_.record_time();
      run();
      const auto end = context_.record_time();
      times.push_back(context_.elapsed_ms(*begin, *end));
    }
    std::sort(times.begin(), times.end());
    std::printf("%-34s %8.3f ms  (best %7.3f)", name.c_str(), times[kRuns / 2], times.front());
    if (goal > 0) std::printf("   goal %5.2f ms   x%.2f", goal, times[kRuns / 2] / goal);
    std::printf("\n");
    std::fflush(stdout);
  }

  /// Random coefficients of a B-spline field, `spacing` voxels apart, on the device.
  Volume coefficients(std::int64_t spacing, double amplitude) const {
    const std::int64_t m = (n_ - 1) / spacing + 4;
    std::uint32_t state = 7;
    return context_.to_device(
        testing::volume_from(testing::info_of({m, m, m}, DataType::float32, 3), [&](std::int64_t) {
          state = state * 1664525u + 1013904223u;
          return amplitude * (double(state >> 8) / 8388608.0 - 1);
        }));
  }
  static FieldWork field_of(const Volume& coefficients, std::int64_t spacing) {
    FieldWork field;
    field.bspline = true;
    field.size = coefficients.geometry().size();
    field.vectors = coefficients.data();
    field.from_target = true;
    field.linear = Matrix3::identity();
    for (std::size_t a = 0; a < 3; ++a) {
      field.to_grid.linear[int(a)][a] = 1.0 / double(spacing);
      field.to_grid.offset[a] = 1;
    }
    return field;
  }

 private:
  const Volume& input_of(DataType type) {
    if (!input_ || input_->dtype() != type) {
      input_.reset();
      std::uint32_t state = 1;
      input_ = context_.to_device(testing::volume_from(testing::info_of({n_, n_, n_}, type), [&](std::int64_t) {
        state = state * 1664525u + 1013904223u;
        return is_floating(type) ? double(state >> 8) / 16777216.0 : double(state >> 25);
      }));
    }
    return *input_;
  }

  DeviceContext& context_;
  std::int64_t n_;
  std::optional<Volume> input_;
  Buffer output_, busy_;
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
  using I = Interpolation;
  bench.time("affine nearest", bench.rotation(I::nearest), 0.5);
  bench.time("affine linear", bench.rotation(I::linear), 0.5);
  bench.time("affine linear, 45 degrees", bench.rotation(I::linear, DataType::float32, 45));
  bench.time("identity linear", bench.rotation(I::linear, DataType::float32, 0));
  GatherWork mirrored = bench.rotation(I::linear);
  mirrored.boundary = Boundary::mirror;
  bench.time("affine linear, mirrored outside", mirrored);
  bench.time("affine bspline2", bench.rotation(I::bspline2));
  bench.time("affine bspline3", bench.rotation(I::bspline3), 1.4);
  bench.time("affine bspline5", bench.rotation(I::bspline5));
  bench.time("affine lanczos3", bench.rotation(I::lanczos3));
  bench.time("affine label_linear, random labels", bench.rotation(I::label_linear));
  const Volume field = bench.coefficients(32, 8);
  for (const auto& [name, interpolation, goal] : {std::tuple{"elastic nearest", I::nearest, 0.0},
                                                  {"elastic linear", I::linear, 1.5},
                                                  {"elastic bspline3", I::bspline3, 0.0}}) {
    GatherWork work = bench.rotation(interpolation, DataType::float32, 0);
    work.fields = {Bench::field_of(field, 32)};
    bench.time(name, work, goal);
  }
  for (const DataType type : {DataType::int16, DataType::uint8})
    for (const auto& [name, interpolation] : {std::pair{"affine nearest ", I::nearest}, {"affine linear ", I::linear}})
      bench.time(name + std::string(to_string(type)), bench.rotation(interpolation, type));
  return 0;
}
