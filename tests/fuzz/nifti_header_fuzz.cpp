#include <cstddef>
#include <cstdint>

#include "fuzz/nifti_header_input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  volpipe::fuzz::run_nifti_header({reinterpret_cast<const char*>(data), size});
  return 0;
}
