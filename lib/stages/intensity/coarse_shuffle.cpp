#include "stages/boxes/box_work.h"
#include "stages/boxes/random_boxes.h"
#include "stages/volume_stage.h"
#include "stages/volumes.h"

namespace volpipe {

namespace {

class CoarseShuffle final : public VolumeStage {
 public:
  using Params = BoxParams;

  explicit CoarseShuffle(Params params) : params_(params) {}

  std::shared_ptr<const VoxelStage> for_image(const std::string&, const VolumeInfo& input,
                                              const StageContext& context) const override {
    auto bound = std::make_shared<CoarseShuffle>(*this);
    bound->boxes_ = random_boxes(params_, context, input.geometry);
    return bound;
  }

  VolumeInfo output(const VolumeInfo& input) const override { return input; }
  bool computes() const override { return false; }
  std::size_t scratch_bytes(const VolumeInfo&) const override { return boxes_.size() * sizeof(VoxelBox); }

  Volume run(const Volume& input, const VolumeInfo&, VolumeContext& context) const override {
    Volume result = copy_of(context.device, input);
    shuffle_boxes(context.device, boxes_, input, result);
    return result;
  }

 private:
  Params params_;
  std::vector<VoxelBox> boxes_{};
};

}  // namespace

StageDefinition stage_coarse_shuffle() {
  return define_stage<CoarseShuffle>(
      {.op = "coarse_shuffle",
       .family = "intensity",
       .summary =
           "permute the voxels in each of several boxes at random places, one box after the other, alike for all "
           "images on one grid and all components; every voxel keeps its bits",
       .example = {{"op", "coarse_shuffle"}, {"holes", 3}, {"size", {4, 12}}}},
      box_parameters<BoxParams>());
}

}  // namespace volpipe
