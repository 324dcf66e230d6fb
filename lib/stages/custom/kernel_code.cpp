#include "stages/custom/kernel_code.h"

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "stages/custom/kernel_text.h"

namespace volpipe {

namespace {

const char* type_name(DataType type) {
  switch (type) {
    case DataType::uint8:
      return "unsigned char";
    case DataType::int8:
      return "signed char";
    case DataType::uint16:
      return "unsigned short";
    case DataType::int16:
      return "short";
    case DataType::uint32:
      return "unsigned int";
    case DataType::int32:
      return "int";
    case DataType::float32:
      return "float";
    case DataType::float64:
      break;
  }
  return "double";
}

std::string limits(DataType type) {
  const IntegerRange range = integer_range(type);
  char text[160];
  std::snprintf(
      text, sizeof text,
      "static constexpr bool volpipe_rounds = %s;\nstatic constexpr double volpipe_low = %.1f, volpipe_high = %.1f;\n",
      is_floating(type) ? "false" : "true", range.lowest, range.highest);
  return text;
}

/// What the texts of kernel_text.h build on.
std::string declarations(const KernelVariables& variables) {
  std::string text = kPrelude;
  text += std::string("using real = ") + type_name(variables.real) + ";\n";
  text += std::string("using volpipe_out = ") + type_name(variables.out) + ";\n" + limits(variables.out);
  text += "enum { volpipe_threads = " + std::to_string(kKernelThreads) +
          ", volpipe_chunk = " + std::to_string(kReductionChunk) +
          ", volpipe_voxels = " + std::to_string(kVoxelsPerThread) + " };\n";
  text += "struct volpipe_arguments {\n  long long nx, ny, nz, components;\n  double world[12];\n";
  text += std::string("  const ") + type_name(variables.in) + "* in;\n";
  for (std::size_t n = 0; n < variables.inputs.size(); ++n)
    text += std::string("  const ") + type_name(variables.inputs[n].second) + "* input" + std::to_string(n) +
            "; long long step" + std::to_string(n) + ";\n";
  for (std::size_t n = 0; n < variables.constants.size(); ++n) text += "  double constant" + std::to_string(n) + ";\n";
  return text + "};\n";
}

std::string constants_in_scope(const KernelVariables& variables) {
  std::string text;
  for (std::size_t n = 0; n < variables.constants.size(); ++n)
    text += "  const real " + variables.constants[n] + " = real(volpipe_a.constant" + std::to_string(n) + ");\n";
  return text;
}

std::string variables_in_scope(const KernelVariables& variables) {
  std::string text = kPlaceInScope;
  for (std::size_t n = 0; n < variables.inputs.size(); ++n)
    text += "  const real " + variables.inputs[n].first + " = real(volpipe_a.input" + std::to_string(n) +
            "[component * volpipe_a.step" + std::to_string(n) + " + volpipe_v]);\n";
  return text + constants_in_scope(variables);
}

void add_elementwise(KernelProgram& program, const UserCode& statements, const KernelVariables& variables,
                     bool has_result) {
  program.add(kVoxelFunction).add(variables_in_scope(variables));
  if (has_result) program.add("  const double result = volpipe_result;\n");
  program.add("  out = in;\n  {").add_code(statements, "}}").add(kElementwiseText);
}

void add_reduction(KernelProgram& program, const KernelCode& code, const KernelVariables& variables) {
  program.add(kMapFunction).add(variables_in_scope(variables)).add("  return double(").add_code(code.source, ");}");
  program.add(kReduceFunction).add(constants_in_scope(variables)).add("  return double(").add_code(code.reduce, ");}");
  program.add(kIdentityFunction)
      .add(constants_in_scope(variables))
      .add("  return double(")
      .add_code(code.identity, ");}");
  program.add(kReductionText);
}

std::string raw_signature(const KernelVariables& variables, bool with_names) {
  std::string text = "(";
  const auto add = [&](const std::string& type, const std::string& name) {
    text += (text.size() > 1 ? ", " : "") + type + (with_names ? " " + name : "");
  };
  const auto pointer = [](DataType type) { return std::string("const ") + type_name(type) + "*"; };
  add(std::string(type_name(variables.out)) + "*", "out");
  add(pointer(variables.in), "in");
  for (const auto& [name, type] : variables.inputs) add(pointer(type), name);
  for (const char* name : {"nx", "ny", "nz", "components"}) add("long long", name);
  for (const std::string& name : variables.constants) add("double", name);
  return text + ")";
}

KernelProgram make_raw_program(const KernelCode& code, const KernelVariables& variables) {
  KernelProgram program;
  program.add(kPrelude).add_code(code.source).add(kSameType);
  program.add("static_assert(volpipe_same<decltype(&" + code.entry + "), void (*)" + raw_signature(variables, false) +
              ">, \"the arguments of '" + code.entry + "' must be " + raw_signature(variables, true) + "\");\n");
  return program;
}

bool is_word_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

bool separates_digits(const std::string& source, std::size_t at) {
  return source[at] == '\'' && at > 0 && std::isdigit(static_cast<unsigned char>(source[at - 1]));
}

/// Where a comment, a text or a character that begins at `at` ends; `at` when none does.
std::size_t end_of_quotation(const std::string& source, std::size_t at) {
  const auto after = [&](std::string_view end) {
    const std::size_t found = source.find(end, at + 2);
    return found == std::string::npos ? source.size() : found + end.size();
  };
  if (source.compare(at, 2, "//") == 0) return after("\n");
  if (source.compare(at, 2, "/*") == 0) return after("*/");
  if (source[at] != '"' && source[at] != '\'') return at;
  std::size_t end = at + 1;
  while (end < source.size() && source[end] != source[at]) end += source[end] == '\\' ? 2 : 1;
  return std::min(end + 1, source.size());
}

/// Words and single other characters, without blanks, comments and texts.
std::vector<std::string> tokens_of(const std::string& source) {
  std::vector<std::string> tokens;
  for (std::size_t at = 0; at < source.size();) {
    std::size_t end = end_of_quotation(source, at);
    if (end == at) {
      while (end < source.size() && (is_word_character(source[end]) || separates_digits(source, end))) ++end;
      end = std::max(end, at + 1);
      if (!std::isspace(static_cast<unsigned char>(source[at]))) tokens.push_back(source.substr(at, end - at));
    }
    at = end;
  }
  return tokens;
}

/// The token behind a parenthesis that opens at `at`.
std::size_t behind_parenthesis(const std::vector<std::string>& tokens, std::size_t at) {
  int open = 0;
  for (; at < tokens.size(); ++at) {
    open += (tokens[at] == "(") - (tokens[at] == ")");
    if (open == 0) return at + 1;
  }
  return at;
}

}  // namespace

KernelProgram make_kernel_program(const KernelCode& code, const KernelVariables& variables) {
  if (code.kind == KernelKind::raw) return make_raw_program(code, variables);
  KernelProgram program;
  program.add(declarations(variables)).add(kPlaceText).add(kConversionText);
  if (code.kind == KernelKind::reduction) add_reduction(program, code, variables);
  const bool reduces = code.kind == KernelKind::reduction;
  add_elementwise(program, reduces ? code.post : code.source, variables, reduces);
  return program;
}

std::vector<std::string> compiler_options(KernelKind kind) {
  std::vector<std::string> options{"-lineinfo"};
  if (kind != KernelKind::raw) options.emplace_back("-fmad=false");
  return options;
}

std::vector<std::string> kernels_in(const std::string& source) {
  const std::vector<std::string> tokens = tokens_of(source);
  const auto token = [&](std::size_t n) { return n < tokens.size() ? tokens[n] : ""; };
  std::vector<std::string> names;
  for (std::size_t n = 0; n < tokens.size(); ++n) {
    if (tokens[n] != "__global__") continue;
    std::size_t at = n + 1;
    while (token(at) == "void" || token(at) == "__launch_bounds__")
      at = token(at) == "void" ? at + 1 : behind_parenthesis(tokens, at + 1);
    if (at > n + 1 && token(at + 1) == "(") names.push_back(token(at));
  }
  return names;
}

std::string why_no_variable(const std::string& name) {
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) ||
      !std::all_of(name.begin(), name.end(), is_word_character))
    return "a variable's name has letters, digits and _";
  if (name.starts_with("volpipe_") || name.starts_with("__")) return "names that begin so are taken";
  if (kTakenWords.find(" " + name + " ") != std::string_view::npos) return "the code has that word already";
  return "";
}

}  // namespace volpipe
