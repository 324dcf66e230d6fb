// Uses an installed volpipe: the library, and the module of file formats that it loads.
#include <io/io.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

int main(int, char** arguments) {
  using namespace volpipe;
  const std::string path = std::string(arguments[1]) + "/ramp.nrrd";

  VolumeInfo info;
  info.geometry = Geometry::from_spacing({4, 3, 2}, {1, 2, 3});
  info.dtype = DataType::int16;
  Volume volume(info, Buffer::host(info.bytes()));
  for (std::int64_t i = 0; i < info.value_count(); ++i) volume.data_as<std::int16_t>()[i] = std::int16_t(i);
  io::write(volume, path, {.overwrite = true});

  Notices notices;
  const io::Found found = io::find_sources(path);
  const Volume back = io::read(found.sources.at(0), Buffer::host, notices);
  const bool same = back.info() == info && std::memcmp(back.data(), volume.data(), info.bytes()) == 0;
  if (!same) std::puts("the volume read differs from the one written");
  return same ? 0 : 1;
}
