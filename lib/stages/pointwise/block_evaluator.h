// Runs a program on the CPU over blocks that stay in the first-level cache, one vectorised loop an instruction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "stages/pointwise/place_ops.h"
#include "stages/pointwise/program_ops.h"

namespace volpipe {

inline constexpr std::int64_t kBlockVoxels = 1024;

/// The accumulator and registers of one block; one evaluator a piece of work, used for block after block.
template <class T>
class BlockEvaluator {
 public:
  BlockEvaluator(const ExecutableProgram<T>& program, std::span<const ProgramInput> inputs, const PlaceTables& tables)
      : program_(program), inputs_(inputs), tables_(tables) {}

  /// The program's values of voxels [begin, begin + count), count at most kBlockVoxels; valid until the next call.
  const T* evaluate(std::int64_t begin, std::int64_t count) {
    std::fill_n(&registers_[0][0], program_.registers * kBlockVoxels, T(0));
    for (int i = 0; i < program_.size; ++i) run_step(program_.steps[i], begin, count);
    return acc_;
  }
  const ConversionCounts& counts() const { return counts_; }

 private:
  using Step = typename ExecutableProgram<T>::Step;

  void run_step(const Step& step, std::int64_t begin, std::int64_t count) {
    switch (step.op) {
      case Op::load:
        return load(inputs_[step.index], begin, count, acc_);
      case Op::store:
        std::copy_n(acc_, count, registers_[step.index]);
        return;
      case Op::to_integer:
        return convert(step, count);
      case Op::choose:
        return choose(step, count);
      case Op::curve:
        for (std::int64_t i = 0; i < count; ++i) acc_[i] = T(curve_at(tables_.curves[step.index], acc_[i]));
        return;
      case Op::coordinate:
        return load_coordinate(step.index, begin, count);
      case Op::neighbour:
        return load_neighbour(tables_.neighbours[step.index], begin, count);
      case Op::field:
        return load_field(tables_.fields[step.index], begin, count);
      case Op::random_uniform:
      case Op::random_normal:
        return draw(step, begin, count);
      case Op::random_poisson:
        for (std::int64_t i = 0; i < count; ++i)
          acc_[i] = T(poisson_of(tables_.keys[step.index], tables_.first + begin + i, acc_[i]));
        return;
      default:
        step.operand == Operand::immediate ? run_immediate(step, count) : run_register(step, count);
    }
  }

  static void load(const ProgramInput& input, std::int64_t begin, std::int64_t count, T* values) {
    visit(input.dtype, [&](auto tag) {
      const auto* source = static_cast<const typename decltype(tag)::type*>(input.data) + begin;
      for (std::int64_t i = 0; i < count; ++i) values[i] = T(source[i]);
    });
  }

  void convert(const Step& step, std::int64_t count) {
    const T low = step.a, high = step.b;
    int saturated = 0, nan = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const IntegerValue<T> integer = to_integer(acc_[i], low, high);
      acc_[i] = integer.value;
      saturated += integer.saturated;
      nan += integer.nan;
    }
    counts_.saturated += saturated;
    counts_.nan += nan;
  }

  void choose(const Step& step, std::int64_t count) {
    const T* otherwise = registers_[step.index];
    if (step.operand == Operand::immediate) {
      if (step.a == T(0)) std::copy_n(otherwise, count, acc_);
      return;
    }
    const T* condition = registers_[int(step.operand) - 1];
    for (std::int64_t i = 0; i < count; ++i) acc_[i] = condition[i] != T(0) ? acc_[i] : otherwise[i];
  }

  void run_immediate(const Step& step, std::int64_t count) {
    if constexpr (std::is_same_v<T, float>)
      if (step.op == Op::sin || step.op == Op::cos || step.op == Op::tan)
        if (run_near_angles(step.op, count)) return;
    visit_op(step.op, [&, x = step.a, b = step.b](auto op) {
      for (std::int64_t i = 0; i < count; ++i) acc_[i] = apply<decltype(op)::value>(acc_[i], x, b);
    });
  }

  /// Without the branch for huge angles, so that the loop vectorises; false where there are some.
  bool run_near_angles(Op op, std::int64_t count) {
    int far = 0;
    for (std::int64_t i = 0; i < count; ++i) far += std::fabs(acc_[i]) > float_math::kMostTurned;
    if (far > 0) return false;
    if (op == Op::sin)
      for (std::int64_t i = 0; i < count; ++i) acc_[i] = float_math::sin_near(acc_[i]);
    else if (op == Op::cos)
      for (std::int64_t i = 0; i < count; ++i) acc_[i] = float_math::cos_near(acc_[i]);
    else
      for (std::int64_t i = 0; i < count; ++i) acc_[i] = float_math::tan_near(acc_[i]);
    return true;
  }

  void run_register(const Step& step, std::int64_t count) {
    const T* x = registers_[int(step.operand) - 1];
    visit_op(step.op, [&, x, b = step.b](auto op) {
      for (std::int64_t i = 0; i < count; ++i) acc_[i] = apply<decltype(op)::value>(acc_[i], x[i], b);
    });
  }

  /// visitor(place, first, length) for the pieces of rows that voxels [begin, begin + count) are: accumulators from
  /// `first` on are the voxels from `place` on.
  template <class Visitor>
  void for_each_row(std::int64_t begin, std::int64_t count, Visitor&& visitor) const {
    for (std::int64_t done = 0; done < count;) {
      const Place place = place_of(tables_, begin + done);
      const std::int64_t length = std::min(tables_.size[0] - place.x, count - done);
      visitor(place, done, length);
      done += length;
    }
  }

  void load_coordinate(int axis, std::int64_t begin, std::int64_t count) {
    for_each_row(begin, count, [&](const Place& place, std::int64_t first, std::int64_t length) {
      if (axis > 0) return (void)std::fill_n(acc_ + first, length, T(axis == 1 ? place.y : place.z));
      for (std::int64_t i = 0; i < length; ++i) acc_[first + i] = T(place.x + i);
    });
  }

  void load_neighbour(const Neighbour& neighbour, std::int64_t begin, std::int64_t count) {
    const ProgramInput& input = inputs_[neighbour.input];
    for_each_row(begin, count, [&](Place place, std::int64_t first, std::int64_t length) {
      const std::int64_t row_end = first + length;
      while (first < row_end) {
        const std::int64_t element = neighbour_element(tables_, neighbour, place);
        const std::int64_t x = place.x + neighbour.offset[0];
        const std::int64_t run =
            element != kNoElement && x >= 0 && x < tables_.size[0] ? std::min(tables_.size[0] - x, row_end - first) : 1;
        if (element == kNoElement) acc_[first] = T(neighbour.fill);
        else load(input, element, run, acc_ + first);
        first += run;
        place.x += run;
      }
    });
  }

  void load_field(const FieldView& field, std::int64_t begin, std::int64_t count) {
    row_.resize(std::size_t(field.count[0]));
    for_each_row(begin, count, [&](const Place& place, std::int64_t first, std::int64_t length) {
      for (std::int32_t a = 0; a < field.count[0]; ++a) row_[std::size_t(a)] = field_row(field, place.y, place.z, a);
      for (std::int64_t i = 0; i < length; ++i)
        acc_[first + i] = T(field_at(field, place.x + i, [&](std::int64_t a) { return row_[std::size_t(a)]; }));
    });
  }

  void draw(const Step& step, std::int64_t begin, std::int64_t count) {
    constexpr std::int64_t kBlocks = kBlockVoxels / 4 + 1;
    const std::int64_t value = tables_.first + begin, first_block = value / 4, lead = value % 4;
    std::uint32_t words[4 * kBlocks];
    for (std::int64_t i = 0; i < (lead + count + 3) / 4; ++i) {
      const PhiloxWords block = random_block(tables_.keys[step.index], first_block + i);
      for (int k = 0; k < 4; ++k) words[4 * i + k] = block.word[k];
    }
    if (step.op == Op::random_uniform) {
      for (std::int64_t i = 0; i < count; ++i) acc_[i] = uniform_of<T>(words[lead + i]);
      return;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = lead + i, even = at & ~std::int64_t(1);
      acc_[i] = T(normal_of(words[even], words[even + 1], at % 2 != 0));
    }
  }

  const ExecutableProgram<T>& program_;
  std::span<const ProgramInput> inputs_;
  const PlaceTables& tables_;
  ConversionCounts counts_;
  std::vector<double> row_;
  alignas(64) T acc_[kBlockVoxels];
  alignas(64) T registers_[Program::kRegisters][kBlockVoxels];
};

/// visitor(T{}) with the arithmetic type of a precision.
template <class Visitor>
decltype(auto) visit_precision(Precision precision, Visitor&& visitor) {
  return precision == Precision::single ? visitor(float{}) : visitor(double{});
}

}  // namespace volpipe
