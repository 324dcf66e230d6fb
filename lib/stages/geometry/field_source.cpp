#include "stages/geometry/field_source.h"

#include <algorithm>
#include <cstdio>

#include "volume/error.h"

namespace volpipe {

namespace {

void check_vectors(const VolumeInfo& info, const std::string& what) {
  if (info.components == 3 && is_floating(info.dtype)) return;
  throw Error(ErrorCode::input,
              what + " has " + std::to_string(info.components) +
                  (info.components == 1 ? " component of " : " components of ") + std::string(to_string(info.dtype)) +
                  "; vectors have 3 (x, y, z) of float32 or float64" + (info.components == 3 ? ": cast it first" : ""));
}

}  // namespace

FieldSource field_source(const std::string& name, const StageContext& context) {
  if (const VolumeInfo* image = context.find_image(name)) {
    check_vectors(*image, "the image '" + name + "'");
    return {{VectorField::Basis::linear, image->geometry.size(), nullptr, name}, image->geometry};
  }
  const std::string path = context.files.resolved(name);
  return with_path(path, [&] {
    const VolumeInfo info = context.files.info(name);
    check_vectors(info, "the field");
    return FieldSource{{VectorField::Basis::linear, info.geometry.size(), context.files.volume(name), ""},
                       info.geometry};
  });
}

void check_covers(const FieldSource& source, const Geometry& target, const std::string& name) {
  const Affine to_field = source.geometry.world_to_index() * target.index_to_world();
  const Box3 used = box_around(to_field, voxel_centres(target.size())), there = voxel_edges(source.geometry.size());
  double beyond = 0;
  for (std::size_t axis = 0; axis < 3; ++axis)
    beyond = std::max({beyond, there.low[axis] - used.low[axis], used.high[axis] - there.high[axis]});
  if (beyond <= 1e-3) return;
  char words[32];
  std::snprintf(words, sizeof words, "%.1f", beyond + 0.5);
  throw Error(ErrorCode::input, "the field '" + name + "' is of another grid: the result would reach " + words +
                                    " of its voxels beyond it; name the grid it was made for with 'reference'");
}

}  // namespace volpipe
