#include "stages/geometry/field_source.h"
#include "stages/geometry/moved_grid.h"

namespace volpipe {

namespace {

enum class CoordinateUnits : std::uint8_t { index, world };

}  // namespace

template <>
struct EnumNames<CoordinateUnits> {
  static constexpr std::array names{"index", "world"};
};

namespace {

class MapCoordinates final : public GatherStage {
 public:
  struct Params : MovingParams {
    ImageOrFile coordinates{};
    CoordinateUnits units = CoordinateUnits::index;
  };

  explicit MapCoordinates(Params params) : params_(std::move(params)) {}

  SpatialMap map(const VolumeInfo& input, const StageContext& context) const override {
    const FieldSource source = field_source(params_.coordinates.name, context);
    FieldStep step;
    step.use = FieldStep::Use::replace;
    step.field = source.field;
    step.to_grid = source.geometry.world_to_index();
    if (params_.units == CoordinateUnits::index) {
      step.linear = input.geometry.index_to_world().linear;
      step.offset = input.geometry.index_to_world().offset;
    }
    return sample_grid(input, source.geometry, PointMap(std::move(step)), params_, context);
  }

 private:
  Params params_;
};

}  // namespace

StageDefinition stage_map_coordinates() {
  using Params = MapCoordinates::Params;
  Parameters<Params> parameters;
  parameters
      .add("coordinates", &Params::coordinates, {.required = true},
           "image of the item, or file, of 3 components (x, y, z): where each voxel of its grid is found")
      .add("units", &Params::units, {}, "index: voxels of the image (SciPy's map_coordinates, x first); world: RAS mm");
  add_sampling_parameters(parameters);
  return define_stage<MapCoordinates>(
      {.op = "map_coordinates",
       .family = "geometry",
       .summary = "sample at coordinates given for each voxel",
       .targets = StageTargets::all,
       .example = {{"op", "map_coordinates"}, {"coordinates", "places"}, {"on", "image"}},
       .needs = {.images = {"places"}, .components = 3}},
      std::move(parameters));
}

}  // namespace volpipe
