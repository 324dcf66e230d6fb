// Runs a program on a CUDA device over tiles: a block's threads hold a tile's voxels in registers, 4 neighbours to an
// access, so that a warp reads and writes whole lines. For .cu files.
#pragma once

#include <span>
#include <utility>

#include "device/cuda_context.h"
#include "stages/pointwise/program_ops.h"

namespace volpipe::cuda {

/// Four neighbouring voxels, moved by one access (two for float64).
template <class S>
struct alignas(sizeof(S) < 4 ? 4 * sizeof(S) : 16) Quad {
  S voxel[4];
};

inline bool is_quad_aligned(const void* data, DataType type) {
  return reinterpret_cast<std::uintptr_t>(data) % std::min<std::size_t>(4 * size_of(type), 16) == 0;
}

/// What a kernel needs to evaluate a program: passed by value.
template <class T>
struct KernelProgram {
  ExecutableProgram<T> program;
  ProgramInput inputs[Program::kMaxInputs];
  std::int64_t count;
  bool quads;  ///< every input may be read by Quads
};

template <class T>
KernelProgram<T> make_kernel_program(const Program& program, std::span<const ProgramInput> inputs, DataType result_type,
                                     std::int64_t count) {
  KernelProgram<T> result{make_executable<T>(program, result_type), {}, count, true};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    result.inputs[i] = inputs[i];
    result.quads = result.quads && is_quad_aligned(inputs[i].data, inputs[i].dtype);
  }
  return result;
}

/// How much of the machine a kernel is compiled for: programs of one load need no interpreter, most need no registers.
enum class Machine { load_only, accumulator, full };

/// Where a thread's voxels are. Group g of a thread are the voxels first + g * 4 * kThreads + {0, 1, 2, 3}.
template <int kThreads, int kGroups>
struct Tile {
  static constexpr int kVoxels = 4 * kGroups;       ///< a thread
  static constexpr int kSize = kThreads * kVoxels;  ///< a block

  std::int64_t first;  ///< this thread's first voxel
  bool whole;          ///< no voxel of the block's tile is beyond the end, and quads are aligned

  __device__ Tile(std::int64_t index, std::int64_t end, bool quads)
      : first(index * kSize + 4 * threadIdx.x), whole(quads && (index + 1) * kSize <= end) {}
  __device__ std::int64_t position(int v) const { return first + (v / 4) * (4 * kThreads) + v % 4; }
};

/// The i-th voxels by themselves, for samples and odd places: one a thread.
struct SingleVoxel {
  static constexpr int kVoxels = 1;
  std::int64_t first;
  static constexpr bool whole = false;
  __device__ std::int64_t position(int) const { return first; }
};

template <class T, class Place>
__device__ __forceinline__ void load_voxels(const ProgramInput& input, std::int64_t count, const Place& place,
                                            T (&values)[Place::kVoxels]) {
  visit(input.dtype, [&](auto tag) {
    using S = typename decltype(tag)::type;
    const S* __restrict__ source = static_cast<const S*>(input.data);
    if constexpr (Place::kVoxels % 4 == 0) {
      if (place.whole) {
        Quad<S> quads[Place::kVoxels / 4];
#pragma unroll
        for (int g = 0; g < Place::kVoxels / 4; ++g)
          quads[g] = *reinterpret_cast<const Quad<S>*>(source + place.position(4 * g));
#pragma unroll
        for (int v = 0; v < Place::kVoxels; ++v) values[v] = T(quads[v / 4].voxel[v % 4]);
        return;
      }
    }
#pragma unroll
    for (int v = 0; v < Place::kVoxels; ++v) {
      const std::int64_t at = place.position(v);
      values[v] = at < count ? T(source[at]) : T(0);
    }
  });
}

/// The voxels of one thread on their way through a program.
template <class T, class Place, Machine kMachine>
class ThreadEvaluator {
 public:
  static constexpr int kVoxels = Place::kVoxels;
  T acc[kVoxels];
  int saturated = 0, nan = 0;  ///< conversions to integers of the voxels before the end

  __device__ __forceinline__ void run(const KernelProgram<T>& kernel, const Place& place) {
    if constexpr (kMachine == Machine::load_only) {
      load_voxels(kernel.inputs[0], kernel.count, place, acc);
    } else {
      clear_registers();
      for (int i = 0; i < kernel.program.size; ++i) run_step(kernel, kernel.program.steps[i], place);
    }
  }

 private:
  using Step = typename ExecutableProgram<T>::Step;
  static constexpr int kRegisters = kMachine == Machine::full ? Program::kRegisters : 1;

  __device__ __forceinline__ void clear_registers() {
    if constexpr (kMachine == Machine::full) {
#pragma unroll
      for (int r = 0; r < kRegisters; ++r)
#pragma unroll
        for (int v = 0; v < kVoxels; ++v) registers_[r][v] = T(0);
    }
  }

  __device__ __forceinline__ void run_step(const KernelProgram<T>& kernel, const Step& step, const Place& place) {
    if (step.op == Op::load) {
      load_voxels(kernel.inputs[step.index], kernel.count, place, acc);
    } else if (step.op == Op::to_integer) {
      convert(step, kernel.count, place);
    } else if (kMachine == Machine::full && step.op == Op::store) {
      store(step.index);
    } else if (kMachine == Machine::full && step.operand != Operand::immediate) {
      run_register(step);
    } else {
      visit_op(step.op, [&](auto op) {
        const T x = step.a, b = step.b;
#pragma unroll
        for (int v = 0; v < kVoxels; ++v) acc[v] = apply<decltype(op)::value>(acc[v], x, b);
      });
    }
  }

  __device__ __forceinline__ void convert(const Step& step, std::int64_t count, const Place& place) {
#pragma unroll
    for (int v = 0; v < kVoxels; ++v) {
      const IntegerValue<T> integer = to_integer(acc[v], step.a, step.b);
      acc[v] = integer.value;
      const bool counted = place.whole || place.position(v) < count;
      saturated += integer.saturated && counted;
      nan += integer.nan && counted;
    }
  }

  // By value: a place chosen at run time would put the registers in local memory.
  __device__ __forceinline__ static T chosen(bool first, T a, T b) { return first ? a : b; }

  __device__ __forceinline__ void store(int target) {
#pragma unroll
    for (int v = 0; v < kVoxels; ++v) {
#pragma unroll
      for (int r = 0; r < kRegisters; ++r) registers_[r][v] = chosen(r == target, acc[v], registers_[r][v]);
    }
  }

  __device__ __forceinline__ void run_register(const Step& step) {
    T x[kVoxels];
#pragma unroll
    for (int v = 0; v < kVoxels; ++v) {
      x[v] = registers_[0][v];
#pragma unroll
      for (int r = 1; r < kRegisters; ++r) x[v] = chosen(r == int(step.operand) - 1, registers_[r][v], x[v]);
    }
    visit_op(step.op, [&](auto op) {
      if constexpr (!is_unary(decltype(op)::value)) {
        const T b = step.b;
#pragma unroll
        for (int v = 0; v < kVoxels; ++v) acc[v] = apply<decltype(op)::value>(acc[v], x[v], b);
      }
    });
  }

  T registers_[kRegisters][kVoxels];
};

/// visitor(T{}, std::integral_constant<Machine, m>{}) with the least machine that runs the program.
template <class Visitor>
decltype(auto) visit_machine(const Program& program, Precision precision, Visitor&& visitor) {
  const auto with_type = [&](auto zero) {
    if (program.is_identity()) return visitor(zero, std::integral_constant<Machine, Machine::load_only>{});
    if (!program.uses_registers()) return visitor(zero, std::integral_constant<Machine, Machine::accumulator>{});
    return visitor(zero, std::integral_constant<Machine, Machine::full>{});
  };
  return precision == Precision::single ? with_type(float{}) : with_type(double{});
}

}  // namespace volpipe::cuda
