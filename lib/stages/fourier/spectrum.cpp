#include "stages/fourier/spectrum.h"

#include "stages/fourier/spectrum_ops.h"

namespace volpipe {

SpectrumEdit::SpectrumEdit(const SpectrumLayout& layout) {
  for (std::size_t axis = 0; axis < 3; ++axis) values[axis].assign(std::size_t(layout.size()[axis]), 0);
}

namespace {

template <class T>
void edit(DeviceContext& context, const Index3& size, const SpectrumEdit& edit, const void* source, void* target) {
  const SpectrumEditor<T> editor{{edit.values[0].data(), edit.values[1].data(), edit.values[2].data()},
                                 edit.limit,
                                 T(edit.factor),
                                 static_cast<const Coefficient<T>*>(source),
                                 static_cast<Coefficient<T>*>(target)};
  constexpr std::int64_t kRows = 64;
  context.parallel(size[1] * size[2], kRows, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t i = 0; i < size[0]; ++i) editor(row * size[0], i, row % size[1], row / size[1]);
  });
}

}  // namespace

void cpu::edit_spectrum(DeviceContext& context, const SpectrumLayout& layout, DataType type, const SpectrumEdit& edit,
                        const void* source, void* target) {
  const auto run = type == DataType::float64 ? volpipe::edit<double> : volpipe::edit<float>;
  run(context, layout.size(), edit, source, target);
}

void edit_spectrum(DeviceContext& context, const SpectrumLayout& layout, DataType type, const SpectrumEdit& edit,
                   const void* source, void* target) {
  run_on(context, cpu::edit_spectrum, cuda::edit_spectrum, layout, type, edit, source, target);
}

}  // namespace volpipe
