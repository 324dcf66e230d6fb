// What ITK's transforms mean, whatever kind of file they came in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stages/gather/point_map.h"

namespace volpipe {

/// A transform as ITK stores it in all its formats, LPS.
struct ItkTransform {
  std::string name;  ///< such as AffineTransform_double_3_3
  std::vector<double> parameters, fixed;
};

/// The map of the one transform of a file, or of the composite whose header comes first; RAS. Throws Error(input).
PointMap point_map(const std::vector<ItkTransform>& transforms);

/// The same map in the other coordinates: x and y point the other way.
Affine between_lps_and_ras(const Affine& affine);

namespace detail {

[[noreturn]] void fail(const std::string& message);  ///< throws Error(input)
/// For messages: quoted, short and printable, whatever the file holds.
std::string shown(std::string_view text);
/// The shortest text that reads back as the same double.
std::string number_text(double value);
/// `affine`; throws Error(input) when it is not finite or, beside the lengths of its columns, singular.
const Affine& checked_map(const Affine& affine, const std::string& what);

}  // namespace detail

}  // namespace volpipe
