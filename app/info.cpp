// volpipe info: what a volume is and what its voxels are like.
#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include "command.h"
#include "device/context.h"
#include "pipeline/report.h"
#include "pipeline/summary.h"
#include "sources.h"

namespace volpipe::app {

namespace {

struct Options {
  std::vector<std::string> files;
  bool json = false;
  bool header_only = false;
};

constexpr double kPercents[] = {1, 50, 99};

struct Report {
  io::Source source;
  VolumeInfo info;
  Notices notices;
  std::vector<std::pair<std::string, std::string>> header;
  std::optional<IntensitySummary> intensity;
};

Report inspect(const io::Source& source, DeviceContext& context, bool header_only) {
  Report report{source, {}, {}, io::describe_header(source), {}};
  if (header_only) {
    report.info = io::read_info(source, report.notices);
    return report;
  }
  const Volume volume = io::read(source, Buffer::host, report.notices);
  report.info = volume.info();
  report.intensity = summarize(context, volume, kPercents);
  return report;
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

Json to_json(const Report& report) {
  Json json{{"path", report.source.path}};
  json.update(volpipe::to_json(report.info));
  json["component_axis"] = component_word(report.info.component_axis);
  json["series_uid"] = report.source.is_dicom() ? Json(report.source.series_uid) : Json(nullptr);
  json["slice_files"] = report.source.files.size();
  json["header"] = Json::object();
  for (const auto& [name, value] : report.header) json["header"][name] = value;
  json["notices"] = Json::array();
  for (const Notice& notice : report.notices.list())
    json["notices"].push_back({{"code", notice.code}, {"message", notice.message}});
  json["intensity"] = report.intensity ? to_json(*report.intensity) : Json(nullptr);
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
  const Geometry& geometry = report.info.geometry;
  fmt::print("{}\n", report.source.path);
  if (report.source.is_dicom())
    print_field("series", fmt::format("{} ({} files)", report.source.series_uid, report.source.files.size()));
  print_field("size", fmt::format("{} x {} x {}", geometry.size()[0], geometry.size()[1], geometry.size()[2]));
  print_field("spacing", fmt::format("{:.6g} mm", fmt::join(geometry.spacing(), " x ")));
  print_field("origin", fmt::format("{:.6g} mm (RAS)", fmt::join(geometry.origin(), ", ")));
  print_field("orientation", geometry.orientation());
  print_affine(geometry.index_to_world());
  print_field("pixel type", fmt::format("{}, {}", to_string(report.info.dtype), components_in_words(report.info)));
  if (report.intensity) print_intensity(*report.intensity);
  for (const Notice& notice : report.notices.list()) print_field("notice", notice.message);
  for (const auto& [name, value] : report.header) print_field("header", fmt::format("{:<14} {}", name, value));
}

int run(const Options& options) {
  const auto context = make_context(Device::cpu());
  Json all{{"files", Json::array()}};
  const bool sound = for_each_source(options.files, [&](const io::Source& source) {
    const Report report = inspect(source, *context, options.header_only);
    if (options.json) all["files"].push_back(to_json(report));
    else print_human(report);
  });
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
  command->add_flag("--json", options->json, "One JSON object {\"files\": [...]} on standard output");
  command->add_flag("--header-only", options->header_only, "Leave the voxels unread: no intensity summary");
  command->footer(
      "World coordinates are RAS+ millimetres. Exit code 1 when a file could not be read; the others are shown.");
  return [options] { return run(*options); };
}

}  // namespace volpipe::app
