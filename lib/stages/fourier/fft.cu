#include <cufft.h>
#include <dlfcn.h>

#include <algorithm>
#include <optional>
#include <string>

#include "device/cuda_context.h"
#include "device/find_function.h"
#include "stages/fourier/executors.h"
#include "volume/error.h"

namespace volpipe::cuda {

namespace {

/// cuFFT is 270 MB and only Fourier stages need it, so it is loaded by the first of them.
class CufftLibrary {
 public:
  static const CufftLibrary& loaded() {
    static const CufftLibrary library;
    return library;
  }

  decltype(&::cufftCreate) create;
  decltype(&::cufftDestroy) destroy;
  decltype(&::cufftSetAutoAllocation) set_auto_allocation;
  decltype(&::cufftMakePlanMany64) make_plan;
  decltype(&::cufftSetWorkArea) set_work_area;
  decltype(&::cufftSetStream) set_stream;
  decltype(&::cufftExecR2C) forward_single;
  decltype(&::cufftExecD2Z) forward_double;
  decltype(&::cufftExecC2R) inverse_single;
  decltype(&::cufftExecZ2D) inverse_double;

 private:
  CufftLibrary() {
    const FunctionFinder find(open(), "the cuFFT library");
    find("cufftCreate", create);
    find("cufftDestroy", destroy);
    find("cufftSetAutoAllocation", set_auto_allocation);
    find("cufftMakePlanMany64", make_plan);
    find("cufftSetWorkArea", set_work_area);
    find("cufftSetStream", set_stream);
    find("cufftExecR2C", forward_single);
    find("cufftExecD2Z", forward_double);
    find("cufftExecC2R", inverse_single);
    find("cufftExecZ2D", inverse_double);
  }

  static void* open() {
    // The last is where the toolkit puts it, whether or not the loader looks there.
    for (const char* name : {"libcufft.so.12", "libcufft.so.11", "libcufft.so", "/usr/local/cuda/lib64/libcufft.so"})
      if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
    throw Error(ErrorCode::device,
                "Fourier transforms on CUDA need NVIDIA's cuFFT, and neither libcufft.so.12 nor libcufft.so.11 can be "
                "loaded: install it (it comes with the CUDA toolkit), put its folder on LD_LIBRARY_PATH, or use "
                "--device cpu");
  }
};

void check_cufft(cufftResult status, const char* call) {
  if (status == CUFFT_SUCCESS) return;
  throw Error(status == CUFFT_ALLOC_FAILED ? ErrorCode::out_of_memory : ErrorCode::device,
              "cuFFT gave error " + std::to_string(int(status)) + " in " + call);
}

/// A plan of cuFFT on the context's stream, without a work area.
class CufftPlan {
 public:
  CufftPlan(DeviceContext& context, const Index3& size, cufftType type)
      : library_(CufftLibrary::loaded()), stream_(stream_of(context)) {
    check_cufft(library_.create(&handle_), "cufftCreate");
    try {
      make(size, type);
    } catch (...) {
      library_.destroy(handle_);
      throw;
    }
  }
  CufftPlan(const CufftPlan&) = delete;
  CufftPlan& operator=(const CufftPlan&) = delete;
  ~CufftPlan() {
    cudaStreamSynchronize(stream_);  // the plan's tables are in use until its transforms are done
    library_.destroy(handle_);
  }

  cufftHandle handle() const { return handle_; }
  std::size_t work_bytes() const { return work_bytes_; }

 private:
  void make(const Index3& size, cufftType type) {
    long long lengths[3];
    int rank = 0;
    for (std::size_t axis = 3; axis-- > 0;)
      if (size[axis] > 1) lengths[rank++] = size[axis];
    check_cufft(library_.set_auto_allocation(handle_, 0), "cufftSetAutoAllocation");
    check_cufft(library_.make_plan(handle_, rank, lengths, nullptr, 1, 0, nullptr, 1, 0, type, 1, &work_bytes_),
                "cufftMakePlanMany64");
    check_cufft(library_.set_stream(handle_, stream_), "cufftSetStream");
  }

  const CufftLibrary& library_;
  cudaStream_t stream_;
  cufftHandle handle_ = 0;
  std::size_t work_bytes_ = 0;
};

/// cuFFT's names for a real type.
template <class T>
struct CufftTypes;
template <>
struct CufftTypes<float> {
  using Real = cufftReal;
  using Complex = cufftComplex;
  static constexpr cufftType kForward = CUFFT_R2C, kInverse = CUFFT_C2R;
  static constexpr auto forward = &CufftLibrary::forward_single;
  static constexpr auto inverse = &CufftLibrary::inverse_single;
};
template <>
struct CufftTypes<double> {
  using Real = cufftDoubleReal;
  using Complex = cufftDoubleComplex;
  static constexpr cufftType kForward = CUFFT_D2Z, kInverse = CUFFT_Z2D;
  static constexpr auto forward = &CufftLibrary::forward_double;
  static constexpr auto inverse = &CufftLibrary::inverse_double;
};

template <class T>
class CudaFourierTransform final : public FourierTransform {
 public:
  CudaFourierTransform(DeviceContext& context, const Index3& size)
      : context_(context), size_(without_single_voxels(size)), voxels_(size_[0] * size_[1] * size_[2]) {}

  void forward(const void* volume, void* spectrum) override {
    if (voxels_ == 1) {
      VOLPIPE_CHECK_CUDA(cudaMemsetAsync(spectrum, 0, 2 * sizeof(T), stream_of(context_)));
      return copy_value(spectrum, volume);
    }
    const cufftHandle plan = ready(forward_, Cufft::kForward);
    void* const values = const_cast<void*>(volume);  // real values are left alone by a transform out of place
    check_cufft((library_.*Cufft::forward)(plan, static_cast<typename Cufft::Real*>(values),
                                           static_cast<typename Cufft::Complex*>(spectrum)),
                "cufftExec, forward");
  }

  void inverse(void* spectrum, void* volume) override {
    if (voxels_ == 1) return copy_value(volume, spectrum);
    const cufftHandle plan = ready(inverse_, Cufft::kInverse);
    check_cufft((library_.*Cufft::inverse)(plan, static_cast<typename Cufft::Complex*>(spectrum),
                                           static_cast<typename Cufft::Real*>(volume)),
                "cufftExec, inverse");
    const T scale = T(1 / double(voxels_));
    T* const values = static_cast<T*>(volume);
    for_each(context_, voxels_, [=] __device__(std::int64_t i) { values[i] *= scale; });
  }

 private:
  using Cufft = CufftTypes<T>;

  void copy_value(void* to, const void* from) {
    VOLPIPE_CHECK_CUDA(cudaMemcpyAsync(to, from, sizeof(T), cudaMemcpyDeviceToDevice, stream_of(context_)));
  }

  /// Made when it is first asked for. The two plans share one work area.
  cufftHandle ready(std::optional<CufftPlan>& plan, cufftType type) {
    stream_of(context_);  // makes the device current
    if (!plan) plan.emplace(context_, size_, type);
    const std::size_t bytes = std::max<std::size_t>(plan->work_bytes(), 1);
    if (work_area_.bytes() < bytes) work_area_ = context_.allocate(bytes);
    check_cufft(library_.set_work_area(plan->handle(), work_area_.data()), "cufftSetWorkArea");
    return plan->handle();
  }

  DeviceContext& context_;
  Index3 size_;
  std::int64_t voxels_;
  const CufftLibrary& library_ = CufftLibrary::loaded();
  Buffer work_area_;
  std::optional<CufftPlan> forward_, inverse_;
};

}  // namespace

std::unique_ptr<FourierTransform> make_fourier_transform(DeviceContext& context, const Index3& size, DataType type) {
  if (type == DataType::float64) return std::make_unique<CudaFourierTransform<double>>(context, size);
  return std::make_unique<CudaFourierTransform<float>>(context, size);
}

}  // namespace volpipe::cuda
