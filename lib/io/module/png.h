// Pictures as PNG, made in memory: what libpng writes to a full disk ends the process.
#pragma once

#include <cstdint>
#include <vector>

namespace volpipe::io {

/// The bytes of a PNG file of 8 bits a channel; `pixels` holds `height` rows of `width` pixels of 1 or 3 channels.
/// Throws Error(internal) when the rows cannot be packed.
std::vector<std::uint8_t> encode_png(const std::vector<std::uint8_t>& pixels, int width, int height, int channels);

}  // namespace volpipe::io
