// volpipe train-landmarks: the standard scale of intensities that images have in common, for histogram_standardize.
#include <spdlog/spdlog.h>

#include "command.h"
#include "io/atomic_file.h"
#include "pipeline/items.h"
#include "read_options.h"
#include "stages/intensity/landmarks.h"
#include "stages/pointwise/volume_statistics.h"
#include "volume/error.h"

namespace volpipe::app {

namespace {

struct Options {
  std::vector<std::string> inputs;
  std::string output, mask = "foreground";
  std::vector<double> percentiles{1, 10, 20, 30, 40, 50, 60, 70, 80, 90, 99};
  std::vector<double> scale{0, 100};
  bool overwrite = false;
  ReadFlags reading;
};

Mask mask_of(const std::string& text) {
  Mask mask;
  if (text == "all") return mask;
  const Json json = text.starts_with("{") ? Json::parse(text, nullptr, false) : Json(text);
  const std::string expected = json.is_discarded() ? "a mask" : ParameterType<Mask>::read(json, {}, mask);
  if (!expected.empty() || mask.kind == Mask::Kind::image)
    throw Error(ErrorCode::usage, "--mask must be all, nonzero, foreground or {\"above\": number}, got '" + text + "'");
  return mask;
}

LandmarkTrainer trainer_of(const Options& options) {
  if (const std::string fault = check_percentiles(options.percentiles); !fault.empty())
    throw Error(ErrorCode::usage, "--percentiles: " + fault);
  if (options.scale.size() != 2 || !(options.scale[0] < options.scale[1]))
    throw Error(ErrorCode::usage, "--scale must be two numbers that ascend, such as 0,100");
  return {options.percentiles, {options.scale[0], options.scale[1]}, mask_of(options.mask)};
}

/// False, with a line on standard error, for an image that cannot be used.
bool add_image(const io::Source& source, const io::ReadOptions& reading, DeviceContext& context,
               LandmarkTrainer& trainer) {
  try {
    Notices notices;
    const Volume volume = io::read(source, Buffer::host, notices, nullptr, reading);
    for (const Notice& notice : notices.list()) spdlog::warn("{}: {}", source.path, notice.message);
    trainer.add(volume_percentiles(context, volume, trainer.mask(), trainer.percentiles()));
    return true;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) throw;
    spdlog::error("{}: {}", error.path().empty() ? source.path : error.path(), error.what());
    return false;
  }
}

int run(const Options& options) {
  LandmarkTrainer trainer = trainer_of(options);
  const auto context = make_context(Device::cpu());
  const io::ReadOptions reading = to_read_options(options.reading, context->host().threads.get());
  const Items items =
      collect_items(parse_pipeline(R"({"volpipe": 1, "stages": []})", "train-landmarks"), options.inputs, "", reading);
  io::AtomicFile file(options.output, options.overwrite);
  for (const Notice& notice : items.notices.list()) spdlog::warn("{}", notice.message);
  for (const ItemFault& fault : items.faults) spdlog::error("{}: {}", fault.path, fault.message);
  bool sound = items.faults.empty();
  for (const Item& item : items.items) sound &= add_image(item.images.begin()->second, reading, *context, trainer);
  if (trainer.images() == 0) throw Error(ErrorCode::input, "no image could be used, so there are no landmarks");
  const std::string text = to_json(trainer.result()).dump(2) + "\n";
  file.write(text.data(), text.size());
  file.commit();
  spdlog::info("landmarks of {} image{}: {}", trainer.images(), trainer.images() == 1 ? "" : "s", options.output);
  return sound ? kSuccess : kSomeFailed;
}

}  // namespace

Command add_train_landmarks(CLI::App& parent) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = parent.add_subcommand(
      "train-landmarks", "Learn the standard scale of intensities of images, for histogram_standardize");
  command
      ->add_option("INPUT", options->inputs,
                   "files, DICOM series folders, folders searched recursively, @LIST, or - for paths on standard input")
      ->required();
  command->add_option("-o,--output", options->output, "JSON file to write")->required();
  command
      ->add_option("--mask", options->mask,
                   "where percentiles are taken: all, nonzero, foreground (Otsu) or {\"above\": number}")
      ->capture_default_str();
  command->add_option("--percentiles", options->percentiles, "percentiles that the landmarks are of, ascending")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("P,P,...")
      ->default_str("1,10,20,...,90,99");
  command->add_option("--scale", options->scale, "where the first and last of them lie on the scale")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("LOW,HIGH")
      ->default_str("0,100");
  add_read_options(*command, options->reading);
  command->add_flag("--overwrite", options->overwrite, "replace a file that is there");
  command->footer(
      "Images that cannot be read, or are constant, are named and left out; exit code 1 then. Every image counts alike "
      "(Nyul and\nUdupa 1999). Example: volpipe train-landmarks t1/ -o landmarks.json");
  return [options] { return run(*options); };
}

}  // namespace volpipe::app
