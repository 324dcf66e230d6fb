#include <cstddef>
#include <cstdint>

#include "fuzz/gzip_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  volpipe::fuzz::run_gzip({reinterpret_cast<const char*>(data), size});
  return 0;
}
