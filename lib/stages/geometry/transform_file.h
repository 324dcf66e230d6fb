// Transforms as other tools store them.
#pragma once

#include <string>

#include "stages/gather/point_map.h"
#include "volume/geometry.h"

namespace volpipe {

/// FSL's millimetres of a grid (FLIRT, FNIRT) -> world RAS mm: index * spacing, the first index counted from the far
/// end (size - 1 - i) where the determinant of the grid's index-to-world map is positive.
Affine fsl_to_world(const Geometry& grid);

/// What a file of FSL's FLIRT needs to be understood: its matrix maps between the scaled voxels of two grids. Both are
/// to be those that FLIRT was given.
struct TransformGrids {
  const Geometry* input = nullptr;      ///< the image that is moved
  const Geometry* reference = nullptr;  ///< the grid it is moved to; null: none was given
};

/// Reads a transform and gives the map that resampling uses: world point of the output -> world point of the input, RAS
/// mm. Formats, told by their content:
///   ITK text (.tfm, .txt) and Matlab level 4 (.mat, as ANTs' 0GenericAffine.mat, of either byte order): the affine and
///     rigid transforms of 3-D, BSplineTransform of order 3, DisplacementFieldTransform and CompositeTransform. They
///     are resampling maps already, in LPS. Of a composite the last member acts first, as in ITK. Several transforms
///     without a CompositeTransform before them are refused: ITK says nothing of how they go together, and SimpleITK
///     drops all but the first.
///   FSL FLIRT (4x4 text in a file called *.mat): point of the input -> point of the reference, in FSL's mm of either.
///     Both grids are needed.
///   plain text (4x4, or its upper 3 rows, in a file of any other name; # starts a comment): RAS world, input point ->
///     output point, as the stage's own `matrix`.
/// `bytes` are the file's, `name` its name. Throws Error(input) for what cannot be understood, is singular or not
/// finite, Error(usage) when a grid that FLIRT needs is missing; both with the path `name`.
PointMap read_transform(const std::string& bytes, const std::string& name, const TransformGrids& grids);

/// The bytes of a transform file for the resampling map `pull`: .tfm (ITK text, LPS), .mat (ITK Matlab, LPS), .txt
/// (4x4, RAS, input point -> output point: the inverse of `pull`). Numbers read back as the same doubles. Throws
/// Error(unsupported) when `pull` is not affine or `name` ends otherwise.
std::string write_transform(const PointMap& pull, const std::string& name);

}  // namespace volpipe
