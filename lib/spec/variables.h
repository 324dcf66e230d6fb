// Variables and random draws: both are replaced in the JSON before any parameter is read, so every parameter can use
// them.
#pragma once

#include <cstdint>
#include <string>

#include "spec/parameters.h"

namespace volpipe {

/// Replaces "${name}" in every string below `value`: a string that is nothing else takes the variable's value and type,
/// elsewhere its text is put in. An unknown name is a fault.
Json substitute_variables(const Json& value, const Json& variables, const std::string& pointer, Faults& faults);

/// True for {"uniform": [a, b]}, {"normal": [mean, sd]} or {"choice": [..]}. A uniform between two integers (1, not
/// 1.0) is a whole number from a to b, both included; else a real number.
bool is_distribution(const Json& value);
/// True when a distribution stands anywhere below `value`.
bool has_distribution(const Json& value);
/// Faults of malformed distributions below `value`.
void check_distributions(const Json& value, const std::string& pointer, Faults& faults);

/// `value` with each distribution replaced by its k-th extreme (0: low ends and first choices, 1: high ends and second
/// choices, ...), and how many k are worth checking: what validation tries instead of drawing.
Json distribution_extreme(const Json& value, std::size_t k);
std::size_t distribution_extremes(const Json& value);

/// A stream of draws that depends on nothing but its key, so results do not depend on threads, shards or order.
class DrawStream {
 public:
  DrawStream(std::uint64_t seed, const std::string& item_id, std::uint32_t repeat, std::uint32_t stage_index);
  double uniform();  ///< in (0, 1)
  double normal();   ///< mean 0, standard deviation 1 (Box-Muller)
  std::uint64_t bits();
  /// `value` with each distribution replaced by a draw, in order of appearance.
  Json draw(const Json& value);

 private:
  std::uint64_t key_;
  std::uint32_t item_word_, repeat_, stage_index_;
  std::uint32_t drawn_ = 0;
};

}  // namespace volpipe
