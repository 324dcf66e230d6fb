// Runs a program on a CUDA device over tiles: a block's threads hold a tile's voxels in registers, 4 neighbours to an
// access, so that a warp reads and writes whole lines. For .cu files.
#pragma once

#include <span>
#include <utility>

#include "device/cuda_context.h"
#include "stages/pointwise/program_backends.h"
#include "stages/pointwise/program_ops.h"

namespace volpipe::cuda {

/// Sum and least of a word over a whole warp, in every lane. Architectures before 8.0 have no instruction for it.
__device__ inline unsigned warp_sum(unsigned value) {
#if __CUDA_ARCH__ >= 800
  return __reduce_add_sync(~0u, value);
#else
  for (int lane = 16; lane > 0; lane /= 2) value += __shfl_xor_sync(~0u, value, lane);
  return value;
#endif
}

__device__ inline unsigned warp_least(unsigned value) {
#if __CUDA_ARCH__ >= 800
  return __reduce_min_sync(~0u, value);
#else
  for (int lane = 16; lane > 0; lane /= 2) value = min(value, __shfl_xor_sync(~0u, value, lane));
  return value;
#endif
}

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

/// Ops that `lower` puts in terms of others where their operand is an immediate, or that it aims at.
constexpr VOLPIPE_HD bool is_lowered(Op op) {
  switch (op) {
    case Op::add:
    case Op::subtract:
    case Op::subtract_from:
    case Op::multiply:
    case Op::fma:
    case Op::minimum:
    case Op::maximum:
    case Op::clamp:
    case Op::negate:
    case Op::logical_and:
    case Op::logical_or:
    case Op::least:
    case Op::greatest:
    case Op::select:
    case Op::keep_nonfinite:
    case Op::choose:
      return true;
    default:
      return false;
  }
}

/// The same arithmetic in fewer kinds of steps, to the bit: sums, differences and products are an fma, bounds are a
/// clamp, what is known in advance is not computed. Steps with a register have 1 in `a`, to multiply by.
template <class T>
void lower(typename ExecutableProgram<T>::Step& step) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  const T x = step.a, b = step.b;
  const auto become = [&](Op op, T first, T second) { step = {op, Operand::immediate, step.index, first, second}; };
  const auto become_kept_or = [&](bool kept, T otherwise) {
    kept ? become(Op::clamp, -kInfinity, kInfinity) : become(Op::set, otherwise, 0);
  };
  if (step.operand != Operand::immediate || step.op == Op::store) {
    step.a = T(1);
    return;
  }
  switch (step.op) {
    case Op::add:
      return become(Op::fma, T(1), x);
    case Op::subtract:
      return become(Op::fma, T(1), -x);
    case Op::subtract_from:
      return become(Op::fma, T(-1), x);
    case Op::multiply:
      return become(Op::fma, x, T(-0.0));
    case Op::negate:
      return become(Op::fma, T(-1), T(-0.0));
    case Op::minimum:
      return become(Op::clamp, -kInfinity, x != x ? kInfinity : x);
    case Op::maximum:
      return become(Op::clamp, x != x ? -kInfinity : x, kInfinity);
    case Op::clamp:
      return become(Op::clamp, x != x ? -kInfinity : x, b != b ? kInfinity : b);
    case Op::least:
      return x != x ? become(Op::set, x, 0) : become(Op::clamp, -kInfinity, x);
    case Op::greatest:
      return x != x ? become(Op::set, x, 0) : become(Op::clamp, x, kInfinity);
    case Op::logical_and:
      return x != T(0) ? become(Op::not_equal, 0, 0) : become(Op::set, 0, 0);
    case Op::logical_or:
      return x != T(0) ? become(Op::set, 1, 0) : become(Op::not_equal, 0, 0);
    case Op::select:
      return become_kept_or(x != T(0), b);
    case Op::keep_nonfinite:
      return become_kept_or(detail::finite(x), x);
    case Op::choose:
      if (x != T(0)) return become_kept_or(true, x);
      step = {Op::set, register_number(step.index), 0, T(1), 0};
      return;
    default:
      return;
  }
}

template <class T>
KernelProgram<T> make_kernel_program(const Program& program, std::span<const ProgramInput> inputs, DataType result_type,
                                     std::int64_t count) {
  KernelProgram<T> result{make_executable<T>(program, result_type), {}, count, true};
  for (int i = 0; i < result.program.size; ++i) lower<T>(result.program.steps[i]);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    result.inputs[i] = inputs[i];
    result.quads = result.quads && is_quad_aligned(inputs[i].data, inputs[i].dtype);
  }
  return result;
}

/// How much of the machine a kernel is compiled for; the less, the more of its threads are resident.
enum class Machine {
  load_only,        ///< the identity
  light,            ///< no slow ops, no registers
  light_registers,  ///< no slow ops, r0 and r1
  accumulator,      ///< no registers
  full,             ///< all but the general machine's
  general           ///< see cuda_general.cuh
};
constexpr int register_count(Machine machine) {
  return machine == Machine::full ? Program::kPlainRegisters : machine == Machine::light_registers ? 2 : 0;
}
/// Of the ops that apply() knows.
constexpr bool has_op(Machine machine, Op op) {
  return !is_general(op) && (!is_slow(op) || machine == Machine::full || machine == Machine::accumulator);
}

/// The least machine that runs a program.
inline Machine machine_for(const Program& program) {
  bool slow = false;
  for (const Instruction& i : program.instructions()) slow = slow || is_slow(i.op);
  const int registers = program.register_count();
  if (program.is_identity()) return Machine::load_only;
  if (program.is_general()) return Machine::general;
  if (registers == 0) return slow ? Machine::accumulator : Machine::light;
  return slow || registers > register_count(Machine::light_registers) ? Machine::full : Machine::light_registers;
}

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

/// Integers are already rounded and in range.
template <class R, class T, class Place>
__device__ __forceinline__ void store_voxels(const T (&values)[Place::kVoxels], R* result, std::int64_t count,
                                             const Place& place) {
  using Intermediate =
      std::conditional_t<std::is_floating_point_v<R>, R,
                         std::conditional_t<std::is_same_v<R, std::uint32_t>, std::uint32_t, std::int32_t>>;
  if (place.whole) {
#pragma unroll
    for (int g = 0; g < Place::kVoxels / 4; ++g) {
      Quad<R> quad;
#pragma unroll
      for (int k = 0; k < 4; ++k) quad.voxel[k] = R(Intermediate(values[4 * g + k]));
      *reinterpret_cast<Quad<R>*>(result + place.position(4 * g)) = quad;
    }
  } else {
#pragma unroll
    for (int v = 0; v < Place::kVoxels; ++v)
      if (place.position(v) < count) result[place.position(v)] = R(Intermediate(values[v]));
  }
}

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

/// An immediate clamp: bounds are numbers, and not -0.
template <class T>
__device__ __forceinline__ T clamp_to_bounds(T value, T low, T high) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, float>) {
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(value), "f"(low));
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(result), "f"(high));
    return result;
  }
#endif
  return apply<Op::clamp>(value, low, high);
}

/// Runs the fma and clamp steps from step i on, in a loop of their own so that the voxels keep their places; returns
/// the step after them. The step after the last is a load.
template <bool kHasRegisters, class T, int kVoxels>
__device__ __forceinline__ int run_plain_steps(const ExecutableProgram<T>& program, int i, T (&acc)[kVoxels]) {
  for (;; ++i) {
    const auto& step = program.steps[i];
    if (kHasRegisters && step.operand != Operand::immediate) return i;
    const T a = step.a, b = step.b;
    if (step.op == Op::fma) {
#pragma unroll
      for (int v = 0; v < kVoxels; ++v) acc[v] = std::fma(acc[v], a, b);
    } else if (step.op == Op::clamp) {
#pragma unroll
      for (int v = 0; v < kVoxels; ++v) acc[v] = clamp_to_bounds(acc[v], a, b);
    } else {
      return i;
    }
  }
}

/// Conversions to integers of the voxels before the end.
struct IntegerCounts {
  int saturated = 0, nan = 0;

  template <class Step, class T, class Place>
  __device__ __forceinline__ void convert(const Step& step, T (&acc)[Place::kVoxels], std::int64_t count,
                                          const Place& place) {
#pragma unroll
    for (int v = 0; v < Place::kVoxels; ++v) {
      const IntegerValue<T> integer = to_integer(acc[v], step.a, step.b);
      acc[v] = integer.value;
      const bool counted = place.whole || place.position(v) < count;
      saturated += integer.saturated && counted;
      nan += integer.nan && counted;
    }
  }

  /// Adds a whole warp's to those of all, if they are wanted.
  __device__ void add_to(ConversionCounts* total) const {
    if (!total) return;
    add(&total->saturated, saturated);
    add(&total->nan, nan);
  }

 private:
  __device__ static void add(std::int64_t* total, int mine) {
    const unsigned sum = warp_sum(unsigned(mine));
    if (sum != 0 && threadIdx.x % 32 == 0)
      atomicAdd(reinterpret_cast<unsigned long long*>(total), (unsigned long long)sum);
  }
};

/// The counts of a whole run on the device, where its program converts.
class DeviceCounts {
 public:
  template <class T>
  DeviceCounts(DeviceContext& context, const ExecutableProgram<T>& program) {
    if (!converts_to_integer(program)) return;
    buffer_ = context.allocate(sizeof(ConversionCounts));
    VOLPIPE_CHECK_CUDA(cudaMemsetAsync(buffer_.data(), 0, sizeof(ConversionCounts), stream_of(context)));
  }
  ConversionCounts* data() { return static_cast<ConversionCounts*>(buffer_.data()); }
  /// Waits, where there is something to count.
  ConversionCounts fetch(DeviceContext& context) const {
    ConversionCounts counts;
    if (buffer_) copy_to_host(context, &counts, buffer_.data(), sizeof counts);
    return counts;
  }

 private:
  Buffer buffer_;
};

/// The voxels of one thread on their way through a program.
template <class T, class Place, Machine kMachine>
class ThreadEvaluator {
 public:
  static constexpr int kVoxels = Place::kVoxels;
  T acc[kVoxels];
  IntegerCounts counts;

  __device__ __forceinline__ void run(const KernelProgram<T>& kernel, const Place& place) {
    load_voxels(kernel.inputs[kernel.program.steps[0].index], kernel.count, place, acc);
    if constexpr (kMachine != Machine::load_only) {
      clear_registers();
      constexpr bool kHasRegisters = kRegisters > 0;
      for (int i = run_plain_steps<kHasRegisters>(kernel.program, 1, acc); i < kernel.program.size;
           i = run_plain_steps<kHasRegisters>(kernel.program, i + 1, acc))
        run_step(kernel, kernel.program.steps[i], place);
    }
  }

 private:
  using Step = typename ExecutableProgram<T>::Step;
  static constexpr int kRegisters = register_count(kMachine);

  __device__ __forceinline__ void clear_registers() {
#pragma unroll
    for (int r = 0; r < kRegisters; ++r)
#pragma unroll
      for (int v = 0; v < kVoxels; ++v) registers_[r][v] = T(0);
  }

  __device__ __forceinline__ void run_step(const KernelProgram<T>& kernel, const Step& step, const Place& place) {
    if (kRegisters > 0 && step.operand != Operand::immediate) {
      run_register(step);
    } else if (kRegisters > 0 && step.op == Op::store) {
      store(step);
    } else if (step.op == Op::load) {
      load_voxels(kernel.inputs[step.index], kernel.count, computed_here(place), acc);
    } else if (step.op == Op::to_integer) {
      counts.convert(step, acc, kernel.count, computed_here(place));
    } else {
      run_immediate(step);
    }
  }

  /// Keeps the compiler from working out every voxel's position ahead of the program's loop, in registers.
  __device__ __forceinline__ static Place computed_here(Place place) {
    asm volatile("" : "+l"(place.first));
    return place;
  }

  __device__ __forceinline__ void run_immediate(const Step& step) {
    visit_op(step.op, [&](auto op) {
      constexpr Op kOp = decltype(op)::value;
      if constexpr (!is_lowered(kOp) && has_op(kMachine, kOp)) {
        const T x = step.a, b = step.b;
#pragma unroll
        for (int v = 0; v < kVoxels; ++v) acc[v] = apply<kOp>(acc[v], x, b);
      }
    });
  }

  /// visitor(register), with code of its own for each: a place chosen at run time would put them in local memory, and
  /// a select costs as much as an op.
  template <int kNumber = 0, class Visitor>
  __device__ __forceinline__ void visit_register(int number, Visitor&& visitor) {
    if constexpr (kNumber + 1 < kRegisters) {
      if (number != kNumber) return visit_register<kNumber + 1>(number, visitor);
    }
    visitor(registers_[kNumber]);
  }

  /// A copy that is made here: of plain ones the compiler makes all that there may be, ahead of the branches.
  __device__ __forceinline__ static T copied(T value, T one) { return value * one; }

  __device__ __forceinline__ static void copy(const T (&from)[kVoxels], T (&to)[kVoxels], T one) {
#pragma unroll
    for (int v = 0; v < kVoxels; ++v) to[v] = copied(from[v], one);
  }

  __device__ __forceinline__ void store(const Step& step) {
    visit_register(step.index, [&](T(&values)[kVoxels]) { copy(acc, values, step.a); });
  }

  __device__ __forceinline__ void run_register(const Step& step) {
    const int number = int(step.operand) - 1;
    if constexpr (kRegisters == 2) {
      visit_register(number, [&](const T(&x)[kVoxels]) { run_with(step, x); });
    } else {
      T x[kVoxels];
      visit_register(number, [&](const T(&values)[kVoxels]) { copy(values, x, step.a); });
      run_with(step, x);
    }
  }

  __device__ __forceinline__ void run_with(const Step& step, const T (&x)[kVoxels]) {
    if (step.op == Op::choose) return choose(x, step.index);
    visit_op(step.op, [&](auto op) {
      constexpr Op kOp = decltype(op)::value;
      if constexpr (reads_operand(kOp) && has_op(kMachine, kOp)) {
        const T a = step.a, b = step.b;
#pragma unroll
        for (int v = 0; v < kVoxels; ++v) acc[v] = kOp == Op::set ? copied(x[v], a) : apply<kOp>(acc[v], x[v], b);
      }
    });
  }

  __device__ __forceinline__ void choose(const T (&condition)[kVoxels], int otherwise) {
    visit_register(otherwise, [&](const T(&y)[kVoxels]) {
#pragma unroll
      for (int v = 0; v < kVoxels; ++v) acc[v] = condition[v] != T(0) ? acc[v] : y[v];
    });
  }

  T registers_[kRegisters > 0 ? kRegisters : 1][kVoxels];
};

/// Runs a program of the general machine.
ConversionCounts run_general(DeviceContext& context, const ProgramRun& run);

template <Machine kMachine>
using MachineTag = std::integral_constant<Machine, kMachine>;

}  // namespace volpipe::cuda
