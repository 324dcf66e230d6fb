// Programs that use all of the general machine, with curves and fields of every shape.
#pragma once

#include "support/pointwise_data.h"

namespace volpipe::testing_support {

inline constexpr Boundary kNeighbourBoundaries[] = {Boundary::grid_constant, Boundary::nearest, Boundary::mirror,
                                                    Boundary::reflect, Boundary::grid_wrap};

/// `points` points between -4 and 4, equally far apart or not, up and down.
inline Curve random_curve(std::uint64_t seed, int points, bool even, bool extrapolate) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  Curve curve;
  curve.extrapolate = extrapolate;
  for (int i = 0; i < points; ++i) {
    const double share = double(i) / (points - 1);
    curve.x.push_back(8 * (even ? share : share * share) - 4);
    curve.y.push_back(random() % 4 == 0 && i > 0 ? curve.y.back() : normal(random));
  }
  return curve;
}

/// A field of `taps` weights an axis among `count` coefficients.
inline std::shared_ptr<const Field> random_field(std::uint64_t seed, const Index3& size, int taps, int count) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  auto field = std::make_shared<Field>();
  for (std::size_t axis = 0; axis < 3; ++axis) {
    field->axes[axis].count = count;
    field->axes[axis].taps = taps;
    for (std::int64_t i = 0; i < size[axis]; ++i) {
      field->axes[axis].first.push_back(std::int32_t(i * (count - taps + 1) / size[axis]));
      for (int tap = 0; tap < taps; ++tap) field->axes[axis].weights.push_back(normal(random));
    }
  }
  for (int i = 0; i < count * count * count; ++i) field->coefficients.push_back(normal(random));
  return field;
}

/// A random program on a grid over `inputs` inputs. Angles stay where sines are the same on every device, and atan2,
/// which need not be, is left out.
inline Program random_general_program(std::uint64_t seed, int length, int inputs, const Index3& size) {
  std::mt19937_64 random(seed);
  auto plain = all_arithmetic_ops();
  plain.push_back(Op::modulo);
  const auto& special = special_values();
  const auto any_register = [&] { return register_number(int(random() % Program::kRegisters)); };
  const auto constant = [&] {
    return random() % 2 ? special[random() % special.size()] : double(std::int64_t(random() % 2001) - 1000) / 250;
  };
  const auto shift = [&] {
    const int reach = random() % 8 == 0 ? 41 : 3;
    return std::int16_t(int(random() % std::uint64_t(2 * reach + 1)) - reach);
  };
  const auto has_room = [](const auto& list, int limit) { return int(list.size()) < limit; };
  Program program;
  for (int i = 0; i < length; ++i) {
    switch (random() % 16) {
      case 0:
        program.load(int(random() % std::uint64_t(inputs)));
        break;
      case 1:
      case 2:
      case 3:
        program.store(any_register());
        break;
      case 4:
        program.add(Op::to_integer, -100, 1000);
        break;
      case 5:
        program.choose(any_register(), any_register());
        break;
      case 6:
        program.coordinate(int(random() % 3));
        break;
      case 7:
      case 8:
        if (has_room(program.neighbours(), Program::kMaxNeighbours))
          program.neighbour({{shift(), shift(), shift()},
                             std::uint8_t(random() % std::uint64_t(inputs)),
                             kNeighbourBoundaries[random() % 5],
                             constant()});
        break;
      case 9:
        if (has_room(program.curves(), Program::kMaxCurves))
          program.curve(random_curve(random(), 2 + int(random() % 300), random() % 2, random() % 2));
        break;
      case 10:
        if (has_room(program.fields(), Program::kMaxFields)) {
          const int taps = 1 + int(random() % 5);
          program.field(random_field(random(), size, taps, taps + int(random() % 5)));
        }
        break;
      case 11:
        if (has_room(program.keys(), Program::kMaxStreams))
          program.random(Op(int(Op::random_uniform) + int(random() % 3)), random());
        break;
      case 12:
        program.add(Op::clamp, -1e8, 1e8).add(Op(int(Op::sin) + int(random() % 3)));
        break;
      default:
        program.add({plain[random() % plain.size()], random() % 3 == 0 ? any_register() : Operand::immediate, 0,
                     constant(), constant()});
    }
  }
  return program;
}

}  // namespace volpipe::testing_support
