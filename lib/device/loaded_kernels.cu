#include <cuda.h>

#include <algorithm>

#include "device/cuda_context.h"
#include "device/find_function.h"
#include "device/loaded_kernels.h"
#include "volume/error.h"

namespace volpipe::cuda {

namespace {

/// The driver's functions that are used. Its library is there wherever a context is; nothing links to it.
struct Driver {
  decltype(&cuGetErrorString) error_text;
  decltype(&cuDeviceGet) device;
  decltype(&cuDevicePrimaryCtxRetain) retain;
  decltype(&cuDevicePrimaryCtxRelease) release;
  decltype(&cuCtxPushCurrent) push;
  decltype(&cuCtxPopCurrent) pop;
  decltype(&cuModuleLoadData) load;
  decltype(&cuModuleUnload) unload;
  decltype(&cuModuleGetFunction) function;
  decltype(&cuLaunchKernel) launch;

  std::string text_of(CUresult status) const {
    const char* text = nullptr;
    return error_text(status, &text) == CUDA_SUCCESS && text ? text : "error " + std::to_string(int(status));
  }

  void check(CUresult status, const char* call) const {
    if (status == CUDA_SUCCESS) return;
    throw Error(status == CUDA_ERROR_OUT_OF_MEMORY ? ErrorCode::out_of_memory : ErrorCode::device,
                text_of(status) + " in " + call);
  }
};

Driver load_driver() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) throw Error(ErrorCode::device, "the NVIDIA driver's libcuda.so.1 cannot be loaded");
  Driver driver{};
  const FunctionFinder find(library, "the NVIDIA driver");
  find("cuGetErrorString", driver.error_text);
  find("cuDeviceGet", driver.device);
  find("cuDevicePrimaryCtxRetain", driver.retain);
  find("cuDevicePrimaryCtxRelease_v2", driver.release);
  find("cuCtxPushCurrent_v2", driver.push);
  find("cuCtxPopCurrent_v2", driver.pop);
  find("cuModuleLoadData", driver.load);
  find("cuModuleUnload", driver.unload);
  find("cuModuleGetFunction", driver.function);
  find("cuLaunchKernel", driver.launch);
  return driver;
}

const Driver& driver() {
  static const Driver loaded = load_driver();
  return loaded;
}

/// A share in the context that the runtime uses on a device.
class PrimaryContext {
 public:
  explicit PrimaryContext(int index) {
    driver().check(driver().device(&device_, index), "cuDeviceGet");
    driver().check(driver().retain(&context_, device_), "cuDevicePrimaryCtxRetain");
  }
  ~PrimaryContext() { driver().release(device_); }
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

  CUcontext get() const { return context_; }

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

/// Makes a context current on this host thread for as long as it lives: the runtime need not have done so yet.
class Current {
 public:
  explicit Current(const PrimaryContext& context) : status_(driver().push(context.get())) {}
  ~Current() {
    CUcontext popped = nullptr;
    if (status_ == CUDA_SUCCESS) driver().pop(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

  void check() const { driver().check(status_, "cuCtxPushCurrent"); }

 private:
  CUresult status_;
};

std::string in_words(const std::array<std::int64_t, 3>& size) {
  return std::to_string(size[0]) + " x " + std::to_string(size[1]) + " x " + std::to_string(size[2]);
}

/// Beyond these the numbers would not even reach the driver.
bool fits(const std::array<std::int64_t, 3>& blocks) {
  return blocks[0] <= kMostBlocks[0] && blocks[1] <= kMostBlocks[1] && blocks[2] <= kMostBlocks[2];
}

class LoadedModule final : public LoadedKernels {
 public:
  LoadedModule(int index, const std::string& cubin) : context_(index) {
    const Current current(context_);
    current.check();
    const CUresult status = driver().load(&module_, cubin.data());
    if (status == CUDA_SUCCESS) return;
    if (status == CUDA_ERROR_OUT_OF_MEMORY) driver().check(status, "cuModuleLoadData");
    int version = 0;
    VOLPIPE_CHECK_CUDA(cudaDriverGetVersion(&version));
    throw Error(ErrorCode::device, "the NVIDIA driver (CUDA " + std::to_string(version / 1000) + "." +
                                       std::to_string(version % 1000 / 10) + ") cannot load the compiled kernel (" +
                                       driver().text_of(status) +
                                       "): let LD_LIBRARY_PATH name a libnvrtc of that CUDA version");
  }

  ~LoadedModule() override {
    const Current current(context_);
    if (module_) driver().unload(module_);
  }

  void launch(DeviceContext& context, const std::string& kernel, const LaunchSize& size,
              std::span<void* const> arguments) const override {
    const auto& [blocks, threads] = size;
    if (std::any_of(blocks.begin(), blocks.end(), [](std::int64_t n) { return n <= 0; })) return;
    const cudaStream_t stream = stream_of(context);
    const Current current(context_);
    current.check();
    CUfunction function = nullptr;
    const CUresult found = driver().function(&function, module_, kernel.c_str());
    if (found == CUDA_ERROR_NOT_FOUND)
      throw Error(ErrorCode::usage, "the code has no kernel '" + kernel +
                                        "': declare it as extern \"C\" __global__ void " + kernel + "(...)");
    driver().check(found, "cuModuleGetFunction");
    CUresult status = CUDA_ERROR_INVALID_VALUE;
    if (fits(blocks))
      status = driver().launch(function, unsigned(blocks[0]), unsigned(blocks[1]), unsigned(blocks[2]),
                               unsigned(threads[0]), unsigned(threads[1]), unsigned(threads[2]), 0, stream,
                               const_cast<void**>(arguments.data()), nullptr);
    if (status == CUDA_ERROR_INVALID_VALUE || status == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES)
      throw Error(ErrorCode::usage, "the kernel '" + kernel + "' cannot run as " + in_words(blocks) + " blocks of " +
                                        in_words(threads) + " threads (" + driver().text_of(status) +
                                        "): fewer threads a block need fewer registers");
    driver().check(status, "cuLaunchKernel");
  }

 private:
  PrimaryContext context_;
  CUmodule module_ = nullptr;
};

}  // namespace

std::shared_ptr<LoadedKernels> load_kernels(DeviceContext& context, const std::string& cubin) {
  stream_of(context);  // the runtime's context exists before it is shared
  return std::make_shared<LoadedModule>(context.device().index(), cubin);
}

int architecture_of(DeviceContext& context) {
  int major = 0, minor = 0;
  const int index = context.device().index();
  VOLPIPE_CHECK_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
  VOLPIPE_CHECK_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index));
  return 10 * major + minor;
}

}  // namespace volpipe::cuda
