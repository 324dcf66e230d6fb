// A checked spec: inputs, stages, outputs. Immutable once parsed; every item of a run is planned from it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spec/parameters.h"
#include "stages/gather/compose.h"
#include "stages/registry.h"
#include "volume/error.h"

namespace volpipe {

inline constexpr int kSpecVersion = 1;

/// One named image of an item and how its files are recognised.
struct InputSpec {
  std::string name = "image";
  std::string suffix;  ///< end of the file's stem, such as "_T1w"
  ImageKind kind = ImageKind::image;
  bool optional = false;
};

/// Where an image goes; `path` holds {dir} {stem} {name} {id} {repeat}.
struct OutputSpec {
  std::string image;
  std::string path;
  std::optional<DataType> dtype;
  int compression = 0;  ///< of packed formats, 1 (fast) to 3 (dense); 0: the usual, 2
};

/// One entry of "stages". A stage without random parameters is built once, here; else for each item.
struct StageEntry {
  const StageDefinition* definition;
  std::string label;                ///< "name" when given, else its op
  std::string pointer;              ///< "/stages/2"
  Json parameters;                  ///< variables replaced, common keys removed
  std::vector<std::string> images;  ///< those it acts on, where the item has them: "on", or those of its kind
  Json probability = 1.0;           ///< number, or a distribution
  bool double_precision = false;
  std::shared_ptr<const Stage> stage;  ///< null when parameters are random
};

/// Where a stage's map is written: `path` as in OutputSpec.
struct SavedMap {
  std::size_t stage;
  std::string path;
};

struct Pipeline {
  std::vector<InputSpec> inputs;
  std::vector<StageEntry> stages;
  std::vector<OutputSpec> outputs;  ///< one for each image that is written
  std::vector<SavedMap> saved_maps{};
  std::vector<std::string> files{};  ///< that stages name; some hold fields of the item
  Notices notices{};                 ///< what is allowed, but hardly meant
  bool fuse = true;
  Fusing fusing = Fusing::exact;
  std::int64_t repeat = 1;       ///< versions of each item, told apart by {repeat}
  bool has_input_rules = false;  ///< "inputs" was given: files are grouped by suffix
  Json spec;                     ///< as run: comments gone, variables replaced
  std::string origin;            ///< path of the file
  std::string sha256;            ///< of the file's bytes

  const InputSpec* find_input(const std::string& name) const;
  /// The first stage that runs code of the spec's own; null when none does.
  const StageEntry* find_given_code() const;
};

/// The faults of a spec, all of them, each with its line.
class SpecError : public Error {
 public:
  SpecError(const std::string& origin, std::vector<Fault> faults);
  const std::vector<Fault>& faults() const { return faults_; }
  /// "file:line: /stages/1/sigma: 'sigma' must be ..."
  std::vector<std::string> lines() const;

 private:
  std::string origin_;
  std::vector<Fault> faults_;
};

/// Parses and checks a spec. `settings` replace declared variables ("NAME=VALUE" of the command line). Throws
/// SpecError.
Pipeline parse_pipeline(const std::string& text, const std::string& origin,
                        const std::map<std::string, Json>& settings = {});
/// The same from a file; Error(usage) when it cannot be read.
Pipeline load_pipeline(const std::string& path, const std::map<std::string, Json>& settings = {});

/// JSON Schema (2020-12) of a spec, from the declarations of the stages.
Json spec_schema();

}  // namespace volpipe
