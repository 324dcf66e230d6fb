// Writes an expression as instructions of the register machine.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "stages/expression/expression.h"
#include "volume/geometry.h"

namespace volpipe {

/// What an expression is compiled for.
struct ExpressionSite {
  const Geometry& geometry;   ///< of the image at hand
  std::vector<int> inputs{};  ///< the program's input that each of the expression's images is
  Boundary boundary = Boundary::reflect;
};

/// The nodes from 0 to `last` that do not vary, in double; NaN for the others. `measured` knows the reductions.
std::vector<double> uniform_values(const Expression& expression, int last, const Geometry& geometry,
                                   const std::function<double(int node)>& measured);

/// Appends instructions after which the accumulator is `node`; before, it is the image "" here. Each operation rounds
/// by itself, what does not vary is an immediate from `uniform`, and neither the number of instructions nor that of
/// registers depends on the values of reductions. Throws Error(usage) when the instructions or registers of a program
/// do not suffice.
void append_value(Program& program, const Expression& expression, int node, std::span<const double> uniform,
                  const ExpressionSite& site);

/// Throws Error(usage) when the expression, or what it measures, does not fit a program on some grid.
void check_fits_program(const Expression& expression, Boundary boundary);

}  // namespace volpipe
