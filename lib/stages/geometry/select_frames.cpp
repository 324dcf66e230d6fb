#include <algorithm>

#include "stages/gather/gather_stage.h"
#include "volume/error.h"

namespace volpipe {

namespace {

class SelectFrames final : public RearrangingStage {
 public:
  struct Params {
    std::vector<std::int64_t> frames{};
    std::optional<std::int64_t> start{};
    std::optional<std::int64_t> stop{};
    std::optional<std::int64_t> step{};
  };

  explicit SelectFrames(Params params) : params_(std::move(params)) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    const bool slices = params.start || params.stop || params.step;
    if (params.frames.empty() != slices) faults.add(pointer, "give 'frames', or some of 'start', 'stop' and 'step'");
    if (params.step == 0) faults.add(pointer + "/step", "'step' cannot be 0");
  }

  std::vector<std::string> makes(const std::vector<std::string>& on) const override { return on; }

  std::vector<Result> rearrange(const ImageInfos& images, const std::vector<std::string>& on) const override {
    std::vector<Result> results;
    for (const std::string& image : on) results.push_back(selection_of(image, images.at(image)));
    return results;
  }

 private:
  Result selection_of(const std::string& image, const VolumeInfo& info) const {
    const std::vector<std::int64_t> frames =
        params_.frames.empty() ? slice(info.components) : list(image, info.components);
    if (frames.empty())
      throw Error(ErrorCode::input,
                  "nothing is selected of the " + std::to_string(info.components) + " components of '" + image + "'");
    Result result{image, info, {}};
    result.info.components = std::int64_t(frames.size());
    for (std::size_t i = 0; i < frames.size(); ++i)
      result.parts.push_back({.image = image, .component = frames[i], .target_component = std::int64_t(i)});
    if (frames.size() == 1) result.info.component_axis = ComponentAxis::none;
    else if (info.component_axis == ComponentAxis::none) result.info.component_axis = ComponentAxis::frames;
    if (const std::int64_t apart = even_distance(frames)) result.info.frame_spacing *= double(apart);
    return result;
  }

  std::vector<std::int64_t> list(const std::string& image, std::int64_t count) const {
    std::vector<std::int64_t> frames;
    for (const std::int64_t frame : params_.frames) {
      if (frame < -count || frame >= count)
        throw Error(ErrorCode::input, "there is no component " + std::to_string(frame) + " in '" + image +
                                          "', which has " + std::to_string(count) + " (0 to " +
                                          std::to_string(count - 1) + ", or -1 for the last)");
      frames.push_back(frame < 0 ? frame + count : frame);
    }
    return frames;
  }

  /// Python's slice(start, stop, step).indices(count).
  std::vector<std::int64_t> slice(std::int64_t count) const {
    const std::int64_t step = params_.step.value_or(1);
    const std::int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? count : count - 1;
    const auto place = [&](std::optional<std::int64_t> given, std::int64_t otherwise) {
      if (!given) return otherwise;
      return std::clamp(*given < 0 ? *given + count : *given, lowest, highest);
    };
    const std::int64_t start = place(params_.start, step > 0 ? lowest : highest);
    const std::int64_t stop = place(params_.stop, step > 0 ? highest : lowest);
    std::vector<std::int64_t> frames;
    for (std::int64_t frame = start; step > 0 ? frame < stop : frame > stop; frame += step) frames.push_back(frame);
    return frames;
  }

  /// How far each frame is from the one before; 0 when that differs.
  static std::int64_t even_distance(const std::vector<std::int64_t>& frames) {
    for (std::size_t i = 2; i < frames.size(); ++i)
      if (frames[i] - frames[i - 1] != frames[1] - frames[0]) return 0;
    return frames.size() > 1 ? std::abs(frames[1] - frames[0]) : 0;
  }

  Params params_;
};

}  // namespace

StageDefinition stage_select_frames() {
  using Params = SelectFrames::Params;
  return define_stage<SelectFrames>(
      {.op = "select_frames",
       .family = "geometry",
       .summary = "keep some components (time frames, channels), in any order",
       .targets = StageTargets::images,
       .example = {{"op", "select_frames"}, {"frames", {0, -1}}}},
      Parameters<Params>()
          .add("frames", &Params::frames, {},
               "which components, in order, repeats allowed; from 0, negative ones from the end")
          .add("start", &Params::start, {}, "first of a slice as in Python: negative from the end, the ends cut off")
          .add("stop", &Params::stop, {}, "the slice ends before this")
          .add("step", &Params::step, {}, "from one to the next; negative ones go backwards"));
}

}  // namespace volpipe
