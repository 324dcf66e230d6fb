#include "stages/intensity/intensity.h"

#include <algorithm>
#include <cmath>

namespace volpipe {

bool holds(DataType type, double value) {
  const IntegerRange range = integer_range(type);
  return !is_floating(type) && value == std::floor(value) && value >= range.lowest && value <= range.highest;
}

void append_linear(Program& program, double from, double scale, double to) {
  const double largest = std::max(std::abs(from), scale == 0 ? 0.0 : 1 / std::abs(scale));
  if (largest > 0x1p100 && std::isfinite(largest)) {  // v - from could overflow float32, scale underflow: smaller units
    const int exponent = std::ilogb(largest) - 63;
    program.add(Op::multiply, std::ldexp(1.0, -exponent));
    from = std::ldexp(from, -exponent);
    scale = std::ldexp(scale, exponent);
  }
  const double rounded = double(float(from));
  if (rounded != 0) program.add(Op::subtract, rounded);
  program.add(Op::fma, scale, to - (from - rounded) * scale);
}

void append_to_unit(Program& program, double from, double to) {
  append_linear(program, from, 1 / (to - from), 0);
  program.add(Op::clamp, 0, 1);
}

void append_from_unit(Program& program, double from, double to) {
  const double difference = to - from;
  if (std::abs(difference) <= 0x1p100) program.add(Op::fma, difference, from);
  else
    program.add(Op::fma, difference / 4, from / 4)
        .add(Op::multiply, 4)
        .add(Op::clamp, std::min(from, to), std::max(from, to));
}

void append_within(Program& program, std::optional<double> above, std::optional<double> below) {
  program.store(Operand::r0);
  if (above) program.add(Op::greater_equal, *above);
  if (above && below) program.store(Operand::r1).add(Op::set, Operand::r0);
  if (below) program.add(Op::less_equal, *below);
  if (above && below) program.add(Op::logical_and, Operand::r1);
}

Curve curve_through(std::span<const double> x, std::span<const double> y, bool extrapolate) {
  Curve curve{{}, {}, extrapolate};
  for (std::size_t first = 0, end = 0; first < x.size(); first = end) {
    double sum = 0;
    while (end < x.size() && x[end] == x[first]) sum += y[end++];
    curve.x.push_back(x[first]);
    curve.y.push_back(sum / double(end - first));
  }
  return curve;
}

void append_constant(Program& program, double value) {
  program.store(Operand::r0).add(Op::set, value).add(Op::keep_nonfinite, Operand::r0);
}

void notice_no_voxels(Notices& notices, const std::string& op) {
  notices.add("no_voxels", op + ": no finite voxel to take statistics from; the image was left as it is");
}

void notice_constant(Notices& notices, const std::string& op, const std::string& measure, double value) {
  notices.add("constant_image",
              op + ": the " + measure + " is 0; every voxel became " + ParameterType<double>::write(value).dump());
}

void notice_unchanged(Notices& notices, const std::string& op, const std::string& measure) {
  notices.add("constant_image", op + ": the " + measure + " is 0; the image was left as it is");
}

void check_ascending(double low, double high, const std::string& pointer, Faults& faults) {
  if (low >= high) faults.add(pointer, "the first value must be below the second");
}

}  // namespace volpipe
