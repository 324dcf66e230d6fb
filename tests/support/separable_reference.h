// What the tests of separable maps compare with: volumes of any type from a function, and maps applied voxel by voxel
// in double precision.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "device/context.h"
#include "stages/geometry/grid_maps.h"
#include "stages/gather/gather_stage.h"
#include "stages/registry.h"
#include "stages/separable/separable.h"
#include "volume/error.h"

namespace volpipe::testing {

inline VolumeInfo info_of(const Index3& size, DataType dtype = DataType::float32, std::int64_t components = 1) {
  VolumeInfo info;
  info.geometry = Geometry::from_spacing(size, {1.0, 1.0, 1.0});
  info.dtype = dtype;
  info.components = components;
  return info;
}

template <class Function>
Volume volume_from(const VolumeInfo& info, Function value) {
  Volume volume(info, Buffer::host(info.bytes()));
  visit(info.dtype, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    for (std::int64_t i = 0; i < info.value_count(); ++i) volume.data_as<T>()[i] = T(value(i));
  });
  return volume;
}

/// Random values over the whole range of an 8- or 16-bit type, [0, 1000) of the others.
inline Volume random_volume(const VolumeInfo& info, unsigned seed = 1) {
  std::mt19937 engine(seed);
  const IntegerRange range = integer_range(info.dtype);
  const bool narrow = !is_floating(info.dtype) && fits_float32(info.dtype);
  std::uniform_real_distribution<double> values(narrow ? range.lowest : 0, narrow ? range.highest : 1000);
  return volume_from(info, [&](std::int64_t) { return values(engine); });
}

inline std::vector<double> values_of(const Volume& volume) {
  std::vector<double> values;
  visit(volume.dtype(), [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    values.assign(volume.data_as<T>(), volume.data_as<T>() + volume.info().value_count());
  });
  return values;
}

/// The map as the sum over all taps of all axes, in double.
inline std::vector<double> reference(const Volume& input, const GridMap& map, double fill) {
  const std::vector<double> source = values_of(input);
  const Index3& n = input.geometry().size();
  const Index3& m = map.output.geometry.size();
  const Index3 stride{1, n[0], n[0] * n[1]};
  std::array<std::vector<AxisMatrix::Row>, 3> rows;
  for (std::size_t axis = 0; axis < 3; ++axis)
    for (std::int64_t j = 0; j < m[axis]; ++j) rows[axis].push_back(map.matrices[axis].row(j));
  const auto at = [&](std::size_t axis) { return stride[std::size_t(map.source_axis[axis])]; };
  std::vector<double> result;
  for (std::int64_t c = 0; c < input.info().components; ++c)
    for (std::int64_t k = 0; k < m[2]; ++k)
      for (std::int64_t j = 0; j < m[1]; ++j)
        for (std::int64_t i = 0; i < m[0]; ++i) {
          double sum_z = map.matrices[2].fill_weights()[std::size_t(k)] * fill;
          for (const auto& z : rows[2][std::size_t(k)]) {
            double sum_y = map.matrices[1].fill_weights()[std::size_t(j)] * fill;
            for (const auto& y : rows[1][std::size_t(j)]) {
              double sum_x = map.matrices[0].fill_weights()[std::size_t(i)] * fill;
              for (const auto& x : rows[0][std::size_t(i)])
                sum_x +=
                    x.weight *
                    source[std::size_t(c * n[0] * n[1] * n[2] + x.index * at(0) + y.index * at(1) + z.index * at(2))];
              sum_y += y.weight * sum_x;
            }
            sum_z += z.weight * sum_y;
          }
          result.push_back(sum_z);
        }
  return result;
}

/// The map of a geometric stage by itself on one image.
inline SpatialMap spatial_map_of(const Json& entry, const VolumeInfo& input, bool double_precision = false) {
  class Files final : public StageFiles {
    VolumeInfo info(const std::string&) override { return {}; }
    std::shared_ptr<const Volume> volume(const std::string&) override { return nullptr; }
    std::string bytes(const std::string&) override { return ""; }
    std::string resolved(const std::string& path) override { return path; }
  } files;
  Faults faults;
  const auto stage = find_stage(entry.at("op").get<std::string>())->make(entry, "/stages/0", faults);
  if (!stage) throw Error(ErrorCode::usage, faults.list().front().message);
  if (const auto separable = std::dynamic_pointer_cast<const SeparableStage>(stage)) return {separable->map(input)};
  const ImageInfos images{{"image", input}};
  return std::dynamic_pointer_cast<const GatherStage>(stage)->map(
      input, {.images = images,
              .frame = input,
              .frame_as_read = input.geometry,
              .applied = {},
              .files = files,
              .double_precision = double_precision});
}

inline GridMap map_of(const char* entry, const VolumeInfo& input) {
  return std::get<GridMap>(spatial_map_of(Json::parse(entry), input).form);
}

inline double fill_of(const GridMap& map) { return map.fill.minimum ? 0.0 : map.fill.value; }

/// Largest difference over the largest magnitude; infinity where one is NaN and the other is not.
inline double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0, magnitude = 1e-30;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::isnan(a[i]) || std::isnan(b[i])) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::abs(a[i] - b[i]));
    magnitude = std::max(magnitude, std::abs(b[i]));
  }
  return largest / magnitude;
}

inline const std::vector<DataType>& all_types() {
  static const std::vector<DataType> types{DataType::uint8,  DataType::int8,  DataType::uint16,  DataType::int16,
                                           DataType::uint32, DataType::int32, DataType::float32, DataType::float64};
  return types;
}

/// Spec entries that between them use every executor: copies along and across the axes, windows of two taps and of
/// many, shares of the fill, periodic and mirrored boundaries, growth and reduction.
inline const std::vector<const char*>& separable_cases() {
  static const std::vector<const char*> cases{
      R"({"op":"flip","axes":"x"})",
      R"({"op":"flip","axes":"xyz"})",
      R"({"op":"permute","order":"xzy"})",
      R"({"op":"permute","order":"yxz"})",
      R"({"op":"permute","order":"zyx"})",
      R"({"op":"permute","order":"yzx"})",
      R"({"op":"permute","order":"zxy"})",
      R"({"op":"reorient","axes":"PSL"})",
      R"({"op":"crop","start":[1,0,0],"size":[16,40,40],"clip":true})",
      R"({"op":"pad","before":[1,2,3],"after":[4,0,1],"fill":7})",
      R"({"op":"pad","before":16,"after":16,"boundary":"reflect"})",
      R"({"op":"pad","before":[40,3,2],"after":[3,40,2],"boundary":"mirror"})",
      R"({"op":"pad","before":[5,3,40],"after":5,"boundary":"grid-wrap"})",
      R"({"op":"crop_or_pad","size":[20,20,8],"fill":3})",
      R"({"op":"resize","scale":0.75})",
      R"({"op":"resize","scale":1.4,"boundary":"grid-constant","fill":11})",
      R"({"op":"resize","scale":1.4,"boundary":"constant","fill":11})",
      R"({"op":"resize","size":[40,7,9],"antialias":false})",
      R"({"op":"resize","size":[40,27,49],"boundary":"grid-wrap","antialias":false})",
      R"({"op":"resize","size":[null,null,49],"boundary":"grid-wrap"})",
      R"({"op":"resize","size":[9,40,21],"interpolation":"nearest"})",
      R"({"op":"resize","scale":0.75,"interpolation":"bspline3","antialias":false})",
      R"({"op":"resize","scale":1.7,"interpolation":"bspline3","boundary":"reflect"})",
      R"({"op":"resize","scale":1.3,"interpolation":"bspline3","boundary":"mirror"})",
      R"({"op":"resize","scale":1.3,"interpolation":"bspline3","boundary":"grid-wrap"})",
      R"({"op":"resize","scale":1.3,"interpolation":"bspline3","boundary":"wrap","align":"centers"})",
      R"({"op":"resize","scale":1.3,"interpolation":"bspline3","boundary":"grid-constant","fill":50})",
      R"({"op":"resize","scale":1.3,"interpolation":"bspline2","boundary":"reflect"})",
      R"({"op":"resize","scale":1.3,"interpolation":"bspline5","boundary":"nearest"})",
      R"({"op":"resize","scale":1.3,"interpolation":"cubic","boundary":"mirror"})",
      R"({"op":"resize","scale":0.8,"interpolation":"lanczos3","antialias":false})",
      R"({"op":"resample","spacing":[2.7,0.6,1.9],"interpolation":"bspline3"})",
      R"({"op":"resample","spacing":[null,null,0.4],"interpolation":"bspline3"})",
      R"({"op":"resample","spacing":[6,5,4]})",
      R"({"op":"resample","spacing":[0.5,0.5,3.1]})",
      R"({"op":"gaussian","sigma":1})",
      R"({"op":"gaussian","sigma":[0.6,0,4],"boundary":"mirror"})",
      R"({"op":"gaussian","sigma":[0,0,1.5],"boundary":"grid-wrap"})",
      R"({"op":"gaussian","sigma":[2,0,0],"boundary":"grid-wrap"})",
      R"({"op":"gaussian","sigma":2,"boundary":"wrap"})",
      R"({"op":"gaussian","sigma":1.5,"boundary":"grid-constant","fill":100})",
      R"({"op":"gaussian","sigma":1.2,"order":[1,2,0],"boundary":"nearest"})",
  };
  return cases;
}

}  // namespace volpipe::testing
