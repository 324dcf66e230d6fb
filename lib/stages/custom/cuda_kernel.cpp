#include <algorithm>
#include <filesystem>

#include "device/nvrtc.h"
#include "stages/custom/kernel_parameters.h"
#include "stages/custom/run_kernel.h"
#include "stages/expression/expression_stage.h"
#include "stages/stage_context.h"
#include "stages/volume_stage.h"
#include "volume/error.h"

namespace volpipe {

namespace {

bool is_wide_integer(DataType type) { return !is_floating(type) && !fits_float32(type); }

UserCode code_of(const char* key, const CodeText& code, const char* otherwise = "") {
  return {key, code.text.empty() ? otherwise : code.text};
}

/// The stage on the CPU: the expression `cpu`, with the names that the code has.
ExpressionStage::Params twin_of(const KernelParams& params) {
  ExpressionStage::Params twin{.expr = params.cpu, .inputs = params.inputs, .dtype = params.dtype};
  if (params.output && !params.dtype) twin.dtype = DataType::float32;
  twin.inputs.images.emplace_back("in", "");
  for (const auto& [name, value] : params.constants.numbers) twin.expr.variables[name] = value;
  return twin;
}

class CudaKernel final : public VolumeStage {
 public:
  using Params = KernelParams;

  explicit CudaKernel(Params params) : params_(std::move(params)) {
    code_.kind = params_.kind;
    code_.reduce = code_of("reduce", params_.reduce);
    code_.identity = code_of("identity", params_.identity);
    code_.post = code_of("post", params_.post, "out = result;");
    if (!params_.source.text.empty()) take_source(code_of("source", params_.source));
    if (!params_.cpu.text.empty()) twin_ = std::make_shared<ExpressionStage>(twin_of(params_));
  }

  static void check(const Params& params, const std::string& pointer, Faults& faults) {
    check_kernel_parameters(params, pointer, faults);
    if (params.cpu.text.empty()) return;
    Faults of_twin;
    ExpressionStage::check(twin_of(params), "", of_twin);
    for (const Fault& fault : of_twin.list()) faults.add(pointer + "/cpu", fault.message);
  }

  std::shared_ptr<const VoxelStage> for_image(const std::string& image, const VolumeInfo& input,
                                              const StageContext& context) const override {
    auto bound = std::make_shared<CudaKernel>(*this);
    bound->double_precision_ = context.double_precision;
    if (!params_.file.path.empty()) {
      const std::string name = std::filesystem::path(context.files.resolved(params_.file.path)).filename().string();
      bound->take_source({name, context.files.bytes(params_.file.path)});
    }
    if (twin_) bound->twin_ = std::dynamic_pointer_cast<const PointwiseStage>(twin_->for_image(image, input, context));
    return bound;
  }

  VolumeInfo output(const VolumeInfo& input) const override {
    VolumeInfo result = input;
    if (params_.output) result.kind = ImageKind::image;
    result.dtype = params_.dtype.value_or(result.kind == ImageKind::label ? input.dtype : DataType::float32);
    return result;
  }

  std::size_t scratch_bytes(const VolumeInfo& input) const override {
    return params_.kind == KernelKind::reduction ? reduction_scratch_bytes(input.value_count()) : 0;
  }

  std::vector<std::string> reads() const override {
    std::vector<std::string> names;
    for (const auto& [alias, image] : params_.inputs.images) names.push_back(image);
    if (twin_)
      for (const std::string& name : twin_->reads())
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    return names;
  }

  std::string makes() const override { return params_.output.value_or(""); }
  std::shared_ptr<const PointwiseStage> twin_on_cpu() const override { return twin_; }

  Volume run(const Volume& input, const VolumeInfo& output, VolumeContext& context) const override {
    if (context.device.device().is_cpu())
      throw Error(
          ErrorCode::unsupported,
          "its code is for CUDA, and this runs on the CPU: use a GPU, or say the same as an expression in 'cpu'");
    std::vector<const Volume*> inputs;
    for (const auto& [alias, image] : params_.inputs.images) inputs.push_back(&context.image(image));
    const cuda::LoadedKernels& kernels = loaded(context, variables(input, inputs, output));
    std::vector<double> constants;
    for (const auto& [name, value] : params_.constants.numbers) constants.push_back(value);
    Volume result(output, context.device.allocate(output.bytes()));
    const KernelCall call{code_.kind, code_.entry, launch_size(params_, input.geometry().size()),
                          input,      inputs,      constants};
    context.converted = cuda::run_kernel(context.device, kernels, call, result);
    return result;
  }

 private:
  void take_source(UserCode source) {
    if (code_.kind == KernelKind::raw) code_.entry = entry_of(source.text, params_.entry);
    code_.source = std::move(source);
  }

  /// Sums and 32-bit integers would lose digits in float32.
  KernelVariables variables(const Volume& input, const std::vector<const Volume*>& inputs,
                            const VolumeInfo& output) const {
    KernelVariables variables{.in = input.dtype(), .out = output.dtype};
    bool wide = double_precision_ || code_.kind == KernelKind::reduction || output.dtype == DataType::float64 ||
                is_wide_integer(input.dtype()) || is_wide_integer(output.dtype);
    for (std::size_t n = 0; n < inputs.size(); ++n) {
      variables.inputs.emplace_back(params_.inputs.images[n].first, inputs[n]->dtype());
      wide = wide || is_wide_integer(inputs[n]->dtype());
    }
    for (const auto& [name, value] : params_.constants.numbers) variables.constants.push_back(name);
    variables.real = wide ? DataType::float64 : DataType::float32;
    return variables;
  }

  /// Compiled and loaded once for a context.
  const cuda::LoadedKernels& loaded(VolumeContext& context, const KernelVariables& variables) const {
    const KernelProgram program = make_kernel_program(code_, variables);
    const auto load = [&] {
      const std::string cubin = compile_kernels(program, cuda::architecture_of(context.device),
                                                compiler_options(code_.kind), KernelCache::of_user(), context.notices);
      return cuda::load_kernels(context.device, cubin);
    };
    try {
      return context.device.kept<cuda::LoadedKernels>("kernels: " + program.text(), load);
    } catch (const Error& error) {
      // What the CPU could not do either is no reason to go there.
      if (error.code() != ErrorCode::device || twin_) throw;
      throw Error(ErrorCode::unsupported, error.what());
    }
  }

  Params params_;
  KernelCode code_;
  bool double_precision_ = false;
  std::shared_ptr<const PointwiseStage> twin_;
};

}  // namespace

StageDefinition stage_cuda_kernel() {
  using P = KernelParams;
  return define_stage<CudaKernel>(
      {.op = "cuda_kernel",
       .family = "custom",
       .summary = "CUDA C++ of the spec's own, for what expressions cannot say; run with --allow-custom-kernels alone",
       .runs_given_code = true,
       .example = {{"op", "cuda_kernel"},
                   {"source", "out = in > low ? (in - low) * gain : 0;"},
                   {"constants", {{"low", 20}, {"gain", 0.5}}},
                   {"cpu", "where(in > low, (in - low) * gain, 0)"}}},
      Parameters<P>()
          .add("kind", &P::kind, {},
               "elementwise: statements that every voxel runs; reduction: one number from all voxels, then statements; "
               "raw: a whole kernel")
          .add(
              "source", &P::source, {},
              "elementwise: statements that set `out`, which begins as `in`; reduction: an expression of a voxel; raw: "
              "extern \"C\" __global__ void NAME(T* out, const T* in, const T* for each of inputs, long long nx, ny, "
              "nz, components, double for each of constants). Variables, of type `real` (float, or double with "
              "\"precision\": \"double\", for 32-bit integers and in reductions): in, out, those of inputs and "
              "constants, x y z (world, mm); long long i j k, nx ny nz, component, components. No headers are there, "
              "nor needed for CUDA's own functions")
          .add("file", &P::file, {}, "a file with the source instead")
          .add("reduce", &P::reduce, {}, "reduction: an expression that joins the numbers a and b, in any order")
          .add("identity", &P::identity, {}, "reduction: the number that changes no other when it is joined with it")
          .add("post", &P::post, {},
               "reduction: statements that every voxel runs, as of an elementwise source, with the number `result`; "
               "without it every voxel becomes the number")
          .add("inputs", &P::inputs, {}, "variables that are other images of the item, on the same grid")
          .add("constants", &P::constants, {}, "variables that are numbers; a new value needs no new compilation")
          .add("output", &P::output, {}, "a new image that gets the result, instead of the one that the stage acts on")
          .add("dtype", &P::dtype, {},
               "pixel type of the result; without it float32, and a label that is replaced keeps its own. Integers are "
               "rounded half away from zero and saturated, but by raw code")
          .add("cpu", &P::cpu, {}, "the same as an expression, with `in`: runs where there is no GPU, which else fails")
          .add("entry", &P::entry, {}, "raw: the kernel's name, where the code has several")
          .add("threads", &P::threads, {.min = 1, .max = kMostThreadsOfBlock},
               "raw: threads a block, in all (256 without it) or along x, y, z")
          .add("blocks", &P::blocks, {.min = 1, .max = double(kMostBlocks[0])},
               "raw: blocks, in all or along x, y, z; without it as many as cover the voxels, in their order or along "
               "x, y, z as 'threads' is given"));
}

}  // namespace volpipe
