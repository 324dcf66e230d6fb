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

void check_ascending(double low, double high, const std::string& pointer, Faults& faults) {
  if (low >= high) faults.add(pointer, "the first value must be below the second");
}

}  // namespace volpipe
