#include "pipeline/report.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <tuple>

#include "device/cuda_hooks.h"
#include "volume/error.h"

namespace volpipe {

namespace {

constexpr int kReportVersion = 1;

Json numbers(const Vec3& v) { return Json::array({v[0], v[1], v[2]}); }

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

std::size_t peak_host_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::size_t(usage.ru_maxrss) * 1024;
}

Json images_to_json(const std::vector<ImageRecord>& images) {
  Json list = Json::array();
  for (const ImageRecord& image : images) {
    Json entry = {{"name", image.name}, {"path", image.path}};
    entry.update(to_json(image.info));
    list.push_back(std::move(entry));
  }
  return list;
}

Json throughput(const RunRecord& run) {
  double bytes = 0, voxels = 0;
  for (const ItemRecord& item : run.items)
    if (item.status == ItemStatus::ok)
      for (const ImageRecord& image : item.inputs) {
        bytes += double(image.info.bytes());
        voxels += double(image.info.value_count());
      }
  const double seconds = std::max(run.wall_ms, 1e-3) / 1e3;
  return {{"volumes_per_s", double(run.count(ItemStatus::ok)) / seconds},
          {"mb_per_s", bytes / 1e6 / seconds},
          {"voxels_per_s", voxels / seconds}};
}

}  // namespace

std::string_view to_string(ItemStatus status) {
  switch (status) {
    case ItemStatus::ok:
      return "ok";
    case ItemStatus::failed:
      return "failed";
    case ItemStatus::resumed:
      return "resumed";
    case ItemStatus::skipped:
      break;
  }
  return "skipped";
}

std::size_t RunRecord::count(ItemStatus status) const {
  return std::size_t(
      std::count_if(items.begin(), items.end(), [status](const ItemRecord& item) { return item.status == status; }));
}

void RunRecord::add_resumed(std::vector<ItemRecord> records) {
  items.insert(items.end(), std::make_move_iterator(records.begin()), std::make_move_iterator(records.end()));
  std::stable_sort(items.begin(), items.end(), [](const ItemRecord& a, const ItemRecord& b) {
    return std::tie(a.id, a.repeat) < std::tie(b.id, b.repeat);
  });
}

Json to_json(const Geometry& geometry) {
  const Affine& map = geometry.index_to_world();
  Json affine = Json::array();
  for (int i = 0; i < 3; ++i) affine.push_back({map.linear[i][0], map.linear[i][1], map.linear[i][2], map.offset[i]});
  affine.push_back({0.0, 0.0, 0.0, 1.0});
  return {{"size", geometry.size()},
          {"spacing_mm", numbers(geometry.spacing())},
          {"origin_mm", numbers(geometry.origin())},
          {"orientation", geometry.orientation()},
          {"affine", std::move(affine)}};
}

Json to_json(const VolumeInfo& info) {
  Json entry = {{"dtype", to_string(info.dtype)},
                {"components", info.components},
                {"kind", info.kind == ImageKind::label ? "label" : "image"}};
  if (info.component_axis == ComponentAxis::frames) entry["frame_spacing_s"] = info.frame_spacing;
  entry["geometry"] = to_json(info.geometry);
  return entry;
}

Json to_json(const Notice& notice) { return {{"code", notice.code}, {"message", notice.message}}; }

Json to_json(const std::vector<Notice>& notices) {
  Json list = Json::array();
  for (const Notice& notice : notices) list.push_back(to_json(notice));
  return list;
}

Json to_json(const ItemRecord& item) {
  if (item.earlier) {
    Json entry = *item.earlier;
    entry["status"] = to_string(item.status);
    return entry;
  }
  const ItemTiming& t = item.timing;
  Json stages = Json::array();
  for (const StageRecord& stage : item.stages)
    stages.push_back({{"op", stage.op},
                      {"name", stage.name},
                      {"image", stage.image},
                      {"ms", stage.ms},
                      {"device", item.device},
                      {"group", stage.group}});
  Json entry = {{"id", item.id},
                {"repeat", item.repeat},
                {"status", to_string(item.status)},
                {"inputs", images_to_json(item.inputs)},
                {"outputs", images_to_json(item.outputs)}};
  entry["device"] = item.device;
  if (!item.fallback_reason.empty()) entry["fallback_reason"] = item.fallback_reason;
  entry["timing_ms"] = {{"read", t.read},         {"decode", t.decode}, {"upload", t.upload}, {"compute", t.compute},
                        {"download", t.download}, {"encode", t.encode}, {"write", t.write},   {"total", t.total}};
  entry["transfers"] = {{"h2d_count", item.transfers.h2d_count},
                        {"h2d_bytes", item.transfers.h2d_bytes},
                        {"d2h_count", item.transfers.d2h_count},
                        {"d2h_bytes", item.transfers.d2h_bytes}};
  entry["stages"] = std::move(stages);
  for (const auto& [label, parameters] : item.drawn)
    entry["drawn"].push_back({{"name", label}, {"parameters", parameters}});
  entry["saturated_voxels"] = item.saturated_voxels;
  entry["warnings"] = to_json(item.warnings);
  if (item.status == ItemStatus::failed)
    entry["error"] = {{"stage", item.error_stage},
                      {"code", to_string(item.error_code)},
                      {"message", item.error_message},
                      {"path", item.error_path}};
  return entry;
}

std::string DeviceChoice::name() const {
  std::string text = used.front().name();
  for (std::size_t i = 1; i < used.size(); ++i) text += "," + std::to_string(used[i].index());
  return text;
}

Json make_report(const RunRecord& run, const Pipeline& pipeline, const std::vector<std::string>& command_line) {
  Json devices = Json::array();
  for (const DeviceInfo& device : list_devices())
    if (device.usable)
      devices.push_back({{"device", device.device.name()},
                         {"name", device.name},
                         {"memory_bytes", device.memory_bytes},
                         {"detail", device.detail}});
  Json items = Json::array();
  for (const ItemRecord& item : run.items) items.push_back(to_json(item));
  Json report = {{"volpipe_report", kReportVersion},
                 {"version", version()},
                 {"build", build_description()},
                 {"finished", utc_now()}};
  report["command_line"] = command_line;
  report["spec"] = {{"path", pipeline.origin}, {"sha256", pipeline.sha256}, {"content", pipeline.spec}};
  report["host"] = {{"name", host_name()}, {"threads", run.threads}};
  report["devices"] = std::move(devices);
  report["device_requested"] = run.device.requested;
  report["device_used"] = run.device.name();
  report["fallback_reason"] = run.device.fallback_reason.empty() ? Json(nullptr) : Json(run.device.fallback_reason);
  report["interrupted"] = run.interrupted;
  report["wall_ms"] = run.wall_ms;
  report["totals"] = {{"items", run.items.size()},
                      {"ok", run.count(ItemStatus::ok)},
                      {"failed", run.count(ItemStatus::failed)},
                      {"skipped", run.count(ItemStatus::skipped)},
                      {"resumed", run.count(ItemStatus::resumed)}};
  report["throughput"] = throughput(run);
  report["peak_host_bytes"] = peak_host_bytes();
  report["peak_device_bytes"] = run.peak_device_bytes;
  report["warnings"] = to_json(run.notices);
  report["items"] = std::move(items);
  return report;
}

std::string human_bytes(std::size_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = double(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

std::string version() { return VOLPIPE_VERSION; }

std::string build_description() {
  return std::string(VOLPIPE_BUILD_TYPE) + (cuda_compiled() ? ", CUDA " + cuda::runtime_version() : ", without CUDA");
}

}  // namespace volpipe
