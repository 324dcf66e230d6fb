#include "io/file_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>

namespace volpipe::io {

namespace {

constexpr std::array<std::string_view, 10> kExtensions = {".nii.gz", ".nii",  ".hdr.gz", ".img.gz", ".hdr",
                                                          ".img",    ".nrrd", ".nhdr",   ".mha",    ".mhd"};

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename().string(); }

bool ends_with(const std::string& name, std::string_view extension) {
  return name.size() > extension.size() &&
         std::equal(extension.rbegin(), extension.rend(), name.rbegin(),
                    [](char a, char b) { return a == char(std::tolower(static_cast<unsigned char>(b))); });
}

}  // namespace

std::optional<std::string_view> volume_extension(const std::string& path) {
  const std::string name = file_name(path);
  for (const std::string_view extension : kExtensions)
    if (ends_with(name, extension)) return extension;
  return std::nullopt;
}

std::string stem_of(const std::string& path) {
  std::string name = file_name(path);
  if (const auto extension = volume_extension(path)) name.resize(name.size() - extension->size());
  else if (ends_with(name, ".dcm")) name.resize(name.size() - 4);
  return name;
}

}  // namespace volpipe::io
