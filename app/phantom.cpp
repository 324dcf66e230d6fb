// volpipe phantom: writes a volume known from a formula.
#include "volume/phantom.h"

#include <filesystem>
#include <memory>

#include "command.h"
#include "io/io.h"
#include "volume/error.h"

namespace volpipe::app {

namespace {

struct Options {
  std::string name, output, label;
  std::int64_t size = 0;
  bool overwrite = false;
};

const std::vector<std::string> kNames = {"shepp_logan", "torso", "head", "series"};

Phantom make_phantom(const std::string& name, std::int64_t size) {
  if (name == "shepp_logan") return shepp_logan_phantom(size ? size : 64);
  if (name == "torso") return torso_phantom(size ? size : 96);
  if (name == "head") return head_phantom(size ? size : 96);
  return torso_slab_phantom(size ? size : 64, 20);
}

int run(const Options& options) {
  namespace fs = std::filesystem;
  const bool series = options.name == "series";
  if (!series) io::check_output_format(options.output);
  if (!options.label.empty()) io::check_output_format(options.label);
  if (!options.overwrite)
    for (const std::string& output : {options.output, options.label})
      for (const std::string& path : io::output_files(output))
        if (!path.empty() && fs::exists(path))
          throw Error(ErrorCode::exists, "the output is already there; --overwrite replaces it").with_path(path);

  const Phantom phantom = make_phantom(options.name, options.size);
  if (!options.label.empty() && !phantom.label)
    throw Error(ErrorCode::usage, "the phantom '" + options.name + "' has no labels; leave --label out");
  if (series) io::write_dicom_series(phantom.image, options.output, "volpipe phantom");
  else io::write(phantom.image, options.output, {.overwrite = options.overwrite});
  if (!options.label.empty()) io::write(*phantom.label, options.label, {.overwrite = options.overwrite});
  return kSuccess;
}

}  // namespace

Command add_phantom(CLI::App& parent) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = parent.add_subcommand("phantom", "Write a volume known from a formula");
  command
      ->add_option("NAME", options->name,
                   "shepp_logan (float32), torso (CT in HU, int16), head (T1-like MR, uint16, oblique), "
                   "series (20 slices of the torso as a DICOM folder)")
      ->required()
      ->check(CLI::IsMember(kNames));
  command->add_option("-o,--output", options->output, "file to write, or the folder of the DICOM series")->required();
  command->add_option("--size", options->size, "voxels along the first two axes")->check(CLI::Range(8, 2048));
  command->add_option("--label", options->label, "also write the labels (torso, head, series) to this file");
  command->add_flag("--overwrite", options->overwrite, "replace files that are there");
  return [options] { return run(*options); };
}

}  // namespace volpipe::app
