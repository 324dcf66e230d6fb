// NIfTI for ITK code of the module: itk::ImageIOBase over lib/io/nifti.h, so that whatever reads through ITK meets the
// same checks, values and geometry as volpipe itself.
#pragma once

#include <itkImageIOBase.h>
#include <itkObjectFactoryBase.h>

#include "io/nifti.h"

namespace volpipe::io {

/// World coordinates are LPS mm on this side. Frames are a fourth dimension, channels are the components of a voxel
/// (interleaved); a sheared affine gives direction columns that are not orthogonal. 2-D files have three dimensions,
/// one slice. Faults are volpipe::Error, as read_nifti() and write_nifti() throw them; files that are there are
/// replaced.
class NiftiImageIO : public itk::ImageIOBase {
 public:
  using Self = NiftiImageIO;
  using Superclass = itk::ImageIOBase;
  using Pointer = itk::SmartPointer<Self>;
  itkNewMacro(Self);
  itkTypeMacro(NiftiImageIO, itk::ImageIOBase);

  /// Decides by name, so that a damaged file is refused with its reason.
  bool CanReadFile(const char* path) override;
  void ReadImageInformation() override;
  /// Throws Error(unsupported) where 64-bit integers need uint32 and the header let expect int32.
  void Read(void* buffer) override;

  bool CanWriteFile(const char* path) override;
  void WriteImageInformation() override {}
  void Write(const void* buffer) override;

  /// Decisions taken by the last ReadImageInformation() or Read().
  const Notices& notices() const { return notices_; }

 private:
  Notices notices_;
  VolumeInfo info_;
};

class NiftiImageIOFactory : public itk::ObjectFactoryBase {
 public:
  using Self = NiftiImageIOFactory;
  using Superclass = itk::ObjectFactoryBase;
  using Pointer = itk::SmartPointer<Self>;
  itkFactorylessNewMacro(Self);
  itkTypeMacro(NiftiImageIOFactory, itk::ObjectFactoryBase);

  const char* GetITKSourceVersion() const override;
  const char* GetDescription() const override { return "NIfTI, read and checked by volpipe"; }
  /// Makes ITK's readers and writers ask NiftiImageIO before any other; calling it again does nothing.
  static void RegisterOneFactory();

 private:
  NiftiImageIOFactory();
};

}  // namespace volpipe::io
