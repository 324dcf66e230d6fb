// What the pointwise tests share: voxels of every kind, programs run on any context with guarded outputs, ulps.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "stages/pointwise/program_ops.h"
#include "stages/pointwise/statistics.h"

namespace volpipe::testing_support {

inline constexpr DataType kAllTypes[] = {DataType::uint8,  DataType::int8,  DataType::uint16,  DataType::int16,
                                         DataType::uint32, DataType::int32, DataType::float32, DataType::float64};

inline std::vector<Op> ops_between(Op first, Op last) {
  std::vector<Op> ops;
  for (int op = int(first); op <= int(last); ++op) ops.push_back(Op(op));
  return ops;
}

/// Of the accumulator and an operand.
inline std::vector<Op> all_arithmetic_ops() { return ops_between(Op::set, Op::greatest); }
/// The same of the general machine.
inline std::vector<Op> general_arithmetic_ops() { return ops_between(Op::sin, Op::modulo); }

/// Voxels of any type in a row, on the host.
struct Row {
  DataType dtype = DataType::float32;
  std::int64_t count = 0;
  std::vector<std::byte> bytes{};

  Row(DataType type, std::int64_t n) : dtype(type), count(n), bytes(std::size_t(n) * size_of(type)) {}
  template <class T>
  explicit Row(const std::vector<T>& values) : Row(data_type_of<T>(), std::int64_t(values.size())) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(bytes.data());
  }
  double at(std::int64_t i) const {
    return visit(dtype, [&](auto tag) { return double(as<typename decltype(tag)::type>()[i]); });
  }
  ProgramInput input() const { return {bytes.data(), dtype}; }
};

inline const std::vector<double>& special_values() {
  static const double inf = std::numeric_limits<double>::infinity();
  static const std::vector<double> values = {0.0,
                                             -0.0,
                                             0.25,
                                             -0.25,
                                             0.5,
                                             -0.5,
                                             0.49999997,
                                             -0.49999997,
                                             1,
                                             -1,
                                             1.5,
                                             -1.5,
                                             2,
                                             -2,
                                             2.5,
                                             -2.5,
                                             3,
                                             -3,
                                             8388609,
                                             -8388609,
                                             16777217,
                                             0.1,
                                             -0.1,
                                             10,
                                             87.5,
                                             -87.5,
                                             88.8,
                                             89,
                                             -103.9,
                                             -104.5,
                                             709.7,
                                             -745,
                                             1e-38,
                                             -1e-38,
                                             1e-40,
                                             -1e-40,
                                             1.4e-45,
                                             1e-300,
                                             1e30,
                                             -1e30,
                                             3.4e38,
                                             1e300,
                                             127.5,
                                             128,
                                             254.5,
                                             255.5,
                                             256,
                                             -128.5,
                                             -129,
                                             32767.5,
                                             65535.5,
                                             2147483647,
                                             2147483648.0,
                                             4294967295.0,
                                             4294967296.0,
                                             -2147483648.0,
                                             -2147483649.0,
                                             inf,
                                             -inf,
                                             std::numeric_limits<double>::quiet_NaN()};
  return values;
}

/// Random voxels over the type's range (floats: normal with a spread of magnitudes, or plain normal).
inline Row random_row(DataType type, std::int64_t count, std::uint64_t seed, bool wild = false) {
  Row row(type, count);
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  visit(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_integral_v<T>) {
        row.as<T>()[i] = T(random());
      } else {
        const auto& special = special_values();
        const double plain = normal(random);
        row.as<T>()[i] = !wild               ? T(plain)
                         : random() % 4 == 0 ? T(special[random() % special.size()])
                                             : T(plain * std::exp2(double(random() % 40) - 20));
      }
    }
  });
  return row;
}

/// A host row on a context's device, `offset` voxels into its buffer as a component may be.
class DeviceRow {
 public:
  DeviceRow(DeviceContext& context, const Row& row, std::int64_t offset = 0)
      : context_(context), dtype_(row.dtype), offset_(offset) {
    Volume host(info(row.count + offset), Buffer::host(row.bytes.size() + std::size_t(offset) * size_of(dtype_)));
    std::memset(host.data(), 0xab, std::size_t(offset) * size_of(dtype_));
    std::memcpy(static_cast<std::byte*>(host.data()) + std::size_t(offset) * size_of(dtype_), row.bytes.data(),
                row.bytes.size());
    volume_.emplace(context.to_device(std::move(host)));
  }

  void* data() { return static_cast<std::byte*>(volume_->data()) + std::size_t(offset_) * size_of(dtype_); }
  ProgramInput input() { return {data(), dtype_}; }
  /// Back on the host; what lies before the offset included.
  Row fetch() {
    const Volume host = context_.to_host(std::move(*volume_));
    Row row(dtype_, host.info().value_count());
    std::memcpy(row.bytes.data(), host.data(), row.bytes.size());
    return row;
  }

 private:
  VolumeInfo info(std::int64_t count) const {
    VolumeInfo result;
    result.geometry = Geometry({count, 1, 1}, Affine{});
    result.dtype = dtype_;
    return result;
  }

  DeviceContext& context_;
  DataType dtype_;
  std::int64_t offset_;
  std::optional<Volume> volume_;
};

struct ProgramResult {
  Row voxels;
  ConversionCounts counts;
  bool guards_intact;
};

/// Runs a program on rows of one length into a poisoned output between guards.
inline ProgramResult run_rows(DeviceContext& context, const Program& program, const std::vector<Row>& inputs,
                              DataType type, Precision precision = Precision::single, std::int64_t offset = 0,
                              const ProgramGrid& grid = {}) {
  constexpr std::int64_t kGuard = 16;
  const std::int64_t count = inputs[0].count;
  std::vector<DeviceRow> rows;
  std::vector<ProgramInput> loads;
  rows.reserve(inputs.size());
  for (const Row& row : inputs) loads.push_back(rows.emplace_back(context, row, offset).input());
  Row poisoned(type, count + kGuard);
  std::memset(poisoned.bytes.data(), 0xab, poisoned.bytes.size());
  const std::int64_t before = kGuard + offset;
  DeviceRow output(context, poisoned, before);
  ProgramResult result{Row(type, count), {}, true};
  result.counts = run_program(context, program, loads, output.data(), type, count, precision, grid);
  const Row all = output.fetch();
  const std::size_t size = size_of(type), start = std::size_t(before) * size, stop = start + result.voxels.bytes.size();
  std::memcpy(result.voxels.bytes.data(), all.bytes.data() + start, result.voxels.bytes.size());
  for (std::size_t i = 0; i < all.bytes.size(); ++i)
    if (i < start || i >= stop) result.guards_intact = result.guards_intact && all.bytes[i] == std::byte(0xab);
  return result;
}

/// Distance in representable numbers; 0 for two NaN, and for 0 and -0.
template <class T>
double ulps(T a, T b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::infinity();
  using Integer = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  const auto ordered = [](T v) {
    const Integer bits = std::bit_cast<Integer>(v);
    return static_cast<long double>(bits < 0 ? std::numeric_limits<Integer>::min() - bits : bits);
  };
  return double(std::abs(ordered(a) - ordered(b)));
}

/// What compute_range gives where compute_moments gives `moments`.
inline Moments range_of(Moments moments) {
  moments.mean = moments.sum_squares = 0;
  return moments;
}

/// A random program over `inputs` inputs that uses every part of the machine.
inline Program random_program(std::uint64_t seed, int length, int inputs) {
  std::mt19937_64 random(seed);
  const auto ops = all_arithmetic_ops();
  const auto& special = special_values();
  const auto operand = [&] { return random() % 3 == 0 ? Operand(1 + random() % 4) : Operand::immediate; };
  const auto constant = [&] {
    return random() % 2 ? special[random() % special.size()] : double(std::int64_t(random() % 2001) - 1000) / 250;
  };
  Program program;
  for (int i = 0; i < length; ++i) {
    const std::uint64_t kind = random() % 12;
    if (kind == 0) program.load(int(random() % std::uint64_t(inputs)));
    else if (kind < 3) program.store(Operand(1 + random() % 4));
    else if (kind == 3) program.add(Op::to_integer, -100, 1000);
    else program.add({ops[random() % ops.size()], operand(), 0, constant(), constant()});
  }
  return program;
}

}  // namespace volpipe::testing_support
