#include "io/module/module.h"

#include <gdcmGlobal.h>
#include <gdcmTrace.h>
#include <itkObject.h>

#include "io/module/dicom.h"
#include "io/module/itk_formats.h"

namespace volpipe::io {

namespace {

std::unique_ptr<OpenVolume> open_with_module(const Source& source, Notices& notices, const ReadOptions& options) {
  return source.is_dicom() ? open_dicom(source, notices, options) : open_itk(source.path, notices);
}

std::vector<HeaderField> describe_with_module(const Source& source) {
  return source.is_dicom() ? describe_dicom(source) : describe_itk(source.path);
}

/// The library never prints; GDCM's tables are made before threads need them.
void silence_libraries() {
  itk::Object::GlobalWarningDisplayOff();
  gdcm::Trace::DebugOff();
  gdcm::Trace::WarningOff();
  gdcm::Trace::ErrorOff();
  gdcm::Global::GetInstance();
}

}  // namespace

const Module* volpipe_io_module() {
  static const Module module{group_dicom, open_with_module, describe_with_module,
                             write_itk,   write_png_file,   write_dicom_slices};
  static const bool silenced = (silence_libraries(), true);
  return silenced ? &module : nullptr;
}

}  // namespace volpipe::io
