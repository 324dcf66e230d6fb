// The hash that names what is stored by its content.
#pragma once

#include <string>
#include <string_view>

namespace volpipe {

/// SHA-256 (FIPS 180-4) of `bytes`, 64 lower-case hexadecimal digits.
std::string sha256_of(std::string_view bytes);

}  // namespace volpipe
