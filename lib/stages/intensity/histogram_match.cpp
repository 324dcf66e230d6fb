#include <algorithm>
#include <cmath>
#include <mutex>

#include "device/context.h"
#include "stages/intensity/intensity.h"
#include "stages/pointwise/volume_statistics.h"
#include "stages/stage_context.h"
#include "volume/error.h"

namespace volpipe {

namespace {

/// Of a reference: values at equally spaced shares of the voxels under the mask, and the range of all voxels.
struct Quantiles {
  std::vector<double> values;
  double min = 0, max = 0;
};

/// The quantiles of the volume asked for last, for one reference serves all items of a run.
class LastQuantiles {
 public:
  template <class Compute>
  std::shared_ptr<const Quantiles> of(const std::shared_ptr<const Volume>& volume, Compute&& compute) {
    const std::lock_guard lock(mutex_);
    if (!quantiles_ || volume_.lock() != volume) {
      quantiles_ = std::make_shared<const Quantiles>(compute(*volume));
      volume_ = volume;
    }
    return quantiles_;
  }

 private:
  std::mutex mutex_;
  std::weak_ptr<const Volume> volume_;
  std::shared_ptr<const Quantiles> quantiles_;
};

class HistogramMatch final : public PointwiseStage {
 public:
  struct Params {
    ImageOrFile reference;
    std::int64_t points = 64;
    Mask mask;
    StatisticsRequest::Over per = StatisticsRequest::Over::volume;
  };
  explicit HistogramMatch(Params params) : params_(std::move(params)), last_(std::make_shared<LastQuantiles>()) {}

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    if (params.per == StatisticsRequest::Over::item)
      faults.add(pointer + "/per", "'per' must be 'volume' or 'component', for the reference is one image");
  }

  std::shared_ptr<const VoxelStage> for_image(const std::string& image, const VolumeInfo&,
                                              const StageContext& context) const override {
    auto own = std::make_shared<HistogramMatch>(*this);
    own->is_reference_ = image == params_.reference.name;
    if (of_file()) own->reference_ = quantiles_of_file(context.files);
    return own;
  }

  std::vector<std::string> reads() const override {
    if (of_file()) return {};
    return {params_.reference.name};
  }

  std::vector<StatisticsRequest> requests() const override {
    if (is_reference_) return {};
    std::vector<StatisticsRequest> requests{{.percentiles = percents(), .mask = params_.mask, .over = params_.per}};
    if (masked()) requests.push_back({.range = true, .over = params_.per});
    if (of_file()) return requests;
    for (std::size_t i = 0, own = requests.size(); i < own; ++i) {
      requests.push_back(requests[i]);
      requests.back().of = [name = params_.reference.name](Program& program, const PointwiseContext& context) {
        program.load(context.input_number(name));
      };
    }
    return requests;
  }

  VolumeInfo output(const VolumeInfo& input) const override {
    return is_reference_ ? input : PointwiseStage::output(input);
  }

  void append(Program& program, const PointwiseContext& context) const override {
    if (is_reference_) return;
    const std::size_t each = masked() ? 2 : 1;
    const Quantiles own = quantiles_of(context.answers.first(each));
    const Quantiles reference = of_file() ? *reference_ : quantiles_of(context.answers.subspan(each));
    if (std::isnan(own.values[0])) return notice_no_voxels(context.notices, "histogram_match");
    if (std::isnan(reference.values[0]))
      return context.notices.add("no_voxels", "histogram_match: the reference '" + params_.reference.name +
                                                  "' has no finite voxel to match; the image was left as it is");
    if (own.values.front() == own.values.back())
      return notice_unchanged(context.notices, "histogram_match", "range of the voxels to match");
    program.curve(curve_between(own, reference));
  }

 private:
  bool masked() const { return params_.mask.kind != Mask::Kind::all; }
  bool of_file() const { return params_.reference.name.starts_with("/"); }

  std::vector<double> percents() const {
    std::vector<double> percents;
    for (std::int64_t i = 0; i <= params_.points; ++i) percents.push_back(100 * double(i) / double(params_.points));
    return percents;
  }

  static Quantiles quantiles_of(std::span<const StatisticsResult> answers) {
    const std::vector<double>& values = answers[0].percentiles;
    if (answers.size() == 1) return {values, values.front(), values.back()};
    return {values, answers[1].moments.min, answers[1].moments.max};
  }

  std::shared_ptr<const Quantiles> quantiles_of_file(StageFiles& files) const {
    const std::shared_ptr<const Volume> volume = files.volume(params_.reference.name);
    return with_path(files.resolved(params_.reference.name), [&] {
      return last_->of(volume, [&](const Volume& reference) {
        const auto context = make_context(Device::cpu(), 1);
        const Mask mask = params_.mask.kind == Mask::Kind::image ? Mask{} : params_.mask;
        const std::array<double, 2> ends{0, 100};
        const std::vector<double> range = volume_percentiles(*context, reference, {}, ends);
        if (std::isnan(range[0])) throw Error(ErrorCode::input, "the reference has no finite voxel");
        return Quantiles{volume_percentiles(*context, reference, mask, percents()), range[0], range[1]};
      });
    });
  }

  /// Beyond the voxels under the mask it goes on to the ends of the ranges.
  static Curve curve_between(const Quantiles& own, const Quantiles& reference) {
    std::vector<double> x = own.values, y = reference.values;
    if (own.min < x.front()) {
      x.insert(x.begin(), own.min);
      y.insert(y.begin(), std::min(reference.min, y.front()));
    }
    if (own.max > x.back()) {
      x.push_back(own.max);
      y.push_back(std::max(reference.max, y.back()));
    }
    return curve_through(x, y, false);
  }

  Params params_;
  bool is_reference_ = false;
  std::shared_ptr<const Quantiles> reference_;
  std::shared_ptr<LastQuantiles> last_;
};

}  // namespace

StageDefinition stage_histogram_match() {
  using P = HistogramMatch::Params;
  return define_stage<HistogramMatch>(
      {.op = "histogram_match",
       .family = "intensity",
       .summary = "gives the image the reference's distribution: quantiles of its finite voxels go to those of the "
                  "reference, straight in between; a value that many voxels have goes to the mean of their quantiles; "
                  "NaN stays, a constant image too",
       .example = {{"op", "histogram_match"}, {"reference", "reference"}, {"on", "image"}},
       .needs = {.images = {"reference"}}},
      Parameters<P>()
          .add("reference", &P::reference, {.required = true},
               "image of the item, on the same grid, or file, on any; the reference itself stays as it is")
          .add("points", &P::points, {.min = 1, .max = 1024},
               "the quantiles are those of 0, 1/points, ..., 1 of the voxels, exact")
          .add("mask", &P::mask, {},
               "where quantiles are taken: \"nonzero\", \"foreground\" and \"above\" by the values of either image, an "
               "image's name for both, or where the reference is a file, for this image alone; beyond them the curve "
               "goes straight to the ends of both images' ranges")
          .add("per", &P::per, {},
               "volume: all components have one curve; component: each its own, from the same component of a reference "
               "image, or from all of a file's"));
}

}  // namespace volpipe
