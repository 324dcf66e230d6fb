// What the fuzzers do, without a fuzzer: their corpora, and mutations of them.
#include <gtest/gtest.h>

#include <functional>

#include "fuzz/dicom_input.h"
#include "fuzz/expression_input.h"
#include "fuzz/gzip_input.h"
#include "fuzz/nifti_header_input.h"
#include "fuzz/spec_input.h"
#include "support/mutator.h"

namespace volpipe {
namespace {

struct Fuzzer {
  std::string name;
  std::function<void(std::string_view)> run;
  std::vector<std::string> words;
  std::size_t longest;
  int mutations;
};

const std::vector<std::string> kBytes{std::string(1, '\0'), "\xff", "\x7f", "\x80", std::string(4, '\0'),
                                      "\xff\xff\xff\xff"};

const Fuzzer kFuzzers[] = {
    {"expression",
     fuzz::run_expression,
     {"(",     ")",       "[",      "]",    ",",     "-",   "+",      "^",    "**", "not ", " and ",
      "image", "mask",    "where(", "min(", "mean(", "1e9", ".5",     "nan",  "i",  "x",    "<",
      "==",    "[1,0,0]", "\n",     "\xff", "1e308", "e",   "count(", "this", "/0", "% 3"},
     400,
     100000},
    {"nifti_header", fuzz::run_nifti_header, kBytes, 4096, 5000},
    {"gzip", fuzz::run_gzip, kBytes, 4096, 5000},
    {"spec",
     fuzz::run_spec,
     {"{",         "}",       "[",  "]",     ",",    ":",    "\"",        "\"op\":", "\"uniform\":", "\"on\":",
      "1e9",       "-1",      "0",  "1e308", "null", "true", "\"image\"", "${mm}",   "{id}",         "\"probability\":",
      "\"size\":", "\\u0000", "\n", "\xff"},
     4096,
     5000},
    {"dicom",
     fuzz::run_dicom,
     {std::string(1, '\0'), "\xff", "\\", "0", "-1", "1e308", "SQ", std::string("\xff\xff\xff\xff"),
      std::string(fuzz::kFileMark)},
     8192,
     1000},
};

struct Fuzz : testing::TestWithParam<Fuzzer> {};

TEST_P(Fuzz, Corpus) {
  const auto inputs = test::fuzz_corpus(GetParam().name);
  ASSERT_GE(inputs.size(), 20u);
  for (const std::string& input : inputs) GetParam().run(input);
}

TEST_P(Fuzz, Mutations) {
  test::Mutator mutator(test::fuzz_corpus(GetParam().name), GetParam().words, GetParam().longest);
  for (int n = 0; n < GetParam().mutations; ++n) GetParam().run(mutator.next());
}

INSTANTIATE_TEST_SUITE_P(Inputs, Fuzz, testing::ValuesIn(kFuzzers), [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace volpipe
