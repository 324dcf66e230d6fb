// Boxes that random stages put into an image, and how their voxels change places: one definition for both devices.
#pragma once

#include <cmath>
#include <cstdint>

#include "device/host_device.h"

namespace volpipe {

/// A permutation of [0, 2^(high_bits + low_bits)) made of a key alone: a Feistel network (Luby and Rackoff 1988) whose
/// halves take turns. Without bits it is the identity.
struct KeyedPermutation {
  std::uint64_t key = 0;
  int high_bits = 0, low_bits = 0;

  /// At least `count` numbers, and fewer than twice as many.
  static KeyedPermutation of(std::uint64_t key, std::uint64_t count) {
    int bits = 0;
    while (bits < 63 && std::uint64_t(1) << bits < count) ++bits;
    return {key, bits / 2, bits - bits / 2};
  }

  VOLPIPE_HD std::uint64_t operator()(std::uint64_t value) const {
    constexpr int kRounds = 8;
    const std::uint64_t low_mask = (std::uint64_t(1) << low_bits) - 1;
    const std::uint64_t high_mask = (std::uint64_t(1) << high_bits) - 1;
    std::uint64_t low = value & low_mask, high = value >> low_bits;
    for (int round = 0; round < kRounds; ++round) {
      if (round % 2 == 0) high ^= mixed(kRounds * low + std::uint64_t(round)) & high_mask;
      else low ^= mixed(kRounds * high + std::uint64_t(round)) & low_mask;
    }
    return high << low_bits | low;
  }

 private:
  /// Number `counter` of the generator SplitMix64 (Steele, Lea and Flood 2014) that starts from the key.
  VOLPIPE_HD std::uint64_t mixed(std::uint64_t counter) const {
    std::uint64_t z = key + (counter + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  }
};

/// Voxels of one image: those of a block of its indices, or of them only those that lie in a box of another grid.
struct VoxelBox {
  std::int64_t begin[3] = {}, end[3] = {};  ///< the block; not empty
  bool whole = true;                        ///< all of it
  double matrix[3][4] = {};                 ///< else: index -> place on the other grid,
  double low[3] = {}, high[3] = {};         ///< which is in [low, high) on every axis
  KeyedPermutation order{};                 ///< of the block's indices, as far as they belong to the box

  VOLPIPE_HD bool contains(std::int64_t x, std::int64_t y, std::int64_t z) const {
    if (x < begin[0] || x >= end[0] || y < begin[1] || y >= end[1] || z < begin[2] || z >= end[2]) return false;
    if (whole) return true;
    for (int axis = 0; axis < 3; ++axis) {
      const double* row = matrix[axis];
      const double place =
          std::fma(row[0], double(x), std::fma(row[1], double(y), std::fma(row[2], double(z), row[3])));
      if (!(place >= low[axis] && place < high[axis])) return false;
    }
    return true;
  }

  VOLPIPE_HD std::int64_t extent(int axis) const { return end[axis] - begin[axis]; }
};

struct VoxelIndex {
  std::int64_t x, y, z;
};

/// The voxel whose value `voxel`, one of the box's, gets when the box is shuffled. Numbers that are no voxel of the box
/// are walked over, which leaves a permutation of its voxels.
VOLPIPE_HD inline VoxelIndex shuffled_from(const VoxelBox& box, VoxelIndex voxel) {
  const std::int64_t nx = box.extent(0), ny = box.extent(1), nz = box.extent(2);
  auto number =
      std::uint64_t(((voxel.z - box.begin[2]) * ny + (voxel.y - box.begin[1])) * nx + (voxel.x - box.begin[0]));
  do {
    number = box.order(number);
    const auto row = std::int64_t(number) / nx;
    voxel = {box.begin[0] + std::int64_t(number) % nx, box.begin[1] + row % ny, box.begin[2] + row / ny};
  } while (std::int64_t(number) >= nx * ny * nz || !box.contains(voxel.x, voxel.y, voxel.z));
  return voxel;
}

/// The same after all boxes were shuffled in order.
VOLPIPE_HD inline VoxelIndex shuffled_from(const VoxelBox* boxes, std::int64_t count, VoxelIndex voxel) {
  while (count-- > 0)
    if (boxes[count].contains(voxel.x, voxel.y, voxel.z)) voxel = shuffled_from(boxes[count], voxel);
  return voxel;
}

}  // namespace volpipe
