// Vector fields that a stage names: images of the item, or files.
#pragma once

#include "stages/stage_context.h"

namespace volpipe {

struct FieldSource {
  VectorField field;
  Geometry geometry;
};

/// Throws Error(input) when the image or file has not 3 components of float32 or float64.
FieldSource field_source(const std::string& name, const StageContext& context);

/// Throws Error(input) when some voxel of `target` lies outside the field's grid.
void check_covers(const FieldSource& source, const Geometry& target, const std::string& name);

}  // namespace volpipe
