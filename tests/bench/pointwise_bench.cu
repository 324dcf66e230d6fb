// Times the pointwise executor and the statistics on a CUDA device against a copy: one table, medians of 20.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "device/cuda_context.h"
#include "stages/pointwise/otsu.h"
#include "volume/error.h"

using namespace volpipe;

namespace {

constexpr std::int64_t kSize = 512, kCount = kSize * kSize * kSize;
constexpr ProgramGrid kGrid{{kSize, kSize, kSize}};
constexpr int kRuns = 20;

/// Standard normal by Box and Muller from a hash of the index.
struct FillNormal {
  float* data;
  __device__ void operator()(std::int64_t i) const {
    const auto uniform = [](std::uint64_t x) {
      x += 0x9e3779b97f4a7c15;
      x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
      x = (x ^ x >> 27) * 0x94d049bb133111eb;
      return ((x ^ x >> 31) >> 11) * 0x1p-53;
    };
    const double radius = sqrt(-2 * log(uniform(2 * i) + 0x1p-54));
    data[i] = float(radius * cospi(2 * uniform(2 * i + 1)));
  }
};

/// A head in air: 60 % zeros, the rest whole numbers about 400.
struct FillHead {
  const float* normal;
  float* data;
  __device__ void operator()(std::int64_t i) const {
    const float v = normal[i];
    data[i] = v < 0.2533f ? 0.0f : rintf(400 + 100 * normal[(i * 7919) % kCount]);
  }
};

struct FillInt16 {
  const float* normal;
  std::int16_t* data;
  __device__ void operator()(std::int64_t i) const { data[i] = std::int16_t(rintf(200 * normal[i])); }
};

double median(std::vector<double> times) {
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

class Bench {
 public:
  explicit Bench(DeviceContext& context) : context_(context) {
    std::printf("%-46s %9s %9s %7s %10s\n", "512^3", "ms", "goal", "ratio", "GB/s");
  }

  /// Device time of work that only queues.
  void queued(const std::string& name, double goal_ms, double bytes, const std::function<void()>& work) {
    report(name, goal_ms, bytes, measure(work, [&] {
             const auto from = context_.record_time();
             work();
             const auto to = context_.record_time();
             return context_.elapsed_ms(*from, *to);
           }));
  }

  /// Host time of work that waits for its result.
  void waited(const std::string& name, double goal_ms, double bytes, const std::function<void()>& work) {
    report(name, goal_ms, bytes, measure(work, [&] {
             const auto from = std::chrono::steady_clock::now();
             work();
             context_.synchronize();
             return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - from).count();
           }));
  }

 private:
  double measure(const std::function<void()>& work, const std::function<double()>& timed) {
    for (int i = 0; i < 3; ++i) work();
    context_.synchronize();
    std::vector<double> times;
    for (int i = 0; i < kRuns; ++i) times.push_back(timed());
    return median(times);
  }
  void report(const std::string& name, double goal_ms, double bytes, double ms) {
    if (goal_ms > 0)
      std::printf("%-46s %9.4f %9.3f %7.2f %10.0f\n", name.c_str(), ms, goal_ms, ms / goal_ms, bytes / ms * 1e-6);
    else std::printf("%-46s %9.4f %9s %7s %10.0f\n", name.c_str(), ms, "", "", bytes / ms * 1e-6);
    std::fflush(stdout);
  }

  DeviceContext& context_;
};

Program sixteen_instructions() {
  Program program;
  for (int i = 0; i < 4; ++i)
    program.add(Op::add, 0.5)
        .add(Op::multiply, 1.0009765625)
        .add(Op::clamp, -100 + i, 100 - i)
        .add(Op::fma, 0.9990234375, -0.25);
  return program;
}

constexpr Instruction kThreshold{Op::keep_at_least, Operand::immediate, 0, 0.05, 0.05};

Program four_instructions(Op op, double a) {
  Program program;
  for (int i = 0; i < 4; ++i) program.add(op, a).add(Op::abs);
  return program;
}

Program standardised(const Moments& moments) {
  Program program;
  program.add(Op::subtract, moments.mean).add(Op::multiply, 1 / moments.std());
  return program;
}

Program with_registers() {
  Program program;
  program.store(Operand::r0).add(Op::greater_equal, -1).store(Operand::r1).add(Op::set, Operand::r0);
  program.add(Op::less_equal, 1).add(Op::logical_and, Operand::r1).store(Operand::r1);
  program.add(Op::set, Operand::r0).add(Op::select, Operand::r1, 0.0);
  return program;
}

/// A chain of stages as programs had it without keep_at_least: 16 instructions, a threshold among them in registers.
Program sixteen_with_a_threshold() {
  Program program;
  program.add(Op::clamp, -3, 3).add(Op::subtract, -3).add(Op::fma, 1.0 / 6, 0).add(Op::clamp, 0, 1);
  program.add(Op::subtract, 0.1).add(Op::fma, 1.25, 0).add(Op::clamp, 0, 1);
  program.store(Operand::r0).add(Op::greater_equal, 0.05).store(Operand::r1).add(Op::set, Operand::r0);
  program.add(Op::select, Operand::r1, 0.05).add(Op::subtract, 0.25).add(Op::fma, 4, -1);
  return program.add(Op::clamp, -0.75, 0.75).add(Op::fma, 0.5, 0);
}

/// where(v > 0, v, 0.25 v), the operands in registers from `first` on.
Program where_positive(int first) {
  const Operand image = register_number(first), condition = register_number(first + 1),
                otherwise = register_number(first + 2);
  Program program;
  program.store(image).add(Op::greater, 0).store(condition).add(Op::set, image).add(Op::multiply, 0.25);
  return program.store(otherwise).add(Op::set, image).choose(condition, otherwise);
}

Program noise(Op op, double scale) {
  return Program().random(op, 42).add(Op::multiply, scale).store(Operand::r0).load(0).add(Op::add, Operand::r0);
}

Program laplacian() {
  Program program;
  program.add(Op::multiply, -6).store(Operand::r0);
  for (int axis = 0; axis < 3; ++axis)
    for (const std::int16_t step : {-1, 1}) {
      Neighbour neighbour;
      neighbour.offset[std::size_t(axis)] = step;
      program.neighbour(neighbour).add(Op::add, Operand::r0).store(Operand::r0);
    }
  return program;
}

Curve curve_of(int points) {
  Curve curve;
  for (int i = 0; i < points; ++i) {
    curve.x.push_back(8.0 * i / (points - 1) - 4);
    curve.y.push_back(std::tanh(curve.x.back()));
  }
  return curve;
}

/// A cubic B-spline with control points 32 voxels apart.
std::shared_ptr<const Field> smooth_field() {
  constexpr int kSpacing = 32, kCoefficients = int(kSize) / kSpacing + 3;
  auto field = std::make_shared<Field>();
  for (Field::Axis& axis : field->axes) {
    axis.count = kCoefficients;
    axis.taps = 4;
    for (std::int64_t i = 0; i < kSize; ++i) {
      const double t = double(i % kSpacing) / kSpacing, u = 1 - t;
      axis.first.push_back(std::int32_t(i / kSpacing));
      for (const double weight :
           {u * u * u / 6, (4 - 6 * t * t + 3 * t * t * t) / 6, (4 - 6 * u * u + 3 * u * u * u) / 6, t * t * t / 6})
        axis.weights.push_back(weight);
    }
  }
  for (int i = 0; i < kCoefficients * kCoefficients * kCoefficients; ++i)
    field->coefficients.push_back(std::sin(double(i)));
  return field;
}

/// The general machine; `apply` runs a program over 512^3 float32.
void run_general_cases(Bench& bench, DeviceContext& context, std::span<const ProgramInput> floats,
                       const std::function<void(const Program&)>& apply) {
  constexpr double kBytes = 8.0 * kCount;
  const std::pair<std::string, Program> cases[] = {
      {"where, 3 registers", where_positive(0)},
      {"where, registers of the general machine", where_positive(4)},
      {"16 instructions, general", sixteen_instructions().store(Operand::r4)},
      {"noise, uniform", noise(Op::random_uniform, 0.1)},
      {"noise, normal", noise(Op::random_normal, 0.1)},
      {"noise, Poisson of mean 5", Program().add(Op::set, 5).random(Op::random_poisson, 42)},
      {"noise, Poisson of mean 30", Program().add(Op::set, 30).random(Op::random_poisson, 42)},
      {"coordinates", Program().coordinate(0).store(Operand::r0).coordinate(2).add(Op::add, Operand::r0)},
      {"7-point Laplacian by neighbours", laplacian()},
      {"neighbour at (3, 2, 1)", Program().neighbour({{3, 2, 1}})},
      {"curve of 256 points", Program().curve(curve_of(256))},
      {"field, control points 32 apart", Program().field(smooth_field())},
      {"sin", Program().add(Op::sin)},
      {"modulo", Program().add(Op::modulo, 0.7)},
  };
  for (const auto& [name, program] : cases) bench.queued(name, 0, kBytes, [&, &program = program] { apply(program); });
  const Program noisy = noise(Op::random_normal, 0.1);
  bench.waited("moments of noise, normal", 0, kBytes / 2, [&] {
    compute_moments(context, {floats, &noisy, kCount, {}, Precision::single, kGrid});
  });
}

void run_all(DeviceContext& context) {
  constexpr double kBytes = 4.0 * kCount;
  Buffer input = context.allocate(4 * kCount), output = context.allocate(4 * kCount),
         head = context.allocate(4 * kCount), shorts = context.allocate(2 * kCount);
  auto* normal = static_cast<float*>(input.data());
  cuda::for_each(context, kCount, FillNormal{normal});
  cuda::for_each(context, kCount, FillHead{normal, static_cast<float*>(head.data())});
  cuda::for_each(context, kCount, FillInt16{normal, static_cast<std::int16_t*>(shorts.data())});
  context.synchronize();

  const ProgramInput floats[] = {{input.data(), DataType::float32}};
  const ProgramInput heads[] = {{head.data(), DataType::float32}};
  const ProgramInput integers[] = {{shorts.data(), DataType::int16}};
  const Program identity;
  const SampledValues values{floats, &identity, kCount};
  const auto apply = [&](const Program& program, std::span<const ProgramInput> in, DataType type) {
    run_program(context, program, in, output.data(), type, kCount, Precision::single, kGrid);
  };

  Bench bench(context);
  bench.queued("device copy", 0.262, 2 * kBytes, [&] {
    VOLPIPE_CHECK_CUDA(
        cudaMemcpyAsync(output.data(), input.data(), 4 * kCount, cudaMemcpyDeviceToDevice, cuda::stream_of(context)));
  });
  const Program sixteen = sixteen_instructions(), registers = with_registers();
  Program thresholded;
  for (const Instruction& i : sixteen.instructions()) thresholded.add(thresholded.size() == 8 ? kThreshold : i);
  Program clip_scale;
  clip_scale.add(Op::clamp, -1, 1).add(Op::fma, 0.5, 0.5);
  bench.queued("identity", 0.28, 2 * kBytes, [&] { apply(identity, floats, DataType::float32); });
  bench.queued("clip and scale", 0.28, 2 * kBytes, [&] { apply(clip_scale, floats, DataType::float32); });
  bench.queued("16 instructions", 0.28, 2 * kBytes, [&] { apply(sixteen, floats, DataType::float32); });
  bench.queued("16 instructions, int16 in", 0, 1.5 * kBytes, [&] { apply(sixteen, integers, DataType::float32); });
  bench.queued("16 instructions, one a threshold", 0.28, 2 * kBytes,
               [&] { apply(thresholded, floats, DataType::float32); });
  bench.queued("16 instructions, a threshold in registers", 0, 2 * kBytes,
               [&] { apply(sixteen_with_a_threshold(), floats, DataType::float32); });
  bench.queued("threshold with registers", 0.28, 2 * kBytes, [&] { apply(registers, floats, DataType::float32); });
  bench.queued("4 exp", 0, 2 * kBytes, [&] { apply(four_instructions(Op::exp, 0), floats, DataType::float32); });
  bench.queued("4 power", 0, 2 * kBytes, [&] { apply(four_instructions(Op::power, 0.7), floats, DataType::float32); });
  bench.queued("4 divide", 0, 2 * kBytes,
               [&] { apply(four_instructions(Op::divide, 1.1), floats, DataType::float32); });
  bench.waited("float32 to int16, counted", 0, 1.5 * kBytes, [&] { apply(clip_scale, floats, DataType::int16); });
  bench.waited("float32 to uint8, counted", 0, 1.25 * kBytes, [&] { apply(clip_scale, floats, DataType::uint8); });

  run_general_cases(bench, context, floats, [&](const Program& program) { apply(program, floats, DataType::float32); });

  bench.waited("range", 0.14, kBytes, [&] { compute_range(context, values); });
  bench.waited("range, int16", 0, kBytes / 2, [&] { compute_range(context, {integers, &identity, kCount}); });
  bench.waited("moments", 0.17, kBytes, [&] { compute_moments(context, values); });
  bench.waited("moments of 16 instructions", 0, kBytes, [&] { compute_moments(context, {floats, &sixteen, kCount}); });
  bench.waited("moments, nonzero of a head", 0, kBytes, [&] {
    compute_moments(context, {heads, &identity, kCount, {Selection::Kind::nonzero}});
  });
  bench.waited("moments, int16", 0, kBytes / 2, [&] { compute_moments(context, {integers, &identity, kCount}); });
  bench.waited("z-score (moments, apply)", 0.45, 3 * kBytes,
               [&] { apply(standardised(compute_moments(context, values)), floats, DataType::float32); });

  const std::vector<double> two{1, 99}, eleven{0, 1, 10, 20, 30, 40, 50, 60, 70, 99, 100};
  bench.waited("percentiles 1 and 99, normal", 0.45, kBytes, [&] { compute_percentiles(context, values, two); });
  bench.waited("percentiles 1 and 99, head", 0.45, kBytes, [&] {
    compute_percentiles(context, {heads, &identity, kCount}, two);
  });
  bench.waited("percentiles 1 and 99, nonzero of a head", 0, kBytes, [&] {
    compute_percentiles(context, {heads, &identity, kCount, {Selection::Kind::nonzero}}, two);
  });
  bench.waited("percentiles 1 and 99, int16", 0.45, kBytes / 2, [&] {
    compute_percentiles(context, {integers, &identity, kCount}, two);
  });
  bench.waited("percentiles 1 and 99 of 16 instructions", 0, kBytes, [&] {
    compute_percentiles(context, {floats, &sixteen, kCount}, two);
  });
  bench.waited("11 percentiles, normal", 0, kBytes, [&] { compute_percentiles(context, values, eleven); });

  const SampledValues small{floats, &identity, 128 * 128 * 128};
  bench.waited("moments, 128^3", 0, kBytes / 64, [&] { compute_moments(context, small); });
  bench.waited("percentiles 1 and 99, 128^3", 0, kBytes / 64, [&] { compute_percentiles(context, small, two); });
  bench.waited("histogram 256, normal", 0.2, kBytes, [&] { compute_histogram(context, values, -5, 5, 256); });
  bench.waited("histogram 256, head", 0.2, kBytes, [&] {
    compute_histogram(context, {heads, &identity, kCount}, 0, 1000, 256);
  });
  bench.waited("histogram 4096, normal", 0, kBytes, [&] { compute_histogram(context, values, -5, 5, 4096); });
  bench.waited("otsu, head", 0, 2 * kBytes, [&] { otsu_threshold(context, {heads, &identity, kCount}); });
}

}  // namespace

int main() {
  if (const std::string reason = why_cuda_unusable(0); !reason.empty()) {
    std::printf("skipped: %s\n", reason.c_str());
    return 0;
  }
  try {
    run_all(*make_context(Device::cuda(0)));
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
