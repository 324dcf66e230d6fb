// Compiling at run time: the cache on disk, faults in the user's lines, and the compiler itself where it is installed.
#include "device/nvrtc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <iostream>
#include <optional>
#include <thread>

#include "file_helpers.h"
#include "stages/custom/kernel_code.h"
#include "volume/sha256.h"

namespace volpipe {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::read_bytes;
using test::TemporaryFolder;
using test::write_bytes;
using testing::HasSubstr;
using testing::Not;

constexpr int kArchitecture = 80;  // known to every NVRTC from 11.2 on

KernelProgram program_of(const std::string& statements) {
  KernelProgram program;
  program.add("extern \"C\" __global__ void kernel(float* out) {").add_code({"source", statements}, "}");
  return program;
}

/// FIPS 180-4's examples.
TEST(Sha256, IsTheStandards) {
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(KernelCache, GivesBackWhatWasStored) {
  TemporaryFolder folder;
  const KernelCache cache(folder / "a/b");
  EXPECT_EQ(cache.find("key"), std::nullopt);
  const std::string bytes("cubin\0with zeros", 16);
  EXPECT_EQ(cache.store("key", bytes), "");
  EXPECT_EQ(cache.find("key"), bytes);
  EXPECT_EQ(cache.find("other"), std::nullopt);
  EXPECT_EQ(cache.store("key", "newer"), "");
  EXPECT_EQ(KernelCache(folder / "a/b").find("key"), "newer");
}

TEST(KernelCache, CountsADamagedEntryAsMissing) {
  TemporaryFolder folder;
  const KernelCache cache(folder.path());
  cache.store("key", std::string(1000, 'x'));
  const std::string whole = read_bytes(cache.folder() + "/key");
  for (std::string damaged : {whole.substr(0, 500), whole.substr(0, 10), std::string(), whole + "x"}) {
    write_bytes(cache.folder() + "/key", damaged);
    EXPECT_EQ(cache.find("key"), std::nullopt);
  }
  std::string changed = whole;
  changed[300] ^= 1;
  write_bytes(cache.folder() + "/key", changed);
  EXPECT_EQ(cache.find("key"), std::nullopt);
}

TEST(KernelCache, SaysWhyItCannotBeWritten) {
  TemporaryFolder folder;
  write_bytes(folder / "file", "not a folder");
  EXPECT_THAT(KernelCache(folder / "file").store("key", "x"), HasSubstr(folder / "file"));
  EXPECT_THAT(KernelCache("/proc/volpipe").store("key", "x"), HasSubstr("/proc/volpipe"));
  EXPECT_THAT(KernelCache("").store("key", "x"), HasSubstr("VOLPIPE_CACHE_DIR"));
  EXPECT_EQ(KernelCache("").find("key"), std::nullopt);
}

TEST(KernelCache, RemovesWhatWasUsedLongestAgo) {
  TemporaryFolder folder;
  const KernelCache cache(folder.path(), 3500);
  const auto age = [&](const char* key, int hours) {
    fs::last_write_time(cache.folder() + "/" + key, fs::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  for (const char* key : {"a", "b", "c"}) cache.store(key, std::string(1000, 'x'));  // 1064 bytes each, with the hash
  write_bytes(cache.folder() + "/.abandoned", "x");
  write_bytes(cache.folder() + "/.under way", "x");
  age("a", 3), age("b", 2), age("c", 1), age(".abandoned", 2);
  EXPECT_TRUE(cache.find("a"));  // used now
  cache.store("d", std::string(1000, 'x'));
  EXPECT_TRUE(cache.find("a"));
  EXPECT_FALSE(cache.find("b"));
  EXPECT_TRUE(cache.find("c"));
  EXPECT_TRUE(cache.find("d"));
  EXPECT_FALSE(fs::exists(cache.folder() + "/.abandoned"));
  EXPECT_TRUE(fs::exists(cache.folder() + "/.under way"));
}

/// Six processes write, read and clear one small cache: whoever finds an entry finds it whole.
TEST(KernelCache, IsSafeForConcurrentProcesses) {
  TemporaryFolder folder;
  const KernelCache cache(folder.path(), 20000);
  const auto content_of = [](int number) { return std::string(std::size_t(1000 + 500 * number), char('a' + number)); };
  const auto work = [&](int first) {
    for (int round = 0; round < 200; ++round) {
      const int number = (first + round) % 10;
      if (!cache.store(std::to_string(number), content_of(number)).empty()) return 1;
      const auto found = cache.find(std::to_string((number + 3) % 10));
      if (found && *found != content_of((number + 3) % 10)) return 2;
    }
    return 0;
  };
  std::vector<pid_t> children;
  for (int child = 0; child < 6; ++child) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(work(child));
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  std::uintmax_t bytes = 0;
  for (const auto& file : fs::directory_iterator(cache.folder())) bytes += file.file_size();
  EXPECT_LE(bytes, 20000 + 6 * 5564u);  // each may have removed before the others' last entries came
}

/// Ends the process and says on standard error where the cache lies.
void say_folder(const char* own, const char* caches, const char* home) {
  const auto set = [](const char* name, const char* value) { value ? ::setenv(name, value, 1) : ::unsetenv(name); };
  set("VOLPIPE_CACHE_DIR", own);
  set("XDG_CACHE_HOME", caches);
  set("HOME", home);
  std::cerr << "<" << KernelCache::of_user().folder() << ">";
  std::_Exit(0);
}

TEST(KernelCache, LiesWhereTheEnvironmentSays) {
  const auto ended = testing::ExitedWithCode(0);
  EXPECT_EXIT(say_folder("/own", "/caches", "/home/me"), ended, "</own/kernels>");
  EXPECT_EXIT(say_folder(nullptr, "/caches", "/home/me"), ended, "</caches/volpipe/kernels>");
  EXPECT_EXIT(say_folder("", "relative", "/home/me"), ended, "</home/me/.cache/volpipe/kernels>");
  EXPECT_EXIT(say_folder(nullptr, nullptr, nullptr), ended, "<>");
}

TEST(CompileLog, PlacesFaultsInTheUsersLines) {
  KernelProgram program;
  program.add("a").add_code({"source", "out = foo;\nout = in +"}, "}}").add("b");
  EXPECT_EQ(explain_compile_log(program,
                                "source(1): error: identifier \"foo\" is undefined\n"
                                "  out = foo;\n"
                                "        ^\n\n"
                                "source(3): error: expected an expression\n"
                                "  }}\n"
                                "  ^\n\n"
                                "<volpipe>(9): error: expected a declaration\n  b\n  ^\n\n"
                                "3 errors detected in the compilation of \"<volpipe>\".\n"),
            "source:1: error: identifier \"foo\" is undefined\n"
            "    out = foo;\n"
            "          ^\n"
            "source:2: error: expected an expression\n"
            "    out = in +");
}

TEST(CompileLog, KeepsInstantiationsAndDropsWarningsAndNotes) {
  KernelProgram program;
  program.add_code({"my (1).cu", "x\ny\nz"});
  EXPECT_EQ(
      explain_compile_log(program,
                          "my (1).cu(1): warning #177-D: variable \"q\" was declared but never referenced\n  x\n  ^\n\n"
                          "Remark: The warnings can be suppressed with \"-diag-suppress <warning-number>\"\n\n"
                          "my (1).cu(2): error: expression must have class type\n  y\n  ^\n"
                          "          detected during instantiation of \"T f(T) [with T=float]\" at line 3\n\n"
                          "my (1).cu(3): note: to match this \"{\"\n  z\n\n"
                          "1 error detected in the compilation of \"<volpipe>\".\n"),
      "my (1).cu:2: error: expression must have class type\n    y\n    ^\n"
      "            detected during instantiation of \"T f(T) [with T=float]\" at line 3");
}

TEST(CompileLog, SaysWhatAFaultOfTheFrameMeans) {
  KernelProgram program;
  program.add("a").add_code({"source", "if (in > 0) {"}, "}}");
  EXPECT_THAT(explain_compile_log(program,
                                  "<volpipe>(2): error: linkage specification is not allowed\n  a\n  ^\n\n"
                                  "At end of source: error: expected a \"}\"\n"),
              HasSubstr("a bracket of the code is not closed"));
  EXPECT_EQ(explain_compile_log(program, "<volpipe>(2): error: static assertion failed with \"say this\"\n  a\n"),
            "error: say this");
  EXPECT_EQ(explain_compile_log(program, "ptxas error   : Entry function 'k' uses too much shared data\n"),
            "ptxas error   : Entry function 'k' uses too much shared data");
  EXPECT_EQ(explain_compile_log(program, "something else"), "something else");
}

TEST(CompileLog, ShowsFiveFaults) {
  KernelProgram program;
  program.add_code({"source", "a\na\na\na\na\na\na"});
  std::string log;
  for (int line = 1; line <= 7; ++line) log += "source(" + std::to_string(line) + "): error: wrong\n  a\n\n";
  const std::string text = explain_compile_log(program, log);
  EXPECT_THAT(text, HasSubstr("source:5: error"));
  EXPECT_THAT(text, Not(HasSubstr("source:6: error")));
  EXPECT_THAT(text, HasSubstr("(and 2 more)"));
}

class Nvrtc : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_kernel_compiler(); !reason.empty()) GTEST_SKIP() << reason;
  }

  static std::string compile(const KernelProgram& program, const KernelCache& cache, Notices& notices) {
    return compile_kernels(program, kArchitecture, {}, cache, notices);
  }
  static std::size_t entries(const KernelCache& cache) {
    return std::size_t(std::distance(fs::directory_iterator(cache.folder()), fs::directory_iterator()));
  }

  Notices notices_;
};

TEST_F(Nvrtc, MakesMachineCode) {
  const std::string cubin = compile_kernels(program_of("out[0] = 1;"), kArchitecture, {});
  EXPECT_TRUE(
      cubin.starts_with("\x7f"
                        "ELF"));
  EXPECT_THAT(cubin, HasSubstr("kernel"));
}

TEST_F(Nvrtc, NamesTheUsersLine) {
  expect_error(ErrorCode::usage, "source:2: error: identifier \"foo\" is undefined\n    out[1] = foo;\n             ^",
               [] { compile_kernels(program_of("out[0] = 1;\nout[1] = foo;"), kArchitecture, {}); });
  expect_error(ErrorCode::usage, "source:1: error: expected a \";\"\n    out[0] = 1",
               [] { compile_kernels(program_of("out[0] = 1\n\n"), kArchitecture, {}); });
  expect_error(ErrorCode::usage, "without headers",
               [] { compile_kernels(program_of("#include <cmath>"), kArchitecture, {}); });
  expect_error(ErrorCode::usage, "shared data", [] {
    compile_kernels(program_of("__shared__ float t[100000]; t[threadIdx.x] = out[0]; out[0] = t[0];"), kArchitecture,
                    {});
  });
}

TEST_F(Nvrtc, TakesTheNextLowerArchitecture) {
  const KernelProgram program = program_of("out[0] = 1;");
  EXPECT_FALSE(compile_kernels(program, 89, {}).empty());
  EXPECT_FALSE(compile_kernels(program, 85, {}).empty());  // there is no 8.5
  expect_error(ErrorCode::device, "compute capability 990.0", [&] { compile_kernels(program, 9900, {}); });
}

TEST_F(Nvrtc, IsAskedOnceForOneProgram) {
  TemporaryFolder folder;
  const KernelCache cache(folder.path());
  const KernelProgram program = program_of("out[0] = 1;");
  const std::string first = compile(program, cache, notices_);
  EXPECT_EQ(entries(cache), 2u);  // the program, and which compiler it was
  EXPECT_EQ(compile(program, cache, notices_), first);
  EXPECT_EQ(entries(cache), 2u);
  compile(program_of("out[0] = 2;"), cache, notices_);
  EXPECT_EQ(entries(cache), 3u);
  compile_kernels(program, kArchitecture + 6, {}, cache, notices_);
  EXPECT_EQ(entries(cache), 4u);
  compile_kernels(program, kArchitecture, {"-fmad=false"}, cache, notices_);
  EXPECT_EQ(entries(cache), 5u);
  EXPECT_TRUE(notices_.empty());
}

TEST_F(Nvrtc, CompilesAgainWhatWasDamaged) {
  TemporaryFolder folder;
  const KernelCache cache(folder.path());
  const KernelProgram program = program_of("out[0] = 1;");
  const std::string first = compile(program, cache, notices_);
  for (const auto& file : fs::directory_iterator(cache.folder())) write_bytes(file.path().string(), "damaged");
  EXPECT_EQ(compile(program, cache, notices_), first);
  EXPECT_EQ(compile(program, cache, notices_), first);
  EXPECT_TRUE(notices_.empty());
}

/// The entry that says which compiler was used last names its file, size, time of change and version.
TEST_F(Nvrtc, LooksAtACompilerThatChanged) {
  TemporaryFolder folder;
  const KernelCache cache(folder.path());
  const KernelProgram program = program_of("out[0] = 1;");
  const std::string first = compile(program, cache, notices_);
  const std::string compiler = *cache.find("compiler");
  const std::string version = compiler.substr(compiler.rfind('\n', compiler.size() - 2) + 1);
  for (const std::string& known : {"/nosuch/libnvrtc.so.1\n1\n1\n1.0\n" + std::string(),
                                   compiler.substr(0, compiler.size() - version.size()) + "1.0\n", std::string("?")}) {
    cache.store("compiler", known);
    EXPECT_EQ(compile(program, cache, notices_), first);
    EXPECT_EQ(*cache.find("compiler"), compiler);
    EXPECT_EQ(entries(cache), 2u);
  }
}

TEST_F(Nvrtc, CompilesWithACacheThatCannotBeWritten) {
  const KernelProgram program = program_of("out[0] = 1;");
  EXPECT_FALSE(compile(program, KernelCache("/proc/volpipe"), notices_).empty());
  ASSERT_EQ(notices_.list().size(), 1u);
  EXPECT_EQ(notices_.list()[0].code, "kernel_cache");
  EXPECT_THAT(notices_.list()[0].message, HasSubstr("VOLPIPE_CACHE_DIR"));
}

TEST_F(Nvrtc, ServesThreadsAtOneTime) {
  TemporaryFolder folder;
  const KernelCache cache(folder.path());
  std::vector<std::string> cubins(6);
  std::vector<std::thread> threads;
  for (std::size_t n = 0; n < cubins.size(); ++n)
    threads.emplace_back([&, n] {
      Notices notices;
      cubins[n] = compile(program_of("out[0] = " + std::to_string(n % 2) + ";"), cache, notices);
    });
  for (std::thread& thread : threads) thread.join();
  for (std::size_t n = 2; n < cubins.size(); ++n) EXPECT_EQ(cubins[n], cubins[n % 2]);
  EXPECT_EQ(entries(cache), 3u);
}

/// What a process that finds everything in the cache exits with: 0, or 1 when it loaded NVRTC, 2 when it took over 5 ms
/// (of five times, the shortest).
int warm_start(const std::string& folder) {
  double shortest = 1e9;
  for (int n = 0; n < 5; ++n) {
    const auto start = std::chrono::steady_clock::now();
    Notices notices;
    compile_kernels(program_of("out[0] = 1;"), kArchitecture, {}, KernelCache(folder), notices);
    shortest =
        std::min(shortest, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  if (read_bytes("/proc/self/maps").find("libnvrtc") != std::string::npos) return 1;
  return shortest < 5 ? 0 : 2;
}

TEST(NvrtcWarmStart, DoesNotLoadTheCompiler) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  constexpr char kFolder[] = "VOLPIPE_TEST_FOLDER";
  std::optional<TemporaryFolder> folder;
  if (!std::getenv(kFolder)) {  // the child begins this test anew
    if (const std::string reason = why_no_kernel_compiler(); !reason.empty()) GTEST_SKIP() << reason;
    folder.emplace();
    Notices notices;
    compile_kernels(program_of("out[0] = 1;"), kArchitecture, {}, KernelCache(folder->path()), notices);
    ::setenv(kFolder, folder->path().c_str(), 1);
  }
  EXPECT_EXIT(std::_Exit(warm_start(std::getenv(kFolder))), testing::ExitedWithCode(0), "");
  ::unsetenv(kFolder);
}

TEST_F(Nvrtc, CompilesCodeOfEveryKindForEveryType) {
  for (int type = 0; type < 8; ++type)
    for (const DataType real : {DataType::float32, DataType::float64}) {
      const auto dtype = DataType(type);
      const KernelVariables variables{real, dtype, dtype, {{"mask", dtype}}, {"gain"}};
      SCOPED_TRACE(to_string(dtype));
      const std::string every =
          "in * gain + mask + i + j + k + x + y + z + nx + ny + nz + component + components + INFINITY + NAN";
      const KernelCode elementwise{.source = {"source", "if (in < 0) return;\nreal x = 2; out = x + " + every + ";"}};
      const KernelCode reduction{KernelKind::reduction,
                                 {"source", every + " // a comment"},
                                 {"reduce", "fmax(a, b)"},
                                 {"identity", "-INFINITY * gain"},
                                 {"post", "out = result / in + " + every + ";"}};
      for (const KernelCode& code : {elementwise, reduction})
        EXPECT_FALSE(
            compile_kernels(make_kernel_program(code, variables), kArchitecture, compiler_options(code.kind)).empty());
    }
}

TEST_F(Nvrtc, ChecksTheArgumentsOfARawKernel) {
  const auto compile_raw = [](const std::string& arguments) {
    const std::string source =
        "// __global__ void not_this(int)\nextern \"C\" __global__ void __launch_bounds__(256) blur(" + arguments +
        ") { uint8_t n = mask[0]; out[0] = float(in[n] * gain); }";
    const KernelCode code{.kind = KernelKind::raw, .source = {"blur.cu", source}, .entry = kernels_in(source).at(0)};
    EXPECT_EQ(code.entry, "blur");
    const KernelVariables variables{
        .in = DataType::int16, .inputs = {{"mask", DataType::uint8}}, .constants = {"gain"}};
    return compile_kernels(make_kernel_program(code, variables), kArchitecture, compiler_options(code.kind));
  };
  const std::string rest =
      "const unsigned char* mask, long long nx, long long ny, long long nz, long long components, double gain";
  EXPECT_FALSE(compile_raw("float* __restrict__ out, const short* __restrict__ in, " + rest).empty());
  expect_error(ErrorCode::usage, "the arguments of 'blur' must be (float* out, const short* in, " + rest + ")",
               [&] { compile_raw("float* out, const float* in, " + rest); });
}

TEST(KernelCode, IsTheSameForAllValues) {
  const KernelCode code{.source = {"source", "out = in * gain;"}};
  const std::string text = make_kernel_program(code, {.constants = {"gain"}}).text();
  EXPECT_EQ(make_kernel_program(code, {.constants = {"gain"}}).text(), text);  // neither values nor sizes go in
  EXPECT_NE(make_kernel_program(code, {.in = DataType::int16, .constants = {"gain"}}).text(), text);
}

TEST(KernelCode, KnowsWhichNamesAreTaken) {
  for (const char* name : {"mask", "v1", "_x", "gain", "inn", "double2x"}) EXPECT_EQ(why_no_variable(name), "") << name;
  for (const char* name : {"in", "out", "i", "z", "nx", "result", "a", "float", "while", "NAN", "volpipe_x", "__x",
                           "1a", "a-b", "", "a b", "component"})
    EXPECT_NE(why_no_variable(name), "") << name;
}

TEST(KernelCode, FindsKernels) {
  EXPECT_EQ(kernels_in("extern \"C\" __global__ void a(int) {}\nextern \"C\" __global__\nvoid\nb (int);"),
            (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(kernels_in("__global__ void __launch_bounds__(256, 2) c(float*)"), std::vector<std::string>{"c"});
  EXPECT_EQ(
      kernels_in("/* __global__ void a() */ // __global__ void b()\n__device__ void c() { \"__global__ void d()\"; }"),
      std::vector<std::string>{});
  EXPECT_EQ(kernels_in("const int n = 10'000; __global__ void a()"), std::vector<std::string>{"a"});
  EXPECT_EQ(kernels_in("//" + std::string(1 << 20, 'x') + "\n__global__ void a()"), std::vector<std::string>{"a"});
  for (const char* broken :
       {"__global__", "__global__ void", "__global__ void a", "__global__ void __launch_bounds__(", "\"", "/*", "'\\"})
    EXPECT_EQ(kernels_in(broken), std::vector<std::string>{}) << broken;
}

}  // namespace
}  // namespace volpipe
