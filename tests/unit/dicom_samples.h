// DICOM files written element by element (explicit little-endian), sound and faulty, as small as they can be.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "file_helpers.h"

namespace volpipe::test {

inline std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += char(value >> (8 * i) & 0xff);
  return text;
}

inline std::string dicom_element(std::uint16_t group, std::uint16_t number, const std::string& vr, std::string value) {
  if (value.size() % 2) value += vr == "UI" || vr == "OB" ? '\0' : ' ';
  const bool is_long = vr == "OB" || vr == "OW" || vr == "SQ" || vr == "UN" || vr == "UT";
  return little_endian(group, 2) + little_endian(number, 2) + vr +
         (is_long ? little_endian(0, 2) + little_endian(value.size(), 4) : little_endian(value.size(), 2)) + value;
}

inline std::string us(std::uint16_t value) { return little_endian(value, 2); }

inline std::string fd(double value) {
  std::string text(8, '\0');
  std::memcpy(text.data(), &value, 8);
  return text;
}

/// A sequence of items, each given by its elements.
inline std::string dicom_sequence(std::uint16_t group, std::uint16_t number, const std::vector<std::string>& items) {
  std::string value;
  for (const std::string& item : items)
    value += little_endian(0xfffe, 2) + little_endian(0xe000, 2) + little_endian(item.size(), 4) + item;
  return dicom_element(group, number, "SQ", value);
}

/// One file; a field left empty (or nullopt) leaves its element out.
struct DicomSample {
  std::string sop = "1.2.840.10008.5.1.4.1.1.2";
  std::string syntax = "1.2.840.10008.1.2.1";
  std::string series = "1.2.3.1";
  std::string series_number = "1";
  std::string image_type = "ORIGINAL\\PRIMARY\\AXIAL";
  std::string acquisition, echo_number, echo_time, temporal_position;
  int instance = 1;
  std::optional<std::string> position = "0\\0\\0";
  std::optional<std::string> orientation = "1\\0\\0\\0\\1\\0";
  std::optional<std::string> pixel_spacing = "0.5\\0.5";
  std::optional<std::string> thickness = "2.5";
  std::string between_slices;
  std::string slope = "1", intercept = "0";
  std::string photometric = "MONOCHROME2";
  int rows = 8, columns = 8, samples = 1, planar = 0;
  int bits_allocated = 16, bits_stored = 16, high_bit = -1, is_signed = 1;
  std::string frames;             ///< NumberOfFrames
  std::string functional_groups;  ///< whole elements of group 5200
  std::string pixels;             ///< bytes; empty: every pixel is `value`
  int value = 10;
  bool encapsulated = false;  ///< `pixels` is the whole value of an encapsulated element
  bool preamble = true;
  std::size_t cut = 0;  ///< bytes missing at the end

  std::string meta() const {
    std::string text = dicom_element(2, 1, "OB", std::string("\0\1", 2)) + dicom_element(2, 2, "UI", sop) +
                       dicom_element(2, 3, "UI", uid()) + dicom_element(2, 0x10, "UI", syntax) +
                       dicom_element(2, 0x12, "UI", "1.2.3");
    return dicom_element(2, 0, "UL", little_endian(text.size(), 4)) + text;
  }

  std::string uid() const { return "1.2.3.9." + std::to_string(instance); }

  std::string pixel_element() const {
    if (encapsulated)
      return little_endian(0x7fe0, 2) + little_endian(0x10, 2) + "OB" + little_endian(0, 2) +
             little_endian(0xffffffff, 4) + pixels;
    if (!pixels.empty()) return dicom_element(0x7fe0, 0x10, bits_allocated == 8 ? "OB" : "OW", pixels);
    const int count = rows * columns * samples * (frames.empty() ? 1 : std::stoi(frames));
    std::string bytes;
    for (int i = 0; i < count; ++i) bytes += little_endian(std::uint64_t(std::int64_t(value)), bits_allocated / 8);
    return dicom_element(0x7fe0, 0x10, bits_allocated == 8 ? "OB" : "OW", bytes);
  }

  std::string bytes() const {
    std::string text;
    const auto add = [&](std::uint16_t group, std::uint16_t number, const char* vr, const std::string& value) {
      if (!value.empty()) text += dicom_element(group, number, vr, value);
    };
    const auto add_optional = [&](std::uint16_t group, std::uint16_t number, const char* vr,
                                  const std::optional<std::string>& value) {
      if (value) text += dicom_element(group, number, vr, *value);
    };
    add(0x08, 0x08, "CS", image_type);
    add(0x08, 0x16, "UI", sop);
    add(0x08, 0x18, "UI", uid());
    add(0x08, 0x60, "CS", "CT");
    add(0x10, 0x10, "PN", "T^T");
    add_optional(0x18, 0x50, "DS", thickness);
    add(0x18, 0x81, "DS", echo_time);
    add(0x18, 0x86, "IS", echo_number);
    add(0x18, 0x88, "DS", between_slices);
    add(0x20, 0x0d, "UI", "1.2.3.0");
    add(0x20, 0x0e, "UI", series);
    add(0x20, 0x11, "IS", series_number);
    add(0x20, 0x12, "IS", acquisition);
    add(0x20, 0x13, "IS", std::to_string(instance));
    add_optional(0x20, 0x32, "DS", position);
    add_optional(0x20, 0x37, "DS", orientation);
    add(0x20, 0x100, "IS", temporal_position);
    add(0x28, 0x02, "US", us(std::uint16_t(samples)));
    add(0x28, 0x04, "CS", photometric);
    if (samples > 1) add(0x28, 0x06, "US", us(std::uint16_t(planar)));
    add(0x28, 0x08, "IS", frames);
    add(0x28, 0x10, "US", us(std::uint16_t(rows)));
    add(0x28, 0x11, "US", us(std::uint16_t(columns)));
    add_optional(0x28, 0x30, "DS", pixel_spacing);
    add(0x28, 0x100, "US", us(std::uint16_t(bits_allocated)));
    add(0x28, 0x101, "US", us(std::uint16_t(bits_stored)));
    add(0x28, 0x102, "US", us(std::uint16_t(high_bit < 0 ? bits_stored - 1 : high_bit)));
    add(0x28, 0x103, "US", us(std::uint16_t(is_signed)));
    add(0x28, 0x1052, "DS", intercept);
    add(0x28, 0x1053, "DS", slope);
    text += functional_groups + pixel_element();
    text = (preamble ? std::string(128, '\0') + "DICM" + meta() : std::string()) + text;
    return text.substr(0, text.size() - cut);
  }
};

/// `count` slices named 0.dcm, 1.dcm ... at z = step * k with value 10 * (k + 1), each changed by `change`.
inline void write_dicom_slices(const std::string& folder, int count,
                               const std::function<void(DicomSample&, int)>& change = {}, double step = 2.5) {
  std::filesystem::create_directories(folder);
  for (int k = 0; k < count; ++k) {
    DicomSample sample;
    sample.instance = k + 1;
    sample.value = 10 * (k + 1);
    sample.position = "0\\0\\" + std::to_string(step * k);
    if (change) change(sample, k);
    write_bytes(folder + "/" + std::to_string(k) + ".dcm", sample.bytes());
  }
}

}  // namespace volpipe::test
