#include "io/module/nifti_image_io.h"

#include <itkCreateObjectFunction.h>
#include <itkVersion.h>

#include <algorithm>
#include <filesystem>
#include <mutex>

#include "volume/error.h"

namespace volpipe::io {

namespace {

constexpr double kLpsFromRas[] = {-1, -1, 1};

class Borrowed final : public MemorySource {
 public:
  void release(void*, std::size_t) noexcept override {}
};

Buffer borrowed(void* data, std::size_t bytes) {
  return Buffer(data, bytes, Device::cpu(), std::make_shared<Borrowed>());
}

itk::IOComponentEnum component_type(DataType type) {
  return visit(type, [](auto tag) { return itk::ImageIOBase::MapPixelType<typename decltype(tag)::type>::CType; });
}

DataType data_type(itk::IOComponentEnum component) {
  constexpr DataType types[] = {DataType::uint8,  DataType::int8,  DataType::uint16,  DataType::int16,
                                DataType::uint32, DataType::int32, DataType::float32, DataType::float64};
  for (const DataType type : types)
    if (component_type(type) == component) return type;
  throw Error(ErrorCode::unsupported, "NIfTI is not written with components of type " +
                                          itk::ImageIOBase::GetComponentTypeAsString(component) +
                                          ": convert them to 32 bits first");
}

// A table of rows x columns values becomes one of columns x rows: planar to interleaved, and back.
void transpose(const void* in, void* out, std::int64_t rows, std::int64_t columns, DataType type) {
  visit(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = static_cast<const T*>(in);
    T* to = static_cast<T*>(out);
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column) to[column * rows + row] = from[row * columns + column];
  });
}

bool has_channels(const VolumeInfo& info) { return info.component_axis == ComponentAxis::channels; }

Geometry geometry_of(const itk::ImageIOBase& io) {
  Index3 size{1, 1, 1};
  Affine map;
  const unsigned count = std::min(io.GetNumberOfDimensions(), 3u);
  for (unsigned axis = 0; axis < count; ++axis) {
    size[axis] = std::int64_t(io.GetDimensions(axis));
    const std::vector<double> direction = io.GetDirection(axis);
    for (unsigned row = 0; row < count; ++row)
      map.linear[row][axis] = kLpsFromRas[row] * direction[row] * io.GetSpacing(axis);
    map.offset[axis] = kLpsFromRas[axis] * io.GetOrigin(axis);
  }
  return Geometry(size, map);
}

VolumeInfo info_of(const itk::ImageIOBase& io) {
  VolumeInfo info;
  info.geometry = geometry_of(io);
  info.dtype = data_type(io.GetComponentType());
  if (io.GetNumberOfDimensions() > 4 || (io.GetNumberOfDimensions() == 4 && io.GetNumberOfComponents() > 1))
    throw Error(ErrorCode::unsupported,
                "NIfTI is written with frames or with channels, not with both: split the image first");
  if (io.GetNumberOfDimensions() == 4) {
    info.components = std::int64_t(io.GetDimensions(3));
    info.component_axis = ComponentAxis::frames;
    info.frame_spacing = io.GetSpacing(3);
  } else if (io.GetNumberOfComponents() > 1) {
    info.components = std::int64_t(io.GetNumberOfComponents());
    info.component_axis = ComponentAxis::channels;
  }
  return info;
}

}  // namespace

bool NiftiImageIO::CanReadFile(const char* path) { return is_nifti_name(path) && std::filesystem::exists(path); }

bool NiftiImageIO::CanWriteFile(const char* path) { return is_nifti_output_name(path); }

void NiftiImageIO::ReadImageInformation() {
  notices_ = {};
  info_ = read_nifti_info(GetFileName(), notices_);
  const bool frames = info_.component_axis == ComponentAxis::frames;
  SetNumberOfDimensions(frames ? 4 : 3);
  const Matrix3 direction = info_.geometry.direction();
  for (int axis = 0; axis < 3; ++axis) {
    std::vector<double> column(frames ? 4 : 3, 0.0);
    for (int row = 0; row < 3; ++row) column[row] = kLpsFromRas[row] * direction[row][axis];
    SetDirection(axis, column);
    SetDimensions(axis, itk::SizeValueType(info_.geometry.size()[axis]));
    SetSpacing(axis, info_.geometry.spacing()[axis]);
    SetOrigin(axis, kLpsFromRas[axis] * info_.geometry.origin()[axis]);
  }
  if (frames) {
    SetDirection(3, std::vector<double>{0, 0, 0, 1});
    SetDimensions(3, itk::SizeValueType(info_.components));
    SetSpacing(3, info_.frame_spacing);
    SetOrigin(3, 0.0);
  }
  SetComponentType(component_type(info_.dtype));
  SetNumberOfComponents(has_channels(info_) ? unsigned(info_.components) : 1u);
  SetPixelType(has_channels(info_) ? itk::IOPixelEnum::VECTOR : itk::IOPixelEnum::SCALAR);
}

void NiftiImageIO::Read(void* buffer) {
  notices_ = {};
  const bool planar = has_channels(info_);
  const auto allocate = [&](std::size_t bytes) {
    if (bytes != info_.bytes()) throw Error(ErrorCode::input, "the file changed while it was read: read it again");
    return planar ? Buffer::host(bytes) : borrowed(buffer, bytes);
  };
  const Volume volume = read_nifti(GetFileName(), allocate, notices_);
  if (volume.info() != info_)
    throw Error(ErrorCode::unsupported, "the 64-bit integers need " + std::string(to_string(volume.dtype())) +
                                            " where the header let expect " + std::string(to_string(info_.dtype)) +
                                            ": convert the file first")
        .with_path(GetFileName());
  if (planar) transpose(volume.data(), buffer, info_.components, info_.geometry.voxel_count(), info_.dtype);
}

void NiftiImageIO::Write(const void* buffer) {
  const VolumeInfo info = info_of(*this);
  const bool planar = has_channels(info);
  Buffer voxels = planar ? Buffer::host(info.bytes()) : borrowed(const_cast<void*>(buffer), info.bytes());
  if (planar) transpose(buffer, voxels.data(), info.geometry.voxel_count(), info.components, info.dtype);
  write_nifti(Volume(info, std::move(voxels)), GetFileName(), {.overwrite = true});
}

NiftiImageIOFactory::NiftiImageIOFactory() {
  RegisterOverride("itkImageIOBase", "volpipeNiftiImageIO", "NIfTI, read and checked by volpipe", true,
                   itk::CreateObjectFunction<NiftiImageIO>::New());
}

const char* NiftiImageIOFactory::GetITKSourceVersion() const { return ITK_SOURCE_VERSION; }

void NiftiImageIOFactory::RegisterOneFactory() {
  static std::once_flag once;
  std::call_once(once, [] {
    itk::ObjectFactoryBase::RegisterFactory(New(), itk::ObjectFactoryEnums::InsertionPosition::INSERT_AT_FRONT);
  });
}

}  // namespace volpipe::io
