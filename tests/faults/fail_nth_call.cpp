// A library to be preloaded: lets the FAIL_AT-th call of one kind fail, as a full disk, short memory or a broken GPU
// would. FAIL_CALL: write, sync, rename, open, new, cuda_memory, cuda_device. With FAIL_COUNT=FILE the number of calls
// is written there at the end instead.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

enum class Kind { none, write, sync, rename, open, allocation, cuda_memory, cuda_device };

struct Injection {
  Kind kind = Kind::none;
  long at = -1;
  const char* count_file = nullptr;
  std::atomic<long> calls{0};

  Injection() {
    const char* call = std::getenv("FAIL_CALL");
    const char* number = std::getenv("FAIL_AT");
    count_file = std::getenv("FAIL_COUNT");
    if (number) at = std::atol(number);
    if (!call) return;
    constexpr const char* kNames[] = {"none", "write", "sync", "rename", "open", "new", "cuda_memory", "cuda_device"};
    for (int i = 0; i < 8; ++i)
      if (std::strcmp(call, kNames[i]) == 0) kind = Kind(i);
  }
  ~Injection() {
    if (!count_file) return;
    kind = Kind::none;
    if (std::FILE* file = std::fopen(count_file, "w")) {
      std::fprintf(file, "%ld\n", calls.load());
      std::fclose(file);
    }
  }
};

Injection& injection() {
  static Injection instance;
  return instance;
}

bool fails(Kind kind) {
  Injection& now = injection();
  return now.kind == kind && ++now.calls == now.at;
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

/// Standard error is no output of a run.
bool is_output(int descriptor) { return descriptor > 2; }

int sync_with(int (*real)(int), int descriptor) {
  if (!fails(Kind::sync)) return real(descriptor);
  errno = EIO;
  return -1;
}

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* data, size_t bytes) {
  static auto* real = next<ssize_t(int, const void*, size_t)>("write");
  if (is_output(descriptor) && fails(Kind::write)) {
    errno = ENOSPC;
    return -1;
  }
  return real(descriptor, data, bytes);
}

int fsync(int descriptor) {
  static auto* real = next<int(int)>("fsync");
  return sync_with(real, descriptor);
}

int fdatasync(int descriptor) {
  static auto* real = next<int(int)>("fdatasync");
  return sync_with(real, descriptor);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  static auto* real = next<int(int, const char*, int, const char*, unsigned)>("renameat2");
  if (fails(Kind::rename)) {
    errno = EACCES;
    return -1;
  }
  return real(from_folder, from, to_folder, to, flags);
}

int rename(const char* from, const char* to) {
  static auto* real = next<int(const char*, const char*)>("rename");
  if (fails(Kind::rename)) {
    errno = EACCES;
    return -1;
  }
  return real(from, to);
}

int open(const char* path, int flags, ...) {
  static auto* real = next<int(const char*, int, ...)>("open");
  mode_t mode = 0;
  if (flags & O_CREAT) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  if ((flags & O_CREAT) && fails(Kind::open)) {
    errno = EDQUOT;
    return -1;
  }
  return real(path, flags, mode);
}

void* aligned_alloc(size_t alignment, size_t bytes) {
  static auto* real = next<void*(size_t, size_t)>("aligned_alloc");
  return fails(Kind::allocation) ? nullptr : real(alignment, bytes);
}

/// Looked for by the checks of CUDA calls: 1 stands for short memory, 2 for a broken device.
int volpipe_injected_cuda_fault() {
  if (fails(Kind::cuda_memory)) return 1;
  return fails(Kind::cuda_device) ? 2 : 0;
}

}  // extern "C"

void* operator new(std::size_t bytes) {
  void* data = fails(Kind::allocation) ? nullptr : std::malloc(bytes ? bytes : 1);
  if (!data) throw std::bad_alloc();
  return data;
}
void* operator new[](std::size_t bytes) { return operator new(bytes); }
void operator delete(void* data) noexcept { std::free(data); }
void operator delete[](void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
void operator delete[](void* data, std::size_t) noexcept { std::free(data); }
