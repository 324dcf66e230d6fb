// volpipe preview: mid-slices of volumes in one picture.
#include "pipeline/preview.h"

#include <cstdio>

#include "command.h"
#include "read_options.h"
#include "sources.h"

namespace volpipe::app {

namespace {

struct Options {
  std::vector<std::string> files, label_files;
  std::string output;
  std::vector<double> window;
  bool labels = false;
  int cell = 256;
  ReadFlags reading;
};

Picture draw(const io::Source& source, DeviceContext& context, const Options& options, bool labels) {
  Notices notices;
  const Volume volume =
      io::read(source, Buffer::host, notices, nullptr, to_read_options(options.reading, context.host().threads.get()));
  PreviewOptions preview{.labels = labels, .cell = options.cell};
  if (!options.window.empty()) preview.window = {options.window[0], options.window[1]};
  Picture row = preview_row(context, volume, source.path, preview, notices);
  print_notices(source.path, notices);
  return row;
}

void check(const Options& options) {
  if (options.files.empty() && options.label_files.empty())
    throw Error(ErrorCode::usage, "give at least one FILE to show");
  if (!options.output.ends_with(".png"))
    throw Error(ErrorCode::usage, "the picture is a PNG: '" + options.output + "' must end in .png");
  if (!options.window.empty() && !(options.window[0] < options.window[1]))
    throw Error(ErrorCode::usage, "--window needs LO below HI");
}

int run(const Options& options) {
  check(options);
  const auto context = make_context(Device::cpu());
  std::vector<Picture> rows;
  const io::ReadOptions reading = to_read_options(options.reading, context->host().threads.get());
  const auto draw_each = [&](const std::vector<std::string>& files, bool labels) {
    const auto visit = [&](const io::Source& source) { rows.push_back(draw(source, *context, options, labels)); };
    return for_each_source(files, reading, {.visit = visit});
  };
  bool sound = draw_each(options.files, options.labels);
  sound &= draw_each(options.label_files, true);
  if (rows.empty()) return kSomeFailed;
  const Picture picture = stack_rows(rows);
  io::write_png(options.output, picture.pixels(), picture.width(), picture.height(), 3);
  return sound ? kSuccess : kSomeFailed;
}

}  // namespace

Command add_preview(CLI::App& parent) {
  auto options = std::make_shared<Options>();
  CLI::App* command = parent.add_subcommand("preview", "Draw the mid-slices of volumes into one PNG, one row a volume");
  command->add_option("files", options->files, "Files, DICOM series folders, or folders searched recursively")
      ->type_name("FILE");
  command->add_option("-o,--output", options->output, "Picture to write (replaced when there)")
      ->required()
      ->type_name("PNG");
  command->add_option("--window", options->window, "Values shown black and white; default: percentiles 0.5 and 99.5")
      ->delimiter(',')
      ->expected(2)
      ->type_name("LO,HI");
  command->add_flag("--labels", options->labels, "Every FILE is a label map: one colour a value");
  command->add_option("--label", options->label_files, "One more file, drawn as a label map; may be repeated")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command->add_option("--cell", options->cell, "Pixels of the longest side of a slice")
      ->check(CLI::Range(16, 4096))
      ->capture_default_str();
  add_read_options(*command, options->reading);
  command->footer(
      "Slices: axial, coronal, sagittal, through the middle voxel, along the closest world axes, in true proportions.\n"
      "Neurological convention: the patient's right is on the right of the picture; in the sagittal slice anterior is "
      "on\n"
      "the right. Integers of at most 64 different values are taken for labels unless --window is given. The first of\n"
      "several frames or components is shown. NaN is purple.");
  return [options] { return run(*options); };
}

}  // namespace volpipe::app
