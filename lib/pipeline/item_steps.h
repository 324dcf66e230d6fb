// The three steps of an item, which overlap with those of other items: read, compute, write.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "pipeline/execute.h"
#include "pipeline/items.h"
#include "pipeline/report.h"
#include "pipeline/slabs.h"
#include "pipeline/trace.h"

namespace volpipe {

/// Where the spans of a step go; nowhere by default.
struct Tracing {
  Trace* trace = nullptr;
  std::string track{};  ///< who works: "reader 1", "cuda:0 stream 0"
};

/// The files of an item, their headers checked.
class OpenItem {
 public:
  /// Notices of the headers go into the record. Throws Error(input | unsupported) with the path.
  OpenItem(const Pipeline& pipeline, const Item& item, const io::ReadOptions& options, ItemRecord& record);

  ImageInfos infos() const;
  /// Reads all voxels into memory from `allocate`. Throws Error(input | unsupported | out_of_memory) with the path.
  Images read(const io::HostAllocator& allocate, ItemRecord& record);

 private:
  struct File {
    const InputSpec* input;
    std::string path;
    std::unique_ptr<io::OpenVolume> volume;
  };
  std::vector<File> files_;
};

/// Upload, run the plan, download; one transfer each way per image that is written. `plan` is made anew where it
/// depends on voxels. On the CPU `images` are used up; on a GPU they stay, for another try.
Images compute_item(DeviceContext& context, const Pipeline& pipeline, Plan& plan, const ItemKey& key, StageFiles& files,
                    Images& images, ItemRecord& record, const Tracing& tracing = {});

/// The same slab by slab, for what does not fit the device; a notice says so. `images` stay.
Images compute_item_in_slabs(DeviceContext& context, const Pipeline& pipeline, const Plan& plan, const SlabPlan& slabs,
                             const Images& images, ItemRecord& record, const Tracing& tracing = {});

/// Writes what the pipeline's outputs name, and the maps it saves. Throws Error(output | exists | unsupported).
void write_item(const Pipeline& pipeline, const Item& item, const Plan& plan, const Images& images,
                const std::string& output_directory, const io::WriteOptions& options, ItemRecord& record);

/// True when the pipeline has an output for the image.
bool is_written(const Pipeline& pipeline, const std::string& image);

}  // namespace volpipe
