// What a part of an item's result needs of its images, group by group from the last to the first.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "pipeline/plan.h"

namespace volpipe {

/// Blocks of images, by name.
using Regions = std::map<std::string, IndexBox>;

/// The part of a volume that is `box`.
VolumeInfo part_of(const VolumeInfo& info, const IndexBox& box);

/// What of an axis of `size` is part `slab` of `slabs` equal ones; may be empty.
AxisRange slab_range(std::int64_t size, std::int64_t slab, std::int64_t slabs);

/// What a group has to know about whole images before it can run: the values of a program over its inputs, where a mask
/// selects them.
struct WholeQuestion {
  std::vector<std::string> inputs;
  std::string mask{};  ///< an image; empty: none
};

/// The groups of a plan, as they are restricted to parts of their volumes.
class SlabRegions {
 public:
  SlabRegions(const Pipeline& pipeline, const Plan& plan);

  /// Why the plan cannot run slab by slab, one sentence; empty when it can.
  std::string why_not() const;

  const std::vector<Group>& groups() const { return plan_.groups; }
  const ImageInfos& before(std::size_t group) const { return infos_[group]; }  ///< images that are there before it
  const ImageInfos& written() const { return written_; }
  bool is_needed(std::size_t group) const { return needed_[group]; }  ///< for what is written

  /// Of a group, in the order of its stages' requests; of one request.
  std::vector<WholeQuestion> questions(std::size_t group) const;
  std::vector<WholeQuestion> questions(std::size_t group, const StatisticsRequest& request) const;

  /// What is wanted for part `slab` of `slabs`, cut along z: of the images that are written, or for a question.
  Regions wanted(std::int64_t slab, std::int64_t slabs) const;
  Regions wanted(std::size_t group, const WholeQuestion& question, std::int64_t slab, std::int64_t slabs) const;
  std::int64_t most_slabs() const;
  std::int64_t most_slabs(std::size_t group, const WholeQuestion& question) const;

  /// For `wanted` of the images before group `end`: what the groups from each on need of the images before it; entry
  /// `end` is what is wanted. The block that a group makes is that of its image in the entry after it, which holds what
  /// later entries name.
  std::vector<Regions> back_from(std::size_t end, Regions wanted) const;

  /// What group `group` makes where its inputs are held as `held`, and `needed` of its image is needed.
  IndexBox made(std::size_t group, const Regions& held, const IndexBox& needed) const;

  /// Throws Error(internal) when a program of a pointwise group looks at voxels that example_programs() do not.
  void check_reach(std::size_t group, const Program& program) const;

  /// A separable group from the block `input` of its volume to the block `output` of its result.
  Group part(std::size_t group, const IndexBox& input, const IndexBox& output) const;

  /// Most bytes of volumes and scratch on the device at one time while such parts are made, all uploaded first, and
  /// `scratch_at_end` is taken beside what is wanted.
  std::size_t peak_bytes(const std::vector<Regions>& parts, std::size_t scratch_at_end = 0) const;
  std::size_t question_bytes(std::size_t group, const WholeQuestion& question, std::int64_t slab,
                             std::int64_t slabs) const;

 private:
  struct Reach {
    bool asks_for_place = false;
    std::vector<Neighbour> neighbours{};  ///< of pointwise groups
    bool correlates_planes = false;       ///< x and y of a separable group stay whole
  };
  static Reach reach_of(const Group& group);
  void find_needed();
  bool keeps_planes(std::size_t group) const;
  IndexBox extended(std::size_t group, IndexBox box) const;
  Regions inputs_for(std::size_t group, const IndexBox& box) const;
  Regions pointwise_inputs(std::size_t group, const std::vector<std::string>& names, const IndexBox& box) const;
  std::size_t scratch_of(std::size_t group, const Regions& held, const IndexBox& output) const;

  const Pipeline& pipeline_;
  const Plan& plan_;
  std::vector<ImageInfos> infos_;
  ImageInfos written_;
  std::vector<Reach> reaches_;
  std::vector<bool> needed_;
};

}  // namespace volpipe
