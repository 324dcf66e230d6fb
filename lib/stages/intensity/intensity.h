// What the intensity stages share: linear maps whose constants are made in double, pixel types kept where that is
// exact, and what happens to images without contrast.
#pragma once

#include <string>

#include "stages/pointwise/pointwise_stage.h"

namespace volpipe {

/// True when `value` is a whole number of an integer type.
bool holds(DataType type, double value);

/// Appends acc = (acc - from) * scale + to. What rounding `from` to float32 loses is put back, so that images far from
/// 0 keep their digits; near the ends of float32's range the difference does not overflow.
void append_linear(Program& program, double from, double scale, double to);

/// Appends acc = value, except that NaN and infinity stay.
void append_constant(Program& program, double value);

/// Adds the notice for an image (or mask) without a finite voxel, which a stage leaves as it is.
void notice_no_voxels(Notices& notices, const std::string& op);
/// Adds the notice for an image without contrast: `measure` is 0, every voxel became `value`.
void notice_constant(Notices& notices, const std::string& op, const std::string& measure, double value);

/// Faults of a list [low, high] that must ascend.
void check_ascending(double low, double high, const std::string& pointer, Faults& faults);

}  // namespace volpipe
