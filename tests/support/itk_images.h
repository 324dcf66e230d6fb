// Volumes and affine maps as ITK's: the same place in its world, whose x and y point the other way.
#pragma once

#include <itkAffineTransform.h>
#include <itkImage.h>

#include <algorithm>

#include "stages/geometry/itk_transforms.h"
#include "volume/volume.h"

namespace volpipe::testing_support {

/// Without voxels.
template <class Image>
typename Image::Pointer itk_grid(const Geometry& geometry) {
  const Affine lps = between_lps_and_ras(geometry.index_to_world());
  const Matrix3 direction = geometry.direction();
  const auto image = Image::New();
  typename Image::SizeType size;
  typename Image::SpacingType spacing;
  typename Image::PointType origin;
  typename Image::DirectionType cosines;
  for (unsigned axis = 0; axis < 3; ++axis) {
    size[axis] = itk::SizeValueType(geometry.size()[axis]);
    spacing[axis] = geometry.spacing()[axis];
    origin[axis] = lps.offset[axis];
    for (int row = 0; row < 3; ++row) cosines[unsigned(row)][axis] = (row < 2 ? -1 : 1) * direction[row][axis];
  }
  image->SetRegions(size);
  image->SetSpacing(spacing);
  image->SetOrigin(origin);
  image->SetDirection(cosines);
  return image;
}

/// A copy of the first component.
template <class Image>
typename Image::Pointer itk_image(const Volume& volume) {
  const auto image = itk_grid<Image>(volume.geometry());
  image->Allocate();
  std::copy_n(volume.data_as<typename Image::PixelType>(), volume.geometry().voxel_count(), image->GetBufferPointer());
  return image;
}

/// The transform that a resample filter takes, for a map of world points of the output to those of the input.
inline itk::AffineTransform<double, 3>::Pointer itk_transform(const Affine& pull) {
  const Affine lps = between_lps_and_ras(pull);
  const auto transform = itk::AffineTransform<double, 3>::New();
  itk::AffineTransform<double, 3>::ParametersType parameters(12);
  for (unsigned row = 0; row < 3; ++row) {
    for (unsigned column = 0; column < 3; ++column) parameters[3 * row + column] = lps.linear[int(row)][column];
    parameters[9 + row] = lps.offset[row];
  }
  transform->SetParameters(parameters);
  return transform;
}

}  // namespace volpipe::testing_support
