// Smooth random fields over the images of an item: one field in the world, tabulated for each image's own grid.
#pragma once

#include <array>
#include <memory>

#include "stages/pointwise/program.h"
#include "stages/stage_context.h"

namespace volpipe {

/// A sum of Legendre products P_a(x) P_b(y) P_c(z) of total degree 1 to `degree`, coefficients uniform in [-magnitude,
/// magnitude], x, y, z running from -1 to 1 along the frame's axes over the extent of the item; plus the constant that
/// makes its mean over the frame's voxels 0. Exact on any grid.
std::shared_ptr<const Field> random_polynomial_field(const VolumeInfo& input, const StageContext& context, int degree,
                                                     double magnitude);

/// A cubic B-spline through no prefilter, on control points `spacing` mm apart along the frame's axes, drawn uniformly
/// from [low, high], which bounds the field too. Throws Error(input) for a grid whose axes do not run along the
/// frame's.
std::shared_ptr<const Field> random_spline_field(const VolumeInfo& input, const StageContext& context,
                                                 const Vec3& spacing, const std::array<double, 2>& range);

}  // namespace volpipe
