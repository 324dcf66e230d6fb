#include "pipeline/execute_pointwise.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "stages/pointwise/volume_statistics.h"

namespace volpipe {

namespace {

using Over = StatisticsRequest::Over;

/// Components [first, first + count) of a group's images, as a program's inputs.
class InputRange {
 public:
  InputRange(const std::vector<std::string>& names, const Images& images, std::int64_t first, std::int64_t count)
      : names_(names), images_(images), first_(first), count_(count) {}

  const VolumeInfo& info() const { return images_.at(names_[0]).info(); }
  std::int64_t first() const { return first_; }
  std::int64_t components() const { return count_; }
  std::int64_t values() const { return count_ * info().geometry.voxel_count(); }
  ProgramGrid grid() const { return {info().geometry.size(), first_ * info().geometry.voxel_count()}; }
  InputRange component(std::int64_t c) const { return {names_, images_, first_ + c, 1}; }

  /// True when an input has one component for all of the range's.
  bool repeats_input() const {
    return count_ > 1 && std::any_of(names_.begin(), names_.end(), [this](const std::string& name) {
             return images_.at(name).info().components == 1;
           });
  }

  std::vector<ProgramInput> inputs() const {
    std::vector<ProgramInput> inputs;
    for (const std::string& name : names_) inputs.push_back(input(name));
    return inputs;
  }
  ProgramInput input(const std::string& name) const {
    const Volume& volume = images_.at(name);
    return {volume.component(volume.info().components == 1 ? 0 : first_), volume.dtype()};
  }

 private:
  const std::vector<std::string>& names_;
  const Images& images_;
  std::int64_t first_, count_;
};

/// What a value comes from: inputs, a bit each, and random draws.
struct Origins {
  unsigned inputs = 0;
  bool draws = false;

  Origins operator|(const Origins& other) const { return {inputs | other.inputs, draws || other.draws}; }
};

Origins origins_of(const Program& program) {
  Origins acc{1}, registers[Program::kRegisters];
  for (const Instruction& i : program.instructions()) {
    const Origins x = i.operand == Operand::immediate ? Origins{} : registers[int(i.operand) - 1];
    switch (i.op) {
      case Op::load:
        acc = {1u << i.index};
        break;
      case Op::neighbour:
        acc = {1u << program.neighbours()[i.index].input};
        break;
      case Op::store:
        registers[i.index] = acc;
        break;
      case Op::set:
        acc = x;
        break;
      case Op::coordinate:
      case Op::field:
        acc = {};
        break;
      case Op::random_uniform:
      case Op::random_normal:
        acc = {0, true};
        break;
      case Op::random_poisson:
        acc.draws = true;
        break;
      case Op::choose:
        acc = acc | x | registers[i.index];
        break;
      default:
        acc = acc | x;
    }
  }
  return acc;
}

/// Answers one stage's questions about the values of a program.
class StatisticsPass {
 public:
  StatisticsPass(DeviceContext& context, const Group& group, const Images& images)
      : context_(context), group_(group), images_(images) {}

  StatisticsResult answer(const StatisticsRequest& request, const Program& program, const InputRange& range) const {
    if (request.over == Over::item) return answer_together(request, program);
    const auto has_components = [this](const std::string& image) { return images_.at(image).info().components > 1; };
    if (range.components() > 1 && !differs_by_component(group_, request.mask, program, has_components))
      return answer(request, program, range.component(0));
    const bool repeats = range.components() > 1 && request.mask.kind == Mask::Kind::image;
    if (repeats || range.repeats_input()) return answer_gathered(request, program, {range});
    const auto inputs = range.inputs();
    SampledValues values{inputs, &program, range.values(), {}, group_.precision, range.grid()};
    values.selection = selection_of(context_, request.mask, values, range.info(), range.first(), finder(images_));
    return measured(request, values);
  }

 private:
  StatisticsResult measured(const StatisticsRequest& request, const SampledValues& values) const {
    StatisticsResult result;
    if (request.moments) result.moments = compute_moments(context_, values);
    else if (request.range || request.bins > 0) result.moments = compute_range(context_, values);
    if (!request.percentiles.empty()) result.percentiles = compute_percentiles(context_, values, request.percentiles);
    if (request.bins > 0 && result.moments.min < result.moments.max)
      result.histogram = compute_histogram(context_, values, result.moments.min, result.moments.max, request.bins);
    return result;
  }

  StatisticsResult answer_together(const StatisticsRequest& request, const Program& program) const {
    std::vector<std::vector<std::string>> names;
    for (const std::string& image : group_.together) names.push_back({image});
    std::vector<InputRange> ranges;
    for (const auto& name : names) ranges.emplace_back(name, images_, 0, images_.at(name[0]).info().components);
    return answer_gathered(request, program, ranges);
  }

  /// For values that do not lie in one run of memory: they are written out, NaN where an image masks them.
  StatisticsResult answer_gathered(StatisticsRequest request, const Program& program,
                                   const std::vector<InputRange>& ranges) const {
    const DataType type = group_.precision == Precision::single ? DataType::float32 : DataType::float64;
    std::int64_t count = 0;
    for (const InputRange& range : ranges) count += range.values();
    Buffer gathered = context_.allocate(std::size_t(count) * size_of(type));
    auto* target = static_cast<std::byte*>(gathered.data());
    for (const InputRange& range : ranges)
      for (std::int64_t c = 0; c < range.components(); ++c) {
        const InputRange component = range.component(c);
        write_selected(request.mask, program, component, target, type);
        target += std::size_t(component.values()) * size_of(type);
      }
    if (request.mask.kind == Mask::Kind::image) request.mask = {};
    const std::array<ProgramInput, 1> inputs{ProgramInput{gathered.data(), type}};
    SampledValues values{.inputs = inputs, .count = count, .precision = group_.precision};
    values.selection = selection_of(context_, request.mask, values, group_.input, 0, finder(images_));
    return measured(request, values);
  }

  void write_selected(const Mask& mask, Program program, const InputRange& range, void* target, DataType type) const {
    auto inputs = range.inputs();
    if (mask.kind == Mask::Kind::image) {
      check_mask_components(mask.image, images_.at(mask.image).info(), range.info());
      inputs.push_back(range.input(mask.image));
      program.store(Operand::r0).load(int(inputs.size()) - 1).store(Operand::r1);
      program.add(Op::set, Operand::r0).add(Op::select, Operand::r1, std::nan(""));
    }
    run_program(context_, program, inputs, target, type, range.values(), group_.precision, range.grid());
  }

  DeviceContext& context_;
  const Group& group_;
  const Images& images_;
};

class PointwiseRun {
 public:
  PointwiseRun(DeviceContext& context, const Pipeline& pipeline, const Group& group, const Images& images,
               ItemStatistics& statistics, Notices& notices)
      : context_(context),
        pipeline_(pipeline),
        group_(group),
        images_(images),
        statistics_(statistics),
        notices_(notices) {}

  ConversionCounts run(Volume& output) {
    const std::int64_t components = group_.input.components, step = each_by_itself(group_) ? 1 : components;
    ConversionCounts counts;
    for (std::int64_t first = 0; first < components; first += step) {
      const InputRange range(group_.inputs, images_, first, step);
      const Program program = program_for(range);
      for (std::int64_t c = 0; c < (range.repeats_input() ? step : 1); ++c)
        add(counts, run_part(program, range.repeats_input() ? range.component(c) : range, output));
    }
    return counts;
  }

 private:
  Program program_for(const InputRange& range) {
    const StatisticsPass pass(context_, group_, images_);
    return complete_program(pipeline_, group_, statistics_, notices_,
                            [&](const StatisticsRequest& request, const Program& measured) {
                              return pass.answer(request, measured, range);
                            });
  }

  ConversionCounts run_part(const Program& program, const InputRange& range, Volume& output) {
    return run_program(context_, program, range.inputs(), output.component(range.first()), output.dtype(),
                       range.values(), group_.precision, range.grid());
  }

  static void add(ConversionCounts& counts, const ConversionCounts& part) {
    counts.saturated += part.saturated;
    counts.nan += part.nan;
  }

  DeviceContext& context_;
  const Pipeline& pipeline_;
  const Group& group_;
  const Images& images_;
  ItemStatistics& statistics_;
  Notices& notices_;
};

/// One stage's answers, from the requests that are not answered yet for the item.
std::vector<StatisticsResult> answers_for(const Group& group, std::size_t number, const Program& program,
                                          const VolumeInfo& info, ItemStatistics& statistics, Notices& notices,
                                          const AnswerRequest& answer) {
  const PointwiseStage& stage = *group.pointwise[number];
  const auto requests = stage.requests();
  const bool together = std::any_of(requests.begin(), requests.end(),
                                    [](const StatisticsRequest& request) { return request.over == Over::item; });
  if (requests.empty()) return {};
  const std::size_t index = group.stages[number];
  if (const auto known = statistics.find(index); together && known != statistics.end()) return known->second;
  std::vector<StatisticsResult> answers;
  for (const StatisticsRequest& request : requests) {
    Program measured = program;
    if (request.of) request.of(measured, {info, answers, group.inputs, notices, group.precision});
    answers.push_back(answer(request, measured));
  }
  if (together) statistics[index] = answers;
  return answers;
}

}  // namespace

bool each_by_itself(const Group& group) {
  for (const auto& stage : group.pointwise)
    for (const StatisticsRequest& request : stage->requests())
      if (request.over == Over::component) return true;
  return false;
}

bool differs_by_component(const Group& group, const Mask& mask, const Program& program,
                          const std::function<bool(const std::string&)>& has_components) {
  if (mask.kind == Mask::Kind::image && has_components(mask.image)) return true;
  const Origins origins = origins_of(program);
  for (std::size_t input = 0; input < group.inputs.size(); ++input)
    if (origins.inputs >> input & 1 && has_components(group.inputs[input])) return true;
  return origins.draws;
}

Program complete_program(const Pipeline& pipeline, const Group& group, ItemStatistics& statistics, Notices& notices,
                         const AnswerRequest& answer) {
  Program program;
  VolumeInfo info = group.input;
  for (std::size_t i = 0; i < group.pointwise.size(); ++i)
    with_stage(pipeline.stages[group.stages[i]].label, [&] {
      const PointwiseStage& stage = *group.pointwise[i];
      const auto answers = answers_for(group, i, program, info, statistics, notices, answer);
      stage.append(program, {info, answers, group.inputs, notices, group.precision});
      info = stage.output(info);
    });
  return program;
}

void add_notices(const ConversionCounts& counts, const Group& group, Notices& notices) {
  const std::string type(to_string(group.output.dtype));
  if (counts.saturated)
    notices.add("saturated", std::to_string(counts.saturated) + " voxels of '" + group.image +
                                 "' met the limits of an integer type (output " + type + ")");
  if (counts.nan)
    notices.add("nan_to_integer", std::to_string(counts.nan) + " NaN voxels of '" + group.image +
                                      "' became 0 as integers (output " + type + ")");
}

GroupResult run_pointwise(DeviceContext& context, const Pipeline& pipeline, const Group& group, Images& images,
                          ItemStatistics& statistics, Notices& notices) {
  Volume output(group.output, context.allocate(group.output.bytes()));
  const ConversionCounts counts = PointwiseRun(context, pipeline, group, images, statistics, notices).run(output);
  add_notices(counts, group, notices);
  images.insert_or_assign(group.image, std::move(output));
  return {counts.saturated};
}

}  // namespace volpipe
