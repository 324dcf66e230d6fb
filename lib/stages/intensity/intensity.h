// What the intensity stages share: linear maps and curves whose constants are made in double, pixel types kept where
// that is exact, and what happens to images without contrast.
#pragma once

#include <string>

#include "stages/pointwise/pointwise_stage.h"

namespace volpipe {

template <>
struct EnumNames<StatisticsRequest::Over> {
  static constexpr std::array names{"volume", "component", "item"};
};

/// Help of the parameters `per` and `mask` of stages that take statistics.
inline constexpr const char* kPerHelp =
    "statistics of all components together, of each by itself, or of all images that the stage acts on together";
inline constexpr const char* kMaskHelp =
    "where the statistics are taken; they apply to every voxel, except that under \"nonzero\" a 0 means no data and "
    "stays "
    "0";

/// True when `value` is a whole number of an integer type.
bool holds(DataType type, double value);

/// Appends acc = (acc - from) * scale + to. What rounding `from` to float32 loses is put back, so that images far from
/// 0 keep their digits; near the ends of float32's range the difference does not overflow.
void append_linear(Program& program, double from, double scale, double to);

/// Appends acc = (acc - from) / (to - from), limited to [0, 1]; `from` may be above `to`.
void append_to_unit(Program& program, double from, double to);
/// Appends acc = acc * (to - from) + from, for acc in [0, 1]; the difference may overflow float32.
void append_from_unit(Program& program, double from, double to);

/// Appends what `change` appends, but that 0 stays where the mask says that it means no data. `change` leaves r1 alone.
template <class Change>
void append_for_data(Program& program, const Mask& mask, Change&& change) {
  const bool keeps_zeros = mask.kind == Mask::Kind::nonzero;
  if (keeps_zeros) program.store(Operand::r1);
  change();
  if (keeps_zeros) program.add(Op::select, Operand::r1, 0.0);
}

/// Appends acc = 1 where above <= acc <= below, else, and for NaN, 0; a bound that is not there bounds nothing. r0
/// keeps acc, r1 is used.
void append_within(Program& program, std::optional<double> above, std::optional<double> below);

/// A curve through points whose x ascend; those with one x become one with their mean y, so it may have a single point.
Curve curve_through(std::span<const double> x, std::span<const double> y, bool extrapolate);

/// Appends acc = value, except that NaN and infinity stay.
void append_constant(Program& program, double value);

/// Adds the notice for an image (or mask) without a finite voxel, which a stage leaves as it is.
void notice_no_voxels(Notices& notices, const std::string& op);
/// Adds the notice for an image without contrast: `measure` is 0, every voxel became `value`.
void notice_constant(Notices& notices, const std::string& op, const std::string& measure, double value);

/// Adds the notice for an image without contrast that stays as it is.
void notice_unchanged(Notices& notices, const std::string& op, const std::string& measure);

/// Faults of a list [low, high] that must ascend.
void check_ascending(double low, double high, const std::string& pointer, Faults& faults);

}  // namespace volpipe
