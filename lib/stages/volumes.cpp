#include "stages/volumes.h"

#include "stages/gather/copy_part.h"

namespace volpipe {

Volume copy_of(DeviceContext& context, const Volume& volume) {
  const std::size_t bytes = volume.info().bytes();
  Volume copy(volume.info(), context.allocate(bytes));
  run_on(context, cpu::copy_rows, cuda::copy_rows, RowsCopy{volume.data(), copy.data(), bytes, bytes, bytes, 1});
  return copy;
}

}  // namespace volpipe
