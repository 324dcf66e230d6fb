#include "stages/gather/point_map.h"

#include <algorithm>

#include "volume/error.h"

namespace volpipe {

namespace {

FieldStep inverse_of(FieldStep step) {
  if (step.field.exponential && step.use == FieldStep::Use::add) {  // exp(-v) undoes exp(v)
    for (auto& row : step.linear.m)
      for (double& entry : row) entry = -entry;
    return step;
  }
  switch (step.use) {
    case FieldStep::Use::add:
      step.use = FieldStep::Use::undo;
      break;
    case FieldStep::Use::undo:
      step.use = FieldStep::Use::add;
      break;
    case FieldStep::Use::replace:
      throw Error(ErrorCode::usage,
                  "a field that holds the points themselves cannot be inverted: give the field of the other direction, "
                  "or one of displacements");
  }
  return step;
}

}  // namespace

bool PointMap::is_affine() const {
  return std::all_of(steps_.begin(), steps_.end(),
                     [](const Step& step) { return std::holds_alternative<Affine>(step); });
}

Affine PointMap::affine() const {
  if (!is_affine()) throw Error(ErrorCode::internal, "a point map with a vector field was taken for an affine map");
  return steps_.empty() ? Affine{} : std::get<Affine>(steps_.front());
}

bool PointMap::is_identity() const { return is_affine() && affine() == Affine{}; }

PointMap PointMap::inverse() const {
  PointMap result;
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    if (const auto* affine = std::get_if<Affine>(&*step)) result.steps_.emplace_back(affine->inverse());
    else result.steps_.emplace_back(inverse_of(std::get<FieldStep>(*step)));
  }
  return result;
}

PointMap PointMap::after(const PointMap& first) const {
  PointMap result;
  for (const PointMap* part : {&first, this})
    for (const Step& step : part->steps_) {
      const auto* affine = std::get_if<Affine>(&step);
      Affine* last = result.steps_.empty() ? nullptr : std::get_if<Affine>(&result.steps_.back());
      if (affine && last) *last = *affine * *last;
      else result.steps_.push_back(step);
      const auto* merged = std::get_if<Affine>(&result.steps_.back());
      if (merged && *merged == Affine{}) result.steps_.pop_back();
    }
  return result;
}

}  // namespace volpipe
