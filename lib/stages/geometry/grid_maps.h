// What the stages that keep the axes apart share: maps from axis rules, windows of a grid, sampling parameters.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "stages/separable/sampling.h"
#include "stages/separable/separable.h"

namespace volpipe {

/// What happens along one target axis: its voxel j takes row j of `matrix`, and its centre lies at source coordinate
/// offset + scale * j. scale is not 0.
struct AxisRule {
  AxisMatrix matrix;
  double scale = 1, offset = 0;
};

/// All of an axis, run backwards when `reversed`.
AxisRule whole_axis(std::int64_t size, bool reversed = false);

/// Target axis i from source axis source_axis[i] by rules[i]; pixel type and everything else are the input's.
GridMap grid_map(const VolumeInfo& input, const std::array<int, 3>& source_axis, std::array<AxisRule, 3> rules,
                 Fill fill = {});

/// Makes `map`, which turns and mirrors the whole grid of `input`, do so in the world: the output has the world centre
/// and the directions of the input's voxel axes, and spacing and size of the source axes.
void move_in_world(GridMap& map, const VolumeInfo& input);

/// What voxels outside the image hold.
struct PaddingParams {
  Boundary boundary = Boundary::constant;
  Fill fill{};
};

template <class P>
void add_padding_parameters(Parameters<P>& parameters) {
  parameters.add("boundary", static_cast<Boundary P::*>(&PaddingParams::boundary), {}, "what the new voxels hold")
      .add("fill", static_cast<Fill P::*>(&PaddingParams::fill), {},
           "value of the new voxels for the constant boundaries");
}

/// Voxels [start, start + size) of the infinite extension of the grid: a crop, a pad or both. Throws Error(usage) when
/// voxels become a fill value that the pixel type cannot hold.
GridMap window_map(const VolumeInfo& input, const Index3& start, const Index3& size, const PaddingParams& padding);

/// Throws Error(usage) naming the size when an axis has no voxel or more than 2^24 (unless the input's has), or the
/// grid more than 2^40. To be asked before tables of that size are made.
void check_grid_size(const VolumeInfo& input, const Vec3& size);

/// floor(x + 1/2), where x within a thousandth below a half goes up too, so that float32-rounded affines do not decide;
/// at least 1.
double round_half_up(double voxels);

/// Which part of the axis stays put when its size changes: the middle voxel (index size / 2), the first, or the last.
enum class Alignment : std::uint8_t { center, start, end };
template <>
struct EnumNames<Alignment> {
  static constexpr std::array names{"center", "start", "end"};
};

/// How an image meets a size: by padding and, where it is larger, by cropping.
struct FitParams : PaddingParams {
  Alignment align = Alignment::center;
};

template <class P>
void add_fit_parameters(Parameters<P>& parameters) {
  add_padding_parameters(parameters);
  parameters.add("align", static_cast<Alignment P::*>(&FitParams::align), {},
                 "which part of the image stays in place: its middle voxel (number size / 2 before and after), its "
                 "start or its end");
}

/// Crops and pads each axis to `size`.
GridMap fit_map(const VolumeInfo& input, const Index3& size, const FitParams& params);

/// "size 4 x 5 x 6"
std::string size_in_words(const Index3& size);

/// How voxels between the grid points are found.
struct SamplingParams {
  std::optional<Interpolation> interpolation{};
  Boundary boundary = Boundary::nearest;
  Fill fill{};
  std::optional<bool> antialias{};
};

template <class P>
void add_interpolation_parameters(Parameters<P>& parameters) {
  parameters
      .add("interpolation", static_cast<std::optional<Interpolation> P::*>(&SamplingParams::interpolation), {},
           "how values of images between voxels are found (default linear); labels take nearest or label_linear "
           "(default nearest)")
      .add("boundary", static_cast<Boundary P::*>(&SamplingParams::boundary), {}, "what lies outside the image")
      .add("fill", static_cast<Fill P::*>(&SamplingParams::fill), {},
           "value outside the image for the constant boundaries");
}

template <class P>
void add_sampling_parameters(Parameters<P>& parameters) {
  add_interpolation_parameters(parameters);
  parameters.add("antialias", static_cast<std::optional<bool> P::*>(&SamplingParams::antialias), {},
                 "smooth before an axis is reduced; default on, off for labels and nearest");
}

/// Where the target voxels of one axis lie: source coordinates for the values, scale and offset for the geometry.
struct AxisSamples {
  std::vector<double> coordinates;
  double scale = 1, offset = 0;
};

/// Coordinates offset + scale * j for j in [0, size); those within 1e-9 of a voxel are that voxel.
AxisSamples regular_samples(std::int64_t size, double scale, double offset);

/// What `params` mean for an image: labels take nearest or label_linear, which is Error(usage) for an image that is
/// none.
Interpolation interpolation_for(const VolumeInfo& input, const SamplingParams& params);
/// Whether axes that are reduced are smoothed before.
bool antialiases(const VolumeInfo& input, const SamplingParams& params);
/// Throws Error(usage) when the boundary is constant and the output's pixel type cannot hold its fill value.
void check_fill(const VolumeInfo& output, Boundary boundary, const Fill& fill);

/// Samples every axis, target axis i from source axis source_axis[i]. Labels take nearest and keep their type. The
/// result is float32 unless the interpolation is nearest without anti-aliasing; then a fill value that the pixel type
/// cannot hold is Error(usage). `tolerance` is sample_axis's.
GridMap sampling_map(const VolumeInfo& input, const std::array<int, 3>& source_axis,
                     const std::array<AxisSamples, 3>& axes, const SamplingParams& params,
                     double tolerance = kSplineTolerance);

}  // namespace volpipe
