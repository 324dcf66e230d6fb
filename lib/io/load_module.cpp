#include "io/load_module.h"

#include "device/load_library.h"

namespace volpipe::io {

const Module& load_module() {
  static const Module* const module = reinterpret_cast<decltype(&volpipe_io_module)>(
      load_symbol({"libvolpipe_io.so", "the module for DICOM, NRRD and MetaImage", "ITK and GDCM"}, kModuleSymbol))();
  return *module;
}

}  // namespace volpipe::io
