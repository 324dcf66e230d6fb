#include "io/module/dicom.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <set>
#include <tuple>

#include "io/module/dicom_stack.h"
#include "volume/error.h"

namespace volpipe::io {

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::vector<DicomFile> read_files(const std::vector<std::string>& paths) {
  std::vector<DicomFile> files;
  for (const std::string& path : paths) {
    auto file = read_dicom_file(path);
    if (!file) throw Error(ErrorCode::input, "the DICOM file holds no image").with_path(path);
    files.push_back(std::move(*file));
  }
  return files;
}

/// A stored value: `bits` bits below and including the high bit, sign-extended.
struct StoredBits {
  int shift, bits;
  bool is_signed;

  explicit StoredBits(const DicomFile& file)
      : shift(file.high_bit + 1 - file.bits_stored), bits(file.bits_stored), is_signed(file.is_signed) {}

  std::int64_t operator()(std::uint32_t raw) const {
    const std::uint32_t value = bits == 32 ? raw : (raw >> shift) & ((std::uint32_t(1) << bits) - 1);
    const bool negative = is_signed && (value >> (bits - 1) & 1);
    return negative ? std::int64_t(value) - (std::int64_t(1) << bits) : std::int64_t(value);
  }
};

template <class Raw, class Out>
void convert(const std::uint8_t* raw, std::size_t count, const StoredBits& stored, const DicomFrame& frame, Out* out) {
  const bool identity = frame.slope == 1 && frame.intercept == 0;
  for (std::size_t i = 0; i < count; ++i) {
    Raw word;
    std::memcpy(&word, raw + i * sizeof(Raw), sizeof(Raw));
    const std::int64_t value = stored(word);
    out[i] = identity ? Out(value) : Out(double(value) * frame.slope + frame.intercept);
  }
}

void convert_slice(const DicomFile& file, const DicomFrame& frame, const std::uint8_t* raw, DataType type, void* out) {
  const auto count = std::size_t(file.rows * file.columns);
  const StoredBits stored(file);
  visit(type, [&](auto tag) {
    auto* values = static_cast<typename decltype(tag)::type*>(out);
    if (file.bits_allocated == 8) convert<std::uint8_t>(raw, count, stored, frame, values);
    else if (file.bits_allocated == 16) convert<std::uint16_t>(raw, count, stored, frame, values);
    else convert<std::uint32_t>(raw, count, stored, frame, values);
  });
}

void separate_colours(const DicomFile& file, const std::uint8_t* raw, std::int64_t slice, Volume& volume) {
  const auto count = file.rows * file.columns;
  for (int channel = 0; channel < 3; ++channel) {
    auto* out = static_cast<std::uint8_t*>(volume.component(channel)) + slice * count;
    const std::int64_t stride = file.planar_samples ? 1 : 3;
    const std::uint8_t* in = raw + (file.planar_samples ? channel * count : channel);
    for (std::int64_t i = 0; i < count; ++i) out[i] = in[i * stride];
  }
}

/// Where frame `frame` of file `file` goes: its component and slice.
struct Target {
  std::size_t file, frame;
  std::int64_t component, slice;
};

std::vector<Target> targets_by_file(const DicomStack& stack) {
  std::vector<Target> targets;
  for (std::size_t c = 0; c < stack.components.size(); ++c)
    for (std::size_t z = 0; z < stack.components[c].size(); ++z)
      targets.push_back({stack.components[c][z].file, stack.components[c][z].frame, std::int64_t(c), std::int64_t(z)});
  std::stable_sort(targets.begin(), targets.end(), [](const Target& a, const Target& b) { return a.file < b.file; });
  return targets;
}

void place_frame(const DicomFile& file, const std::uint8_t* raw, const Target& target, Volume& volume) {
  if (file.samples == 3) return separate_colours(file, raw, target.slice, volume);
  auto* out = static_cast<std::byte*>(volume.component(target.component));
  const std::size_t slice_bytes = std::size_t(file.rows * file.columns) * size_of(volume.dtype());
  convert_slice(file, file.frames[target.frame], raw, volume.dtype(), out + std::size_t(target.slice) * slice_bytes);
}

struct SortedGroup {
  DicomGroup group;
  double number;
};

double series_order(const std::string& number) {
  try {
    return std::stod(number);
  } catch (const std::exception&) { return -1; }
}

/// One notice a series whose files differ so much that they make several volumes.
void note_split_series(const std::vector<DicomFile>& files, const std::vector<std::vector<std::size_t>>& volumes,
                       Notices& notices) {
  std::set<std::string> noted;
  for (std::size_t i = 0; i < volumes.size(); ++i)
    for (std::size_t k = i + 1; k < volumes.size(); ++k) {
      const DicomFile &a = files[volumes[i][0]], &b = files[volumes[k][0]];
      const std::string difference = difference_within_series(a, b);
      if (difference.empty() || !noted.insert(a.series_uid).second) continue;
      notices.add("series_split", "the files of series " + (a.series_number.empty() ? a.series_uid : a.series_number) +
                                      " differ in " + difference + " (" + a.name() + " and " + b.name() +
                                      "): they are read as several volumes");
    }
}

}  // namespace

DicomFolder group_dicom(const std::vector<std::string>& paths, const ReadOptions&) {
  DicomFolder folder;
  std::vector<DicomFile> files;
  for (const std::string& path : paths) try {
      if (auto file = read_dicom_file(path)) files.push_back(std::move(*file));
      else ++folder.not_images;
    } catch (const Error& error) { folder.faults.push_back({path, error.what()}); }

  std::vector<SortedGroup> sorted;
  const auto volumes = split_into_volumes(files);
  note_split_series(files, volumes, folder.notices);
  for (const auto& list : volumes) {
    ++folder.volumes;
    std::vector<DicomFile> members;
    for (const std::size_t i : list) members.push_back(files[i]);
    try {
      Notices ignored;
      const DicomStack stack = arrange_stack(members, ignored);
      DicomGroup group{{}, members[0].series_uid, members[0].series_number};
      if (members[0].multi_frame) group.files = {members[0].path};
      else
        for (const FrameRef& ref : stack.components[0]) group.files.push_back(members[ref.file].path);
      sorted.push_back({std::move(group), series_order(members[0].series_number)});
    } catch (const Error& error) {
      const bool alone = members.size() == 1;
      folder.faults.push_back(
          {alone ? members[0].path : std::filesystem::path(members[0].path).parent_path().string(), error.what()});
    }
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const SortedGroup& a, const SortedGroup& b) {
    return std::tie(a.number, a.group.series_uid) < std::tie(b.number, b.group.series_uid);
  });
  for (SortedGroup& item : sorted) folder.groups.push_back(std::move(item.group));
  return folder;
}

namespace {

class OpenDicom final : public OpenVolume {
 public:
  OpenDicom(const Source& source, Notices& notices) : files_(read_files(source.files)) {
    stack_ = arrange_stack(files_, notices);
    opening_ms_ = milliseconds_since(start_);
  }

  const VolumeInfo& info() const override { return stack_.info; }

  Volume read(const HostAllocator& allocate, Notices&, ReadTiming* timing) override {
    Volume volume(stack_.info, allocate(stack_.info.bytes()));
    double read_ms = opening_ms_, decode_ms = 0;
    const std::vector<Target> targets = targets_by_file(stack_);
    for (auto target = targets.begin(); target != targets.end();) {
      DicomFile& file = files_[target->file];
      auto began = Clock::now();
      const std::vector<std::uint8_t> pixels = read_dicom_pixels(file);
      read_ms += milliseconds_since(began);
      began = Clock::now();
      for (const std::size_t current = target->file; target != targets.end() && target->file == current; ++target)
        place_frame(file, pixels.data() + target->frame * file.frame_bytes(), *target, volume);
      decode_ms += milliseconds_since(began);
    }
    if (timing) *timing = {read_ms, decode_ms};
    return volume;
  }

 private:
  Clock::time_point start_ = Clock::now();
  std::vector<DicomFile> files_;
  DicomStack stack_;
  double opening_ms_ = 0;
};

}  // namespace

std::unique_ptr<OpenVolume> open_dicom(const Source& source, Notices& notices, const ReadOptions&) {
  return std::make_unique<OpenDicom>(source, notices);
}

}  // namespace volpipe::io
