#include "pipeline/save_map.h"

#include "io/atomic_file.h"
#include "stages/geometry/transform_file.h"

namespace volpipe {

void save_map(const PointMap& pull, const std::string& path, bool overwrite) {
  const std::string bytes = write_transform(pull, path);
  io::AtomicFile file(path, overwrite);
  file.write(bytes.data(), bytes.size());
  file.commit();
}

}  // namespace volpipe
