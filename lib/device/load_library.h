// The parts of volpipe that lie in libraries of their own, because they are slow to load and seldom needed.
#pragma once

#include <string>

namespace volpipe {

/// What a library is, for the message when it cannot be loaded.
struct LibraryName {
  std::string file;     ///< "libvolpipe_io.so"
  std::string purpose;  ///< "the module for DICOM, NRRD and MetaImage"
  std::string needs;    ///< "ITK and GDCM"
};

/// The address of a symbol; may be called from any thread. Looks beside libvolpipe.so, in ../lib of it, then where the
/// loader looks. Throws Error(internal), with the loader's words.
void* load_symbol(const LibraryName& library, const char* symbol);

}  // namespace volpipe
