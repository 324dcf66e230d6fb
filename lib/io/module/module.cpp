#include "io/module/module.h"

#include <gdcmGlobal.h>
#include <gdcmTrace.h>
#include <itkObject.h>

#include "io/module/dicom.h"
#include "io/module/itk_formats.h"

namespace volpipe::io {

namespace {

VolumeInfo module_read_info(const Source& source, Notices& notices) {
  return source.is_dicom() ? read_dicom_info(source, notices) : read_itk_info(source.path, notices);
}

Volume module_read(const Source& source, const HostAllocator& allocate, Notices& notices, ReadTiming* timing) {
  return source.is_dicom() ? read_dicom(source, allocate, notices, timing)
                           : read_itk(source.path, allocate, notices, timing);
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
  static const Module module{group_dicom, module_read_info, module_read, write_itk, write_png_file, write_dicom_slices};
  static const bool silenced = (silence_libraries(), true);
  return silenced ? &module : nullptr;
}

}  // namespace volpipe::io
