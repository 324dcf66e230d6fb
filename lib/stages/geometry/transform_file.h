// Transforms as other tools store them.
#pragma once

#include <optional>
#include <string>

#include "stages/gather/point_map.h"
#include "volume/geometry.h"

namespace volpipe {

/// World RAS mm -> FSL's scaled voxels of a grid: index times spacing, x from the other end where the grid's axes are
/// right-handed in RAS.
Affine world_to_fsl(const Geometry& grid);

/// What a file of FSL's FLIRT needs to be understood: its matrix maps between the scaled voxels of two grids.
struct TransformGrids {
  const Geometry* input = nullptr;      ///< the image that is moved
  const Geometry* reference = nullptr;  ///< the grid it is moved to; null: none was given
};

/// Reads a transform and gives the map that resampling uses: world point of the output -> world point of the input, RAS
/// mm. Formats, told by their content:
///   ITK text (.tfm, .txt) and Matlab (.mat): affine and rigid transforms of 3-D, B-spline, composites. They are
///   resampling
///     maps already, in LPS.
///   FSL FLIRT .mat (4x4 text): input to reference, in scaled voxels (x reversed where the grid is right-handed... see
///     tests); both grids are needed.
///   plain 4x4 text: RAS world, input point -> output point, as the stage's own `matrix`.
/// `bytes` are the file's, `name` its name. Throws Error(input) for what cannot be understood, is singular or not
/// finite.
PointMap read_transform(const std::string& bytes, const std::string& name, const TransformGrids& grids);

/// The bytes of a transform file for the resampling map `pull`: .tfm (ITK text, LPS), .mat (ITK Matlab, LPS), .txt
/// (4x4, RAS, input point -> output point: the inverse of `pull`). Throws Error(unsupported) when it is not affine.
std::string write_transform(const PointMap& pull, const std::string& name);

}  // namespace volpipe
