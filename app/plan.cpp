// volpipe plan: what a run would do, from headers alone.
#include <iostream>

#include "command.h"
#include "pipeline/file_cache.h"
#include "pipeline/runner.h"
#include "read_options.h"
#include "settings.h"
#include "volume/error.h"

namespace volpipe::app {
namespace {

struct Flags {
  std::string spec, device = "auto";
  std::vector<std::string> inputs, settings;
  bool json = false;
  std::string seed = "0";
  ReadFlags reading;
};

std::string in_words(const VolumeInfo& info) {
  const Index3& n = info.geometry.size();
  const Vec3 s = info.geometry.spacing();
  char text[160];
  std::snprintf(text, sizeof text, "%lld x %lld x %lld, %.6g x %.6g x %.6g mm, %s, %s", static_cast<long long>(n[0]),
                static_cast<long long>(n[1]), static_cast<long long>(n[2]), s[0], s[1], s[2],
                info.geometry.orientation().c_str(), std::string(to_string(info.dtype)).c_str());
  return text + (info.components > 1 ? ", " + std::to_string(info.components) + " components" : std::string());
}

std::string stages_of(const Pipeline& pipeline, const Group& group) {
  std::string names;
  for (std::size_t index : group.stages) names += (names.empty() ? "" : " + ") + pipeline.stages[index].label;
  return names.empty() ? "convert to " + std::string(to_string(group.output.dtype)) : names;
}

std::string_view kind_of(const Group& group) {
  switch (group.kind) {
    case GroupKind::pointwise:
      return "pointwise";
    case GroupKind::gather:
      return "gather";
    case GroupKind::volume:
      return group.volume->on_host() ? "volume, on the host" : "volume";
    case GroupKind::rearrange:
      return "rearrange";
    case GroupKind::separable:
      break;
  }
  return group.map.copies() ? "copy" : "resample";
}

ImageInfos read_headers(const Pipeline& pipeline, const Item& item, const io::ReadOptions& reading) {
  ImageInfos infos;
  for (const InputSpec& input : pipeline.inputs)
    if (const auto found = item.images.find(input.name); found != item.images.end()) {
      Notices notices;
      infos.emplace(input.name,
                    with_path(found->second.path, [&] { return io::read_info(found->second, notices, reading); }));
      infos.at(input.name).kind = input.kind;
    }
  return infos;
}

/// The images that a stage acted on or made.
std::vector<std::string> images_after(const StageEntry& stage, const ImageInfos& after) {
  if (!std::dynamic_pointer_cast<const RearrangingStage>(stage.stage)) return stage.images;
  std::vector<std::string> names;
  for (const auto& [name, info] : after) names.push_back(name);
  return names;
}

template <class E>
std::string word(E value) {
  return EnumNames<E>::names[static_cast<std::size_t>(value)];
}

/// How a group samples between voxels; empty where it does not, or where it smooths as well.
std::optional<GridSampling> sampling_of(const Group& group) {
  if (group.kind == GroupKind::gather) return GridSampling{group.gather.interpolation, group.gather.boundary};
  return group.kind == GroupKind::separable && group.map.computes ? group.map.sampling : std::nullopt;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : "; ") + part;
  return text;
}

/// What the spec says of a stage, where that is a text to be read beside its program.
std::string expression_of(const StageEntry& stage) {
  const Json expression = stage.parameters.value("expr", Json());
  if (!expression.is_object()) return "";
  return " = " + expression.value("text", "");
}

/// What every voxel goes through in one pass; constants that come from the image are "?".
void print_program(const Pipeline& pipeline, const Group& group) {
  const auto programs = programs_of(group);
  for (std::size_t s = 0; s < programs.size(); ++s) {
    const std::string& label = pipeline.stages[group.stages[s]].label;
    for (const std::string& statistics : programs[s].statistics)
      std::cout << "    " << label << " looks for " << statistics << "\n";
    const std::string expression = expression_of(pipeline.stages[group.stages[s]]);
    if (!expression.empty()) std::cout << "    " << label << expression << "\n";
    std::cout << "    " << label << ": " << joined(programs[s].instructions) << "\n";
  }
}

Json programs_to_json(const Pipeline& pipeline, const Group& group) {
  Json list = Json::array();
  const auto programs = programs_of(group);
  for (std::size_t s = 0; s < programs.size(); ++s)
    list.push_back({{"stage", pipeline.stages[group.stages[s]].label},
                    {"statistics", programs[s].statistics},
                    {"instructions", programs[s].instructions}});
  return list;
}

void print(const Pipeline& pipeline, const Item& item, const Plan& plan, const DeviceChoice& device) {
  std::cout << item.id << (pipeline.repeat > 1 ? " (version " + std::to_string(item.repeat) + ")" : "") << " on "
            << device.name() << (device.fallback_reason.empty() ? "" : " (" + device.fallback_reason + ")") << "\n";
  for (const auto& [name, info] : plan.inputs) std::cout << "  in    " << name << ": " << in_words(info) << "\n";
  for (std::size_t i = 0; i < pipeline.stages.size(); ++i)
    for (const std::string& name : images_after(pipeline.stages[i], plan.after_stage[i]))
      if (plan.after_stage[i].contains(name))
        std::cout << "  stage " << pipeline.stages[i].label << ", " << name << ": "
                  << in_words(plan.after_stage[i].at(name)) << "\n";
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const Group& group = plan.groups[g];
    const auto sampling = sampling_of(group);
    std::cout << "  group " << g << " (" << kind_of(group)
              << (sampling ? ", " + word(sampling->interpolation) + ", " + word(sampling->boundary) : "") << ", "
              << group.image << "): " << stages_of(pipeline, group)
              << (group.ended_by.empty() ? "" : "; ends: " + group.ended_by) << "\n";
    print_program(pipeline, group);
  }
  for (std::size_t index : plan.guessed)
    std::cout << "  " << pipeline.stages[index].label
              << " depends on voxels: shown is the largest it can give; the run looks at them\n";
  for (std::size_t index : plan.skipped)
    std::cout << "  left out by its probability: " << pipeline.stages[index].label << "\n";
  for (const auto& [name, info] : plan.outputs) std::cout << "  out   " << name << ": " << in_words(info) << "\n";
  std::cout << "  peak memory of volumes: " << human_bytes(plan.peak_device_bytes) << "\n";
}

Json to_json(const Pipeline& pipeline, const Item& item, const Plan& plan, const DeviceChoice& device) {
  const auto images = [](const ImageInfos& infos) {
    Json object = Json::object();
    for (const auto& [name, info] : infos) object[name] = volpipe::to_json(info);
    return object;
  };
  Json stages = Json::array(), groups = Json::array();
  for (std::size_t i = 0; i < pipeline.stages.size(); ++i) {
    Json entry = {{"op", pipeline.stages[i].definition->op}, {"name", pipeline.stages[i].label}};
    entry["images"] = images(plan.after_stage[i]);
    stages.push_back(std::move(entry));
  }
  for (const Group& group : plan.groups) {
    Json labels = Json::array();
    for (std::size_t index : group.stages) labels.push_back(pipeline.stages[index].label);
    groups.push_back({{"image", group.image},
                      {"kind", kind_of(group)},
                      {"stages", labels},
                      {"ended_by", group.ended_by},
                      {"output", volpipe::to_json(group.output)}});
    if (group.kind == GroupKind::pointwise) groups.back()["program"] = programs_to_json(pipeline, group);
    if (const auto sampling = sampling_of(group)) {
      groups.back()["interpolation"] = word(sampling->interpolation);
      groups.back()["boundary"] = word(sampling->boundary);
    }
  }
  Json guessed = Json::array();
  for (std::size_t index : plan.guessed) guessed.push_back(pipeline.stages[index].label);
  Json entry = {{"id", item.id},    {"repeat", item.repeat}, {"device", device.name()}, {"inputs", images(plan.inputs)},
                {"stages", stages}, {"groups", groups}};
  entry["outputs"] = images(plan.outputs);
  entry["depends_on_voxels"] = guessed;
  entry["peak_device_bytes"] = plan.peak_device_bytes;
  return entry;
}

int plan_items(const Flags& flags) {
  const Pipeline pipeline = load_pipeline(flags.spec, parse_settings(flags.settings));
  const DeviceChoice device = choose_device(flags.device, true);
  const HostThreads threads;
  const io::ReadOptions reading = to_read_options(flags.reading, &threads);
  const Items items = collect_items(pipeline, flags.inputs, "", reading);
  Json list = Json::array();
  FileCache cache;
  for (const Item& item : items.items) {
    const Plan plan = with_path(item.images.begin()->second.path, [&] {
      ItemFiles files(cache, item);
      return make_plan(pipeline, read_headers(pipeline, item, reading), {parse_seed(flags.seed), item.id, item.repeat},
                       &files);
    });
    if (flags.json) list.push_back(to_json(pipeline, item, plan, device));
    else print(pipeline, item, plan, device);
  }
  if (flags.json) std::cout << Json{{"items", list}}.dump(2) << "\n";
  if (!items.faults.empty())
    throw std::move(Error(ErrorCode::input, items.faults.front().message)).with_path(items.faults.front().path);
  return kSuccess;
}

}  // namespace

Command add_plan(CLI::App& parent) {
  CLI::App* command = parent.add_subcommand("plan", "Dry run: geometry after each stage, fused groups, device, memory");
  const auto flags = std::make_shared<Flags>();
  command->add_option("SPEC", flags->spec, "the pipeline, a JSON file")->required();
  command->add_option("INPUT", flags->inputs, "as for 'run'")->required();
  command->add_option("--device", flags->device, "as for 'run'")->capture_default_str();
  command->add_option("--set", flags->settings, "NAME=VALUE of a variable of the spec (repeatable)")
      ->allow_extra_args(false);
  command->add_option("--seed", flags->seed, "seed of random parameters")->capture_default_str();
  add_read_options(*command, flags->reading);
  command->add_flag("--json", flags->json, "as JSON");
  return [flags] { return plan_items(*flags); };
}

}  // namespace volpipe::app
