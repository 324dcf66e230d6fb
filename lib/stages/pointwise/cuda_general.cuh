// The general machine on a CUDA device: every op and register, four neighbouring voxels a thread. For .cu files.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "stages/pointwise/cuda_evaluator.h"
#include "stages/pointwise/place_ops.h"

namespace volpipe::cuda {

/// What the general machine's kernel needs: passed by value.
template <class T>
struct GeneralProgram {
  KernelProgram<T> kernel;
  PlaceTables tables;
  bool on_grid;  ///< an op looks at coordinates
};

/// A program's tables with all that they point to on the device, in one upload. The field's weights along x lie tap by
/// tap: weight [tap * size + x].
class DeviceTables {
 public:
  DeviceTables(DeviceContext& context, const Program& program, const ProgramGrid& grid)
      : tables_(host_tables(program, grid)) {
    std::vector<std::vector<double>> turned;
    for (std::size_t i = 0; i < program.fields().size(); ++i)
      tables_.fields[i].weights[0] = turned.emplace_back(by_tap(program.fields()[i]->axes[0])).data();
    std::vector<double> packed;
    std::vector<std::size_t> places;
    for_each_table(program, [&](auto& table, std::size_t count) {
      const std::size_t place = packed.size(), bytes = count * sizeof *table;
      packed.resize(place + (bytes + sizeof(double) - 1) / sizeof(double));
      std::memcpy(packed.data() + place, table, bytes);
      places.push_back(place);
    });
    if (packed.empty()) return;
    memory_.emplace(context, packed);
    auto place = places.begin();
    for_each_table(program, [&](auto& table, std::size_t) {
      table = reinterpret_cast<std::decay_t<decltype(table)>>(memory_->data() + *place++);
    });
  }

  const PlaceTables& tables() const { return tables_; }

 private:
  static std::vector<double> by_tap(const Field::Axis& axis) {
    const auto taps = std::size_t(axis.taps), size = axis.first.size();
    std::vector<double> turned(axis.weights.size());
    for (std::size_t i = 0; i < size; ++i)
      for (std::size_t tap = 0; tap < taps; ++tap) turned[tap * size + i] = axis.weights[i * taps + tap];
    return turned;
  }

  template <class Visitor>
  void for_each_table(const Program& program, Visitor&& visitor) {
    for (std::size_t i = 0; i < program.curves().size(); ++i) {
      visitor(tables_.curves[i].x, program.curves()[i].x.size());
      visitor(tables_.curves[i].y, program.curves()[i].y.size());
    }
    for (std::size_t i = 0; i < program.fields().size(); ++i) {
      const Field& field = *program.fields()[i];
      visitor(tables_.fields[i].coefficients, field.coefficients.size());
      for (std::size_t axis = 0; axis < 3; ++axis) {
        visitor(tables_.fields[i].weights[axis], field.axes[axis].weights.size());
        visitor(tables_.fields[i].first[axis], field.axes[axis].first.size());
      }
    }
  }

  PlaceTables tables_;
  std::optional<DeviceTable<double>> memory_;
};

/// One copy of the code, which is long.
__device__ __noinline__ double poisson_draw(std::uint64_t key, std::int64_t value, double mean) {
  return poisson_of(key, value, mean);
}

/// The four voxels of one thread on their way through a program.
template <class T, int kThreads>
class GeneralEvaluator {
 public:
  using Voxels = Tile<kThreads, 1>;
  static constexpr int kVoxels = Voxels::kVoxels;
  /// Chosen at run time, so they lie in local memory; by themselves, for the rest to lie in a processor's registers.
  struct Registers {
    alignas(16) T voxels[Program::kRegisters][kVoxels];
  };
  T acc[kVoxels];
  IntegerCounts counts;

  __device__ GeneralEvaluator(const GeneralProgram<T>& general, const Voxels& voxels, Registers& registers)
      : general_(general), tables_(general.tables), voxels_(voxels), registers_(registers.voxels) {}

  __device__ __forceinline__ void run() {
    const ExecutableProgram<T>& program = general_.kernel.program;
    load(program.steps[0].index);
    if (general_.on_grid) place_ = place_of(tables_, voxels_.first);
    for (int r = 0; r < program.registers; ++r) fill(registers_[r], T(0));
    for (int i = run_plain_steps<true>(program, 1, acc); i < program.size;
         i = run_plain_steps<true>(program, i + 1, acc))
      run_step(program.steps[i]);
  }

 private:
  using Step = typename ExecutableProgram<T>::Step;

  __device__ __forceinline__ void run_step(const Step& step) {
    switch (step.op) {
      case Op::load:
        return load(step.index);
      case Op::store:
        return copy(acc, registers_[step.index]);
      case Op::to_integer:
        return counts.convert(step, acc, general_.kernel.count, voxels_);
      case Op::choose:
        return choose(registers_[int(step.operand) - 1], registers_[step.index]);
      case Op::curve:
        return map(acc, [&](T v) { return T(curve_at(tables_.curves[step.index], v)); });
      case Op::coordinate:
        return load_coordinate(step.index);
      case Op::neighbour:
        return load_neighbour(tables_.neighbours[step.index]);
      case Op::field:
        return load_field(tables_.fields[step.index]);
      case Op::random_uniform:
        return draw(step.index, [](const PhiloxWords& words, int v) { return uniform_of<T>(words.word[v]); });
      case Op::random_normal:
        return draw(step.index, [](const PhiloxWords& words, int v) {
          return T(normal_of(words.word[v & ~1], words.word[v | 1], v % 2 != 0));
        });
      case Op::random_poisson:
        return draw_poisson(tables_.keys[step.index]);
      default:
        return compute(step);
    }
  }

  template <class Function>
  __device__ __forceinline__ static void map(T (&values)[kVoxels], Function&& function) {
#pragma unroll
    for (int v = 0; v < kVoxels; ++v) values[v] = function(values[v]);
  }
  __device__ __forceinline__ static void fill(T (&values)[kVoxels], T value) {
    map(values, [&](T) { return value; });
  }
  __device__ __forceinline__ static void copy(const T (&from)[kVoxels], T (&to)[kVoxels]) {
#pragma unroll
    for (int v = 0; v < kVoxels; ++v) to[v] = from[v];
  }

  __device__ __forceinline__ void load(int input) {
    load_voxels(general_.kernel.inputs[input], general_.kernel.count, voxels_, acc);
  }

  __device__ __forceinline__ void compute(const Step& step) {
    T x[kVoxels];
    if (step.operand == Operand::immediate) fill(x, step.a);
    else copy(registers_[int(step.operand) - 1], x);
    visit_op(step.op, [&](auto op) {
      const T b = step.b;
#pragma unroll
      for (int v = 0; v < kVoxels; ++v) acc[v] = apply<decltype(op)::value>(acc[v], x[v], b);
    });
  }

  __device__ __forceinline__ void choose(const T (&condition)[kVoxels], const T (&otherwise)[kVoxels]) {
#pragma unroll
    for (int v = 0; v < kVoxels; ++v) acc[v] = condition[v] != T(0) ? acc[v] : otherwise[v];
  }

  /// visitor(v, place) for each of the voxels.
  template <class Visitor>
  __device__ __forceinline__ void for_each_place(Visitor&& visitor) const {
    Place place = place_;
#pragma unroll
    for (int v = 0; v < kVoxels; ++v) {
      visitor(v, place);
      place = place_after(tables_, place);
    }
  }

  __device__ __forceinline__ bool in_one_row() const { return place_.x + kVoxels <= tables_.size[0]; }

  __device__ __forceinline__ void load_coordinate(int axis) {
    for_each_place([&](int v, const Place& place) { acc[v] = T(axis == 0 ? place.x : axis == 1 ? place.y : place.z); });
  }

  __device__ __forceinline__ void load_neighbour(const Neighbour& neighbour) {
    const ProgramInput& input = general_.kernel.inputs[neighbour.input];
    const std::int64_t count = general_.kernel.count, x = place_.x + neighbour.offset[0];
    if (in_one_row() && x >= 0 && x + kVoxels <= tables_.size[0] && voxels_.first + kVoxels <= count) {
      const std::int64_t element = neighbour_element(tables_, neighbour, place_);
      return element == kNoElement ? fill(acc, T(neighbour.fill)) : load_run(input, element);
    }
    std::int64_t elements[kVoxels];
    for_each_place([&](int v, const Place& place) {
      elements[v] = voxels_.position(v) < count ? neighbour_element(tables_, neighbour, place) : kNoElement;
    });
    visit(input.dtype, [&](auto tag) {
      const auto* source = static_cast<const typename decltype(tag)::type*>(input.data);
#pragma unroll
      for (int v = 0; v < kVoxels; ++v) acc[v] = elements[v] == kNoElement ? T(neighbour.fill) : T(source[elements[v]]);
    });
  }

  /// Four elements of an input in a row: by one access where they are aligned, else from the two around them, which
  /// all threads of a row share.
  __device__ __forceinline__ void load_run(const ProgramInput& input, std::int64_t element) {
    visit(input.dtype, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const S* source = static_cast<const S*>(input.data) + element;
      const auto lead = unsigned(reinterpret_cast<std::uintptr_t>(source) / sizeof(S)) % kVoxels;
      const auto* quads = reinterpret_cast<const Quad<S>*>(source - lead);
      if (lead == 0) {
        const Quad<S> quad = *quads;
#pragma unroll
        for (int v = 0; v < kVoxels; ++v) acc[v] = T(quad.voxel[v]);
      } else if (element >= lead && element - lead + 2 * kVoxels <= general_.kernel.count) {
        const Quad<S> pair[2] = {quads[0], quads[1]};
#pragma unroll
        for (int v = 0; v < kVoxels; ++v) {
          const auto voxel = [&](int i) { return pair[i / kVoxels].voxel[i % kVoxels]; };
          acc[v] = T(lead == 1 ? voxel(v + 1) : lead == 2 ? voxel(v + 2) : voxel(v + 3));
        }
      } else {
#pragma unroll
        for (int v = 0; v < kVoxels; ++v) acc[v] = T(source[v]);
      }
    });
  }

  __device__ __forceinline__ void load_field(const FieldView& field) {
    if (!in_one_row()) {
      for_each_place([&](int v, const Place& place) {
        double value[1];
        sum_field(field, place, value);
        acc[v] = T(value[0]);
      });
      return;
    }
    double values[kVoxels];
    if (field.taps[1] == 4 && field.taps[2] == 4) {
      FieldView cubic = field;  // loops of known length
      cubic.taps[1] = cubic.taps[2] = 4;
      sum_field(cubic, place_, values);
    } else {
      sum_field(field, place_, values);
    }
#pragma unroll
    for (int v = 0; v < kVoxels; ++v) acc[v] = T(values[v]);
  }

  /// The field at voxels in a row from `place` on: coefficient by coefficient, for they share them.
  template <int kCount>
  __device__ __forceinline__ void sum_field(const FieldView& field, const Place& place, double (&sums)[kCount]) const {
    std::int32_t first[kCount], low = std::numeric_limits<std::int32_t>::max(), high = 0;
#pragma unroll
    for (int v = 0; v < kCount; ++v) {
      sums[v] = 0;
      first[v] = field.first[0][place.x + v];
      low = min(low, first[v]);
      high = max(high, first[v]);
    }
    for (std::int32_t a = low; a < high + field.taps[0]; ++a) {
      const double row = field_row(field, place.y, place.z, a);
#pragma unroll
      for (int v = 0; v < kCount; ++v) {
        const std::int32_t tap = a - first[v];
        if (tap >= 0 && tap < field.taps[0])
          sums[v] = std::fma(field.weights[0][tap * tables_.size[0] + place.x + v], row, sums[v]);
      }
    }
  }

  /// draw(words, v): what word v of a block gives.
  template <class Draw>
  __device__ __forceinline__ void draw(int stream, Draw&& draw) {
    const std::int64_t value = tables_.first + voxels_.first;
    const auto lead = int(value % kVoxels);
    T drawn[2 * kVoxels] = {};
    const auto draw_block = [&](int block) {
      const PhiloxWords words = random_block(tables_.keys[stream], value / kVoxels + block);
#pragma unroll
      for (int v = 0; v < kVoxels; ++v) drawn[block * kVoxels + v] = draw(words, v);
    };
    draw_block(0);
    if (lead != 0) draw_block(1);
#pragma unroll
    for (int v = 0; v < kVoxels; ++v)
      acc[v] = lead == 0 ? drawn[v] : lead == 1 ? drawn[v + 1] : lead == 2 ? drawn[v + 2] : drawn[v + 3];
  }

  __device__ __forceinline__ void draw_poisson(std::uint64_t key) {
#pragma unroll
    for (int v = 0; v < kVoxels; ++v) acc[v] = T(poisson_draw(key, tables_.first + voxels_.position(v), acc[v]));
  }

  const GeneralProgram<T>& general_;
  const PlaceTables& tables_;
  Voxels voxels_;
  Place place_{};
  T (&registers_)[Program::kRegisters][kVoxels];
};

}  // namespace volpipe::cuda
