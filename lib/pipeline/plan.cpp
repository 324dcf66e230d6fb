#include "pipeline/plan.h"

#include <algorithm>
#include <optional>

#include "spec/variables.h"
#include "volume/error.h"

namespace volpipe {

namespace {

bool wants_double(const StageEntry& entry, const VolumeInfo& input) {
  return entry.double_precision || !(fits_float32(input.dtype) || input.dtype == DataType::float64);
}

/// True when one of the group's stages looks at components together and the new one by itself, or the reverse.
bool mixes_statistics(const Group& group, const PointwiseStage& stage) {
  const auto request = stage.request();
  if (!request) return false;
  for (const auto& earlier : group.pointwise)
    if (const auto other = earlier->request(); other && other->per_component != request->per_component) return true;
  return false;
}

/// The most instructions a stage appends, over statistics of an ordinary image and of one that fills float32.
std::size_t instruction_count(const PointwiseStage& stage, const VolumeInfo& input) {
  std::size_t most = 0;
  for (const double largest : {101.5, 2e38}) {
    StatisticsResult statistics{
        {.count = 1000, .min = -largest, .max = 0.9 * largest, .mean = 0.1 * largest, .sum_squares = largest}, {}};
    if (const auto request = stage.request())
      for (double percent : request->percentiles) statistics.percentiles.push_back((percent / 50 - 1) * largest);
    Program program;
    Notices ignored;
    stage.append(program, input, statistics, ignored);
    most = std::max(most, program.size());
  }
  return most;
}

/// Builds the groups stage by stage, keeping at most one open group an image.
class Planner {
 public:
  Planner(const Pipeline& pipeline, const ImageInfos& inputs, const DrawKey& key)
      : pipeline_(pipeline), key_(key), now_(inputs) {
    plan_.inputs = inputs;
    for (const auto& [name, info] : inputs) now_.at(name).kind = pipeline.find_input(name)->kind;
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
    if (probability != 1.0 && !(draws.uniform() < probability.get<double>())) {
      plan_.skipped.push_back(index);
      return;
    }
    const std::shared_ptr<const Stage> stage = entry.stage ? entry.stage : draw_stage(index, entry, draws);
    for (const std::string& image : images_of(pipeline_, entry))
      if (now_.contains(image)) add_to_image(index, entry, stage, image);
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

  void add_to_image(std::size_t index, const StageEntry& entry, const std::shared_ptr<const Stage>& stage,
                    const std::string& image) {
    if (const auto pointwise = std::dynamic_pointer_cast<const PointwiseStage>(stage))
      add_pointwise(index, entry, pointwise, image);
    else if (const auto separable = std::dynamic_pointer_cast<const SeparableStage>(stage))
      add_separable(index, entry, *separable, image);
    else throw Error(ErrorCode::internal, "stage '" + entry.definition->op + "' is of no kind the planner knows");
  }

  void add_pointwise(std::size_t index, const StageEntry& entry, const std::shared_ptr<const PointwiseStage>& stage,
                     const std::string& image) {
    VolumeInfo& info = now_.at(image);
    VolumeInfo output = stage->output(info);
    if (entry.double_precision && output.dtype == DataType::float32) output.dtype = DataType::float64;
    if (const auto request = stage->request(); request && request->mask.kind == Mask::Kind::image) {
      check_mask(request->mask.image, info);
      close(request->mask.image, "its voxels are the mask of " + entry.label);
      readers_[image].push_back(request->mask.image);
    }
    Group* group = open_group(image, GroupKind::pointwise, "a pointwise stage follows");
    if (group && info.components > 1 && mixes_statistics(*group, *stage)) {
      close(image, entry.label + " takes its statistics over other components");
      group = nullptr;
    }
    const std::size_t instructions = instruction_count(*stage, info);
    if (group && group->instructions + instructions > Program::kMaxInstructions) {
      close(image, "the program would have more than " + std::to_string(Program::kMaxInstructions) + " instructions");
      group = nullptr;
    }
    if (!group) group = &start_group(image, GroupKind::pointwise, info);
    group->instructions += instructions;
    if (wants_double(entry, info)) group->precision = Precision::double_;
    group->pointwise.push_back(stage);
    group->stages.push_back(index);
    group->output = info = output;
  }

  void add_separable(std::size_t index, const StageEntry& entry, const SeparableStage& stage,
                     const std::string& image) {
    VolumeInfo& info = now_.at(image);
    GridMap map = stage.map(info);
    if (entry.double_precision && map.computes) map.output.dtype = DataType::float64;
    Group* group = open_group(image, GroupKind::separable, "a stage on the grid follows");
    if (group) {
      if (std::optional<GridMap> composed = compose(map, group->map)) {
        group->map = std::move(*composed);
      } else {
        close(image, "composing it with " + entry.label + " would change the result");
        group = nullptr;
      }
    }
    if (!group) {
      group = &start_group(image, GroupKind::separable, info);
      group->map = std::move(map);
    }
    group->stages.push_back(index);
    group->output = info = group->map.output;
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
    Group group{kind, image, {}, {}, {}, input, input, Precision::single, 0, ""};
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

  /// Groups that read `image` as their mask must run before it changes.
  void close_readers_of(const std::string& image) {
    std::vector<std::string> readers;
    for (const auto& [reader, masks] : readers_)
      if (reader != image && std::find(masks.begin(), masks.end(), image) != masks.end()) readers.push_back(reader);
    for (const std::string& reader : readers) close(reader, "its mask '" + image + "' changes next");
  }

  void check_mask(const std::string& mask, const VolumeInfo& info) const {
    const auto found = now_.find(mask);
    if (found == now_.end())
      throw Error(ErrorCode::input, pipeline_.find_input(mask) ? "the mask '" + mask + "' is missing from this item"
                                                               : "there is no image '" + mask + "' to be the mask");
    if (!same_grid(found->second.geometry, info.geometry))
      throw Error(
          ErrorCode::input,
          "the mask '" + mask + "' lies on another grid than the image; bring them together with resample first");
  }

  void convert_outputs() {
    for (const OutputSpec& output : pipeline_.outputs) {
      const auto found = now_.find(output.image);
      if (found == now_.end() || !output.dtype || found->second.dtype == *output.dtype) continue;
      Group* group = open_group(output.image, GroupKind::pointwise, "the output's pixel type follows");
      if (!group) group = &start_group(output.image, GroupKind::pointwise, found->second);
      if (!fits_float32(found->second.dtype) || *output.dtype == DataType::float64 || !fits_float32(*output.dtype))
        group->precision = Precision::double_;
      found->second.dtype = *output.dtype;
      group->output = found->second;
    }
  }

  static std::size_t statistics_bytes(const Group& group) {
    std::size_t most = 0;
    for (const auto& stage : group.pointwise)
      if (const auto request = stage->request())
        most = std::max(
            most, statistics_scratch_bytes(group.input.value_count(), group.precision, !request->percentiles.empty()));
    return most;
  }

  std::size_t peak_bytes() const {
    std::map<std::string, std::size_t> held;
    std::size_t total = 0;
    for (const auto& [name, info] : plan_.inputs) total += held[name] = info.bytes();
    std::size_t peak = total;
    for (const Group& group : plan_.groups) {
      const std::size_t scratch =
          group.kind == GroupKind::separable ? scratch_bytes(group.input, group.map) : statistics_bytes(group);
      peak = std::max(peak, total + group.output.bytes() + scratch);
      total += group.output.bytes() - held[group.image];
      held[group.image] = group.output.bytes();
    }
    return peak;
  }

  const Pipeline& pipeline_;
  const DrawKey& key_;
  Plan plan_;
  ImageInfos now_;
  std::map<std::string, Group> open_;
  std::map<std::string, std::vector<std::string>> readers_;  ///< image of an open group -> masks it reads
};

}  // namespace

Plan make_plan(const Pipeline& pipeline, const ImageInfos& inputs, const DrawKey& key) {
  return Planner(pipeline, inputs, key).make();
}

}  // namespace volpipe
