// cuda::gather against a plain loop on the host over the same arithmetic.
#include <gtest/gtest.h>

#include <bit>

#include "stages/gather/gather_arithmetic.h"
#include "stages/gather/point_map.h"
#include "support/separable_reference.h"

namespace volpipe {
namespace {

using namespace testing;
using gather::Point;

// ---- the loop on the host; the vectors of the fields are host memory here

template <class V>
Point through_field(const FieldWork& field, const Point& target, const Point& y) {
  const gather::FieldView<V> view{static_cast<const V*>(field.vectors),
                                  {field.size[0], field.size[1], field.size[2]},
                                  field.size[0] * field.size[1] * field.size[2]};
  double linear[3][3];
  for (int row = 0; row < 3; ++row)
    for (int column = 0; column < 3; ++column) linear[row][column] = field.linear[row][std::size_t(column)];
  const auto vector_at = [&](const Point& p, V(&v)[3]) {
    const Point grid = gather::apply(gather::map_of(field.to_grid), field.from_target ? target : p);
    if (field.bspline) gather::spline_vector(view, grid, v);
    else gather::linear_vector(view, grid, v);
  };
  V v[3];
  switch (field.use) {
    case FieldWork::Use::add:
      vector_at(y, v);
      return gather::moved(y, linear, v);
    case FieldWork::Use::replace:
      vector_at(y, v);
      return gather::moved({field.offset[0], field.offset[1], field.offset[2]}, linear, v);
    default:
      Point q = y;
      for (int iteration = 0; iteration < FieldStep::kUndoIterations; ++iteration) {
        vector_at(q, v);
        for (V& component : v) component = -component;
        q = gather::moved(y, linear, v);
      }
      return q;
  }
}

Point point_of(const GatherWork& work, std::int64_t i, std::int64_t j, std::int64_t k) {
  const Point target{double(i), double(j), double(k)};
  Point y = gather::apply(gather::map_of(work.start), target);
  for (const FieldWork& field : work.fields)
    y = field.type == DataType::float64 ? through_field<double>(field, target, y)
                                        : through_field<float>(field, target, y);
  return y;
}

bool inside_window(const GatherWork& work, const Index3& at) {
  for (std::size_t a = 0; a < 3; ++a)
    if (at[a] < work.window_begin[a] || at[a] >= work.window_end[a]) return false;
  return true;
}

/// Voxels of type T, arithmetic in A (T itself where voxels are moved).
template <class T, class A>
class HostGather {
 public:
  HostGather(const GatherWork& work, const T* input, A fill, A view_fill)
      : work_(work), input_(input), fill_(fill), view_fill_(view_fill) {}

  A at(Point y, std::int64_t component) const {
    for (std::size_t a = 0; a < 3; ++a)
      if (!gather::look_up(y.at[a], work_.source[a].size, work_.boundary)) return fill_;
    const T* voxels = input_ + component * work_.component_stride;
    if constexpr (std::is_integral_v<A>) {
      return moved_voxel(voxels, y);
    } else {
      return work_.interpolation == Interpolation::linear ? linear(voxels, y) : taps(voxels, y);
    }
  }

 private:
  A moved_voxel(const T* voxels, const Point& y) const {
    if (work_.interpolation == Interpolation::nearest)
      return voxel(voxels, gather::nearest_index(y.at[0]), gather::nearest_index(y.at[1]),
                   gather::nearest_index(y.at[2]));
    std::int64_t lower[3];
    float t[3];
    for (int a = 0; a < 3; ++a) t[a] = float(gather::split(y.at[a], lower[a]));
    return gather::heaviest_label<A>(
        t, [&](int dx, int dy, int dz) { return voxel(voxels, lower[0] + dx, lower[1] + dy, lower[2] + dz); });
  }

  A linear(const T* voxels, const Point& y) const {
    std::int64_t lower[3];
    A t[3], planes[2];
    for (int a = 0; a < 3; ++a) t[a] = A(gather::split(y.at[a], lower[a]));
    const auto value = [&](int dx, int dy, int dz) {
      return voxel(voxels, lower[0] + (t[0] == 0 ? 0 : dx), lower[1] + (t[1] == 0 ? 0 : dy),
                   lower[2] + (t[2] == 0 ? 0 : dz));
    };
    for (int dz = 0; dz < 2; ++dz)
      planes[dz] = gather::lerp(gather::lerp(value(0, 0, dz), value(1, 0, dz), t[0]),
                                gather::lerp(value(0, 1, dz), value(1, 1, dz), t[0]), t[1]);
    return gather::lerp(planes[0], planes[1], t[2]);
  }

  A taps(const T* voxels, const Point& y) const {
    const int count = gather::tap_count(work_.interpolation);
    std::int64_t first[3];
    A w[3][6];
    for (int a = 0; a < 3; ++a) gather::tap_weights(work_.interpolation, y.at[a], first[a], w[a]);
    A sum = 0;
    for (int dz = 0; dz < count; ++dz)
      for (int dy = 0; dy < count; ++dy)
        for (int dx = 0; dx < count; ++dx)
          if (w[0][dx] != 0 && w[1][dy] != 0 && w[2][dz] != 0)
            sum += w[0][dx] * w[1][dy] * w[2][dz] * voxel(voxels, first[0] + dx, first[1] + dy, first[2] + dz);
    return sum;
  }

  A voxel(const T* voxels, std::int64_t x, std::int64_t y, std::int64_t z) const {
    const std::int64_t taps[3] = {x, y, z};
    std::int64_t element = 0;
    bool in_view = true;
    for (std::size_t a = 0; a < 3; ++a) {
      const SourceAxis& axis = work_.source[a];
      const std::int64_t v = fold_tap(taps[a], axis.size, work_.boundary);
      if (v < 0) return fill_;
      const gather::AxisView view{axis.size, axis.offset, axis.stride, axis.begin, axis.end, axis.elements.data()};
      const std::int64_t here = view.element(v);
      in_view &= here >= 0;
      element += here;
    }
    return in_view ? A(voxels[element]) : view_fill_;
  }

  const GatherWork& work_;
  const T* input_;
  A fill_, view_fill_;
};

template <class T>
struct BitsOf {
  using type = std::conditional_t<sizeof(T) == 1, std::uint8_t,
                                  std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                                     std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;
};

bool moves_voxels(const GatherWork& work) {
  return work.interpolation == Interpolation::nearest || work.interpolation == Interpolation::label_linear;
}

/// body(HostGather, window fill) in the type of the output (its bits where voxels are moved).
template <class Body>
void with_host_gather(const GatherWork& work, const void* input, const Body& body) {
  visit(work.input_type, [&]<class In>(In) {
    using T = typename In::type;
    if (moves_voxels(work)) {
      using Bits = typename BitsOf<T>::type;
      const auto bits = [](double value) { return std::bit_cast<Bits>(T(value)); };
      body(HostGather<Bits, Bits>(work, static_cast<const Bits*>(input), bits(work.fill), bits(work.view_fill)),
           bits(work.window_fill));
    } else if (work.output_type == DataType::float64) {
      body(HostGather<T, double>(work, static_cast<const T*>(input), work.fill, work.view_fill), work.window_fill);
    } else {
      body(HostGather<T, float>(work, static_cast<const T*>(input), float(work.fill), float(work.view_fill)),
           float(work.window_fill));
    }
  });
}

VolumeInfo output_info(const GatherWork& work) { return info_of(work.target_size, work.output_type, work.components); }

Volume on_host(const GatherWork& work, const Volume& input) {
  Volume output(output_info(work), Buffer::host(output_info(work).bytes()));
  with_host_gather(work, input.data(), [&]<class A>(const auto& host, A window_fill) {
    A* target = output.data_as<A>();
    for (std::int64_t c = 0; c < work.components; ++c)
      for (std::int64_t k = 0; k < work.target_size[2]; ++k)
        for (std::int64_t j = 0; j < work.target_size[1]; ++j)
          for (std::int64_t i = 0; i < work.target_size[0]; ++i)
            *target++ = inside_window(work, {i, j, k}) ? host.at(point_of(work, i, j, k), c) : window_fill;
  });
  return output;
}

// ---- works

Affine affine_of(const Matrix3& linear, const Vec3& offset) {
  Affine affine;
  affine.linear = linear;
  affine.offset = offset;
  return affine;
}

/// About 20 degrees around an oblique axis, scaled, so that the centres of the two grids meet.
Affine rotation(const Index3& from, const Index3& to, double scale = 1) {
  const Matrix3 r{{{{0.9447, -0.2648, 0.1949}, {0.2834, 0.9569, -0.0657}, {-0.1691, 0.1173, 0.9786}}}};
  Affine map;
  for (int row = 0; row < 3; ++row) {
    const auto a = std::size_t(row);
    map.offset[a] = double(to[a] - 1) / 2;
    for (int column = 0; column < 3; ++column) {
      map.linear[row][std::size_t(column)] = scale * r[row][std::size_t(column)];
      map.offset[a] -= map.linear[row][std::size_t(column)] * double(from[std::size_t(column)] - 1) / 2;
    }
  }
  return map;
}

/// The whole of a volume as the source, the whole target as the window, with a rotation.
GatherWork work_for(const VolumeInfo& input, const Index3& target, Interpolation interpolation,
                    Boundary boundary = Boundary::constant) {
  const Index3& n = input.geometry.size();
  GatherWork work;
  work.target_size = work.window_end = target;
  std::int64_t stride = 1;
  for (std::size_t a = 0; a < 3; ++a) {
    work.source[a] = {.size = n[a], .offset = 0, .stride = stride, .begin = 0, .end = n[a]};
    stride *= n[a];
  }
  work.start = rotation(target, n);
  work.interpolation = interpolation;
  work.boundary = boundary;
  work.fill = 17;
  work.view_fill = 23;
  work.window_fill = 42;
  work.components = input.components;
  work.component_stride = stride;
  work.input_type = input.dtype;
  work.output_type = moves_voxels(work) ? input.dtype : DataType::float32;
  return work;
}

Volume labels(const VolumeInfo& info, unsigned seed = 1) {
  std::mt19937 engine(seed);
  return volume_from(info, [&](std::int64_t) { return int(engine() % 4); });
}

Volume data_for(Interpolation interpolation, const VolumeInfo& info, unsigned seed = 1) {
  return interpolation == Interpolation::label_linear ? labels(info, seed) : random_volume(info, seed);
}

const std::vector<Interpolation> kInterpolations{
    Interpolation::nearest,  Interpolation::label_linear, Interpolation::linear,
    Interpolation::cubic,    Interpolation::bspline2,     Interpolation::bspline3,
    Interpolation::bspline4, Interpolation::bspline5,     Interpolation::lanczos3};
const std::vector<Boundary> kBoundaries{Boundary::constant, Boundary::grid_constant, Boundary::nearest,
                                        Boundary::mirror,   Boundary::reflect,       Boundary::wrap,
                                        Boundary::grid_wrap};
const std::vector<Index3> kSizes{{1, 1, 1}, {2, 3, 1}, {3, 17, 2}, {17, 33, 5}, {33, 17, 40}};

std::string words(const GatherWork& work) {
  return "interpolation " + std::to_string(int(work.interpolation)) + ", boundary " +
         std::to_string(int(work.boundary)) + ", " + std::string(to_string(work.input_type)) + " to " +
         std::string(to_string(work.output_type)) + ", source " +
         size_in_words({work.source[0].size, work.source[1].size, work.source[2].size}) + ", target " +
         size_in_words(work.target_size);
}

class GatherGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_cuda_unusable(0); !reason.empty()) GTEST_SKIP() << reason;
    context_ = make_context(Device::cuda(0));
  }

  Volume upload(const Volume& host) {
    Volume copy(host.info(), Buffer::host(host.info().bytes()));
    std::memcpy(copy.data(), host.data(), host.info().bytes());
    return context_->to_device(std::move(copy));
  }

  /// Into memory that held NaN, so that a voxel that is not written shows.
  Volume on_cuda(GatherWork work, const Volume& input, const std::vector<Volume>& vectors) {
    const Volume device = upload(input);
    std::vector<Volume> device_vectors;
    for (std::size_t f = 0; f < vectors.size(); ++f) {
      device_vectors.push_back(upload(vectors[f]));
      work.fields[f].vectors = device_vectors.back().data();
    }
    Volume poisoned(output_info(work), Buffer::host(output_info(work).bytes()));
    std::memset(poisoned.data(), 0xff, poisoned.info().bytes());
    Volume output = context_->to_device(std::move(poisoned));
    cuda::gather(*context_, work, device.data(), output.data());
    return context_->to_host(std::move(output));
  }

  /// `vectors` are those of work.fields.
  void expect_parity(const GatherWork& work, const Volume& input, const std::vector<Volume>& vectors = {}) {
    GatherWork host_work = work;
    for (std::size_t f = 0; f < vectors.size(); ++f) host_work.fields[f].vectors = vectors[f].data();
    const Volume expected = on_host(host_work, input), actual = on_cuda(work, input, vectors);
    if (moves_voxels(work)) {
      EXPECT_EQ(std::memcmp(actual.data(), expected.data(), expected.info().bytes()), 0) << words(work);
    } else {
      const double tolerance = work.output_type == DataType::float64 ? 1e-12 : 1e-5;
      EXPECT_LE(relative_difference(values_of(actual), values_of(expected)), tolerance) << words(work);
    }
  }

  std::unique_ptr<DeviceContext> context_;
};

TEST_F(GatherGpu, EveryInterpolationAndBoundaryAtEverySize) {
  for (const Interpolation interpolation : kInterpolations)
    for (const Index3& size : kSizes) {
      const Volume input = data_for(interpolation, info_of(size));
      for (const Boundary boundary : kBoundaries)
        for (const Index3& target : {Index3{19, 9, 11}, Index3{1, 1, 1}, size}) {
          GatherWork work = work_for(input.info(), target, interpolation, boundary);
          expect_parity(work, input);
          work.start = rotation(target, size, 2.3);
          expect_parity(work, input);
        }
    }
}

TEST_F(GatherGpu, EveryPixelTypeAndSeveralComponents) {
  for (const DataType type : all_types())
    for (const Interpolation interpolation :
         {Interpolation::nearest, Interpolation::label_linear, Interpolation::linear})
      for (const Boundary boundary : {Boundary::constant, Boundary::mirror}) {
        const Volume input = data_for(interpolation, info_of({35, 18, 21}, type, 3));
        GatherWork work = work_for(input.info(), {40, 21, 23}, interpolation, boundary);
        expect_parity(work, input);
        if (interpolation != Interpolation::linear) continue;
        work.output_type = DataType::float64;
        expect_parity(work, input);
      }
}

TEST_F(GatherGpu, TapsInBothPrecisions) {
  for (const Interpolation interpolation : kInterpolations) {
    if (gather::tap_count(interpolation) < 3) continue;
    for (const DataType from : {DataType::float32, DataType::float64})
      for (const DataType to : {DataType::float32, DataType::float64}) {
        const Volume input = random_volume(info_of({35, 28, 31}, from, 2));
        GatherWork work = work_for(input.info(), {40, 31, 33}, interpolation);
        work.output_type = to;
        expect_parity(work, input);
      }
  }
}

/// x and y of the memory exchanged and y flipped, z cropped with padding around it.
TEST_F(GatherGpu, LatticeViews) {
  const Index3 n{37, 30, 41};
  for (const Interpolation interpolation : kInterpolations)
    for (const Boundary boundary : kBoundaries)
      for (const DataType type : {DataType::uint8, DataType::float32}) {
        if (type == DataType::uint8 && gather::tap_count(interpolation) > 2) continue;
        const Volume input = data_for(interpolation, info_of(n, type, 2));
        GatherWork work = work_for(input.info(), {33, 35, 39}, interpolation, boundary);
        work.source[0] = {.size = 30, .offset = 29 * n[0], .stride = -n[0], .begin = 0, .end = 30};
        work.source[1] = {.size = 37, .offset = 0, .stride = 1, .begin = 0, .end = 37};
        // 3 of nothing, memory planes 5 to 34, then 4 of mirrored ones
        SourceAxis& z = work.source[2];
        z = {.size = 37, .offset = (5 - 3) * n[0] * n[1], .stride = n[0] * n[1], .begin = 3, .end = 33};
        for (std::int64_t v = 0; v < z.size; ++v)
          z.elements.push_back(v < 3 ? -1 : (v < 33 ? v + 2 : 66 - v) * n[0] * n[1]);
        work.start = rotation(work.target_size, {30, 37, 37});
        expect_parity(work, input);
      }
}

TEST_F(GatherGpu, WindowOfTheTarget) {
  for (const Interpolation interpolation :
       {Interpolation::nearest, Interpolation::label_linear, Interpolation::linear, Interpolation::bspline3}) {
    const Volume input = data_for(interpolation, info_of({33, 34, 35}, DataType::float32, 2));
    for (const auto& [begin, end] :
         {std::pair<Index3, Index3>{{3, 5, 2}, {30, 29, 31}}, {{0, 0, 0}, {70, 36, 1}}, {{9, 9, 9}, {9, 30, 30}}}) {
      GatherWork work = work_for(input.info(), {70, 36, 37}, interpolation);
      work.window_begin = begin;
      work.window_end = end;
      expect_parity(work, input);
    }
  }
}

struct Field {
  FieldWork work;
  Volume vectors;
};

Field field_of(bool bspline, DataType type, const Affine& to_grid, double amplitude, const Index3& size = {9, 8, 10}) {
  std::mt19937 engine(7);
  std::uniform_real_distribution<double> values(-amplitude, amplitude);
  Field field{{}, volume_from(info_of(size, type, 3), [&](std::int64_t) { return values(engine); })};
  field.work.bspline = bspline;
  field.work.type = type;
  field.work.size = size;
  field.work.to_grid = to_grid;
  field.work.linear = Matrix3{{{{0.9, 0.1, 0}, {-0.05, 1.1, 0.02}, {0, 0.03, 0.8}}}};
  return field;
}

/// The target's 70 x 40 x 50 voxels on a grid, parallel or not; parts of the target lie outside the grid.
Affine onto_grid(bool parallel, double step = 0.1) {
  Matrix3 linear{{{{step, 0, 0}, {0, 0.16, 0}, {0, 0, 0.17}}}};
  if (!parallel) linear = Matrix3{{{{step, 0.01, 0}, {0.02, 0.16, -0.01}, {0.005, 0, 0.17}}}};
  return affine_of(linear, {0.7, 0.95, 0.8});
}

TEST_F(GatherGpu, OneField) {
  for (const Interpolation interpolation :
       {Interpolation::nearest, Interpolation::label_linear, Interpolation::linear, Interpolation::bspline3})
    for (const bool bspline : {false, true})
      for (const bool from_target : {false, true})
        for (const bool parallel : {false, true})
          for (const DataType type : {DataType::float32, DataType::float64})
            for (const auto use : {FieldWork::Use::add, FieldWork::Use::replace, FieldWork::Use::undo}) {
              const Volume input = data_for(interpolation, info_of({66, 43, 47}));
              GatherWork work = work_for(input.info(), {70, 40, 50}, interpolation, Boundary::nearest);
              Field field = field_of(bspline, type, onto_grid(parallel), 2);
              field.work.use = use;
              field.work.from_target = from_target;
              field.work.offset = {33, 21, 23};
              if (use == FieldWork::Use::undo && from_target) continue;
              work.fields = {field.work};
              std::vector<Volume> vectors;
              vectors.push_back(std::move(field.vectors));
              expect_parity(work, input, vectors);
            }
}

TEST_F(GatherGpu, RowsThatShareAFieldInEveryDirection) {
  for (const Interpolation interpolation : {Interpolation::nearest, Interpolation::linear, Interpolation::bspline3})
    for (const double step : {0.1, -0.1, 0.02, 0.6, 3.0, 0.0})
      for (const Index3& grid : {Index3{9, 8, 10}, Index3{4, 4, 4}, Index3{60, 5, 6}}) {
        const Volume input = data_for(interpolation, info_of({66, 43, 47}, DataType::float32, 2));
        GatherWork work = work_for(input.info(), {131, 21, 19}, interpolation);
        Field field = field_of(true, DataType::float32, onto_grid(true, step), 3, grid);
        field.work.from_target = true;
        if (step < 0) field.work.to_grid.offset[0] = 8;
        work.fields = {field.work};
        std::vector<Volume> vectors;
        vectors.push_back(std::move(field.vectors));
        expect_parity(work, input, vectors);
      }
}

TEST_F(GatherGpu, FieldsOneAfterAnother) {
  for (const Interpolation interpolation : {Interpolation::nearest, Interpolation::linear}) {
    const Volume input = random_volume(info_of({66, 43, 47}, DataType::int16));
    GatherWork work = work_for(input.info(), {70, 40, 50}, interpolation, Boundary::reflect);
    std::vector<Volume> vectors;
    for (int f = 0; f < 3; ++f) {
      Field field = field_of(f == 0, f == 1 ? DataType::float64 : DataType::float32, onto_grid(f == 0), 1.5);
      field.work.from_target = f == 0;
      if (f == 2) field.work.use = FieldWork::Use::undo;
      work.fields.push_back(field.work);
      vectors.push_back(std::move(field.vectors));
    }
    expect_parity(work, input, vectors);
  }
}

/// Coordinates on voxels, on ties and at the edges, and next to them by less and more than what counts as there.
TEST_F(GatherGpu, CoordinatesNextToVoxelsAndTies) {
  for (const Interpolation interpolation :
       {Interpolation::nearest, Interpolation::label_linear, Interpolation::linear, Interpolation::cubic})
    for (const Boundary boundary : {Boundary::constant, Boundary::grid_constant, Boundary::mirror})
      for (const double centre : {-0.5, 0.0, 0.5, 1.0, 7.0, 7.5, 8.0, 9.0, 9.5, 30.0, 31.0, 31.5})
        for (const double step : {1e-10, 2.5e-10, 1e-9, 1e-12}) {
          const Volume input = data_for(interpolation, info_of({32, 32, 32}));
          GatherWork work = work_for(input.info(), {41, 5, 3}, interpolation, boundary);
          work.start = affine_of(Matrix3{{{{step, 0, 0}, {0, 0.5, 0}, {0, 0, step}}}}, {centre - 20 * step, 4, centre});
          expect_parity(work, input);
        }
}

TEST_F(GatherGpu, WholeSteps) {
  for (const Interpolation interpolation : kInterpolations)
    for (const double offset : {0.0, -3.0, 2.0, 0.5}) {
      const Volume input = data_for(interpolation, info_of({35, 36, 37}));
      GatherWork work = work_for(input.info(), {35, 36, 37}, interpolation);
      work.start = affine_of(Matrix3::identity(), {offset, offset, offset});
      expect_parity(work, input);
    }
}

/// What is not finite spreads as far as the weights that are not 0.
TEST_F(GatherGpu, NaNAndInfinityStayLocal) {
  for (const Interpolation interpolation : kInterpolations)
    for (const bool whole_steps : {false, true}) {
      Volume input = data_for(interpolation, info_of({35, 36, 37}));
      input.data_as<float>()[20 + 35 * (20 + 36 * 20)] = std::numeric_limits<float>::quiet_NaN();
      input.data_as<float>()[5 + 35 * (6 + 36 * 7)] = std::numeric_limits<float>::infinity();
      GatherWork work = work_for(input.info(), {35, 36, 37}, interpolation);
      if (whole_steps) work.start = affine_of(Matrix3::identity(), {1, 0, 0});
      const auto kinds = [](const Volume& volume) {
        std::vector<double> kinds;
        for (const double value : values_of(volume)) kinds.push_back(std::isnan(value) ? 1 : std::isinf(value) ? 2 : 0);
        return kinds;
      };
      EXPECT_EQ(kinds(on_cuda(work, input, {})), kinds(on_host(work, input))) << words(work);
    }
}

TEST_F(GatherGpu, PointsFarOutside) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Interpolation interpolation :
       {Interpolation::nearest, Interpolation::label_linear, Interpolation::linear, Interpolation::bspline3})
    for (const Boundary boundary : kBoundaries)
      for (const double scale : {1e3, 524288.0, 4503599627370496.0, 1e12, -1e12, 1e18, 1e200, infinity}) {
        const Volume input = data_for(interpolation, info_of({33, 20, 21}));
        GatherWork work = work_for(input.info(), {33, 9, 5}, interpolation, boundary);
        work.start.linear[0][0] = scale;
        work.start.offset[0] = -3;
        expect_parity(work, input);
      }
}

TEST_F(GatherGpu, LongAxes) {
  for (const Interpolation interpolation :
       {Interpolation::nearest, Interpolation::label_linear, Interpolation::linear, Interpolation::bspline3})
    for (const Index3& size : {Index3{600001, 2, 1}, Index3{2, 540000, 1}, Index3{1, 1, 700000}}) {
      const Volume input = data_for(interpolation, info_of(size));
      GatherWork work = work_for(input.info(), size, interpolation, Boundary::mirror);
      work.start = affine_of(Matrix3{{{{1.0003, 0, 0}, {0, 1.0003, 0}, {0, 0, 1.0003}}}}, {0.3, 0.3, 0.3});
      expect_parity(work, input);
    }
}

/// More voxels and more bytes than 32 bits count; the voxel at (x, y, z) is a function of its index.
TEST_F(GatherGpu, VolumesBeyond32Bits) {
  const std::int64_t n = 1300;
  const VolumeInfo info = info_of({n, n, n}, DataType::uint8);
  Volume input(info, Buffer::host(info.bytes()));
  std::uint32_t state = 1;
  for (std::int64_t i = 0; i < info.value_count(); ++i) {
    state = state * 1664525u + 1013904223u;
    input.data_as<std::uint8_t>()[i] = std::uint8_t(state >> 24);
  }
  const Volume device = upload(input);
  for (const Interpolation interpolation : {Interpolation::nearest, Interpolation::linear})
    for (const bool large_target : {false, true}) {
      GatherWork work = work_for(info, {n, n, large_target ? n : 40}, interpolation);
      work.start.offset = {-3.3, 120.7, large_target ? -20.4 : 1250.2};
      work.start.linear = Matrix3{{{{0.999, -0.03, 0.02}, {0.03, 0.99, -0.01}, {-0.02, 0.01, 0.998}}}};
      Buffer output = context_->allocate(output_info(work).bytes());
      cuda::gather(*context_, work, device.data(), output.data());
      const Volume actual = context_->to_host(Volume(output_info(work), std::move(output)));
      with_host_gather(work, input.data(), [&]<class A>(const auto& host, A) {
        for (std::int64_t index = info_of(work.target_size).value_count() - 1; index >= 0; index -= 997 * 13) {
          const Point y = point_of(work, index % n, index / n % n, index / (n * n));
          ASSERT_NEAR(double(actual.data_as<A>()[index]), double(host.at(y, 0)), moves_voxels(work) ? 0 : 2.5e-3)
              << index << words(work);
        }
      });
    }
}

}  // namespace
}  // namespace volpipe
