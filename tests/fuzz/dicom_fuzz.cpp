#include <cstddef>
#include <cstdint>

#include "fuzz/dicom_input.h"

// The module is there before the fuzzer counts what it can cover.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  volpipe::io::load_module();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  volpipe::fuzz::run_dicom({reinterpret_cast<const char*>(data), size});
  return 0;
}
