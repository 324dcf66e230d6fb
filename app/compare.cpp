// volpipe compare: are two volumes the same within a tolerance?
#include "pipeline/compare.h"

#include <spdlog/fmt/fmt.h>

#include <cmath>

#include "command.h"
#include "read_options.h"
#include "sources.h"
#include "spec/parameters.h"

namespace volpipe::app {

namespace {

struct Options {
  std::string a, b;
  Tolerance tolerance;
  bool json = false;
  ReadFlags reading;
};

Volume read_volume(const std::string& file, const io::ReadOptions& options) {
  const io::Source source = single_source(file, options);
  Notices notices;
  Volume volume = with_path(file, [&] { return io::read(source, Buffer::host, notices, nullptr, options); });
  print_notices(file, notices);
  return volume;
}

Json to_json(double difference, const VoxelPair& at) {
  Json json{{"value", difference}, {"at", nullptr}, {"component", nullptr}, {"a", nullptr}, {"b", nullptr}};
  if (difference == 0) return json;
  json["at"] = at.index;
  json["component"] = at.component;
  json["a"] = at.a;
  json["b"] = at.b;
  return json;
}

Json to_json(const Options& options, const Volume& a, const Volume& b, const Comparison& result) {
  const auto side = [](const std::string& path, const Volume& volume) {
    return Json{{"path", path},
                {"size", volume.geometry().size()},
                {"components", volume.info().components},
                {"dtype", to_string(volume.dtype())}};
  };
  const bool known_distance = std::isfinite(result.corner_distance_mm);
  return {{"equal", result.equal()},
          {"a", side(options.a, a)},
          {"b", side(options.b, b)},
          {"atol", options.tolerance.absolute},
          {"rtol", options.tolerance.relative},
          {"same_size", result.same_size},
          {"same_components", result.same_components},
          {"same_grid", result.same_grid},
          {"corner_distance_mm", known_distance ? Json(result.corner_distance_mm) : Json(nullptr)},
          {"values", result.values},
          {"differing", result.differing},
          {"non_finite_mismatches", result.non_finite_mismatches},
          {"max_absolute", to_json(result.max_absolute, result.max_absolute_at)},
          {"max_relative", to_json(result.max_relative, result.max_relative_at)}};
}

std::string in_words(const Volume& volume) {
  const Index3& size = volume.geometry().size();
  return fmt::format("{} x {} x {}, {} component{}, {}", size[0], size[1], size[2], volume.info().components,
                     volume.info().components == 1 ? "" : "s", to_string(volume.dtype()));
}

std::string in_words(double difference, const VoxelPair& at) {
  if (difference == 0) return "0";
  const std::string component = at.component == 0 ? "" : fmt::format(" component {}", at.component);
  return fmt::format("{:.9g} at [{}, {}, {}]{}: a {:.9g}, b {:.9g}", difference, at.index[0], at.index[1], at.index[2],
                     component, at.a, at.b);
}

void print_field(std::string_view name, const std::string& value) { fmt::print("{:<14} {}\n", name, value); }

void print_human(const Options& options, const Volume& a, const Volume& b, const Comparison& result) {
  print_field("a", fmt::format("{} ({})", options.a, in_words(a)));
  print_field("b", fmt::format("{} ({})", options.b, in_words(b)));
  if (result.same_size)
    print_field("geometry", fmt::format("{} grid, corners at most {:.6g} mm apart",
                                        result.same_grid ? "same" : "different", result.corner_distance_mm));
  if (result.same_size && result.same_components) {
    print_field("differing", fmt::format("{} of {} values beyond {:g} + {:g} * |b|", result.differing, result.values,
                                         options.tolerance.absolute, options.tolerance.relative));
    if (result.non_finite_mismatches > 0)
      print_field("non-finite",
                  fmt::format("{} values are NaN or infinite on one side only", result.non_finite_mismatches));
    print_field("max |a-b|", in_words(result.max_absolute, result.max_absolute_at));
    print_field("max |a-b|/|b|", in_words(result.max_relative, result.max_relative_at));
  }
  print_field("result", result.equal()            ? "equal"
                        : !result.same_size       ? "different sizes"
                        : !result.same_components ? "different numbers of components"
                        : result.differing > 0    ? "different voxels"
                                                  : "different geometry");
}

/// Here 1 means "different", so a file that cannot be read is wrong input for the command as a whole.
void fail_as_usage(const Error& error) {
  if (error.code() != ErrorCode::input && error.code() != ErrorCode::unsupported) return;
  throw Error(ErrorCode::usage, error.what()).with_path(error.path());
}

int compare(const Options& options) {
  const auto context = make_context(Device::cpu());
  const io::ReadOptions reading = to_read_options(options.reading, context->host().threads.get());
  const Volume a = read_volume(options.a, reading);
  const Volume b = read_volume(options.b, reading);
  const Comparison result = compare_volumes(*context, a, b, options.tolerance);
  if (options.json)
    fmt::print("{}\n", to_json(options, a, b, result).dump(2, ' ', false, Json::error_handler_t::replace));
  else print_human(options, a, b, result);
  return result.equal() ? kSuccess : kSomeFailed;
}

int run(const Options& options) try { return compare(options); } catch (const Error& error) {
  fail_as_usage(error);
  throw;
}

}  // namespace

Command add_compare(CLI::App& parent) {
  auto options = std::make_shared<Options>();
  CLI::App* command = parent.add_subcommand("compare", "Compare the voxels and the geometry of two volumes");
  command->add_option("a", options->a, "Volume to check")->required()->type_name("A");
  command->add_option("b", options->b, "Reference")->required()->type_name("B");
  command->add_option("--atol", options->tolerance.absolute, "Absolute tolerance, default 0")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--rtol", options->tolerance.relative, "Tolerance relative to |b|, default 0")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--json", options->json, "The result as one JSON object on standard output");
  add_read_options(*command, options->reading);
  command->footer(
      "Voxels agree when |a - b| <= atol + rtol * |b|; NaN agrees with NaN at the same place. Grids agree when their\n"
      "corners are closer than 1e-3 voxel. The pixel type may differ. Exit code 0: equal, 1: different, 2: not "
      "readable.");
  return [options] { return run(*options); };
}

}  // namespace volpipe::app
