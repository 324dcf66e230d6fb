// Small NIfTI files, sound and faulty, laid out byte by byte from the standard and not by the code under test.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace volpipe::test {

template <class T>
std::string bytes_of(T value, bool big_endian = false) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  if (big_endian) std::reverse(bytes.begin(), bytes.end());
  return bytes;
}

template <class T>
std::string bytes_of(const std::vector<T>& values, bool big_endian = false) {
  std::string bytes;
  for (const T& value : values) bytes += bytes_of(value, big_endian);
  return bytes;
}

/// The stored values 0 1 2 .. 99 0 1 ..
template <class T>
std::vector<T> counting(std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = T(i % 100);
  return values;
}

/// Defaults: 4 x 5 x 6 float32 counting values, 1 mm, sform code 1.
struct NiftiSample {
  int version = 1;
  bool big_endian = false;
  std::vector<std::int64_t> shape = {4, 5, 6};
  std::vector<std::int64_t> dim;  ///< all eight, where they are to contradict the shape
  int datatype = 16, bitpix = 32;
  std::vector<double> pixdim;  ///< one an axis; 1 by default
  double qfac = 1;
  int qform = 0, sform = 1;
  std::array<double, 3> quaternion{}, qoffset{};
  std::vector<std::array<double, 4>> srow;  ///< diag(pixdim) by default
  double slope = 1, intercept = 0;
  int units = 2;
  double vox_offset = -1;  ///< right behind the header by default
  std::string magic;       ///< of a single file by default
  std::string body;

  std::size_t header_bytes() const { return version == 1 ? 348 : 540; }

  double length(std::size_t axis) const {
    if (axis >= shape.size()) return 0;
    return pixdim.empty() ? 1.0 : pixdim[axis];
  }

  std::vector<std::int64_t> all_dims() const {
    if (!dim.empty()) return dim;
    std::vector<std::int64_t> dims(8, 1);
    dims[0] = std::int64_t(shape.size());
    std::copy(shape.begin(), shape.end(), dims.begin() + 1);
    return dims;
  }

  std::vector<std::array<double, 4>> all_rows() const {
    if (!srow.empty()) return srow;
    return {
        {length(0), 0, 0, 0}, {0, shape.size() > 1 ? length(1) : 1, 0, 0}, {0, 0, shape.size() > 2 ? length(2) : 1, 0}};
  }

  template <class Float>
  std::string reals(std::vector<double> values) const {
    std::string bytes;
    for (double value : values) bytes += bytes_of(Float(value), big_endian);
    return bytes;
  }

  std::string header() const { return version == 1 ? header1() : header2(); }

  std::string file() const { return header() + std::string(4, '\0') + data(); }

  std::string data() const {
    if (!body.empty()) return body;
    std::size_t count = 1;
    for (auto n : shape) count *= std::size_t(n);
    return bytes_of(counting<float>(count), big_endian);
  }

 private:
  std::vector<double> all_pixdims() const {
    std::vector<double> values = {qfac};
    for (std::size_t axis = 0; axis < 7; ++axis) values.push_back(length(axis));
    return values;
  }

  std::string header1() const {
    const bool be = big_endian;
    std::string h = bytes_of(std::int32_t(348), be) + std::string(36, '\0');
    for (auto n : all_dims()) h += bytes_of(std::int16_t(n), be);
    h += std::string(12, '\0') + bytes_of(std::int16_t(0), be) + bytes_of(std::int16_t(datatype), be);
    h += bytes_of(std::int16_t(bitpix), be) + bytes_of(std::int16_t(0), be) + reals<float>(all_pixdims());
    h += reals<float>({vox_offset < 0 ? 352 : vox_offset, slope, intercept}) + std::string(3, '\0') + char(units);
    h += std::string(24, '\0') + std::string(80 + 24, '\0');
    h += bytes_of(std::int16_t(qform), be) + bytes_of(std::int16_t(sform), be);
    h += reals<float>({quaternion[0], quaternion[1], quaternion[2], qoffset[0], qoffset[1], qoffset[2]});
    for (const auto& row : all_rows()) h += reals<float>({row[0], row[1], row[2], row[3]});
    std::string m = magic.empty() ? "n+1" : magic;
    m.resize(4, '\0');
    return h + std::string(16, '\0') + m;
  }

  std::string header2() const {
    const bool be = big_endian;
    std::string m = magic.empty() ? std::string("n+2\0\r\n\032\n", 8) : magic;
    m.resize(8, '\0');
    std::string h =
        bytes_of(std::int32_t(540), be) + m + bytes_of(std::int16_t(datatype), be) + bytes_of(std::int16_t(bitpix), be);
    for (auto n : all_dims()) h += bytes_of(n, be);
    h += std::string(24, '\0') + reals<double>(all_pixdims());
    h += bytes_of(std::int64_t(vox_offset < 0 ? 544 : vox_offset), be) + reals<double>({slope, intercept});
    h += std::string(48, '\0') + std::string(80 + 24, '\0');
    h += bytes_of(std::int32_t(qform), be) + bytes_of(std::int32_t(sform), be);
    h += reals<double>({quaternion[0], quaternion[1], quaternion[2], qoffset[0], qoffset[1], qoffset[2]});
    for (const auto& row : all_rows()) h += reals<double>({row[0], row[1], row[2], row[3]});
    h += bytes_of(std::int32_t(0), be) + bytes_of(std::int32_t(units), be) + bytes_of(std::int32_t(0), be);
    return h + std::string(16 + 1 + 15, '\0');
  }
};

}  // namespace volpipe::test
