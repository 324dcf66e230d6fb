// What happened to each item, and the report made of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/context.h"
#include "io/io.h"
#include "pipeline/pipeline.h"

namespace volpipe {

enum class ItemStatus : std::uint8_t { ok, failed, skipped, resumed };
std::string_view to_string(ItemStatus status);

/// One image of an item as read or as written.
struct ImageRecord {
  std::string name, path;
  VolumeInfo info;
};

struct StageRecord {
  std::string op, name, image;
  double ms = 0;  ///< of the whole group: stages of one group share one pass
  int group = 0;
};

/// Milliseconds of one item; compute is the device's own time.
struct ItemTiming {
  double read = 0, decode = 0, upload = 0, compute = 0, download = 0, encode = 0, write = 0, total = 0;
};

struct ItemRecord {
  std::string id;
  std::uint32_t repeat = 0;  ///< which of the item's versions
  ItemStatus status = ItemStatus::skipped;
  std::vector<ImageRecord> inputs, outputs;
  std::vector<std::string> saved_maps;  ///< paths of the maps that were written
  std::string device;                   ///< "cpu", "cuda:0"
  std::string fallback_reason;          ///< why another device than the run's was used
  ItemTiming timing;
  TransferCounts transfers;
  std::vector<StageRecord> stages;
  std::vector<std::pair<std::string, Json>> drawn;  ///< random stages: label and the parameters drawn
  std::vector<Notice> warnings;
  std::int64_t saturated_voxels = 0;
  ErrorCode error_code = ErrorCode::internal;
  std::string error_stage, error_message, error_path;
  std::shared_ptr<const Json> earlier;  ///< resumed: its entry in the report of the run that made it
};

/// What was asked for and used.
struct DeviceChoice {
  std::string requested;  ///< as written by the user
  std::vector<Device> used{Device::cpu()};
  std::string fallback_reason;  ///< empty when the request was met

  std::string name() const;  ///< "cpu", "cuda:0", "cuda:0,1"
};

struct RunRecord {
  DeviceChoice device;
  std::vector<ItemRecord> items;
  std::vector<Notice> notices;
  double wall_ms = 0;
  std::size_t peak_device_bytes = 0;
  int threads = 0;
  bool interrupted = false;

  std::size_t count(ItemStatus status) const;
  /// Puts records of an earlier run in their places.
  void add_resumed(std::vector<ItemRecord> records);
};

/// The JSON of geometry used by the report, `info` and `plan`: size, spacing, origin, orientation, affine (RAS mm).
Json to_json(const Geometry& geometry);
/// The report's entry of one item.
Json to_json(const ItemRecord& item);
/// code and message.
Json to_json(const Notice& notice);
Json to_json(const std::vector<Notice>& notices);
/// dtype, components, kind and geometry.
Json to_json(const VolumeInfo& info);

/// The report of DESIGN section 4; `command_line` as typed.
Json make_report(const RunRecord& run, const Pipeline& pipeline, const std::vector<std::string>& command_line);

/// "1.5 GiB"
std::string human_bytes(std::size_t bytes);

/// "0.1.0", and how it was built ("Release, CUDA 13.0").
std::string version();
std::string build_description();

}  // namespace volpipe
