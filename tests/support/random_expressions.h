// Random expressions as texts, and what they mean, computed without the parser and the compiler.
#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace volpipe::testing_support {

/// A part of an expression. What it means is written down in evaluate() below.
struct ExpressionTree {
  std::string
      word;  ///< operator, function, or leaf: "number", "image", "neighbour", "index", "world", "spacing", "size"
  std::vector<ExpressionTree> parts{};
  double number = 0;
  int image = 0, axis = 0;
  std::array<int, 3> offset{};
  bool varies = false;
};

/// What leaves are at one voxel.
template <class T>
struct ExpressionVoxel {
  std::vector<T> images;                                                 ///< here
  std::vector<std::array<std::array<std::array<T, 3>, 3>, 3>> around{};  ///< at offsets -1, 0, 1: [image][z][y][x]
  std::array<double, 3> index{}, spacing{}, size{};
  std::array<std::array<double, 4>, 3> to_world{};
  bool ambiguous = false;  ///< an extreme of 0 and -0 was taken: either will do
};

inline const std::vector<std::string>& tree_images() {
  static const std::vector<std::string> names{"this", "a", "b", "c"};
  return names;
}

template <class T>
T extreme_of(T a, T b, bool least, bool& ambiguous) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (a == 0 && b == 0 && std::signbit(a) != std::signbit(b)) ambiguous = true;
  return least ? (b < a ? b : a) : (b > a ? b : a);
}

template <class T>
T python_modulo(T a, T b) {
  const T rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(T(0), b);
  return std::signbit(rest) != std::signbit(b) && !std::isnan(rest) ? rest + b : rest;
}

/// The tree in T, each step rounded; parts that do not vary in double, rounded once.
template <class T, class Voxel>
T evaluate(const ExpressionTree& tree, Voxel& voxel) {
  if constexpr (!std::is_same_v<T, double>)
    if (!tree.varies) return T(evaluate<double>(tree, voxel));
  const std::string& w = tree.word;
  const auto part = [&](std::size_t n) { return evaluate<T>(tree.parts[n], voxel); };
  const auto axis = std::size_t(tree.axis);
  if (w == "number") return T(tree.number);
  if (w == "image") return T(voxel.images[std::size_t(tree.image)]);
  if (w == "neighbour")
    return T(voxel.around[std::size_t(tree.image)][std::size_t(tree.offset[2] + 1)][std::size_t(tree.offset[1] + 1)]
                         [std::size_t(tree.offset[0] + 1)]);
  if (w == "index") return T(voxel.index[axis]);
  if (w == "spacing") return T(voxel.spacing[axis]);
  if (w == "size") return T(voxel.size[axis]);
  if (w == "world") {
    const auto& row = voxel.to_world[axis];
    T sum = 0;
    bool first = true;
    for (std::size_t column = 0; column < 3; ++column) {
      if (row[column] == 0) continue;
      if (first) sum = std::fma(T(voxel.index[column]), T(row[column]), T(row[3]));
      else sum += T(voxel.index[column]) * T(row[column]);
      first = false;
    }
    return sum;
  }
  if (w == "where") return part(0) != T(0) ? part(1) : part(2);
  const T a = part(0);
  if (w == "negate") return -a;
  if (w == "not" || w == "!") return a == T(0) ? T(1) : T(0);
  if (w == "abs") return std::fabs(a);
  if (w == "sqrt") return std::sqrt(a);
  if (w == "exp") return std::exp(a);
  if (w == "log") return std::log(a);
  if (w == "log10") return std::log10(a);
  if (w == "sin") return std::sin(a);
  if (w == "cos") return std::cos(a);
  if (w == "tan") return std::tan(a);
  if (w == "floor") return std::floor(a);
  if (w == "ceil") return std::ceil(a);
  if (w == "round") return std::round(a);
  if (w == "sign") return std::isnan(a) ? a : T(a > 0) - T(a < 0);
  if (w == "isfinite") return T(std::isfinite(a));
  if (w == "isnan") return T(std::isnan(a));
  const T b = part(1);
  if (w == "+") return a + b;
  if (w == "-") return a - b;
  if (w == "*") return a * b;
  if (w == "/") return a / b;
  if (w == "%" || w == "mod") return python_modulo(a, b);
  if (w == "^" || w == "pow") {
    if (!tree.parts[1].varies) {
      if (b == T(0)) return 1;
      if (b == T(1)) return a;
      if (b == T(2)) return a * a;
      if (b == T(-1)) return 1 / a;
    }
    return std::pow(a, b);
  }
  if (w == "atan2") return std::atan2(a, b);
  if (w == "<") return T(a < b);
  if (w == "<=") return T(a <= b);
  if (w == ">") return T(a > b);
  if (w == ">=") return T(a >= b);
  if (w == "==") return T(a == b);
  if (w == "!=") return T(a != b);
  if (w == "and") return T(a != T(0) && b != T(0));
  if (w == "or") return T(a != T(0) || b != T(0));
  bool& ambiguous = voxel.ambiguous;
  if (w == "clamp") return extreme_of(extreme_of(a, b, false, ambiguous), part(2), true, ambiguous);
  T result = a;  // min, max
  for (std::size_t n = 1; n < tree.parts.size(); ++n) result = extreme_of(result, part(n), w == "min", ambiguous);
  return result;
}

/// Which words a random tree may have.
struct TreeWords {
  bool transcendental = true;
  bool general = true;   ///< what needs the general machine: places, extremes, choices, remainders
  bool repeats = false;  ///< parts that occur several times
};

class TreeMaker {
 public:
  TreeMaker(std::uint64_t seed, TreeWords words) : random_(seed), words_(words) {}

  ExpressionTree tree(int depth) {
    if (words_.repeats && !made_.empty() && below(3) == 0) return one_of(made_);
    ExpressionTree tree = depth == 0 || below(8) == 0 ? leaf() : branch(depth);
    made_.push_back(tree);
    return tree;
  }

  std::string text(const ExpressionTree& tree, int loosest = 1) {
    const auto [level, written] = write(tree);
    const std::string spaced = below(6) ? written : " " + written + "  ";
    return level < loosest || below(12) == 0 ? "(" + spaced + ")" : spaced;
  }

 private:
  struct Written {
    int level;  ///< 1 (or) to 9 (atoms)
    std::string text;
  };

  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  template <class List>
  typename List::value_type one_of(const List& list) {
    return list[below(list.size())];
  }

  ExpressionTree branch(int depth) {
    ExpressionTree tree{one_of(all_words())};
    const std::size_t parts = count(tree.word);
    for (std::size_t n = 0; n < parts; ++n) tree.parts.push_back(this->tree(depth - 1));
    if ((tree.word == "^" || tree.word == "pow") && (!words_.transcendental || below(2)))
      tree.parts[1] = number(double(1 + below(words_.transcendental ? 4 : 2)));
    if (!words_.general && tree.word == "where") tree.parts[2] = number(double(below(3)));
    for (const ExpressionTree& part : tree.parts) tree.varies = tree.varies || part.varies;
    if (tree.word == "where") settle_where(tree);
    return tree;
  }

  std::vector<std::string> all_words() const {
    std::vector<std::string> words{
        "+", "-", "*", "/", "%", "^", "<", "<=", ">", ">=", "==", "!=", "and", "or", "not", "!"};
    for (const char* word : {"+",    "-",        "*",     "/",   "negate", "abs", "sqrt", "floor", "ceil",  "round",
                             "sign", "isfinite", "isnan", "mod", "pow",    "min", "max",  "clamp", "where", "where"})
      words.push_back(word);
    if (!words_.general)
      std::erase_if(words, [](auto& word) {
        return word == "%" || word == "mod" || word == "min" || word == "max" || word == "clamp";
      });
    if (words_.transcendental)
      for (const char* word : {"exp", "log", "log10", "sin", "cos", "tan", "atan2"}) words.push_back(word);
    return words;
  }

  std::size_t count(const std::string& word) {
    for (const char* one : {"negate", "not", "!", "abs", "sqrt", "exp", "log", "log10", "sin", "cos", "tan", "floor",
                            "ceil", "round", "sign", "isfinite", "isnan"})
      if (word == one) return 1;
    if (word == "clamp" || word == "where") return 3;
    if (word == "min" || word == "max") return 2 + below(2);
    return 2;
  }

  static ExpressionTree number(double value) { return {.word = "number", .number = value}; }

  ExpressionTree leaf() {
    const std::uint64_t kind = below(words_.general ? 12 : 8);
    if (kind < 2) return number(one_of(std::vector<double>{0, 1, 2, 3, 0.5, 0.25, 10, 0.1, 7.25, 1e-3, 255, 1e6}));
    ExpressionTree tree{
        .word = "image", .image = int(below(tree_images().size())), .axis = int(below(3)), .varies = true};
    if (kind < 8) return tree;
    if (kind < 10) {
      tree.word = "neighbour";
      for (int& offset : tree.offset) offset = int(below(3)) - 1;
      return tree;
    }
    tree.word = kind == 10 ? one_of(std::vector<std::string>{"index", "world"})
                           : one_of(std::vector<std::string>{"spacing", "size"});
    tree.varies = kind == 10;
    return tree;
  }

  /// One whose condition or choice is constant is known beforehand.
  void settle_where(ExpressionTree& tree) {
    ExpressionVoxel<double> none;
    const bool known = is_literal(tree.parts[0]);
    if (known) tree.varies = tree.parts[evaluate<double>(tree.parts[0], none) != 0 ? 1 : 2].varies;
    if (!tree.parts[1].varies && !tree.parts[2].varies && !known) tree.parts[1] = image_leaf();
  }
  ExpressionTree image_leaf() { return {.word = "image", .image = int(below(tree_images().size())), .varies = true}; }

  static bool is_literal(const ExpressionTree& tree) {
    if (tree.parts.empty()) return tree.word == "number";
    for (const ExpressionTree& part : tree.parts)
      if (!is_literal(part)) return false;
    return true;
  }

  Written write(const ExpressionTree& tree) {
    static const std::string axes = "xyz", indices = "ijk";
    const std::string& w = tree.word;
    const std::size_t axis = std::size_t(tree.axis);
    const auto part = [&](std::size_t n, int loosest) { return text(tree.parts[n], loosest); };
    const auto binary = [&](int level, int left, int right, const std::string& symbol) {
      return Written{level, part(0, left) + " " + symbol + " " + part(1, right)};
    };
    if (w == "number") {
      char digits[32];
      std::snprintf(digits, sizeof digits, "%.17g", tree.number);
      return {9, digits};
    }
    if (w == "image") return {9, tree_images()[std::size_t(tree.image)]};
    if (w == "neighbour") {
      std::string offsets;
      for (int offset : tree.offset) offsets += (offsets.empty() ? "" : ",") + std::to_string(offset);
      return {9, tree_images()[std::size_t(tree.image)] + "[" + offsets + "]"};
    }
    if (w == "index") return {9, std::string(1, indices[axis])};
    if (w == "world") return {9, std::string(1, axes[axis])};
    if (w == "spacing" || w == "size") return {9, w + "_" + axes[axis]};
    if (w == "negate") return {7, "-" + part(0, 7)};
    if (w == "!") return {7, "!" + part(0, 7)};
    if (w == "not") return {3, "not " + part(0, 3)};
    if (w == "or") return binary(1, 1, 2, below(2) ? "or" : "||");
    if (w == "and") return binary(2, 2, 3, below(2) ? "and" : "&&");
    if (w == "+" || w == "-") return binary(5, 5, 6, w);
    if (w == "*" || w == "/" || w == "%") return binary(6, 6, 7, w);
    if (w == "^") return binary(8, 9, 7, below(2) ? "^" : "**");
    if (w[0] == '<' || w[0] == '>' || w[0] == '=' || w == "!=") return binary(4, 5, 5, w);
    std::string call = w + "(";
    for (std::size_t n = 0; n < tree.parts.size(); ++n) call += (n ? ", " : "") + part(n, 1);
    return {9, call + ")"};
  }

  std::mt19937_64 random_;
  TreeWords words_;
  std::vector<ExpressionTree> made_;
};

}  // namespace volpipe::testing_support
