// Voxels whose type a kernel learns at run time: one kernel for every pixel type. For .cu files.
#pragma once

#include <cstdint>

#include "volume/data_type.h"

namespace volpipe::cuda {

struct AnyVoxels {
  const void* data;
  DataType type;

  /// body(pointer to the first voxel, of its type).
  template <class Body>
  __device__ __forceinline__ void visit(const Body& body) const {
    switch (type) {
      case DataType::uint8:
        return body(static_cast<const std::uint8_t*>(data));
      case DataType::int8:
        return body(static_cast<const std::int8_t*>(data));
      case DataType::uint16:
        return body(static_cast<const std::uint16_t*>(data));
      case DataType::int16:
        return body(static_cast<const std::int16_t*>(data));
      case DataType::uint32:
        return body(static_cast<const std::uint32_t*>(data));
      case DataType::int32:
        return body(static_cast<const std::int32_t*>(data));
      case DataType::float32:
        return body(static_cast<const float*>(data));
      case DataType::float64:
        return body(static_cast<const double*>(data));
    }
  }
};

}  // namespace volpipe::cuda
