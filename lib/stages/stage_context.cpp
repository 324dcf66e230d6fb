#include "stages/stage_context.h"

namespace volpipe {

std::uint64_t StageContext::voxel_key(const std::string& image, std::uint32_t number) const {
  DrawStream keys(seed, item_id + '\n' + image, repeat, stage_index | 0x40000000u);
  std::uint64_t key = keys.bits();
  for (; number > 0; --number) key = keys.bits();
  return key;
}

}  // namespace volpipe
