#include "stages/kspace/kspace_stage.h"

#include <cmath>

#include "stages/pointwise/statistics.h"

namespace volpipe {

namespace {

/// run_program over one component, with the output's precision.
void run_over(DeviceContext& context, const Program& program, std::span<const ProgramInput> inputs, void* result,
              const VolumeInfo& output) {
  run_program(context, program, inputs, result, output.dtype, output.geometry.voxel_count(),
              output.dtype == DataType::float64 ? Precision::double_ : Precision::single);
}

Moments moments_of(DeviceContext& context, const ProgramInput& input, const VolumeInfo& output) {
  return compute_moments(context,
                         {.inputs = {&input, 1},
                          .count = output.geometry.voxel_count(),
                          .precision = output.dtype == DataType::float64 ? Precision::double_ : Precision::single});
}

}  // namespace

std::vector<double> shares_of_nyquist(const SpectrumLayout& layout, int axis) {
  const double nyquist = double(layout.volume_size()[std::size_t(axis)]) / 2;
  std::vector<double> shares;
  for (const std::int64_t k : layout.frequencies(axis)) shares.push_back(std::abs(double(k)) / nyquist);
  return shares;
}

VolumeInfo KSpaceStage::component_of(const VolumeInfo& info, DataType type) {
  VolumeInfo one = info;
  one.components = 1;
  one.component_axis = ComponentAxis::none;
  one.dtype = type;
  return one;
}

std::size_t KSpaceStage::scratch_bytes(const VolumeInfo& input) const {
  if (changes_nothing()) return 0;
  const DataType type = input.dtype == DataType::float64 ? DataType::float64 : DataType::float32;
  const Index3& size = input.geometry.size();
  return component_of(input, type).bytes() + SpectrumLayout(size).bytes(type) + fourier_scratch_bytes(size, type);
}

Volume KSpaceStage::run(const Volume& input, const VolumeInfo& output, VolumeContext& context) const {
  DeviceContext& device = context.device;
  const VolumeInfo one = component_of(output, output.dtype);
  const SpectrumLayout layout(one.geometry.size());
  Volume result(output, device.allocate(output.bytes()));
  std::unique_ptr<FourierTransform> transform;
  std::int64_t replaced = 0;
  for (std::int64_t c = 0; c < output.components; ++c) {
    const ProgramInput original{input.component(c), input.dtype()};
    const Moments moments = changes_nothing() ? Moments{} : moments_of(device, original, one);
    if (moments.count == 0 || moments.min == moments.max) {
      run_over(device, Program(), {&original, 1}, result.component(c), one);
      continue;
    }
    Volume image(one, device.allocate(one.bytes()));
    Program load, restore;
    load.add(Op::replace_nonfinite, moments.mean).add(Op::subtract, moments.mean);
    run_over(device, load, {&original, 1}, image.data(), one);

    if (!transform) transform = make_fourier_transform(device, layout.volume_size(), one.dtype);
    Buffer spectrum = device.allocate(layout.bytes(one.dtype));
    transform->forward(image.data(), spectrum.data());
    change({device, layout, *transform, image, moments.min - moments.mean, spectrum});
    transform->inverse(spectrum.data(), image.data());

    const ProgramInput both[] = {{image.data(), one.dtype}, original};
    if (moments.non_finite > 0) restore.load(1).store(Operand::r0).load(0);
    restore.add(Op::add, moments.mean);
    if (moments.non_finite > 0) restore.add(Op::keep_nonfinite, Operand::r0);
    run_over(device, restore, {both, moments.non_finite > 0 ? 2u : 1u}, result.component(c), one);
    replaced += moments.non_finite;
  }
  if (replaced > 0)
    context.notices.add("non_finite_voxels", op_ + ": " + std::to_string(replaced) +
                                                 " voxels that are not finite counted as the mean, and stay");
  return result;
}

}  // namespace volpipe
