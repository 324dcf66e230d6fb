#include "stages/gather/label_vote.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "stages/pointwise/statistics.h"
#include "volume/error.h"

namespace volpipe {

namespace {

constexpr double kWidestSpan = 16777216;  // 2^24

/// Labels of floating type must be whole numbers, or they cannot be told one from another by counting.
void check_whole(DeviceContext& context, SampledValues values, const Moments& moments) {
  Program fraction;
  fraction.store(Operand::r0).add(Op::floor).add(Op::subtract, Operand::r0);
  values.program = &fraction;
  if (moments.non_finite == 0 && compute_moments(context, values).min == 0) return;
  throw Error(ErrorCode::unsupported,
              "labels that are not whole numbers cannot be smoothed one by one: set \"antialias\": false");
}

/// The different labels there are, ascending.
std::vector<double> labels_of(DeviceContext& context, const Volume& volume) {
  const std::array<ProgramInput, 1> inputs{ProgramInput{volume.data(), volume.dtype()}};
  const SampledValues values{.inputs = inputs, .count = volume.info().value_count(), .precision = Precision::double_};
  const Moments moments = compute_moments(context, values);
  if (is_floating(volume.dtype())) check_whole(context, values, moments);
  if (moments.max - moments.min >= kWidestSpan)
    throw Error(ErrorCode::unsupported,
                "the labels span more than 16777216 values, too many to smooth one by one: set \"antialias\": false");
  const double low = std::floor(moments.min) - 0.5;
  const int bins = int(std::ceil(moments.max + 0.5) - low);
  const std::vector<std::int64_t> counts = compute_histogram(context, values, low, low + bins, bins);
  std::vector<double> labels;
  for (int bin = 0; bin < bins; ++bin)
    if (counts[std::size_t(bin)]) labels.push_back(low + 0.5 + bin);
  return labels;
}

/// 1 where `labels` is `label`, else 0, float32 on the same grid.
Volume indicator(DeviceContext& context, const Volume& labels, double label) {
  VolumeInfo info = labels.info();
  info.dtype = DataType::float32;
  info.kind = ImageKind::image;
  Volume result(info, context.allocate(info.bytes()));
  const std::array<ProgramInput, 1> inputs{ProgramInput{labels.data(), labels.dtype()}};
  run_program(context, Program().add(Op::equal, label), inputs, result.data(), info.dtype, info.value_count(),
              Precision::double_);
  return result;
}

/// The labels, and what may stand for voxels that are not there.
std::vector<double> candidates_of(DeviceContext& context, const Volume& labels, const GatherMap& map, double fill_value,
                                  double before_fill) {
  std::vector<double> candidates = labels_of(context, labels);
  if (has_fill(map.boundary)) candidates.push_back(fill_value);
  if (map.before.uses_fill()) candidates.push_back(before_fill);
  if (!map.whole_window()) candidates.push_back(map.window_fill);
  std::sort(candidates.begin(), candidates.end());
  candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
  return candidates;
}

/// Where a label's share is above the most of the earlier ones by more than rounding, it wins.
void count_vote(DeviceContext& context, const Volume& share, double label, Volume& most, Volume& winner) {
  const std::array<ProgramInput, 3> inputs{ProgramInput{share.data(), share.dtype()},
                                           ProgramInput{most.data(), most.dtype()},
                                           ProgramInput{winner.data(), winner.dtype()}};
  Program vote, larger;
  vote.load(1).add(Op::add, 1e-6).store(Operand::r1);
  vote.load(0).add(Op::greater, Operand::r1).store(Operand::r2);
  vote.load(2).store(Operand::r3).add(Op::set, label).store(Operand::r0);
  vote.load(2).add(Op::subtract_from, Operand::r0).add(Op::multiply, Operand::r2).add(Op::add, Operand::r3);
  const std::int64_t count = winner.info().value_count();
  run_program(context, vote, inputs, winner.data(), winner.dtype(), count, Precision::double_);
  larger.load(1).store(Operand::r0).load(0).add(Op::maximum, Operand::r0);
  run_program(context, larger, std::span(inputs).first(2), most.data(), most.dtype(), count, Precision::single);
}

}  // namespace

bool votes_by_label(const GatherMap& map) {
  return map.interpolation == Interpolation::label_linear && map.before.computes;
}

Volume vote_by_label(DeviceContext& context, const Volume& labels, const GatherMap& map, double fill_value,
                     double before_fill, const ImageLookup& images) {
  GatherMap share_map = map;
  share_map.interpolation = Interpolation::linear;
  share_map.output.kind = ImageKind::image;
  share_map.output.dtype = DataType::float32;
  Volume winner(map.output, context.allocate(map.output.bytes()));
  std::optional<Volume> most;
  for (const double label : candidates_of(context, labels, map, fill_value, before_fill)) {
    share_map.window_fill = map.window_fill == label ? 1 : 0;
    Volume share = apply_gather(context, indicator(context, labels, label), share_map, fill_value == label ? 1 : 0,
                                before_fill == label ? 1 : 0, images);
    if (most) {
      count_vote(context, share, label, *most, winner);
      continue;
    }
    const std::array<ProgramInput, 1> inputs{ProgramInput{share.data(), share.dtype()}};
    run_program(context, Program().add(Op::set, label), inputs, winner.data(), winner.dtype(),
                winner.info().value_count(), Precision::double_);
    most = std::move(share);
  }
  return winner;
}

std::size_t vote_scratch_bytes(const VolumeInfo& labels, const GatherMap& map) {
  GatherMap share_map = map;
  share_map.interpolation = Interpolation::linear;
  share_map.output.dtype = DataType::float32;
  VolumeInfo indicator = labels;
  indicator.dtype = DataType::float32;
  return indicator.bytes() + 2 * share_map.output.bytes() + scratch_bytes(indicator, share_map);
}

}  // namespace volpipe
