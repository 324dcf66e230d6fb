// What the expression fuzzer does, without a fuzzer: its corpus, and mutations of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "fuzz/expression_input.h"

namespace volpipe {
namespace {

std::vector<std::string> corpus() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(VOLPIPE_EXPRESSION_CORPUS))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> texts;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return texts;
}

TEST(ExpressionFuzz, Corpus) {
  const auto texts = corpus();
  ASSERT_GE(texts.size(), 20u);
  for (const std::string& text : texts) fuzz::run_expression(text);
}

class Mutator {
 public:
  explicit Mutator(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  std::string next() {
    std::string text = any();
    for (std::uint64_t n = 1 + below(4); n > 0; --n) mutate(text);
    return text.substr(0, 400);
  }

 private:
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  std::size_t place(const std::string& text) { return below(text.size() + 1); }
  const std::string& any() { return texts_[below(texts_.size())]; }

  void mutate(std::string& text) {
    static const std::vector<std::string> words{"(",   ")",    "[",     "]",     ",",      "-",      "+",    "^",
                                                "**",  "not ", " and ", "image", "mask",   "where(", "min(", "mean(",
                                                "1e9", ".5",   "nan",   "i",     "x",      "<",      "==",   "[1,0,0]",
                                                "\n",  "\xff", "1e308", "e",     "count(", "this",   "/0",   "% 3"};
    const std::size_t at = place(text);
    switch (below(6)) {
      case 0:
        text.insert(at, words[below(words.size())]);
        break;
      case 1:
        text.erase(at, 1 + below(4));
        break;
      case 2:
        if (at < text.size()) text[at] = char(below(256));
        break;
      case 3:
        text.insert(at, text.substr(place(text), 1 + below(20)));
        break;
      case 4: {
        const std::string& other = any();
        text = text.substr(0, at) + other.substr(place(other));
        break;
      }
      default:
        for (std::uint64_t n = below(40); n > 0; --n) text.insert(at, words[below(20)]);
    }
  }

  std::vector<std::string> texts_;
  std::mt19937_64 random_{7};
};

TEST(ExpressionFuzz, Mutations) {
  Mutator mutator(corpus());
  for (int n = 0; n < 100000; ++n) fuzz::run_expression(mutator.next());
}

}  // namespace
}  // namespace volpipe
