#include "device/nvrtc.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>

#include "device/find_function.h"
#include "volume/error.h"
#include "volume/sha256.h"

namespace volpipe {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFiles[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"};
constexpr char kCompilerEntry[] = "compiler";
constexpr char kKeyVersion[] = "volpipe kernel 1";

/// The functions of NVRTC that are used, as its header declares them.
struct Nvrtc {
  using Program = void*;
  enum Result : int { success = 0, compilation_failed = 6 };

  int (*version)(int* major, int* minor);
  const char* (*error_text)(int);
  int (*supported_count)(int*);
  int (*supported)(int*);
  int (*create)(Program*, const char* text, const char* name, int headers, const char* const*, const char* const*);
  int (*destroy)(Program*);
  int (*compile)(Program, int count, const char* const* options);
  int (*log_size)(Program, std::size_t*);
  int (*log)(Program, char*);
  int (*cubin_size)(Program, std::size_t*);
  int (*cubin)(Program, char*);
  std::string path;

  void check(int result, const char* call) const {
    if (result != success)
      throw Error(ErrorCode::device, std::string("NVRTC (") + path + ") failed in " + call + ": " + error_text(result));
  }
  std::string version_text() const {
    int major = 0, minor = 0;
    check(version(&major, &minor), "nvrtcVersion");
    return std::to_string(major) + "." + std::to_string(minor);
  }
};

std::vector<std::string> folders() {
  std::vector<std::string> folders{""};  // where the dynamic linker looks
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* root = std::getenv(variable); root && *root) folders.push_back(std::string(root) + "/lib64/");
  folders.emplace_back("/usr/local/cuda/lib64/");
  return folders;
}

void* open_library(std::string* folder) {
  for (const std::string& place : folders())
    for (const char* file : kFiles)
      if (void* library = dlopen((place + file).c_str(), RTLD_NOW | RTLD_LOCAL)) {
        *folder = place;
        return library;
      }
  throw Error(ErrorCode::device,
              "the CUDA compiler library libnvrtc.so.13 (or .12, .11.2) cannot be loaded: install it (NVIDIA's package "
              "cuda-nvrtc-13-0 or cuda-nvrtc-12-9, or pip's nvidia-cuda-nvrtc) and name its folder in LD_LIBRARY_PATH");
}

Nvrtc load() {
  std::string folder;
  void* const library = open_library(&folder);
  Nvrtc nvrtc{};
  const FunctionFinder find(library, "the CUDA compiler library");
  find("nvrtcVersion", nvrtc.version);
  find("nvrtcGetErrorString", nvrtc.error_text);
  find("nvrtcGetNumSupportedArchs", nvrtc.supported_count);
  find("nvrtcGetSupportedArchs", nvrtc.supported);
  find("nvrtcCreateProgram", nvrtc.create);
  find("nvrtcDestroyProgram", nvrtc.destroy);
  find("nvrtcCompileProgram", nvrtc.compile);
  find("nvrtcGetProgramLogSize", nvrtc.log_size);
  find("nvrtcGetProgramLog", nvrtc.log);
  find("nvrtcGetCUBINSize", nvrtc.cubin_size);
  find("nvrtcGetCUBIN", nvrtc.cubin);
  Dl_info place{};
  dladdr(reinterpret_cast<const void*>(nvrtc.version), &place);
  nvrtc.path = place.dli_fname ? place.dli_fname : "";
  if (!folder.empty())  // NVRTC asks the linker for it by its bare name
    dlopen((folder + "libnvrtc-builtins.so." + nvrtc.version_text()).c_str(), RTLD_NOW | RTLD_LOCAL);
  return nvrtc;
}

/// Loaded once a process, and kept: it takes 5 ms.
const Nvrtc& nvrtc() {
  static const Nvrtc loaded = load();
  return loaded;
}

int target_of(const Nvrtc& nvrtc, int architecture) {
  int count = 0, target = 0;
  nvrtc.check(nvrtc.supported_count(&count), "nvrtcGetNumSupportedArchs");
  std::vector<int> known(std::size_t(count), 0);
  nvrtc.check(nvrtc.supported(known.data()), "nvrtcGetSupportedArchs");
  for (const int candidate : known)
    if (candidate / 10 == architecture / 10 && candidate <= architecture) target = std::max(target, candidate);
  if (target) return target;
  throw Error(ErrorCode::device, "NVRTC " + nvrtc.version_text() + " (" + nvrtc.path +
                                     ") has no code for GPUs of compute capability " +
                                     std::to_string(architecture / 10) + "." + std::to_string(architecture % 10) +
                                     ": install libnvrtc of another CUDA version");
}

std::string log_of(const Nvrtc& nvrtc, Nvrtc::Program program) {
  std::size_t size = 0;
  nvrtc.check(nvrtc.log_size(program, &size), "nvrtcGetProgramLogSize");
  std::string log(size, '\0');
  nvrtc.check(nvrtc.log(program, log.data()), "nvrtcGetProgramLog");
  log.resize(log.find('\0') == std::string::npos ? size : log.find('\0'));
  return log;
}

/// The file of the compiler, and what tells it from another version of it.
struct Compiler {
  std::string path, bytes, changed, version;

  std::string identity() const { return version + " " + bytes; }
  std::string text() const { return path + "\n" + bytes + "\n" + changed + "\n" + version + "\n"; }

  static Compiler at(const std::string& path, const std::string& version) {
    std::error_code bytes_fault, time_fault;
    const auto bytes = fs::file_size(path, bytes_fault);
    const auto changed = fs::last_write_time(path, time_fault).time_since_epoch().count();
    if (bytes_fault || time_fault) return {path, "", "", version};
    return {path, std::to_string(bytes), std::to_string(changed), version};
  }

  bool is_unchanged() const { return at(path, version).text() == text(); }

  static std::optional<Compiler> parse(const std::string& text) {
    std::istringstream lines(text);
    Compiler compiler;
    for (std::string* line : {&compiler.path, &compiler.bytes, &compiler.changed, &compiler.version})
      if (!std::getline(lines, *line)) return std::nullopt;
    return compiler;
  }
};

/// The compiler that was used last.
std::optional<Compiler> known_compiler(const KernelCache& cache) {
  const auto entry = cache.find(kCompilerEntry);
  return entry ? Compiler::parse(*entry) : std::nullopt;
}

std::string key_of(const KernelProgram& program, int architecture, const std::vector<std::string>& options,
                   const Compiler& compiler) {
  std::string all;
  const auto add = [&all](const std::string& part) { all += std::to_string(part.size()) + ":" + part; };
  add(kKeyVersion);
  add(compiler.identity());
  add(std::to_string(architecture));
  for (const std::string& option : options) add(option);
  add(program.text());
  return sha256_of(all);
}

}  // namespace

std::string why_no_kernel_compiler() {
  try {
    nvrtc();
    return "";
  } catch (const Error& error) { return error.what(); }
}

std::string compile_kernels(const KernelProgram& program, int architecture, const std::vector<std::string>& options) {
  const Nvrtc& compiler = nvrtc();
  const std::string target = "--gpu-architecture=sm_" + std::to_string(target_of(compiler, architecture));
  std::vector<const char*> arguments{target.c_str(), "--std=c++17"};
  for (const std::string& option : options) arguments.push_back(option.c_str());

  Nvrtc::Program created = nullptr;
  compiler.check(
      compiler.create(&created, program.text().c_str(), std::string(KernelProgram::kName).c_str(), 0, nullptr, nullptr),
      "nvrtcCreateProgram");
  const auto destroy = [&compiler](void* handle) { compiler.destroy(&handle); };
  const std::unique_ptr<void, decltype(destroy)> handle(created, destroy);

  const int result = compiler.compile(created, int(arguments.size()), arguments.data());
  if (result == Nvrtc::compilation_failed)
    throw Error(ErrorCode::usage,
                "the code does not compile:\n" + explain_compile_log(program, log_of(compiler, created)));
  if (result != Nvrtc::success)
    throw Error(ErrorCode::device, "NVRTC (" + compiler.path + ") failed: " + compiler.error_text(result) + "\n" +
                                       log_of(compiler, created));
  std::size_t size = 0;
  compiler.check(compiler.cubin_size(created, &size), "nvrtcGetCUBINSize");
  std::string cubin(size, '\0');
  compiler.check(compiler.cubin(created, cubin.data()), "nvrtcGetCUBIN");
  return cubin;
}

std::string compile_kernels(const KernelProgram& program, int architecture, const std::vector<std::string>& options,
                            const KernelCache& cache, Notices& notices) {
  const std::optional<Compiler> known = known_compiler(cache);
  if (known && (known->is_unchanged() || !why_no_kernel_compiler().empty()))
    if (auto cubin = cache.find(key_of(program, architecture, options, *known))) return std::move(*cubin);
  const Compiler compiler = Compiler::at(nvrtc().path, nvrtc().version_text());
  if (!known || known->text() != compiler.text()) cache.store(kCompilerEntry, compiler.text());
  const std::string key = key_of(program, architecture, options, compiler);
  if (auto cubin = cache.find(key)) return std::move(*cubin);
  std::string cubin = compile_kernels(program, architecture, options);
  if (const std::string reason = cache.store(key, cubin); !reason.empty())
    notices.add("kernel_cache", "compiled kernels cannot be kept (" + reason +
                                    "), so each run compiles them anew: name a folder in VOLPIPE_CACHE_DIR");
  return cubin;
}

}  // namespace volpipe
