#include "pipeline/pipeline.h"

#include <nettle/sha2.h>

#include <fstream>

#include "io/io.h"
#include "spec/json_text.h"
#include "spec/variables.h"
#include "stages/pointwise/pointwise_stage.h"
#include "volume/error.h"

namespace volpipe {

namespace {

constexpr std::size_t kLargestSpec = std::size_t(16) << 20;
const std::vector<std::string> kTopKeys{"volpipe", "variables", "inputs", "stages", "outputs", "fuse", "description"};
const std::vector<std::string> kCommonStageKeys{"op", "on", "probability", "name", "precision"};
const std::vector<std::string> kPathFields{"dir", "stem", "name", "id", "repeat"};

std::string sha256_of(const std::string& text) {
  sha256_ctx context;
  sha256_init(&context);
  sha256_update(&context, text.size(), reinterpret_cast<const std::uint8_t*>(text.data()));
  std::uint8_t digest[SHA256_DIGEST_SIZE];
  sha256_digest(&context, sizeof digest, digest);
  std::string hex;
  for (std::uint8_t byte : digest) {
    constexpr char digits[] = "0123456789abcdef";
    hex += {digits[byte >> 4], digits[byte & 15]};
  }
  return hex;
}

/// A word of letters, digits and _, that is not one of the masks' own words.
bool is_image_name(const std::string& name) {
  const auto of_word = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  return !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0])) && std::all_of(name.begin(), name.end(), of_word) &&
         name != "nonzero" && name != "foreground";
}

/// Reads the parts of a spec one after another, adding each fault where it stands.
class SpecReader {
 public:
  SpecReader(const Json& spec, Faults& faults) : spec_(spec), faults_(faults) {}

  Pipeline read() {
    if (!spec_.is_object()) {
      faults_.add("", "a spec is a JSON object: {\"volpipe\": 1, \"stages\": [...]}");
      return {};
    }
    check_keys(spec_, kTopKeys, "");
    text(spec_, "description", "");
    read_version();
    read_inputs();
    read_stages();
    read_outputs();
    if (const auto fuse = spec_.find("fuse"); fuse != spec_.end()) {
      if (*fuse == "none" || *fuse == "auto") pipeline_.fuse = *fuse == "auto";
      else faults_.add("/fuse", "'fuse' must be 'auto' or 'none', got " + fuse->dump());
    }
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
      if (!is_image_name(name))
        faults_.add(pointer, "'" + name.substr(0, 40) + "' cannot be an image's name: use letters, digits and _, and not 'nonzero' or 'foreground'");
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
    if (pipeline_.find_input(name)) return true;
    faults_.add(pointer, "there is no image '" + name + "'" + did_you_mean(name, image_names()) + "; the item has " +
                             quoted_list(image_names()));
    return false;
  }

  std::vector<std::string> image_names() const {
    std::vector<std::string> names;
    for (const InputSpec& input : pipeline_.inputs) names.push_back(input.name);
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
    build(stage);
    pipeline_.stages.push_back(std::move(stage));
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
      if (std::find(stage.on.begin(), stage.on.end(), name) != stage.on.end()) faults_.add(pointer, "'on' names '" + name + "' twice");
      else if (known_image(name, pointer)) stage.on.push_back(name);
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
  void check_mask(const StageEntry& stage) {
    const auto pointwise = std::dynamic_pointer_cast<const PointwiseStage>(stage.stage);
    const auto request = pointwise ? pointwise->request() : std::nullopt;
    if (request && request->mask.kind == Mask::Kind::image) known_image(request->mask.image, stage.pointer + "/mask");
  }

  void build(StageEntry& stage) {
    const std::size_t before = faults_.list().size();
    check_distributions(stage.parameters, stage.pointer, faults_);
    if (faults_.list().size() != before) return;
    if (!has_distribution(stage.parameters)) {
      stage.stage = stage.definition->make(stage.parameters, stage.pointer, faults_);
      check_mask(stage);
      return;
    }
    for (std::size_t k = 0; k < distribution_extremes(stage.parameters) && faults_.list().size() == before; ++k)
      stage.definition->make(distribution_extreme(stage.parameters, k), stage.pointer, faults_);
  }

  void read_outputs() {
    const auto outputs = spec_.find("outputs");
    if (outputs == spec_.end()) {
      for (const InputSpec& input : pipeline_.inputs)
        pipeline_.outputs.push_back(
            {input.name,
             pipeline_.inputs.size() == 1 ? "{dir}/{stem}.nii.gz" : "{dir}/{stem}" + input.suffix + ".nii.gz",
             {}});
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

  void read_output(const std::string& name, const Json& entry, const std::string& pointer) {
    if (!known_image(name, pointer)) return;
    if (!entry.is_object()) {
      faults_.add(pointer, "must be an object with 'path' and, if wanted, 'dtype', got " + entry.dump());
      return;
    }
    check_keys(entry, {"path", "dtype"}, pointer);
    OutputSpec output{
        name, text(entry, "path", pointer, "{dir}/{stem}" + pipeline_.find_input(name)->suffix + ".nii.gz"), {}};
    check_path(output.path, pointer + "/path");
    if (entry.contains("dtype")) {
      const std::string dtype = text(entry, "dtype", pointer);
      output.dtype = parse_data_type(dtype);
      const std::vector<std::string> names{"uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64"};
      if (!output.dtype)
        faults_.add(pointer + "/dtype", "'dtype' must be one of " + quoted_list(names) + did_you_mean(dtype, names) +
                                            ", got '" + dtype + "'");
    }
    pipeline_.outputs.push_back(std::move(output));
  }

  void check_path(const std::string& path, const std::string& pointer) {
    for (std::size_t open = path.find('{'); open != std::string::npos; open = path.find('{', open + 1)) {
      const std::size_t close = path.find('}', open);
      const std::string name = path.substr(open + 1, close == std::string::npos ? 40 : close - open - 1);
      if (std::find(kPathFields.begin(), kPathFields.end(), name) == kPathFields.end())
        faults_.add(pointer, "there is no field {" + name + "}" + did_you_mean(name, kPathFields) +
                                 "; fields are {dir} {stem} {name} {id} {repeat}");
    }
    if (std::any_of(path.begin(), path.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
      faults_.add(pointer, "an output path cannot hold control characters");
    if (path.starts_with("/"))
      faults_.add(pointer, "an output path is relative to the output folder and cannot start with '/'");
    try {
      io::check_output_format(path);
    } catch (const Error& error) { faults_.add(pointer, error.what()); }
  }

  const Json& spec_;
  Faults& faults_;
  Pipeline pipeline_;
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
    pipeline = SpecReader(spec, faults).read();
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
  if (text.size() > kLargestSpec)
    throw Error(ErrorCode::usage, "'" + path + "' is larger than 16 MiB and no spec");
  return parse_pipeline(text, path, settings);
}

std::vector<std::string> images_of(const Pipeline& pipeline, const StageEntry& entry) {
  if (!entry.on.empty()) return entry.on;
  std::vector<std::string> names;
  for (const InputSpec& input : pipeline.inputs) {
    const StageTargets targets = entry.definition->targets;
    const bool label = input.kind == ImageKind::label;
    if (targets == StageTargets::all || (targets == StageTargets::labels) == label) names.push_back(input.name);
  }
  return names;
}

}  // namespace volpipe
