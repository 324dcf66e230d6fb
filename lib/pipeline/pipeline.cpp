#include "pipeline/pipeline.h"

#include <filesystem>
#include <fstream>

#include "io/io.h"
#include "spec/json_text.h"
#include "spec/variables.h"
#include "stages/gather/gather_stage.h"
#include "stages/pointwise/pointwise_stage.h"
#include "stages/volume_stage.h"
#include "volume/error.h"
#include "volume/sha256.h"

namespace volpipe {

namespace {

constexpr std::size_t kLargestSpec = std::size_t(16) << 20;
const std::vector<std::string> kTopKeys{"volpipe", "variables", "inputs", "stages",
                                        "outputs", "fuse",      "repeat", "description"};
const std::vector<std::string> kCommonStageKeys{"op", "on", "probability", "name", "precision"};
const std::vector<std::string> kPathFields{"dir", "stem", "name", "id", "repeat"};

/// A word of letters, digits and _, that is not one of the masks' own words.
bool is_image_name(const std::string& name) {
  const auto of_word = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  return !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(), of_word) && name != "nonzero" && name != "foreground";
}

/// Reads the parts of a spec one after another, adding each fault where it stands.
class SpecReader {
 public:
  SpecReader(const Json& spec, const std::string& folder, Faults& faults)
      : spec_(spec), folder_(folder), faults_(faults) {}

  Pipeline read() {
    if (!spec_.is_object()) {
      faults_.add("", "a spec is a JSON object: {\"volpipe\": 1, \"stages\": [...]}");
      return {};
    }
    check_keys(spec_, kTopKeys, "");
    text(spec_, "description", "");
    read_version();
    read_fuse();
    read_repeat();
    read_inputs();
    for (const InputSpec& input : pipeline_.inputs) images_.push_back({input.name, input.kind, input.suffix});
    read_stages();
    read_outputs();
    look_for_axes_before_reorient();
    return std::move(pipeline_);
  }

 private:
  void check_keys(const Json& object, const std::vector<std::string>& known, const std::string& pointer) {
    for (const auto& entry : object.items())
      if (std::find(known.begin(), known.end(), entry.key()) == known.end())
        faults_.add(pointer + "/" + pointer_token(entry.key()),
                    "there is no '" + entry.key() + "' here" +
                        (did_you_mean(entry.key(), known).empty() ? ": known are " + quoted_list(known)
                                                                  : did_you_mean(entry.key(), known)));
  }

  /// The text at object[key] or `fallback`; another type is a fault.
  std::string text(const Json& object, const char* key, const std::string& pointer, std::string fallback = "") {
    const auto found = object.find(key);
    if (found == object.end()) return fallback;
    if (found->is_string()) return found->get<std::string>();
    faults_.add(pointer + "/" + key, std::string("'") + key + "' must be a text, got " + found->dump());
    return fallback;
  }

  bool flag(const Json& object, const char* key, const std::string& pointer) {
    const auto found = object.find(key);
    if (found == object.end()) return false;
    if (found->is_boolean()) return found->get<bool>();
    faults_.add(pointer + "/" + key, std::string("'") + key + "' must be true or false, got " + found->dump());
    return false;
  }

  void read_version() {
    const auto version = spec_.find("volpipe");
    if (version == spec_.end()) faults_.add("", "\"volpipe\": 1 is missing (the version of the spec's format)");
    else if (*version != kSpecVersion)
      faults_.add("/volpipe",
                  "this volpipe reads spec version " + std::to_string(kSpecVersion) + ", got " + version->dump());
  }

  void read_fuse() {
    const std::string fuse = text(spec_, "fuse", "", "auto");
    if (fuse != "auto" && fuse != "none" && fuse != "all")
      faults_.add("/fuse", "'fuse' must be 'auto', 'all' or 'none', got '" + fuse + "'");
    pipeline_.fuse = fuse != "none";
    if (fuse == "all") pipeline_.fusing = Fusing::all;
  }

  void read_repeat() {
    const auto repeat = spec_.find("repeat");
    if (repeat == spec_.end()) return;
    const std::string expected = ParameterType<std::int64_t>::read(*repeat, {.min = 1, .max = 1e6}, pipeline_.repeat);
    if (!expected.empty()) faults_.add("/repeat", "'repeat' must be " + expected + ", got " + repeat->dump());
  }

  void read_inputs() {
    const auto inputs = spec_.find("inputs");
    if (inputs == spec_.end()) {
      pipeline_.inputs = {InputSpec{}};
      return;
    }
    pipeline_.has_input_rules = true;
    if (!inputs->is_object() || inputs->empty()) {
      faults_.add("/inputs", "'inputs' must be an object with one entry an image: {\"image\": {\"suffix\": \"_T1w\"}}");
      pipeline_.inputs = {InputSpec{}};
      return;
    }
    for (const auto& [name, entry] : inputs->items()) {
      const std::string pointer = "/inputs/" + pointer_token(name);
      InputSpec input{name, "", ImageKind::image, false};
      if (!is_image_name(name)) faults_.add(pointer, no_image_name(name));
      if (!entry.is_object()) {
        faults_.add(pointer, "must be an object with 'suffix', 'kind', 'optional', got " + entry.dump());
      } else {
        check_keys(entry, {"suffix", "kind", "optional"}, pointer);
        input.suffix = text(entry, "suffix", pointer);
        input.optional = flag(entry, "optional", pointer);
        const std::string kind = text(entry, "kind", pointer, "image");
        if (kind == "label") input.kind = ImageKind::label;
        else if (kind != "image")
          faults_.add(pointer + "/kind", "'kind' must be 'image' or 'label', got '" + kind + "'");
      }
      for (const InputSpec& other : pipeline_.inputs)
        if (other.suffix == input.suffix)
          faults_.add(pointer, "has the same suffix as '" + other.name + "', so their files cannot be told apart");
      pipeline_.inputs.push_back(std::move(input));
    }
  }

  bool known_image(const std::string& name, const std::string& pointer) {
    if (find_image(name)) return true;
    faults_.add(pointer, "there is no image '" + name + "'" + did_you_mean(name, image_names()) + "; the item has " +
                             quoted_list(image_names()));
    return false;
  }

  /// An image that the item has at this point of the stages.
  struct KnownImage {
    std::string name;
    ImageKind kind;
    std::string suffix;
  };

  const KnownImage* find_image(const std::string& name) const {
    for (const KnownImage& image : images_)
      if (image.name == name) return &image;
    return nullptr;
  }

  std::vector<std::string> image_names() const {
    std::vector<std::string> names;
    for (const KnownImage& image : images_) names.push_back(image.name);
    return names;
  }

  void read_stages() {
    const auto stages = spec_.find("stages");
    if (stages == spec_.end() || !stages->is_array()) {
      faults_.add(stages == spec_.end() ? "" : "/stages",
                  "'stages' must be a list of stages, such as [{\"op\": \"reorient\", \"axes\": \"RAS\"}]");
      return;
    }
    for (std::size_t i = 0; i < stages->size(); ++i) read_stage((*stages)[i], "/stages/" + std::to_string(i));
  }

  void read_stage(const Json& entry, const std::string& pointer) {
    if (!entry.is_object() || !entry.contains("op") || !entry["op"].is_string()) {
      faults_.add(pointer, "a stage is an object with an \"op\", such as {\"op\": \"reorient\", \"axes\": \"RAS\"}");
      return;
    }
    const auto op = entry["op"].get<std::string>();
    StageEntry stage{find_stage(op), text(entry, "name", pointer, op), pointer, {}, {}, 1.0, false, nullptr};
    const bool named = entry.contains("name");
    if (stage.label.empty())
      faults_.add(pointer + "/name", "'name' must not be empty: leave it out, or say what the stage is for");
    if (!stage.definition) {
      std::vector<std::string> ops;
      for (const StageDefinition& definition : volpipe::stages()) ops.push_back(definition.op);
      faults_.add(pointer + "/op",
                  "there is no stage '" + op + "'" + did_you_mean(op, ops) + "; 'volpipe stages' lists them");
      return;
    }
    read_common_keys(entry, pointer, stage);
    stage.parameters = entry;
    for (const std::string& key : kCommonStageKeys) stage.parameters.erase(key);
    std::vector<std::string> known = kCommonStageKeys;
    for (const ParameterInfo& info : stage.definition->parameters) known.push_back(info.name);
    check_keys(entry, known, pointer);
    if (stage.images.empty()) stage.images = images_of_kind(stage.definition->targets);
    for (const ParameterInfo& info : stage.definition->parameters) check_reference(info, stage);
    build(stage);
    if (const auto rearranging = std::dynamic_pointer_cast<const RearrangingStage>(stage.stage)) {
      if (stage.probability != 1.0)
        faults_.add(pointer + "/probability",
                    "'" + op + "' decides which images there are and cannot be left to chance");
      rearrange_images(stage, *rearranging);
    }
    register_made_image(stage);
    if (named && std::any_of(pipeline_.stages.begin(), pipeline_.stages.end(),
                             [&](const StageEntry& other) { return other.label == stage.label; }))
      faults_.add(pointer + "/name", "another stage is called '" + stage.label + "' already");
    pipeline_.stages.push_back(std::move(stage));
  }

  std::vector<std::string> images_of_kind(StageTargets targets) const {
    std::vector<std::string> names;
    for (const KnownImage& image : images_)
      if (targets == StageTargets::all || (targets == StageTargets::labels) == (image.kind == ImageKind::label))
        names.push_back(image.name);
    return names;
  }

  /// What a parameter's text refers to must be there; names of files become absolute.
  void check_reference(const ParameterInfo& info, StageEntry& stage) {
    const auto found = stage.parameters.find(info.name);
    if (found == stage.parameters.end() || info.reference == Reference::none) return;
    const std::string pointer = stage.pointer + "/" + info.name;
    if (has_distribution(*found)) {
      faults_.add(pointer, "'" + info.name + "' names something that must be known beforehand, and cannot be random");
      return;
    }
    if (info.reference == Reference::output) return check_saved_map(*found, pointer);
    if (info.reference == Reference::expression) return add_names(*found, stage);
    if ((found->is_array() && info.reference != Reference::new_images) || found->is_object())
      for (Json& entry : *found) check_reference_text(info.reference, entry, pointer);
    else check_reference_text(info.reference, *found, pointer);
  }

  /// What the names of an expression can mean here.
  void add_names(Json& expression, const StageEntry& stage) const {
    if (!expression.is_string()) return;
    expression = ParameterType<ExpressionText>::with_names(expression.get<std::string>(), image_names(), stage.images,
                                                           spec_.value("variables", Json::object()));
  }

  void check_reference_text(Reference reference, Json& value, const std::string& pointer) {
    if (!value.is_string() || value.get<std::string>().empty()) return;
    const auto name = value.get<std::string>();
    if (reference == Reference::image) known_image(name, pointer);
    if (reference == Reference::stage) known_stage(name, pointer);
    if (reference == Reference::file || (reference == Reference::image_or_file && !find_image(name))) {
      if (!check_file(name, pointer, reference)) return;
      value = (std::filesystem::path(folder_) / name).lexically_normal().string();
      pipeline_.files.push_back(value);
    }
  }

  bool check_file(const std::string& name, const std::string& pointer, Reference reference) {
    if (name.find('{') != std::string::npos) return check_fields(name, pointer);  // found for each item
    std::error_code ignored;
    const std::string path = (std::filesystem::path(folder_) / name).string();
    if (std::filesystem::exists(path, ignored)) return true;
    faults_.add(
        pointer,
        "there is no file '" + path + "'" +
            (reference == Reference::file ? "" : " and no image '" + name + "'" + did_you_mean(name, image_names())) +
            "; names of files are relative to the spec's folder");
    return false;
  }

  void known_stage(const std::string& name, const std::string& pointer) {
    std::vector<std::string> names;
    for (const StageEntry& stage : pipeline_.stages) names.push_back(stage.label);
    const auto count = std::count(names.begin(), names.end(), name);
    if (count == 1) {
      const StageEntry& stage =
          pipeline_.stages[std::size_t(std::find(names.begin(), names.end(), name) - names.begin())];
      if (stage.definition->family != "geometry" || std::dynamic_pointer_cast<const RearrangingStage>(stage.stage))
        faults_.add(pointer, "the stage '" + name + "' moves nothing in the world that could be undone");
      return;
    }
    if (comes_later(name)) {
      faults_.add(pointer, "the stage '" + name + "' comes later: only earlier stages can be meant");
      return;
    }
    if (count > 1)
      faults_.add(pointer, std::to_string(count) + " earlier stages are called '" + name +
                               "': give the one that is meant a \"name\"");
    else
      faults_.add(pointer, "there is no earlier stage '" + name + "'" + did_you_mean(name, names) +
                               (names.empty() ? "" : "; earlier are " + quoted_list(names)));
  }

  bool comes_later(const std::string& name) const {
    const Json& stages = spec_.at("stages");
    for (std::size_t i = pipeline_.stages.size(); i < stages.size(); ++i)
      if (stages[i].is_object() && stages[i].value("name", stages[i].value("op", Json())) == Json(name)) return true;
    return false;
  }

  void check_saved_map(const Json& value, const std::string& pointer) {
    if (!value.is_string()) return;
    const auto path = value.get<std::string>();
    check_path_fields(path, pointer);
    check_repeat_field(path, pointer);
    if (!path.ends_with(".tfm") && !path.ends_with(".txt") && !path.ends_with(".mat"))
      faults_.add(pointer,
                  "a transform is written to .tfm (ITK text), .mat (ITK Matlab) or .txt (4x4), got '" + path + "'");
    pipeline_.saved_maps.push_back({pipeline_.stages.size(), path});
  }

  void rearrange_images(const StageEntry& stage, const RearrangingStage& rearranging) {
    std::vector<std::string> made;
    try {
      made = rearranging.makes(stage.images);
    } catch (const Error& error) { return faults_.add(stage.pointer, error.what()); }
    const ImageKind kind = stage.images.empty() ? ImageKind::image : find_image(stage.images.front())->kind;
    std::erase_if(images_, [&](const KnownImage& image) {
      return std::find(stage.images.begin(), stage.images.end(), image.name) != stage.images.end();
    });
    for (const std::string& name : made) {
      if (!is_image_name(name)) faults_.add(stage.pointer, no_image_name(name));
      else if (find_image(name)) faults_.add(stage.pointer, "there is an image '" + name + "' already");
      else images_.push_back({name, kind, "_" + name});
    }
  }

  /// The image that a pointwise or volume stage makes besides those it acts on; an image that is there is replaced.
  void register_made_image(StageEntry& stage) {
    if (!stage.stage) return assume_made_image(stage.parameters.value("output", Json()));
    const std::string made = made_by(*stage.stage);
    if (made.empty()) return;
    ImageKind kind = ImageKind::image;
    if (const auto pointwise = std::dynamic_pointer_cast<const PointwiseStage>(stage.stage)) {
      kind = pointwise->output({}).kind;
      if (stage.images.empty()) stage.images = pointwise->reads();
    } else if (!check_image_of_one(made, stage)) {
      return;
    }
    if (find_image(made)) {
      stage.images = {made};
      return;
    }
    if (stage.probability != 1.0)
      faults_.add(stage.pointer + "/probability",
                  "'" + stage.definition->op + "' makes the image '" + made + "' and cannot be left to chance");
    if (is_image_name(made)) images_.push_back({made, kind, "_" + made});
    else faults_.add(stage.pointer, no_image_name(made));
  }

  /// What a faulty stage would have made is no further fault of those that name it.
  void assume_made_image(const Json& output) {
    if (!output.is_string() || find_image(output.get<std::string>())) return;
    images_.push_back({output.get<std::string>(), ImageKind::image, "_" + output.get<std::string>()});
  }

  /// A volume stage makes a new image of one that it acts on.
  bool check_image_of_one(const std::string& made, const StageEntry& stage) {
    if (find_image(made)) faults_.add(stage.pointer, "there is an image '" + made + "' already");
    else if (stage.images.size() != 1)
      faults_.add(stage.pointer, "'" + made + "' would be made of " + quoted_list(stage.images) +
                                     ": say with \"on\" which one is meant");
    else return true;
    return false;
  }

  static std::string no_image_name(const std::string& name) {
    return "'" + name.substr(0, 40) +
           "' cannot be an image's name: use letters, digits and _, and not 'nonzero' or 'foreground'";
  }

  void read_common_keys(const Json& entry, const std::string& pointer, StageEntry& stage) {
    if (const auto on = entry.find("on"); on != entry.end()) read_on(*on, pointer + "/on", stage);
    if (const auto probability = entry.find("probability"); probability != entry.end())
      read_probability(*probability, pointer + "/probability", stage);
    const std::string precision = text(entry, "precision", pointer, "single");
    if (precision != "single" && precision != "double")
      faults_.add(pointer + "/precision", "'precision' must be 'single' or 'double', got '" + precision + "'");
    stage.double_precision = precision == "double";
  }

  void read_on(const Json& on, const std::string& pointer, StageEntry& stage) {
    const Json list = on.is_array() ? on : Json::array({on});
    if (list.empty()) faults_.add(pointer, "'on' names no image; leave it out for the stage's usual images");
    for (const Json& entry : list) {
      if (!entry.is_string()) {
        faults_.add(pointer, "'on' must be an image's name or a list of them, got " + on.dump());
        continue;
      }
      const auto name = entry.get<std::string>();
      if (std::find(stage.images.begin(), stage.images.end(), name) != stage.images.end())
        faults_.add(pointer, "'on' names '" + name + "' twice");
      else if (known_image(name, pointer)) stage.images.push_back(name);
    }
  }

  void read_probability(const Json& probability, const std::string& pointer, StageEntry& stage) {
    const std::size_t before = faults_.list().size();
    check_distributions(probability, pointer, faults_);
    if (faults_.list().size() != before) return;
    for (std::size_t k = 0; k < distribution_extremes(probability); ++k) {
      const Json extreme = distribution_extreme(probability, k);
      if (extreme.is_number() && extreme >= 0 && extreme <= 1) continue;
      faults_.add(pointer, "'probability' must be a number from 0 to 1, got " + probability.dump());
      return;
    }
    stage.probability = probability;
  }

  /// A mask that is an image must be one of the item.
  void check_mask(const std::shared_ptr<const Stage>& stage, const std::string& pointer) {
    std::vector<Mask> masks;
    if (const auto pointwise = std::dynamic_pointer_cast<const PointwiseStage>(stage))
      for (const StatisticsRequest& request : pointwise->requests()) masks.push_back(request.mask);
    if (const auto measuring = std::dynamic_pointer_cast<const MeasuringStage>(stage))
      masks.push_back(measuring->request().mask);
    for (const Mask& mask : masks)
      if (mask.kind == Mask::Kind::image) known_image(mask.image, pointer + "/mask");
  }

  void build(StageEntry& stage) {
    const std::size_t before = faults_.list().size();
    check_distributions(stage.parameters, stage.pointer, faults_);
    if (faults_.list().size() != before) return;
    if (!has_distribution(stage.parameters)) {
      stage.stage = stage.definition->make(stage.parameters, stage.pointer, faults_);
      check_mask(stage.stage, stage.pointer);
      return;
    }
    for (std::size_t k = 0; k < distribution_extremes(stage.parameters) && faults_.list().size() == before; ++k) {
      const auto probe = stage.definition->make(distribution_extreme(stage.parameters, k), stage.pointer, faults_);
      check_mask(probe, stage.pointer);
      if (const std::string made = probe ? made_by(*probe) : ""; !made.empty())
        faults_.add(stage.pointer,
                    "'" + stage.definition->op + "' makes the image '" + made + "' and takes no random parameters");
      if (std::dynamic_pointer_cast<const RearrangingStage>(probe))
        faults_.add(stage.pointer,
                    "'" + stage.definition->op + "' decides which images there are and takes no random parameters");
    }
  }

  /// Values for x, y, z of files whose axes are brought in order only later (tutorials #545 of MONAI).
  void look_for_axes_before_reorient() {
    const auto reorient = std::find_if(pipeline_.stages.begin(), pipeline_.stages.end(),
                                       [](const StageEntry& stage) { return stage.definition->op == "reorient"; });
    if (reorient == pipeline_.stages.end()) return;
    for (auto stage = pipeline_.stages.begin(); stage != reorient; ++stage)
      for (const ParameterInfo& info : stage->definition->parameters) {
        const auto found = stage->parameters.find(info.name);
        if (!info.per_axis || found == stage->parameters.end() || !found->is_array() || found->size() != 3) continue;
        if ((*found)[0] == (*found)[1] && (*found)[1] == (*found)[2]) continue;
        pipeline_.notices.add("axes_before_reorient",
                              stage->pointer + ": '" + info.name + "' of " + stage->label +
                                  " has values for the voxel axes x, y, z, which differ from file to file until " +
                                  reorient->label + ": put " + reorient->label + " before it");
      }
  }

  void read_outputs() {
    const auto outputs = spec_.find("outputs");
    if (outputs == spec_.end()) {
      for (const KnownImage& image : images_)
        pipeline_.outputs.push_back({image.name, default_path(images_.size() == 1 ? "" : image.suffix), {}});
      return;
    }
    if (!outputs->is_object() || outputs->empty()) {
      faults_.add(
          "/outputs",
          "'outputs' must be an object with one entry an image: {\"image\": {\"path\": \"{dir}/{stem}.nii.gz\"}}");
      return;
    }
    for (const auto& [name, entry] : outputs->items()) read_output(name, entry, "/outputs/" + pointer_token(name));
  }

  /// The place of the input's file below the output folder.
  std::string default_path(const std::string& suffix) const {
    return "{dir}/{stem}" + suffix + (pipeline_.repeat > 1 ? "_{repeat}" : "") + ".nii.gz";
  }

  void read_output(const std::string& name, const Json& entry, const std::string& pointer) {
    if (!known_image(name, pointer)) return;
    if (!entry.is_object()) {
      faults_.add(pointer,
                  "must be an object with 'path' and, if wanted, 'dtype' and 'compression', got " + entry.dump());
      return;
    }
    check_keys(entry, {"path", "dtype", "compression"}, pointer);
    OutputSpec output{name, text(entry, "path", pointer, default_path(find_image(name)->suffix)), {}};
    check_path(output.path, pointer + "/path");
    if (entry.contains("dtype")) {
      const std::string dtype = text(entry, "dtype", pointer);
      output.dtype = parse_data_type(dtype);
      const std::vector<std::string> names{"uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64"};
      if (!output.dtype)
        faults_.add(pointer + "/dtype", "'dtype' must be one of " + quoted_list(names) + did_you_mean(dtype, names) +
                                            ", got '" + dtype + "'");
    }
    if (const auto level = entry.find("compression"); level != entry.end()) {
      if (!level->is_number_integer() || *level < 1 || *level > 3)
        faults_.add(pointer + "/compression", "'compression' must be 1 (fast), 2 or 3 (dense), got " + level->dump());
      else output.compression = level->get<int>();
    }
    pipeline_.outputs.push_back(std::move(output));
  }

  /// Without it, the versions of an item would be one file.
  void check_repeat_field(const std::string& path, const std::string& pointer) {
    if (pipeline_.repeat > 1 && path.find("{repeat}") == std::string::npos)
      faults_.add(pointer, "with \"repeat\" the path must hold {repeat}, such as \"{dir}/{stem}_{repeat}.nii.gz\"");
  }

  bool check_fields(const std::string& path, const std::string& pointer) {
    bool known = true;
    for (std::size_t open = path.find('{'); open != std::string::npos; open = path.find('{', open + 1)) {
      const std::size_t close = path.find('}', open);
      const std::string name = path.substr(open + 1, close == std::string::npos ? 40 : close - open - 1);
      if (std::find(kPathFields.begin(), kPathFields.end(), name) != kPathFields.end()) continue;
      faults_.add(pointer, "there is no field {" + name + "}" + did_you_mean(name, kPathFields) +
                               "; fields are {dir} {stem} {name} {id} {repeat}");
      known = false;
    }
    return known;
  }

  void check_path_fields(const std::string& path, const std::string& pointer) {
    check_fields(path, pointer);
    if (std::any_of(path.begin(), path.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
      faults_.add(pointer, "an output path cannot hold control characters");
    if (path.starts_with("/"))
      faults_.add(pointer, "an output path is relative to the output folder and cannot start with '/'");
    const std::filesystem::path normal = std::filesystem::path(path).lexically_normal();
    if (!normal.empty() && *normal.begin() == "..")
      faults_.add(pointer, "'" + path + "' leaves the output folder: leave out the '..'");
  }

  void check_path(const std::string& path, const std::string& pointer) {
    check_path_fields(path, pointer);
    check_repeat_field(path, pointer);
    try {
      io::check_output_format(path);
    } catch (const Error& error) { faults_.add(pointer, error.what()); }
  }

  const Json& spec_;
  const std::string folder_;  ///< of the spec's file
  Faults& faults_;
  Pipeline pipeline_;
  std::vector<KnownImage> images_;
};

Json replace_variables(const Json& spec, const std::map<std::string, Json>& settings, Faults& faults) {
  if (!spec.is_object()) return spec;
  Json variables = spec.value("variables", Json::object());
  if (!variables.is_object()) {
    faults.add("/variables", "'variables' must be an object of names and values");
    variables = Json::object();
  }
  std::vector<std::string> names;
  for (const auto& entry : variables.items()) names.push_back(entry.key());
  for (const auto& [name, value] : settings) {
    if (!variables.contains(name))
      faults.add("/variables", "--set " + name + ": the spec has no variable of that name" + did_you_mean(name, names));
    variables[name] = value;
  }
  Json result = Json::object();
  for (const auto& [key, value] : spec.items())
    result[key] =
        key == "variables" ? variables : substitute_variables(value, variables, "/" + pointer_token(key), faults);
  return result;
}

}  // namespace

const StageEntry* Pipeline::find_given_code() const {
  const auto found = std::find_if(stages.begin(), stages.end(),
                                  [](const StageEntry& stage) { return stage.definition->runs_given_code; });
  return found == stages.end() ? nullptr : &*found;
}

const InputSpec* Pipeline::find_input(const std::string& name) const {
  for (const InputSpec& input : inputs)
    if (input.name == name) return &input;
  return nullptr;
}

SpecError::SpecError(const std::string& origin, std::vector<Fault> faults)
    : Error(ErrorCode::usage,
            origin + " has " + std::to_string(faults.size()) + (faults.size() == 1 ? " fault" : " faults")),
      origin_(origin),
      faults_(std::move(faults)) {}

std::vector<std::string> SpecError::lines() const {
  std::vector<std::string> lines;
  for (const Fault& fault : faults_)
    lines.push_back(origin_ + ":" + std::to_string(fault.line) + ": " +
                    (fault.pointer.empty() ? "" : fault.pointer + ": ") + fault.message);
  return lines;
}

Pipeline parse_pipeline(const std::string& text, const std::string& origin,
                        const std::map<std::string, Json>& settings) {
  Faults faults;
  const JsonText parsed = parse_json_text(text, faults);
  Pipeline pipeline;
  if (faults.empty()) {
    const Json spec = replace_variables(parsed.value, settings, faults);
    const std::string folder = std::filesystem::absolute(origin).parent_path().string();
    pipeline = SpecReader(spec, folder, faults).read();
    pipeline.spec = spec;
  }
  if (!faults.empty()) {
    for (Fault& fault : faults.list())
      if (fault.line == 0) fault.line = parsed.line_of(fault.pointer);
    std::stable_sort(faults.list().begin(), faults.list().end(),
                     [](const Fault& a, const Fault& b) { return a.line < b.line; });
    throw SpecError(origin, std::move(faults.list()));
  }
  pipeline.origin = origin;
  pipeline.sha256 = sha256_of(text);
  return pipeline;
}

Pipeline load_pipeline(const std::string& path, const std::map<std::string, Json>& settings) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kLargestSpec + 1, '\0');
  file.read(text.data(), std::streamsize(text.size()));
  text.resize(std::size_t(std::max<std::streamsize>(file.gcount(), 0)));
  if (text.empty())
    throw Error(ErrorCode::usage,
                "cannot read the spec '" + path + "': check that the file exists, is not empty and can be read");
  if (text.size() > kLargestSpec) throw Error(ErrorCode::usage, "'" + path + "' is larger than 16 MiB and no spec");
  return parse_pipeline(text, path, settings);
}

}  // namespace volpipe
