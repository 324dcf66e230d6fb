#include "io/module/dicom.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "io/module/dicom_stack.h"
#include "io/module/in_order.h"
#include "volume/error.h"

namespace volpipe::io {

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
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

/// Those of each file beside each other, files that give nothing left out.
std::vector<std::vector<Target>> targets_by_file(const DicomStack& stack) {
  std::map<std::size_t, std::vector<Target>> by_file;
  for (std::size_t c = 0; c < stack.components.size(); ++c)
    for (std::size_t z = 0; z < stack.components[c].size(); ++z) {
      const FrameRef& ref = stack.components[c][z];
      by_file[ref.file].push_back({ref.file, ref.frame, std::int64_t(c), std::int64_t(z)});
    }
  std::vector<std::vector<Target>> targets;
  for (auto& [file, list] : by_file) targets.push_back(std::move(list));
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
    const double order = std::stod(number);
    return std::isfinite(order) ? order : -1;
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

namespace {

/// What one path of a folder turned out to be.
struct Probe {
  std::optional<DicomFile> file;
  std::string fault;
};

std::vector<Probe> probe_files(const std::vector<std::string>& paths, const HostThreads* threads) {
  std::vector<Probe> probes(paths.size());
  in_order(threads, paths.size(), [&](std::size_t i) {
    try {
      probes[i].file = read_dicom_file(paths[i]);
    } catch (const Error& error) { probes[i].fault = error.what(); }
  });
  return probes;
}

}  // namespace

DicomFolder group_dicom(const std::vector<std::string>& paths, const ReadOptions& options) {
  DicomFolder folder;
  std::vector<DicomFile> files;
  std::vector<Probe> probes = probe_files(paths, options.threads);
  for (std::size_t i = 0; i < probes.size(); ++i) {
    if (probes[i].file) files.push_back(std::move(*probes[i].file));
    else if (!probes[i].fault.empty()) folder.faults.push_back({paths[i], probes[i].fault});
    else ++folder.not_images;
  }

  std::vector<SortedGroup> sorted;
  const auto volumes = split_into_volumes(files);
  note_split_series(files, volumes, folder.notices);
  for (const auto& list : volumes) {
    ++folder.volumes;
    std::vector<DicomFile> members;
    for (const std::size_t i : list) members.push_back(files[i]);
    try {
      Notices ignored;
      const DicomStack stack = arrange_stack(members, options, ignored);
      DicomGroup group{{}, members[0].series_uid, members[0].series_number};
      if (members[0].multi_frame) group.files = {members[0].path};
      else
        for (const auto* refs : {&stack.components[0], &stack.left_out})
          for (const FrameRef& ref : *refs) group.files.push_back(members[ref.file].path);
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
  OpenDicom(const Source& source, Notices& notices, const ReadOptions& options)
      : threads_(options.threads), files_(read_dicom_files(source.files, threads_)) {
    stack_ = arrange_stack(files_, options, notices);
    opening_ms_ = milliseconds_since(start_);
  }

  const VolumeInfo& info() const override { return stack_.info; }

  Volume read(const HostAllocator& allocate, Notices&, ReadTiming* timing) override {
    const auto start = Clock::now();
    Volume volume(stack_.info, allocate(stack_.info.bytes()));
    const auto targets = targets_by_file(stack_);
    std::vector<ReadTiming> parts(targets.size());
    in_order(threads_, targets.size(), [&](std::size_t i) { parts[i] = read_file(targets[i], volume); });
    if (timing) *timing = shares(milliseconds_since(start), parts);
    return volume;
  }

 private:
  ReadTiming read_file(const std::vector<Target>& targets, Volume& volume) {
    DicomFile& file = files_[targets[0].file];
    const auto start = Clock::now();
    StoredPixels stored = read_stored_pixels(file);
    const double read_ms = milliseconds_since(start);
    const std::vector<std::uint8_t> pixels = decode_pixels(file, std::move(stored));
    for (const Target& target : targets)
      place_frame(file, pixels.data() + target.frame * file.frame_bytes(), target, volume);
    return {read_ms, milliseconds_since(start) - read_ms};
  }

  /// The time that passed, divided as the times of the threads add up.
  ReadTiming shares(double passed_ms, const std::vector<ReadTiming>& parts) const {
    double read_ms = 0, all_ms = 1e-9;
    for (const ReadTiming& part : parts) {
      read_ms += part.read_ms;
      all_ms += part.read_ms + part.decode_ms;
    }
    const double reading_ms = passed_ms * read_ms / all_ms;
    return {opening_ms_ + reading_ms, passed_ms - reading_ms};
  }

  Clock::time_point start_ = Clock::now();
  const HostThreads* threads_;
  std::vector<DicomFile> files_;
  DicomStack stack_;
  double opening_ms_ = 0;
};

}  // namespace

std::unique_ptr<OpenVolume> open_dicom(const Source& source, Notices& notices, const ReadOptions& options) {
  return std::make_unique<OpenDicom>(source, notices, options);
}

}  // namespace volpipe::io
