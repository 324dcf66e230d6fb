// Corpora of the fuzzers, and mutations of them by a fixed seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/temporary_folder.h"

namespace volpipe::test {

/// Whole files in the order of their names.
inline std::vector<std::string> fuzz_corpus(const std::string& fuzzer) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(VOLPIPE_FUZZ_CORPUS) / fuzzer))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> texts;
  for (const auto& path : paths) texts.push_back(read_bytes(path.string()));
  return texts;
}

class Mutator {
 public:
  /// `words` are put in whole; the result has at most `longest` bytes.
  Mutator(std::vector<std::string> texts, std::vector<std::string> words, std::size_t longest)
      : texts_(std::move(texts)), words_(std::move(words)), longest_(longest) {}

  std::string next() {
    std::string text = any();
    for (std::uint64_t n = 1 + below(4); n > 0; --n) mutate(text);
    return text.substr(0, longest_);
  }

 private:
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  std::size_t place(const std::string& text) { return below(text.size() + 1); }
  const std::string& any() { return texts_[below(texts_.size())]; }
  const std::string& word() { return words_[below(words_.size())]; }

  void mutate(std::string& text) {
    const std::size_t at = place(text);
    switch (below(6)) {
      case 0:
        text.insert(at, word());
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
        for (std::uint64_t n = below(40); n > 0; --n) text.insert(at, word());
    }
  }

  std::vector<std::string> texts_;
  std::vector<std::string> words_;
  std::size_t longest_;
  std::mt19937_64 random_{7};
};

}  // namespace volpipe::test
