#include "pipeline/plan.h"

#include <algorithm>
#include <optional>

#include "spec/variables.h"
#include "stages/gather/compose.h"
#include "volume/error.h"

namespace volpipe {

namespace {

bool wants_double(const StageEntry& entry, const VolumeInfo& input) {
  return entry.double_precision || !(fits_float32(input.dtype) || input.dtype == DataType::float64);
}

/// True when one of the group's stages takes other components together than the new one, or the new one looks at other
/// images, which must be as they are before the group.
bool mixes_statistics(const Group& group, const PointwiseStage& stage) {
  using Over = StatisticsRequest::Over;
  for (const StatisticsRequest& request : stage.requests()) {
    if (request.over == Over::item) return true;
    for (const auto& earlier : group.pointwise)
      for (const StatisticsRequest& other : earlier->requests())
        if (group.input.components > 1 && (other.over == Over::component) != (request.over == Over::component))
          return true;
  }
  return false;
}

bool takes_together(const PointwiseStage& stage) {
  const auto requests = stage.requests();
  return std::any_of(requests.begin(), requests.end(),
                     [](const StatisticsRequest& request) { return request.over == StatisticsRequest::Over::item; });
}

/// The images that a stage reads besides the one it acts on: operands first, then masks.
std::vector<std::string> operands_of(const PointwiseStage& stage, const std::string& image) {
  std::vector<std::string> names = stage.reads();
  std::erase(names, image);
  return names;
}

std::vector<std::string> masks_of(const PointwiseStage& stage) {
  std::vector<std::string> names;
  for (const StatisticsRequest& request : stage.requests())
    if (request.mask.kind == Mask::Kind::image) names.push_back(request.mask.image);
  return names;
}

/// What a map on the grid does in the world.
PointMap world_pull(const GridMap& map, const VolumeInfo& input) {
  if (!map.moves_world) return {};
  return PointMap(input.geometry.index_to_world() * map.target_to_source * map.output.geometry.world_to_index());
}

class NoFiles final : public StageFiles {
 public:
  VolumeInfo info(const std::string& path) override { return fail<VolumeInfo>(path); }
  std::shared_ptr<const Volume> volume(const std::string& path) override {
    return fail<std::shared_ptr<const Volume>>(path);
  }
  std::string bytes(const std::string& path) override { return fail<std::string>(path); }
  std::string resolved(const std::string& path) override { return path; }

 private:
  template <class T>
  static T fail(const std::string& path) {
    throw Error(ErrorCode::internal, "a plan without files cannot read '" + path + "'");
  }
};

/// Builds the groups stage by stage, keeping at most one open group an image.
class Planner {
 public:
  Planner(const Pipeline& pipeline, const ImageInfos& inputs, const ItemKey& key, StageFiles& files,
          const Measure& measure)
      : pipeline_(pipeline), key_(key), files_(files), measure_(measure), now_(inputs) {
    plan_.inputs = inputs;
    plan_.saved.resize(pipeline.saved_maps.size());
    for (auto& [name, info] : now_) info.kind = pipeline.find_input(name)->kind;
  }

  Plan make() {
    for (std::size_t i = 0; i < pipeline_.stages.size(); ++i) {
      const StageEntry& entry = pipeline_.stages[i];
      with_stage(entry.label, [&] { add_stage(i, entry); });
      plan_.after_stage.push_back(now_);
    }
    convert_outputs();
    for (auto& [image, group] : open_) plan_.groups.push_back(std::move(group));
    plan_.outputs = now_;
    plan_.peak_device_bytes = peak_bytes();
    return std::move(plan_);
  }

 private:
  void add_stage(std::size_t index, const StageEntry& entry) {
    DrawStream draws(key_.seed, key_.item_id, key_.repeat, std::uint32_t(index));
    const Json probability = draws.draw(entry.probability);
    std::vector<std::string> images;
    for (const std::string& image : entry.images)
      if (now_.contains(image)) images.push_back(image);
    if (probability != 1.0 && !(draws.uniform() < probability.get<double>())) {
      plan_.skipped.push_back(index);
      for (const std::string& image : images) applied_[image][entry.label] = {now_.at(image), {}};
      return;
    }
    const std::shared_ptr<const Stage> stage = entry.stage ? entry.stage : draw_stage(index, entry, draws);
    if (const auto rearranging = std::dynamic_pointer_cast<const RearrangingStage>(stage))
      return add_rearranging(index, *rearranging, images);
    if (images.empty() && made_by(*stage).empty()) return;
    if (images.empty()) throw Error(ErrorCode::input, "none of the images it acts on is in this item");
    const ImageInfos before = now_;
    const VolumeInfo frame = now_.at(images.front());
    if (const auto measuring = std::dynamic_pointer_cast<const MeasuringStage>(stage))
      return add_measuring(index, entry, *measuring, images);
    if (const auto voxel_stage = std::dynamic_pointer_cast<const VoxelStage>(stage))
      return add_voxel_stage(index, entry, voxel_stage, images, before, frame);
    std::map<std::string, SpatialMap> maps;
    for (const std::string& image : images)
      if (auto map = spatial_map(index, entry, *stage, image, images.front(), before, frame))
        maps.emplace(image, std::move(*map));
    for (const std::string& image : read_last(images, fields_of(maps)))
      add_spatial(index, entry, std::move(maps.at(image)), image);
  }

  void add_voxel_stage(std::size_t index, const StageEntry& entry, const std::shared_ptr<const VoxelStage>& stage,
                       const std::vector<std::string>& images, const ImageInfos& before, const VolumeInfo& frame) {
    const std::string made = stage->makes();
    if (!made.empty() && !now_.contains(made)) {
      const std::string base = base_of(*stage, images.front());
      return add_for_image(index, entry, bound(index, entry, stage, base, images.front(), before, frame), base, images);
    }
    for (const std::string& image : read_last(images, reads_of(*stage)))
      add_for_image(index, entry, bound(index, entry, stage, image, images.front(), before, frame), image, images);
  }

  void add_for_image(std::size_t index, const StageEntry& entry, const std::shared_ptr<const VoxelStage>& stage,
                     const std::string& image, const std::vector<std::string>& images) {
    if (const auto pointwise = std::dynamic_pointer_cast<const PointwiseStage>(stage))
      add_pointwise(index, entry, pointwise, image, images);
    else add_volume(index, entry, std::dynamic_pointer_cast<const VolumeStage>(stage), image);
  }

  static std::vector<std::string> reads_of(const VoxelStage& stage) {
    std::vector<std::string> names = stage.reads();
    if (const auto* pointwise = dynamic_cast<const PointwiseStage*>(&stage))
      for (const std::string& mask : masks_of(*pointwise)) names.push_back(mask);
    return names;
  }

  /// The image whose grid and components a new one has: of those that a pointwise stage makes it from, the first with
  /// the most components.
  std::string base_of(const VoxelStage& stage, const std::string& first_image) const {
    if (dynamic_cast<const VolumeStage*>(&stage)) return first_image;
    std::string base;
    for (const std::string& name : reads_of(stage))
      if (now_.contains(name) && (base.empty() || now_.at(name).components > now_.at(base).components)) base = name;
    return base.empty() ? first_image : base;
  }

  std::shared_ptr<const VoxelStage> bound(std::size_t index, const StageEntry& entry,
                                          const std::shared_ptr<const VoxelStage>& stage, const std::string& image,
                                          const std::string& first_image, const ImageInfos& before,
                                          const VolumeInfo& frame) {
    auto own = stage->for_image(image, before.at(image), context_of(index, entry, image, first_image, before, frame));
    return own ? own : stage;
  }

  StageContext context_of(std::size_t index, const StageEntry& entry, const std::string& image,
                          const std::string& first_image, const ImageInfos& before, const VolumeInfo& frame) {
    return {.images = before,
            .frame = frame,
            .frame_as_read = geometry_as_read(first_image, frame),
            .applied = applied_[image],
            .files = files_,
            .double_precision = entry.double_precision,
            .seed = key_.seed,
            .item_id = key_.item_id,
            .repeat = key_.repeat,
            .stage_index = std::uint32_t(index)};
  }

  /// What a geometric stage does to one image.
  std::optional<SpatialMap> spatial_map(std::size_t index, const StageEntry& entry, const Stage& stage,
                                        const std::string& image, const std::string& first_image,
                                        const ImageInfos& before, const VolumeInfo& frame) {
    const VolumeInfo& info = before.at(image);
    if (const auto* separable = dynamic_cast<const SeparableStage*>(&stage)) {
      GridMap map = separable->map(info);
      PointMap pull = world_pull(map, info);
      return SpatialMap{std::move(map), std::move(pull)};
    }
    const auto* gather = dynamic_cast<const GatherStage*>(&stage);
    if (!gather)
      throw Error(ErrorCode::internal, "stage '" + entry.definition->op + "' is of no kind the planner knows");
    SpatialMap map = gather->map(info, context_of(index, entry, image, first_image, before, frame));
    save_map(index, image == first_image, map.pull);
    for (const Notice& notice : map.notices.list()) plan_.notices.add(notice.code, entry.label + ": " + notice.message);
    return map;
  }

  /// The images in an order in which none changes before the others have read it.
  static std::vector<std::string> read_last(std::vector<std::string> images, const std::vector<std::string>& read) {
    std::stable_partition(images.begin(), images.end(), [&read](const std::string& image) {
      return std::find(read.begin(), read.end(), image) == read.end();
    });
    return images;
  }

  const Geometry& geometry_as_read(const std::string& image, const VolumeInfo& now) const {
    const auto found = plan_.inputs.find(image);
    return found == plan_.inputs.end() ? now.geometry : found->second.geometry;
  }

  std::shared_ptr<const Stage> draw_stage(std::size_t index, const StageEntry& entry, DrawStream& draws) {
    const Json parameters = draws.draw(entry.parameters);
    Faults faults;
    auto stage = entry.definition->make(parameters, "", faults);
    if (!faults.empty())
      throw Error(ErrorCode::input,
                  "the drawn parameters " + parameters.dump() + " are not allowed: " + faults.list().front().message);
    plan_.drawn[index] = parameters;
    return stage;
  }

  void save_map(std::size_t index, bool first_image, const PointMap& pull) {
    for (std::size_t s = 0; s < pipeline_.saved_maps.size(); ++s)
      if (pipeline_.saved_maps[s].stage == index && first_image) plan_.saved[s] = pull;
  }

  void add_pointwise(std::size_t index, const StageEntry& entry, const std::shared_ptr<const PointwiseStage>& stage,
                     const std::string& source, const std::vector<std::string>& images) {
    const std::string made = stage->makes();
    const bool makes_new = !made.empty() && !now_.contains(made);
    const std::string& image = makes_new ? made : source;
    const VolumeInfo info = now_.at(source);
    const VolumeInfo output = output_of(entry, stage->output(info), makes_new ? nullptr : &info);
    if (makes_new) close(source, "'" + made + "' is made from it");
    std::vector<std::string> inputs{source}, read = masks_of(*stage);
    for (const std::string& operand : operands_of(*stage, source)) {
      check_operand(operand, info);
      close(operand, "its voxels are read by " + entry.label);
      inputs.push_back(operand);
      read.push_back(operand);
    }
    for (const std::string& mask : masks_of(*stage)) {
      check_mask(mask, info);
      close(mask, "its voxels are the mask of " + entry.label);
    }
    if (takes_together(*stage))
      for (const std::string& other : images) {
        close(other, entry.label + " takes its statistics over all images together");
        read.push_back(other);
      }
    std::erase(read, image);
    if (stage->reads_neighbours()) close(image, entry.label + " reads neighbours");
    const ProgramUse use = program_use(*stage, info, inputs);
    Group* group = open_group(image, GroupKind::pointwise, "a pointwise stage follows");
    const bool in_double = wants_double(entry, info) || stage->needs_double();
    if (group && !(rounds_alike(image, info, in_double) && joins(*group, entry, *stage, use, inputs))) group = nullptr;
    if (!group) {
      group = &start_group(image, GroupKind::pointwise, info);
      group->inputs = {source};
      if (takes_together(*stage)) group->together = images;
    }
    for (const std::string& input : inputs)
      if (input != source && std::find(group->inputs.begin(), group->inputs.end(), input) == group->inputs.end())
        group->inputs.push_back(input);
    if (makes_new) read.push_back(source);
    for (const std::string& name : read) readers_[image].push_back(name);
    group->use = group->use + use;
    group->measures_general = group->measures_general || (group->use.general && !stage->requests().empty());
    if (in_double) group->precision = Precision::double_;
    group->pointwise.push_back(stage);
    group->stages.push_back(index);
    group->output = now_[image] = output;
  }

  /// Whether the open group of an image computes in the precision of what follows, which takes values of type
  /// `info.dtype`; closes the group where it does not, for between passes values are rounded to that type.
  bool rounds_alike(const std::string& image, const VolumeInfo& info, bool in_double) {
    const bool group_in_double = open_.at(image).precision == Precision::double_;
    if (group_in_double == in_double && !(in_double && info.dtype == DataType::float32)) return true;
    close(image, "what follows computes in another precision");
    return false;
  }

  /// Whether a stage can run in the open group of its image; closes the group where it cannot.
  bool joins(const Group& group, const StageEntry& entry, const PointwiseStage& stage, const ProgramUse& use,
             const std::vector<std::string>& inputs) {
    std::size_t more = 0;
    for (const std::string& input : inputs)
      more += input != group.image && std::find(group.inputs.begin(), group.inputs.end(), input) == group.inputs.end();
    const std::string image = group.image;
    if (mixes_statistics(group, stage)) close(image, entry.label + " takes its statistics over other components");
    else if (!(group.use + use).fits() || group.inputs.size() + more > Program::kMaxInputs)
      close(image, "the program would be too long for one pass");
    else return true;
    return false;
  }

  /// `replaced` is what the output takes the place of; null: nothing. A label stays one unless the spec names the pixel
  /// type itself.
  static VolumeInfo output_of(const StageEntry& entry, VolumeInfo output, const VolumeInfo* replaced) {
    const bool label = replaced && replaced->kind == ImageKind::label && !is_floating(replaced->dtype);
    if (label && is_floating(output.dtype) && !entry.parameters.contains("dtype"))
      throw Error(ErrorCode::usage,
                  entry.definition->op +
                      " makes values that are no labels: let it act on images with \"on\", or cast the "
                      "label to float32 before");
    if (entry.double_precision && output.dtype == DataType::float32) output.dtype = DataType::float64;
    return output;
  }

  void add_volume(std::size_t index, const StageEntry& entry, const std::shared_ptr<const VolumeStage>& stage,
                  const std::string& source) {
    const std::string made = stage->makes();
    Group group{GroupKind::volume, made.empty() ? source : made, {index}};
    group.input = now_.at(source);
    group.output = stage->output(group.input);
    if (stage->computes()) group.output = output_of(entry, group.output, made.empty() ? &group.input : nullptr);
    group.inputs = {source};
    group.volume = stage;
    if (wants_double(entry, group.input)) group.precision = Precision::double_;
    for (const std::string& operand : stage->reads()) {
      if (operand == source) continue;
      check_operand(operand, group.input);
      close(operand, "its voxels are read by " + entry.label);
      group.inputs.push_back(operand);
    }
    close_readers_of(group.image);
    close(source, entry.label + " works on the whole volume");
    close(group.image, entry.label + " replaces it");
    now_[group.image] = group.output;
    plan_.groups.push_back(std::move(group));
  }

  void add_spatial(std::size_t index, const StageEntry& entry, SpatialMap map, const std::string& image) {
    VolumeInfo& info = now_.at(image);
    applied_[image][entry.label] = {info, std::move(map.pull)};
    if (entry.double_precision) compute_in_double(map.form);
    const std::vector<std::string> fields = fields_of(map.form);
    for (const std::string& field : fields) close(field, "its vectors are the field of " + entry.label);
    Group* group = open_spatial_group(image);
    if (group) {
      const SpatialForm first = form_of(*group);
      if (auto composed = compose(map.form, first, group->input, pipeline_.fusing)) {
        take_form(*group, std::move(*composed));
      } else {
        const bool possible =
            pipeline_.fusing != Fusing::all && compose(map.form, first, group->input, Fusing::all).has_value();
        close(image, possible ? entry.label + " samples again (\"fuse\": \"all\" would sample once)"
                              : "composing it with " + entry.label + " would change the result");
        group = nullptr;
      }
    }
    if (!group) {
      group = &start_group(image, GroupKind::separable, info);
      take_form(*group, std::move(map.form));
    }
    for (const std::string& field : fields) readers_[image].push_back(field);
    group->stages.push_back(index);
    info = group->output;
  }

  static void compute_in_double(SpatialForm& form) {
    if (auto* grid = std::get_if<GridMap>(&form)) {
      if (grid->computes) grid->output.dtype = DataType::float64;
      return;
    }
    auto& gather = std::get<GatherMap>(form);
    if (gather.before.computes) gather.before.output.dtype = DataType::float64;
    if (!moves_voxels(gather.interpolation)) gather.output.dtype = DataType::float64;
    else if (gather.interpolation == Interpolation::nearest) gather.output.dtype = gather.before.output.dtype;
  }

  static SpatialForm form_of(const Group& group) {
    if (group.kind == GroupKind::separable) return group.map;
    return group.gather;
  }

  static void take_form(Group& group, SpatialForm form) {
    if (auto* grid = std::get_if<GridMap>(&form)) {
      group.kind = GroupKind::separable;
      group.map = std::move(*grid);
      group.output = group.map.output;
    } else {
      group.kind = GroupKind::gather;
      group.gather = std::get<GatherMap>(std::move(form));
      group.output = group.gather.output;
    }
  }

  static std::vector<std::string> fields_of(const std::map<std::string, SpatialMap>& maps) {
    std::vector<std::string> names;
    for (const auto& [image, map] : maps)
      for (const std::string& field : fields_of(map.form)) names.push_back(field);
    return names;
  }

  /// Fields that are images of the item: they are read as they are now.
  static std::vector<std::string> fields_of(const SpatialForm& form) {
    std::vector<std::string> names;
    if (const auto* gather = std::get_if<GatherMap>(&form))
      for (const auto& step : gather->points.steps())
        if (const auto* field = std::get_if<FieldStep>(&step); field && !field->field.image.empty())
          names.push_back(field->field.image);
    return names;
  }

  void add_measuring(std::size_t index, const StageEntry& entry, const MeasuringStage& stage,
                     const std::vector<std::string>& images) {
    MeasuringStage::Request request = stage.request();
    if (request.image.empty()) request.image = images.front();
    if (!now_.contains(request.image))
      throw Error(ErrorCode::input, "the image '" + request.image + "' is missing from this item");
    MeasuringStage::Measurement measured{request.image, now_.at(request.image), {}};
    close(request.image, "its voxels decide " + entry.label);
    if (request.mask.kind == Mask::Kind::image) {
      check_mask(request.mask.image, measured.info);
      close(request.mask.image, "its voxels decide " + entry.label);
    }
    if (measure_) {
      measured.box = measure_(plan_.groups, request);
    } else {
      measured.box = IndexBox{{}, measured.info.geometry.size()};
      measured.guessed = true;
      plan_.guessed.push_back(index);
    }
    for (const std::string& image : images) {
      GridMap map = stage.map(image, now_.at(image), measured);
      add_spatial(index, entry, {std::move(map), {}}, image);
    }
  }

  void add_rearranging(std::size_t index, const RearrangingStage& stage, const std::vector<std::string>& images) {
    if (images.empty()) throw Error(ErrorCode::input, "none of the images it acts on is in this item");
    for (const std::string& image : images) {
      close_readers_of(image);
      close(image, "its components are rearranged");
    }
    Group group{GroupKind::rearrange, images.front(), {index}};
    group.makes = stage.rearrange(now_, images);
    group.takes = images;
    for (const std::string& image : images) now_.erase(image);
    for (const auto& result : group.makes) now_[result.image] = result.info;
    group.input = group.output = group.makes.front().info;
    plan_.groups.push_back(std::move(group));
  }

  Group* open_spatial_group(const std::string& image) {
    const auto found = open_.find(image);
    const GroupKind kind =
        found != open_.end() && found->second.kind == GroupKind::gather ? GroupKind::gather : GroupKind::separable;
    return open_group(image, kind, "a geometric stage follows");
  }

  /// The open group of `image` when it is of this kind (and fusing is on); else closes it and returns null.
  Group* open_group(const std::string& image, GroupKind kind, const std::string& reason) {
    close_readers_of(image);
    const auto found = open_.find(image);
    if (found == open_.end()) return nullptr;
    if (found->second.kind == kind && pipeline_.fuse) return &found->second;
    close(image, found->second.kind == kind ? "the spec says \"fuse\": \"none\"" : reason);
    return nullptr;
  }

  Group& start_group(const std::string& image, GroupKind kind, const VolumeInfo& input) {
    Group group{kind, image, {}};
    group.input = group.output = input;
    return open_.emplace(image, std::move(group)).first->second;
  }

  void close(const std::string& image, const std::string& reason) {
    const auto found = open_.find(image);
    if (found == open_.end()) return;
    found->second.ended_by = reason;
    plan_.groups.push_back(std::move(found->second));
    open_.erase(found);
    readers_.erase(image);
  }

  /// Groups that read `image` (as their mask, as a field) must run before it changes.
  void close_readers_of(const std::string& image) {
    std::vector<std::string> readers;
    for (const auto& [reader, read] : readers_)
      if (reader != image && std::find(read.begin(), read.end(), image) != read.end()) readers.push_back(reader);
    for (const std::string& reader : readers) close(reader, "it reads '" + image + "', which changes next");
  }

  void check_mask(const std::string& mask, const VolumeInfo& info) const {
    const auto found = now_.find(mask);
    if (found == now_.end()) throw Error(ErrorCode::input, "the mask '" + mask + "' is missing from this item");
    if (!same_grid(found->second.geometry, info.geometry))
      throw Error(
          ErrorCode::input,
          "the mask '" + mask + "' lies on another grid than the image; bring them together with resample_to first");
  }

  void check_operand(const std::string& name, const VolumeInfo& info) const {
    const auto found = now_.find(name);
    if (found == now_.end()) throw Error(ErrorCode::input, "the image '" + name + "' is missing from this item");
    if (!same_grid(found->second.geometry, info.geometry))
      throw Error(ErrorCode::input,
                  "the image '" + name + "' lies on another grid; bring them together with resample_to first");
    if (found->second.components != 1 && found->second.components != info.components)
      throw Error(ErrorCode::input, "the image '" + name + "' has " + std::to_string(found->second.components) +
                                        " components and cannot be combined with one of " +
                                        std::to_string(info.components) + "; choose with select_frames first");
  }

  void convert_outputs() {
    for (const OutputSpec& output : pipeline_.outputs) {
      const auto found = now_.find(output.image);
      if (found == now_.end() || !output.dtype || found->second.dtype == *output.dtype) continue;
      const bool in_double =
          !fits_float32(found->second.dtype) || *output.dtype == DataType::float64 || !fits_float32(*output.dtype);
      Group* group = open_group(output.image, GroupKind::pointwise, "the output's pixel type follows");
      if (group && !rounds_alike(output.image, found->second, in_double)) group = nullptr;
      if (!group) {
        group = &start_group(output.image, GroupKind::pointwise, found->second);
        group->inputs = {output.image};
      }
      if (in_double) group->precision = Precision::double_;
      found->second.dtype = *output.dtype;
      group->output = found->second;
    }
  }

  /// Tables of the statistics, and the values themselves where they are gathered first.
  std::size_t statistics_bytes(const Group& group) const {
    std::size_t most = 0;
    for (const auto& stage : group.pointwise)
      for (const StatisticsRequest& request : stage->requests()) {
        const bool gathers = request.over == StatisticsRequest::Over::item || group.input.components > 1;
        std::int64_t values = group.input.value_count();
        if (request.over == StatisticsRequest::Over::item) values *= std::int64_t(group.together.size());
        const std::size_t gathered = gathers ? std::size_t(values) * (group.precision == Precision::single ? 4 : 8) : 0;
        most = std::max(most, gathered + statistics_scratch_bytes(values, group.precision, !request.percentiles.empty(),
                                                                  group.measures_general && !gathers));
      }
    return most;
  }

  std::size_t scratch_of(const Group& group) const {
    switch (group.kind) {
      case GroupKind::separable:
        return scratch_bytes(group.input, group.map);
      case GroupKind::gather:
        return scratch_bytes(group.input, group.gather);
      case GroupKind::pointwise:
        return statistics_bytes(group);
      case GroupKind::volume:
        return group.volume->scratch_bytes(group.input);
      case GroupKind::rearrange:
        break;
    }
    return 0;
  }

  std::size_t peak_bytes() const {
    std::map<std::string, std::size_t> held;
    std::size_t total = 0;
    for (const auto& [name, info] : plan_.inputs) total += held[name] = info.bytes();
    std::size_t peak = total;
    for (const Group& group : plan_.groups) {
      std::map<std::string, std::size_t> made{{group.image, group.output.bytes()}};
      std::vector<std::string> taken{group.image};
      if (group.kind == GroupKind::rearrange) {
        made.clear();
        for (const auto& result : group.makes) made[result.image] = result.info.bytes();
        taken = group.takes;
      }
      std::size_t made_bytes = 0;
      for (const auto& [name, bytes] : made) made_bytes += bytes;
      peak = std::max(peak, total + made_bytes + scratch_of(group));
      for (const std::string& name : taken) {
        total -= held[name];
        held.erase(name);
      }
      for (const auto& [name, bytes] : made) total += held[name] = bytes;
    }
    return peak;
  }

  const Pipeline& pipeline_;
  const ItemKey& key_;
  StageFiles& files_;
  const Measure& measure_;
  Plan plan_;
  ImageInfos now_;
  std::map<std::string, Group> open_;
  std::map<std::string, std::vector<std::string>> readers_;  ///< image of an open group -> images it reads besides
  std::map<std::string, std::map<std::string, AppliedStage>> applied_;  ///< image -> stage -> what it did
};

}  // namespace

Plan make_plan(const Pipeline& pipeline, const ImageInfos& inputs, const ItemKey& key, StageFiles* files,
               const Measure& measure) {
  NoFiles none;
  return Planner(pipeline, inputs, key, files ? *files : none, measure).make();
}

}  // namespace volpipe
