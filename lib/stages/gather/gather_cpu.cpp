#include <variant>
#include <vector>

#include "stages/gather/cpu_fields.h"
#include "stages/gather/cpu_samplers.h"

namespace volpipe::cpu {

namespace {

/// Tiles whose rows are long, and whose other extent is along the target axis that follows the lines of memory: what a
/// tile reads stays in the second-level cache however the source is turned.
Index3 tile_for(const GatherWork& work) {
  int contiguous = 0, along = 0;
  for (int a = 1; a < 3; ++a)
    if (std::abs(work.source[std::size_t(a)].stride) < std::abs(work.source[std::size_t(contiguous)].stride))
      contiguous = a;
  const auto& row = work.start.linear[contiguous];
  for (int a = 1; a < 3; ++a)
    if (std::abs(row[std::size_t(a)]) > std::abs(row[std::size_t(along)])) along = a;
  if (along == 0) return {256, 8, 8};
  return along == 1 ? Index3{64, 32, 4} : Index3{64, 4, 32};
}

template <class Sampler>
class Gather {
 public:
  using In = typename Sampler::In;
  using Out = typename Sampler::Out;

  Gather(const GatherWork& work, const void* input, void* output)
      : work_(work),
        sampler_(work),
        start_(gather::map_of(work.start)),
        tile_size_(tile_for(work)),
        input_(static_cast<const In*>(input)),
        output_(static_cast<Out*>(output)),
        target_voxels_(work.target_size[0] * work.target_size[1] * work.target_size[2]) {
    for (int a = 0; a < 3; ++a) inverse_slope_[a] = 1 / start_.m[a][0];
    for (const FieldWork& field : work.fields) {
      if (field.type == DataType::float64) fields_.emplace_back(std::in_place_type<Field<double>>, field);
      else fields_.emplace_back(std::in_place_type<Field<float>>, field);
    }
    const std::int64_t stride = work.source[0].stride;
    step_ = stride == 1 || stride == -1 ? int(stride) : 0;
  }

  void run(DeviceContext& context) const {
    Index3 tiles;
    for (std::size_t a = 0; a < 3; ++a) tiles[a] = (work_.target_size[a] + tile_size_[a] - 1) / tile_size_[a];
    context.parallel(tiles[0] * tiles[1] * tiles[2], 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t tile = begin; tile < end; ++tile)
        gather_tile({tile % tiles[0], tile / tiles[0] % tiles[1], tile / (tiles[0] * tiles[1])});
    });
  }

 private:
  using AnyField = std::variant<Field<float>, Field<double>>;

  void gather_tile(const Index3& tile) const {
    Interval part[3];
    for (std::size_t a = 0; a < 3; ++a)
      part[a] = {tile[a] * tile_size_[a], std::min((tile[a] + 1) * tile_size_[a], work_.target_size[a])};
    const Interval window = Interval{work_.window_begin[0], work_.window_end[0]}.within(part[0]);
    for (std::int64_t k = part[2].begin; k < part[2].end; ++k)
      for (std::int64_t j = part[1].begin; j < part[1].end; ++j) {
        Out* row = output_ + (k * work_.target_size[1] + j) * work_.target_size[0];
        const bool in_window = !window.empty() && j >= work_.window_begin[1] && j < work_.window_end[1] &&
                               k >= work_.window_begin[2] && k < work_.window_end[2];
        if (!in_window) {
          fill(row, part[0], sampler_.window_fill);
          continue;
        }
        fill(row, {part[0].begin, window.begin}, sampler_.window_fill);
        fill(row, {window.end, part[0].end}, sampler_.window_fill);
        if (work_.fields.empty()) gather_affine_row(row, window, double(j), double(k));
        else gather_moved_row(row, window, double(j), double(k));
      }
  }

  void fill(Out* row, const Interval& part, Out value) const {
    if (part.empty()) return;
    for (std::int64_t c = 0; c < work_.components; ++c)
      std::fill_n(row + c * target_voxels_ + part.begin, part.end - part.begin, value);
  }

  /// Which coordinates may be looked up at all.
  Range image_range(int a) const {
    const double last = double(sampler_.source().axis(a).size - 1);
    switch (work_.boundary) {
      case Boundary::constant:
        return {-gather::kSnap, last + gather::kSnap};
      case Boundary::grid_constant:
        return {-8, last + 8};
      default:
        return {-1e300, 1e300};
    }
  }

  void gather_affine_row(Out* out, const Interval& window, double j, double k) const {
    const Source& source = sampler_.source();
    const Point row = gather::row_of(start_, j, k);
    Interval image = window;
    for (int a = 0; a < 3 && !image.empty(); ++a)
      image = indices_within(image_range(a), start_.m[a][0], inverse_slope_[a], row.at[a], image);
    fill(out, {window.begin, image.empty() ? window.end : image.begin}, sampler_.fill);
    if (image.empty()) return;
    fill(out, {image.end, window.end}, sampler_.fill);

    Interval inner = image;
    Reach reach = source.reach();
    Point looked_up = row;
    int step = step_;
    for (int a = 0; a < 3 && !inner.empty(); ++a) {
      const double slope = start_.m[a][0];
      if (slope != 0 || source.inside(a).has(row.at[a])) {
        inner = indices_within(source.inside(a), slope, inverse_slope_[a], row.at[a], inner);
      } else if (source.fix_axis(a, looked_up.at[a], reach)) {
        if (a == 0) step = 0;
      } else {
        inner.end = inner.begin;
      }
    }
    if (inner.end - inner.begin < kLanes) inner = {image.end, image.end};
    gather_edge(out, {image.begin, inner.begin}, row);
    gather_edge(out, {inner.end, image.end}, row);
    double at[3][kChunk];
    for (std::int64_t i = inner.begin; i < inner.end; i += kChunk) {
      i = std::min(i, inner.end - kLanes);
      const std::int64_t count = std::min(inner.end - i, kChunk);
      find_points(looked_up, i, count, at);
      gather_inside(out + i, at, count, reach, step);
    }
  }

  void find_points(const Point& row, std::int64_t i, std::int64_t count, double (*at)[kChunk]) const {
    const double first = double(i);
    for (int a = 0; a < 3; ++a)
      for (int l = 0; l < int(count); ++l) at[a][l] = std::fma(start_.m[a][0], first + l, row.at[a]);
  }

  void gather_edge(Out* out, const Interval& part, const Point& row) const {
    for (std::int64_t i = part.begin; i < part.end; ++i)
      gather_anywhere(out + i, gather::apply_to_row(start_, row, double(i)));
  }

  void gather_moved_row(Out* out, const Interval& window, double j, double k) const {
    const Point row = gather::row_of(start_, j, k);
    double at[3][kChunk];
    for (std::int64_t i = window.begin; i < window.end; i += kChunk) {
      const std::int64_t count = std::min(window.end - i, kChunk);
      find_points(row, i, count, at);
      for (const AnyField& field : fields_)
        std::visit([&](const auto& vectors) { vectors.move(i, j, k, count, at); }, field);
      gather_chunk(out + i, at, count);
    }
  }

  /// Points of which it is not known where they lie.
  void gather_chunk(Out* out, const double (*at)[kChunk], std::int64_t count) const {
    const Source& source = sampler_.source();
    split_chunk(
        source, at, count,
        [&](std::int64_t begin, std::int64_t length, const double(*points)[kChunk]) {
          gather_inside(out + begin, points, length, source.reach(), step_);
        },
        [&](std::int64_t l) {
          gather_anywhere(out + l, {{at[0][l], at[1][l], at[2][l]}});
        });
  }

  void gather_anywhere(Out* out, const Point& p) const {
    for (std::int64_t c = 0; c < work_.components; ++c)
      out[c * target_voxels_] = sampler_.at(p, input_ + c * work_.component_stride);
  }

  /// At least kLanes points, every tap of which is a voxel.
  void gather_inside(Out* out, const double (*at)[kChunk], std::int64_t count, const Reach& reach, int step) const {
    typename Sampler::Positions positions;
    sampler_.positions(at, count, reach, positions);
    for (std::int64_t c = 0; c < work_.components; ++c) {
      const In* voxels = input_ + c * work_.component_stride;
      Out* values = out + c * target_voxels_;
      if (step > 0) sampler_.template take<1>(positions, count, reach, voxels, values);
      else if (step < 0) sampler_.template take<-1>(positions, count, reach, voxels, values);
      else sampler_.template take<0>(positions, count, reach, voxels, values);
    }
  }

  const GatherWork& work_;
  Sampler sampler_;
  gather::Map start_;
  double inverse_slope_[3];
  Index3 tile_size_;
  std::vector<AnyField> fields_;
  const In* input_;
  Out* output_;
  std::int64_t target_voxels_;
  int step_;
};

template <template <class> class Sampler>
void gather_bits(DeviceContext& context, const GatherWork& work, const void* input, void* output) {
  switch (size_of(work.output_type)) {
    case 1:
      return Gather<Sampler<std::uint8_t>>(work, input, output).run(context);
    case 2:
      return Gather<Sampler<std::uint16_t>>(work, input, output).run(context);
    case 4:
      return Gather<Sampler<std::uint32_t>>(work, input, output).run(context);
    default:
      return Gather<Sampler<std::uint64_t>>(work, input, output).run(context);
  }
}

void gather_linear(DeviceContext& context, const GatherWork& work, const void* input, void* output) {
  visit(work.input_type, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    if (work.output_type == DataType::float64) Gather<LinearSampler<T, double>>(work, input, output).run(context);
    else Gather<LinearSampler<T, float>>(work, input, output).run(context);
  });
}

template <Interpolation kInterpolation>
void gather_taps(DeviceContext& context, const GatherWork& work, const void* input, void* output) {
  const bool from_double = work.input_type == DataType::float64, to_double = work.output_type == DataType::float64;
  if (from_double && to_double) Gather<TapSampler<kInterpolation, double, double>>(work, input, output).run(context);
  else if (from_double) Gather<TapSampler<kInterpolation, double, float>>(work, input, output).run(context);
  else if (to_double) Gather<TapSampler<kInterpolation, float, double>>(work, input, output).run(context);
  else Gather<TapSampler<kInterpolation, float, float>>(work, input, output).run(context);
}

}  // namespace

void gather(DeviceContext& context, const GatherWork& work, const void* input, void* output) {
  switch (work.interpolation) {
    case Interpolation::nearest:
      return gather_bits<NearestSampler>(context, work, input, output);
    case Interpolation::label_linear:
      return gather_bits<LabelSampler>(context, work, input, output);
    case Interpolation::linear:
      return gather_linear(context, work, input, output);
    case Interpolation::cubic:
      return gather_taps<Interpolation::cubic>(context, work, input, output);
    case Interpolation::bspline2:
      return gather_taps<Interpolation::bspline2>(context, work, input, output);
    case Interpolation::bspline3:
      return gather_taps<Interpolation::bspline3>(context, work, input, output);
    case Interpolation::bspline4:
      return gather_taps<Interpolation::bspline4>(context, work, input, output);
    case Interpolation::bspline5:
      return gather_taps<Interpolation::bspline5>(context, work, input, output);
    case Interpolation::lanczos3:
      return gather_taps<Interpolation::lanczos3>(context, work, input, output);
  }
}

}  // namespace volpipe::cpu
