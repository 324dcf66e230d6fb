// One input of the expression fuzzer: any text is either refused with a fault that lies in it, or becomes programs.
#pragma once

#include <string_view>

#include "fuzz/require.h"
#include "stages/expression/compiler.h"

namespace volpipe::fuzz {

inline void check_fault(const ExpressionError& error, std::string_view text) {
  require(error.position() <= text.size() && error.position() + error.length() <= text.size());
  require(!error.message().empty() && std::string_view(error.what()).find('^') != std::string_view::npos);
  require(std::string_view(error.what()).size() < 4096);
}

inline void run_expression(std::string_view text) {
  ExpressionNames names;
  names.images = {{"image", ""}, {"mask", "mask"}, {"b", "b"}};
  names.variables = {{"mm", 1.5}};
  names.unusable = {{"lucky", "is random"}};
  names.fill = {.value = 0, .minimum = true};
  try {
    const Expression expression = parse_expression(std::string(text), names);
    require(!expression.nodes().empty());
    check_fits_program(expression, Boundary::grid_constant);
  } catch (const ExpressionError& error) { check_fault(error, text); } catch (const Error& error) {
    require(error.code() == ErrorCode::usage);
  }
}

}  // namespace volpipe::fuzz
