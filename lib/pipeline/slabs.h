// Volumes larger than the device: an item is computed slab by slab, each with what of its inputs it needs.
//
// What is written is cut along its last axis. For each slab the groups are gone through backwards to find the block of
// each image that it needs: through the rows of axis matrices, through the neighbours of expressions. That block alone
// is uploaded, the groups run on it, and the slab goes to its place in the results on the host. Voxels know their
// places in the whole volume, so random draws, smooth fields and coordinates are those of the whole; the passes of a
// filter keep the order that they have in the whole. Results are therefore those of one run over the whole, to the bit.
//
// Stages that ask about whole images (normalize, clip to percentiles, a "min" fill) are answered first, by going
// through the image slab by slab: counts, ranges, percentiles, histograms and thresholds to the bit; means and standard
// deviations to a few times 2^-52 of their sum. What is computed from those in float32 then differs, where a constant
// of the program rounds the other way, by up to 4 units in the last place of the largest voxel, and integers by one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "device/context.h"
#include "pipeline/execute.h"
#include "pipeline/plan.h"

namespace volpipe {

/// How many slabs to cut into.
struct SlabPlan {
  std::int64_t slabs = 1;                    ///< of what is written
  std::vector<std::int64_t> question_slabs;  ///< for each group: of the images it asks about first; 0 where it does not
  std::size_t peak_device_bytes = 0;         ///< most bytes of volumes and scratch at one time, over all slabs
};

/// A plan, or one sentence why there is none.
struct SlabChoice {
  std::optional<SlabPlan> plan{};
  std::string why_not{};
};

/// The fewest slabs that need at most `device_bytes` each. None when a stage works on whole volumes (volume stages,
/// stack and split, affine maps and fields, crops to a measured box), or when not even one slice at a time fits: where
/// the last axis of what is written comes from another axis of an image that is expanded, drawn on or read with others,
/// or through a boundary that wraps around, one slice may need all of it.
SlabChoice plan_slabs(const Pipeline& pipeline, const Plan& plan, std::size_t device_bytes);

struct SlabResults {
  Images images{};                 ///< those that are written, on the host
  std::int64_t saturated = 0;      ///< as GroupResult, over all groups and slabs; see compute_in_slabs
  std::vector<double> group_ms{};  ///< for each group: time on the device, over all slabs and questions
};

/// Computes what `plan` says of `on_host`, which has the plan's inputs. Notices are added once, not for each slab.
/// Voxels that slabs share are counted once where they overlap along z; those that no result needs are not computed and
/// not counted. Waits for the results. Throws Error with the stage's label, as run_group.
SlabResults compute_in_slabs(DeviceContext& context, const Pipeline& pipeline, const Plan& plan,
                             const SlabPlan& slab_plan, const Images& on_host, Notices& notices);

}  // namespace volpipe
