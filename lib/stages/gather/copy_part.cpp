#include "stages/gather/copy_part.h"

#include "volume/error.h"

namespace volpipe {

void copy_part(DeviceContext& context, const RearrangingStage::Part& part, const Volume& source, Volume& target) {
  const std::size_t element = size_of(source.dtype());
  const Index3 &n = source.geometry().size(), &m = target.geometry().size();
  const std::size_t axis = part.axis < 3 ? std::size_t(part.axis) : 2;
  const std::int64_t extent = part.axis < 3 ? part.extent : n[2];
  std::size_t inner = element, rows = 1;
  for (std::size_t a = 0; a < 3; ++a) {
    if (a < axis) inner *= std::size_t(n[a]);
    if (a > axis) rows *= std::size_t(n[a]);
    if (a != axis && n[a] != m[a]) throw Error(ErrorCode::internal, "a block was copied between unlike grids");
  }
  for (std::int64_t c = 0; c < part.count; ++c) {
    const auto* from = static_cast<const std::byte*>(source.component(part.component + c));
    auto* to = static_cast<std::byte*>(target.component(part.target_component + c));
    const RowsCopy copy{from + std::size_t(part.begin) * inner,
                        to + std::size_t(part.target_begin) * inner,
                        std::size_t(extent) * inner,
                        std::size_t(n[axis]) * inner,
                        std::size_t(m[axis]) * inner,
                        rows};
    run_on(context, cpu::copy_rows, cuda::copy_rows, copy);
  }
}

// There, all memory is the host's.
void cpu::copy_rows(DeviceContext& context, const RowsCopy& copy) { context.upload(copy); }

}  // namespace volpipe
