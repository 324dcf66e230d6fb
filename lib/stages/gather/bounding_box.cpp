#include "stages/gather/bounding_box.h"

#include <algorithm>
#include <limits>
#include <mutex>

namespace volpipe {

std::optional<IndexBox> bounding_box(DeviceContext& context, const ProgramInput& input, const Selection& selection,
                                     const Index3& size) {
  const ProgramInput& decider = selection.kind == Selection::Kind::mask ? selection.mask : input;
  const SelectVoxel select{selection.kind, selection.threshold};
  const IndexBounds bounds = run_on(context, cpu::index_bounds, cuda::index_bounds, decider, select, size);
  if (bounds.least[0] > bounds.greatest[0]) return std::nullopt;
  IndexBox box;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    box.begin[axis] = bounds.least[axis];
    box.end[axis] = bounds.greatest[axis] + 1;
  }
  return box;
}

IndexBounds cpu::index_bounds(DeviceContext& context, const ProgramInput& decider, const SelectVoxel& select,
                              const Index3& size) {
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  IndexBounds bounds{{kMost, kMost, kMost}, {-1, -1, -1}};
  std::mutex mutex;
  visit(decider.dtype, [&]<class Tag>(Tag) {
    const auto* voxels = static_cast<const typename Tag::type*>(decider.data);
    context.parallel(size[1] * size[2], 64, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t line = begin; line < end; ++line) {
        const auto* row = voxels + line * size[0];
        const auto selected = [&](auto value) { return select(double(value)); };
        const auto* first = std::find_if(row, row + size[0], selected);
        if (first == row + size[0]) continue;
        const auto* last = row + size[0] - 1;
        while (!selected(*last)) --last;
        const std::int64_t found[3][2] = {
            {first - row, last - row}, {line % size[1], line % size[1]}, {line / size[1], line / size[1]}};
        const std::lock_guard lock(mutex);
        for (int axis = 0; axis < 3; ++axis) {
          bounds.least[axis] = std::min(bounds.least[axis], std::int32_t(found[axis][0]));
          bounds.greatest[axis] = std::max(bounds.greatest[axis], std::int32_t(found[axis][1]));
        }
      }
    });
  });
  return bounds;
}

}  // namespace volpipe
