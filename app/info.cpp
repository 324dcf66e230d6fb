// volpipe info: what a volume is and what its voxels are like.
#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include "command.h"
#include "device/context.h"
#include "pipeline/report.h"
#include "pipeline/summary.h"
#include "read_options.h"
#include "sources.h"

namespace volpipe::app {

namespace {

struct Options {
  std::vector<std::string> files;
  bool json = false;
  bool header_only = false;
  ReadFlags reading;
};

constexpr double kPercents[] = {1, 50, 99};

/// What is known of a source; `info` is missing where it cannot be read.
struct Report {
  io::Source source;
  std::vector<io::HeaderField> header;
  Notices notices;
  std::optional<VolumeInfo> info;
  std::optional<IntensitySummary> intensity;
};

/// Fills the report as far as the file can be trusted.
void inspect(DeviceContext& context, const Options& options, Report& report) {
  const io::ReadOptions reading = to_read_options(options.reading, context.host().threads.get());
  report.header = io::describe_header(report.source, reading);
  if (options.header_only) {
    report.info = io::read_info(report.source, report.notices, reading);
    return;
  }
  const Volume volume = io::read(report.source, Buffer::host, report.notices, nullptr, reading);
  report.info = volume.info();
  report.intensity = summarize(context, volume, kPercents);
}

std::string_view component_word(ComponentAxis axis) {
  return axis == ComponentAxis::frames ? "frames" : axis == ComponentAxis::channels ? "channels" : "none";
}

Json to_json(const IntensitySummary& summary) {
  const Moments& moments = summary.moments;
  const auto value = [&](double number) { return moments.count > 0 ? Json(number) : Json(nullptr); };
  Json json{{"finite", moments.count},
            {"non_finite", moments.non_finite},
            {"min", value(moments.min)},
            {"max", value(moments.max)},
            {"mean", value(moments.mean)},
            {"std", value(moments.std())},
            {"p1", value(summary.percentiles[0])},
            {"p50", value(summary.percentiles[1])},
            {"p99", value(summary.percentiles[2])},
            {"distinct", nullptr}};
  if (summary.distinct) json["distinct"] = summary.distinct->size();
  return json;
}

Json to_json(const io::HeaderField& field) {
  if (field.numbers.empty()) return field.text;
  if (field.columns == 0) return field.numbers[0];
  if (field.columns == field.numbers.size()) return field.numbers;
  Json rows = Json::array();
  for (auto row = field.numbers.begin(); row != field.numbers.end(); row += std::ptrdiff_t(field.columns))
    rows.push_back(std::vector<double>(row, row + std::ptrdiff_t(field.columns)));
  return rows;
}

Json to_json(const Error& error) { return {{"code", to_string(error.code())}, {"message", error.what()}}; }

Json to_json(const Report& report) {
  Json json{{"path", report.source.path}};
  if (report.info) {
    json.update(volpipe::to_json(*report.info));
    json["component_axis"] = component_word(report.info->component_axis);
  }
  json["series_uid"] = report.source.is_dicom() ? Json(report.source.series_uid) : Json(nullptr);
  json["slice_files"] = report.source.files.size();
  json["header"] = Json::object();
  for (const io::HeaderField& field : report.header) json["header"][field.name] = to_json(field);
  json["notices"] = volpipe::to_json(report.notices.list());
  json["intensity"] = report.intensity ? to_json(*report.intensity) : Json(nullptr);
  json["error"] = nullptr;
  return json;
}

Json with_error(Json json, const Error& error) {
  json["error"] = to_json(error);
  if (!error.path().empty()) json["error"]["path"] = error.path();
  return json;
}

void print_field(std::string_view name, const std::string& value) { fmt::print("  {:<12} {}\n", name, value); }

void print_affine(const Affine& map) {
  for (int i = 0; i < 3; ++i)
    print_field(i == 0 ? "affine" : "", fmt::format("{:>12.6g} {:>12.6g} {:>12.6g} {:>12.6g}", map.linear[i][0],
                                                    map.linear[i][1], map.linear[i][2], map.offset[i]));
}

void print_intensity(const IntensitySummary& summary) {
  const Moments& moments = summary.moments;
  if (moments.count > 0) {
    print_field("values", fmt::format("min {:.6g}   max {:.6g}   mean {:.6g}   std {:.6g}", moments.min, moments.max,
                                      moments.mean, moments.std()));
    print_field("percentiles", fmt::format("1% {:.6g}   50% {:.6g}   99% {:.6g}", summary.percentiles[0],
                                           summary.percentiles[1], summary.percentiles[2]));
  }
  if (moments.non_finite > 0) print_field("non-finite", fmt::format("{} voxels (left out above)", moments.non_finite));
  if (!summary.distinct) return;
  constexpr std::size_t kShown = 12;
  const auto& values = *summary.distinct;
  const auto end = values.begin() + std::ptrdiff_t(std::min(values.size(), kShown));
  print_field("distinct", fmt::format("{} values: {}{}", values.size(), fmt::join(values.begin(), end, " "),
                                      values.size() > kShown ? " ..." : ""));
}

std::string components_in_words(const VolumeInfo& info) {
  if (info.component_axis == ComponentAxis::frames)
    return fmt::format("{} frames, {:.6g} s apart", info.components, info.frame_spacing);
  return info.components == 1 ? "1 component" : fmt::format("{} components", info.components);
}

void print_human(const Report& report) {
  const VolumeInfo& info = *report.info;
  const Geometry& geometry = info.geometry;
  fmt::print("{}\n", report.source.path);
  if (report.source.is_dicom())
    print_field("series", fmt::format("{} ({} files)", report.source.series_uid, report.source.files.size()));
  print_field("size", fmt::format("{} x {} x {}", geometry.size()[0], geometry.size()[1], geometry.size()[2]));
  print_field("spacing", fmt::format("{:.6g} mm", fmt::join(geometry.spacing(), " x ")));
  print_field("origin", fmt::format("{:.6g} mm (RAS)", fmt::join(geometry.origin(), ", ")));
  print_field("orientation", geometry.orientation());
  print_affine(geometry.index_to_world());
  print_field("pixel type", fmt::format("{}, {}", to_string(info.dtype), components_in_words(info)));
  if (report.intensity) print_intensity(*report.intensity);
  for (const Notice& notice : report.notices.list())
    print_field("notice", fmt::format("{} ({})", notice.message, notice.code));
  for (const io::HeaderField& field : report.header)
    print_field("header", fmt::format("{:<14} {}", field.name, field.text));
}

int run(const Options& options) {
  const auto context = make_context(Device::cpu());
  Json all{{"files", Json::array()}, {"notices", Json::array()}};
  Json& files = all["files"];
  const auto visit = [&](const io::Source& source) {
    Report report{source, {}, {}, {}, {}};
    try {
      inspect(*context, options, report);
    } catch (const Error& error) {
      files.push_back(with_error(to_json(report), error));
      throw;
    }
    if (options.json) files.push_back(to_json(report));
    else print_human(report);
  };
  const auto fault = [&](const std::string& path, const Error& error) {
    files.push_back(with_error({{"path", path}}, error));
  };
  const auto note = [&](const std::string& path, const Notices& notices) {
    for (const Notice& notice : notices.list()) {
      all["notices"].push_back(volpipe::to_json(notice));
      all["notices"].back()["path"] = path;
    }
  };
  const bool sound = for_each_source(options.files, to_read_options(options.reading, context->host().threads.get()),
                                     {.visit = visit, .fault = fault, .notices = note});
  if (options.json) fmt::print("{}\n", all.dump(2, ' ', false, Json::error_handler_t::replace));
  return sound ? kSuccess : kSomeFailed;
}

}  // namespace

Command add_info(CLI::App& parent) {
  auto options = std::make_shared<Options>();
  CLI::App* command = parent.add_subcommand("info", "Show header, geometry and an intensity summary of volumes");
  command->add_option("files", options->files, "Files, DICOM series folders, or folders searched recursively")
      ->required()
      ->type_name("FILE");
  command->add_flag(
      "--json", options->json,
      "One JSON object {\"files\": [...], \"notices\": [...]} on standard output; what cannot be read has an "
      "\"error\"");
  command->add_flag("--header-only", options->header_only, "Leave the voxels unread: no intensity summary");
  add_read_options(*command, options->reading);
  command->footer(
      "World coordinates are RAS+ millimetres. Exit code 1 when a file could not be read; the others are shown.");
  return [options] { return run(*options); };
}

}  // namespace volpipe::app
