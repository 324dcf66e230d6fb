#include <cstddef>
#include <cstdint>

#include "fuzz/spec_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  volpipe::fuzz::run_spec({reinterpret_cast<const char*>(data), size});
  return 0;
}
