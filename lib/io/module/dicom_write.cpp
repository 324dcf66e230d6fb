#include <gdcmAttribute.h>
#include <gdcmMediaStorage.h>
#include <gdcmWriter.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <utility>

#include "io/atomic_file.h"
#include "io/module/dicom.h"
#include "io/module/dicom_file.h"
#include "volume/error.h"

namespace volpipe::io {

namespace {

using gdcm::Tag;

constexpr char kCtImageStorage[] = "1.2.840.10008.5.1.4.1.1.2";

std::uint64_t fnv1a(const void* data, std::size_t bytes, std::uint64_t hash = 1469598103934665603ull) {
  const auto* byte = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ byte[i]) * 1099511628211ull;
  return hash;
}

/// Below 2.25, the root of UIDs that are numbers of their own.
std::string uid(std::uint64_t series, const std::string& suffix) { return "2.25." + std::to_string(series) + suffix; }

/// At most the 16 characters of a decimal string.
std::string decimal_string(double value) {
  char buffer[40];
  for (int precision = 15; precision > 0; --precision)
    if (std::snprintf(buffer, sizeof buffer, "%.*g", precision, value + 0.0) <= 16) break;
  return buffer;
}

template <class Range>
std::string decimal_strings(const Range& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : "\\") + decimal_string(value);
  return text;
}

void put(gdcm::DataSet& data, const Tag& tag, gdcm::VR::VRType vr, const void* bytes, std::size_t length) {
  gdcm::DataElement element(tag);
  element.SetVR(vr);
  element.SetByteValue(static_cast<const char*>(bytes), gdcm::VL(std::uint32_t(length)));
  data.Replace(element);
}

void put(gdcm::DataSet& data, const Tag& tag, gdcm::VR::VRType vr, std::string text) {
  if (text.size() % 2) text += vr == gdcm::VR::UI ? '\0' : ' ';
  put(data, tag, vr, text.data(), text.size());
}

void put(gdcm::DataSet& data, const Tag& tag, std::uint16_t value) {
  put(data, tag, gdcm::VR::US, &value, sizeof value);
}

std::vector<std::int16_t> whole_values(const Volume& volume) {
  const auto count = std::size_t(volume.geometry().voxel_count());
  std::vector<std::int16_t> values(count);
  visit(volume.dtype(), [&](auto tag) {
    const auto* in = volume.data_as<typename decltype(tag)::type>();
    for (std::size_t i = 0; i < count; ++i) {
      const double value = std::round(double(in[i]));
      if (!(value >= -32768 && value <= 32767))
        throw Error(ErrorCode::unsupported,
                    "the value " + std::to_string(double(in[i])) +
                        " does not fit the 16 bits of a CT image: clip or rescale the volume first");
      values[i] = std::int16_t(value);
    }
  });
  return values;
}

struct Series {
  std::string description;
  std::uint64_t hash;
  Geometry geometry;
};

void put_identity(gdcm::DataSet& data, const Series& series, std::int64_t slice) {
  using gdcm::VR;
  put(data, Tag(0x0008, 0x0008), VR::CS, "ORIGINAL\\PRIMARY\\AXIAL");
  put(data, Tag(0x0008, 0x0016), VR::UI, kCtImageStorage);
  put(data, Tag(0x0008, 0x0018), VR::UI, uid(series.hash, ".3." + std::to_string(slice + 1)));
  put(data, Tag(0x0008, 0x0060), VR::CS, "CT");
  put(data, Tag(0x0008, 0x103e), VR::LO, series.description);
  put(data, Tag(0x0010, 0x0010), VR::PN, "PHANTOM");
  put(data, Tag(0x0010, 0x0020), VR::LO, "PHANTOM");
  put(data, Tag(0x0020, 0x000d), VR::UI, uid(series.hash, ".1"));
  put(data, Tag(0x0020, 0x000e), VR::UI, uid(series.hash, ".2"));
  put(data, Tag(0x0020, 0x0052), VR::UI, uid(series.hash, ".4"));
  put(data, Tag(0x0020, 0x0011), VR::IS, "1");
  put(data, Tag(0x0020, 0x0013), VR::IS, std::to_string(slice + 1));
}

void put_geometry(gdcm::DataSet& data, const Geometry& geometry, std::int64_t slice) {
  using gdcm::VR;
  const auto lps = [](const Vec3& ras) { return Vec3{-ras[0], -ras[1], ras[2]}; };
  const Vec3 spacing = geometry.spacing();
  const Matrix3 direction = geometry.direction();
  const Vec3 row = lps(direction.column(0)), column = lps(direction.column(1));
  const std::array<double, 6> orientation{row[0], row[1], row[2], column[0], column[1], column[2]};
  put(data, Tag(0x0018, 0x0050), VR::DS, decimal_string(spacing[2]));
  put(data, Tag(0x0018, 0x0088), VR::DS, decimal_string(spacing[2]));
  put(data, Tag(0x0020, 0x0032), VR::DS, decimal_strings(lps(geometry.to_world({0, 0, double(slice)}))));
  put(data, Tag(0x0020, 0x0037), VR::DS, decimal_strings(orientation));
  put(data, Tag(0x0028, 0x0030), VR::DS, decimal_strings(std::array{spacing[1], spacing[0]}));
}

void put_pixels(gdcm::DataSet& data, const Geometry& geometry, const std::int16_t* pixels) {
  using gdcm::VR;
  const Index3 size = geometry.size();
  put(data, Tag(0x0028, 0x0002), 1);
  put(data, Tag(0x0028, 0x0004), VR::CS, "MONOCHROME2");
  put(data, Tag(0x0028, 0x0010), std::uint16_t(size[1]));
  put(data, Tag(0x0028, 0x0011), std::uint16_t(size[0]));
  put(data, Tag(0x0028, 0x0100), 16);
  put(data, Tag(0x0028, 0x0101), 16);
  put(data, Tag(0x0028, 0x0102), 15);
  put(data, Tag(0x0028, 0x0103), 1);
  put(data, Tag(0x0028, 0x1052), VR::DS, "0");
  put(data, Tag(0x0028, 0x1053), VR::DS, "1");
  put(data, Tag(0x7fe0, 0x0010), VR::OW, pixels, std::size_t(size[0] * size[1]) * sizeof(std::int16_t));
}

void write_slice(const Series& series, const std::int16_t* pixels, std::int64_t slice, const std::string& path) {
  AtomicFile file(path, false);
  gdcm::Writer writer;
  gdcm::File& dicom = writer.GetFile();
  dicom.GetHeader().SetDataSetTransferSyntax(gdcm::TransferSyntax::ExplicitVRLittleEndian);
  put_identity(dicom.GetDataSet(), series, slice);
  put_geometry(dicom.GetDataSet(), series.geometry, slice);
  put_pixels(dicom.GetDataSet(), series.geometry, pixels);
  std::ostringstream memory;  // GDCM ends the process by an assertion when a file cannot grow
  writer.SetStream(memory);
  if (!writer.Write()) throw Error(ErrorCode::internal, "the DICOM file cannot be encoded").with_path(path);
  const std::string bytes = std::move(memory).str();
  file.write(bytes.data(), bytes.size());
  const auto written = read_dicom_file(file.partial_path());
  if (!written || !written->fault.empty())
    throw Error(ErrorCode::output, "the DICOM file just written is not whole: is the disk full?").with_path(path);
  file.commit();
}

}  // namespace

void write_dicom_slices(const Volume& volume, const std::string& folder, const std::string& series_description) {
  const VolumeInfo& info = volume.info();
  const Index3 size = info.geometry.size();
  if (info.components != 1)
    throw Error(ErrorCode::unsupported,
                "a DICOM CT series holds one component, the volume has " + std::to_string(info.components))
        .with_path(folder);
  if (info.geometry.shear() > 1e-5)
    throw Error(ErrorCode::unsupported, "a sheared grid cannot be written as a DICOM CT series").with_path(folder);
  if (size[0] > 65535 || size[1] > 65535)
    throw Error(ErrorCode::unsupported, "a DICOM image has at most 65535 rows and columns").with_path(folder);

  const std::vector<std::int16_t> values = whole_values(volume);
  const std::uint64_t hash = fnv1a(values.data(), values.size() * sizeof(std::int16_t),
                                   fnv1a(series_description.data(), series_description.size()));
  const Series series{series_description, hash, info.geometry};
  for (std::int64_t slice = 0; slice < size[2]; ++slice) {
    char name[32];
    std::snprintf(name, sizeof name, "slice_%04lld.dcm", static_cast<long long>(slice + 1));
    write_slice(series, values.data() + slice * size[0] * size[1], slice,
                (std::filesystem::path(folder) / name).string());
  }
}

}  // namespace volpipe::io
