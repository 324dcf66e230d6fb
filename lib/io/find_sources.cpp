#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <system_error>

#include "io/file_names.h"
#include "io/io.h"
#include "io/load_module.h"
#include "volume/error.h"

namespace volpipe::io {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kSmallestNifti = 348, kSmallestGzip = 18;

bool is_hidden(const std::string& name) { return name.starts_with('.'); }

std::string lower_extension(const std::string& path) {
  std::string extension = fs::path(path).extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return char(std::tolower(c)); });
  return extension;
}

bool is_image_of_pair(std::string_view extension) { return extension.starts_with(".img"); }

bool starts_as_gzip(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return stream.get() == 0x1f && stream.get() == 0x8b;
}

/// Why a file whose name claims a volume cannot hold one; empty when it can.
std::string claim_fault(const std::string& path, std::string_view extension) {
  std::error_code failure;
  const std::uint64_t bytes = fs::file_size(path, failure);
  if (failure) return "the file cannot be opened: " + failure.message();
  if (bytes == 0) return "the file is empty: copy or export it again";
  const bool packed = extension.ends_with(".gz") || starts_as_gzip(path);
  const bool nifti = extension.starts_with(".nii") || extension.starts_with(".hdr");
  if (nifti && bytes < (packed ? kSmallestGzip : kSmallestNifti))
    return "the file is " + std::to_string(bytes) + " bytes, too short for a NIfTI header: copy or export it again";
  return {};
}

enum class Content { dicom, other, unreadable };

Content probe(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return Content::unreadable;
  std::array<char, 132> head{};
  const bool marked = stream.read(head.data(), head.size()) && std::memcmp(head.data() + 128, "DICM", 4) == 0;
  const bool unmarked_dicom = stream.gcount() > 0 && lower_extension(path) == ".dcm";
  return marked || unmarked_dicom ? Content::dicom : Content::other;
}

/// The other file of a .hdr/.img pair as it is spelled on disk, or nothing.
std::optional<std::string> partner_of(const std::string& path, std::string_view extension, std::string_view partner) {
  const std::string base = path.substr(0, path.size() - extension.size());
  std::string upper(partner);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return char(std::toupper(c)); });
  for (const std::string& candidate :
       {base + std::string(partner), base + std::string(partner) + ".gz", base + upper, base + upper + ".GZ"}) {
    std::error_code failure;
    if (fs::is_regular_file(candidate, failure)) return candidate;
  }
  return std::nullopt;
}

class Search {
 public:
  Search(const std::string& root, const ReadOptions& options) : root_(root), options_(options) {}

  Found take() {
    std::stable_sort(found_.sources.begin(), found_.sources.end(),
                     [](const Source& a, const Source& b) { return a.path < b.path; });
    std::stable_sort(found_.faults.begin(), found_.faults.end(),
                     [](const auto& a, const auto& b) { return a.path < b.path; });
    if (passed_over_ > 0)
      found_.notices.add("passed_over",
                         "passed over " + std::to_string(passed_over_) +
                             (passed_over_ == 1 ? " file that is not a volume" : " files that are not volumes"));
    return std::move(found_);
  }

  void file(const std::string& path) {
    if (const auto extension = volume_extension(path)) return claimed_file(path, *extension, "");
    switch (probe(path)) {
      case Content::dicom:
        return single_dicom(path);
      case Content::unreadable:
        throw Error(ErrorCode::input, "the file cannot be opened: " + std::string(std::strerror(errno)))
            .with_path(path);
      case Content::other:
        break;
    }
    throw Error(ErrorCode::input,
                "the file is of no known kind: .nii, .nii.gz, .hdr/.img, .nrrd, .nhdr, .mha, .mhd or DICOM is expected")
        .with_path(path);
  }

  void folder(const std::string& path, const std::string& relative) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0)
      return fault(path, "the folder cannot be read: " + std::string(std::strerror(errno)));
    const std::pair identity(status.st_dev, status.st_ino);
    if (std::find(open_folders_.begin(), open_folders_.end(), identity) != open_folders_.end()) return;
    std::vector<std::string> names;
    if (const std::error_code failure = list(path, names)) {
      if (relative.empty())
        throw Error(ErrorCode::input, "the folder cannot be read: " + failure.message()).with_path(path);
      return fault(path, "the folder cannot be read: " + failure.message());
    }
    open_folders_.push_back(identity);
    std::vector<std::string> dicom;
    for (const std::string& name : names) entry(path, relative, name, dicom);
    if (!dicom.empty()) dicom_folder(path, relative, dicom);
    open_folders_.pop_back();
  }

 private:
  static std::error_code list(const std::string& path, std::vector<std::string>& names) {
    std::error_code failure;
    for (fs::directory_iterator item(path, failure), end; !failure && item != end; item.increment(failure))
      names.push_back(item->path().filename().string());
    std::sort(names.begin(), names.end());
    return failure;
  }

  void fault(const std::string& path, const std::string& message) { found_.faults.push_back({path, message}); }

  void entry(const std::string& folder_path, const std::string& relative, const std::string& name,
             std::vector<std::string>& dicom) {
    const std::string path = folder_path + "/" + name;
    if (is_hidden(name)) {
      ++passed_over_;
      return;
    }
    std::error_code failure;
    const fs::file_status status = fs::status(path, failure);
    if (fs::is_directory(status)) return folder(path, relative.empty() ? name : relative + "/" + name);
    const auto extension = volume_extension(path);
    if (!fs::is_regular_file(status)) {
      if (extension) fault(path, "the file cannot be opened: it is a broken link or no ordinary file");
      else ++passed_over_;
      return;
    }
    if (extension) return claimed_file(path, *extension, relative);
    switch (probe(path)) {
      case Content::dicom:
        dicom.push_back(path);
        break;
      case Content::unreadable:
        fault(path, "the file cannot be opened: " + std::string(std::strerror(errno)));
        break;
      case Content::other:
        passed_over_ += !is_data_of_a_header(path);
    }
  }

  static bool is_data_of_a_header(const std::string& path) {
    const std::string stem = stem_of_data(path);
    std::error_code failure;
    return !stem.empty() && (fs::exists(stem + ".mhd", failure) || fs::exists(stem + ".nhdr", failure));
  }

  static std::string stem_of_data(const std::string& path) {
    for (const std::string_view extension : {".raw.gz", ".raw", ".zraw"})
      if (path.size() > extension.size() && path.ends_with(extension))
        return path.substr(0, path.size() - extension.size());
    return {};
  }

  void claimed_file(const std::string& path, std::string_view extension, const std::string& relative) {
    if (is_image_of_pair(extension)) {
      if (const auto header = partner_of(path, extension, ".hdr")) {
        if (root_ == path) claimed_file(*header, *volume_extension(*header), relative);
        return;
      }
      const std::string stem = path.substr(0, path.size() - extension.size());
      std::error_code failure;
      if (fs::exists(stem + ".mhd", failure) || fs::exists(stem + ".nhdr", failure)) return;
      return fault(path, "its header file (.hdr) is missing: keep the two files together");
    }
    if (const std::string message = claim_fault(path, extension); !message.empty()) return fault(path, message);
    found_.sources.push_back({path, {}, {}, relative, stem_of(path)});
  }

  void single_dicom(const std::string& path) {
    const DicomFolder contents = load_module().group_dicom({path}, options_);
    if (contents.not_images > 0) throw Error(ErrorCode::input, "the DICOM file holds no image").with_path(path);
    for (const auto& problem : contents.faults) found_.faults.push_back(problem);
    for (const DicomGroup& group : contents.groups)
      found_.sources.push_back({path, group.files, group.series_uid, "", stem_of(path)});
  }

  void dicom_folder(const std::string& path, const std::string& relative, const std::vector<std::string>& files) {
    const DicomFolder contents = load_module().group_dicom(files, options_);
    passed_over_ += contents.not_images;
    for (const Notice& notice : contents.notices.list()) found_.notices.add(notice.code, path + ": " + notice.message);
    for (const auto& problem : contents.faults) found_.faults.push_back(problem);
    const fs::path place = relative.empty() ? fs::path() : fs::path(relative);
    std::error_code failure;
    const std::string name =
        relative.empty() ? fs::canonical(path, failure).filename().string() : place.filename().string();
    const std::vector<std::string> stems = series_stems(name, contents);
    for (std::size_t i = 0; i < contents.groups.size(); ++i)
      found_.sources.push_back(
          {path, contents.groups[i].files, contents.groups[i].series_uid, place.parent_path().string(), stems[i]});
  }

  /// The folder's name; with several series the series number as well, and a count where that is shared.
  static std::vector<std::string> series_stems(const std::string& name, const DicomFolder& contents) {
    std::vector<std::string> stems;
    std::map<std::string, int> uses, numbered;
    for (const DicomGroup& group : contents.groups) {
      stems.push_back(contents.volumes == 1 || group.series_number.empty() ? name : name + "_" + group.series_number);
      ++uses[stems.back()];
    }
    for (std::string& stem : stems)
      if (uses[stem] > 1) stem += "_" + std::to_string(++numbered[stem]);
    return stems;
  }

  std::string root_;
  ReadOptions options_;
  Found found_;
  std::size_t passed_over_ = 0;
  std::vector<std::pair<dev_t, ino_t>> open_folders_;
};

}  // namespace

Found find_sources(const std::string& input, const ReadOptions& options) {
  std::string root = input;
  while (root.size() > 1 && root.ends_with('/')) root.pop_back();
  std::error_code failure;
  const fs::file_status status = fs::status(root, failure);
  if (!fs::exists(status))
    throw Error(ErrorCode::input, "there is no such file or folder" +
                                      (failure && failure.value() != ENOENT ? ": " + failure.message() : std::string()))
        .with_path(input);
  Search search(root, options);
  if (fs::is_directory(status)) search.folder(root, "");
  else if (fs::is_regular_file(status)) search.file(root);
  else throw Error(ErrorCode::input, "it is neither an ordinary file nor a folder").with_path(input);
  return search.take();
}

}  // namespace volpipe::io
