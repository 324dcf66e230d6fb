#include "volume/sha256.h"

#include <nettle/sha2.h>

#include <cstdint>

namespace volpipe {

std::string sha256_of(std::string_view bytes) {
  sha256_ctx context;
  sha256_init(&context);
  sha256_update(&context, bytes.size(), reinterpret_cast<const std::uint8_t*>(bytes.data()));
  std::uint8_t digest[SHA256_DIGEST_SIZE];
  sha256_digest(&context, sizeof digest, digest);
  std::string hex;
  for (const std::uint8_t byte : digest) {
    constexpr char digits[] = "0123456789abcdef";
    hex += {digits[byte >> 4], digits[byte & 15]};
  }
  return hex;
}

}  // namespace volpipe
