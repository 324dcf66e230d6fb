#include "device/cuda_context.h"
#include "stages/fourier/spectrum_ops.h"

namespace volpipe::cuda {

namespace {

template <class T>
void edit(DeviceContext& context, const SpectrumLayout& layout, const SpectrumEdit& edit, const void* source,
          void* target) {
  const DeviceTable<double> x(context, edit.values[0]), y(context, edit.values[1]), z(context, edit.values[2]);
  const SpectrumEditor<T> editor{{x.data(), y.data(), z.data()},
                                 edit.limit,
                                 T(edit.factor),
                                 static_cast<const Coefficient<T>*>(source),
                                 static_cast<Coefficient<T>*>(target)};
  const std::int64_t columns = layout.size()[0], rows = layout.size()[1];
  for_each(context, layout.count(), [=] __device__(std::int64_t element) {
    const std::int64_t row = element / columns;
    editor(row * columns, element - row * columns, row % rows, row / rows);
  });
}

}  // namespace

void edit_spectrum(DeviceContext& context, const SpectrumLayout& layout, DataType type, const SpectrumEdit& edit,
                   const void* source, void* target) {
  const auto run = type == DataType::float64 ? cuda::edit<double> : cuda::edit<float>;
  run(context, layout, edit, source, target);
}

}  // namespace volpipe::cuda
