// What a volume is: a description that a plan can work with, and the description with its voxels.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "volume/buffer.h"
#include "volume/data_type.h"
#include "volume/geometry.h"

namespace volpipe {

enum class ImageKind : std::uint8_t { image, label };

/// What the components of a voxel are in the file: nothing (one component), time frames, or channels of a vector.
enum class ComponentAxis : std::uint8_t { none, frames, channels };

/// All that is known of a volume without its voxels. Components are planar: component c starts at voxel c *
/// voxel_count().
struct VolumeInfo {
  Geometry geometry;
  DataType dtype = DataType::float32;
  std::int64_t components = 1;
  ImageKind kind = ImageKind::image;
  ComponentAxis component_axis = ComponentAxis::none;
  double frame_spacing = 1.0;  ///< seconds between frames, when component_axis is frames

  std::int64_t value_count() const { return geometry.voxel_count() * components; }
  std::size_t bytes() const { return std::size_t(value_count()) * size_of(dtype); }
  bool operator==(const VolumeInfo&) const = default;
};

/// The volumes of an item by image name.
using ImageInfos = std::map<std::string, VolumeInfo>;

/// A VolumeInfo and its voxels on one device: [component][z][y][x], x fastest.
class Volume {
 public:
  Volume(VolumeInfo info, Buffer buffer) : info_(std::move(info)), buffer_(std::move(buffer)) {}

  const VolumeInfo& info() const { return info_; }
  const Geometry& geometry() const { return info_.geometry; }
  DataType dtype() const { return info_.dtype; }
  Device device() const { return buffer_.device(); }

  void* data() { return buffer_.data(); }
  const void* data() const { return buffer_.data(); }
  template <class T>
  T* data_as() {
    return static_cast<T*>(buffer_.data());
  }
  template <class T>
  const T* data_as() const {
    return static_cast<const T*>(buffer_.data());
  }
  /// Start of component c.
  const void* component(std::int64_t c) const {
    return static_cast<const std::byte*>(buffer_.data()) +
           std::size_t(c * info_.geometry.voxel_count()) * size_of(info_.dtype);
  }
  void* component(std::int64_t c) { return const_cast<void*>(std::as_const(*this).component(c)); }
  Buffer take_buffer() && { return std::move(buffer_); }

 private:
  VolumeInfo info_;
  Buffer buffer_;
};

}  // namespace volpipe
