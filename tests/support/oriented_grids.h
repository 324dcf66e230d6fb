// Grids in all 48 orientations.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "volume/geometry.h"

namespace volpipe::testing_support {

inline Matrix3 oblique_rotation() {  // about z by 20 degrees, then about x by 10
  const double a = 0.3490658503988659, b = 0.17453292519943295;
  const Matrix3 about_z{{{{std::cos(a), -std::sin(a), 0}, {std::sin(a), std::cos(a), 0}, {0, 0, 1}}}};
  const Matrix3 about_x{{{{1, 0, 0}, {0, std::cos(b), -std::sin(b)}, {0, std::sin(b), std::cos(b)}}}};
  return about_x * about_z;
}

/// The voxels of `grid` in the order of an orientation code; `grid` is near RAS.
inline Geometry reoriented(const Geometry& grid, const std::string& code) {
  const AxisOrder order = axis_order_for(grid, code);
  Affine map{Matrix3{}, {}};
  Index3 turned;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const auto source = std::size_t(order.source_axis[axis]);
    turned[axis] = grid.size()[source];
    map.linear[int(source)][axis] = order.flipped[axis] ? -1 : 1;
    map.offset[source] = order.flipped[axis] ? double(grid.size()[source] - 1) : 0;
  }
  return grid.remapped(turned, map);
}

/// An oblique, anisotropic grid of the given orientation code; `size` is that of RAS.
inline Geometry oriented_grid(const std::string& code, const Index3& size) {
  return reoriented(Geometry::from_spacing(size, {0.7, 1.3, 2.9}, {-11, 23, 5}, oblique_rotation()), code);
}

inline std::vector<std::string> orientation_codes() {
  std::vector<std::string> codes;
  for (std::string order : {"RAS", "RSA", "ARS", "ASR", "SRA", "SAR"})
    for (int signs = 0; signs < 8; ++signs) {
      std::string code = order;
      for (int i = 0; i < 3; ++i)
        if (signs >> i & 1)
          code[std::size_t(i)] = code[std::size_t(i)] == 'R' ? 'L' : code[std::size_t(i)] == 'A' ? 'P' : 'I';
      codes.push_back(code);
    }
  return codes;
}

}  // namespace volpipe::testing_support
