#include "io/module/dicom_stack.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <numeric>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "volume/error.h"

namespace volpipe::io {

namespace {

constexpr double kDirectionTolerance = 1e-4;  // of a unit vector's component, within one series
constexpr double kStepTolerance = 0.01;       // of the distance between slices
constexpr double kRoundingSkew = 1e-3;        // of the distance between slices

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::input, message); }

std::string millimetres(double value) {
  std::ostringstream text;
  text.precision(6);
  text << value << " mm";
  return text.str();
}

std::string quoted_list(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kShown); ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > kShown) text += " and " + std::to_string(names.size() - kShown) + " more";
  return text;
}

const DicomFrame& frame_of(const std::vector<DicomFile>& files, const FrameRef& ref) {
  return files[ref.file].frames[ref.frame];
}

std::string name_of(const std::vector<DicomFile>& files, const FrameRef& ref) {
  const DicomFile& file = files[ref.file];
  return file.multi_frame ? "frame " + std::to_string(ref.frame + 1) + " of " + file.name() : file.name();
}

bool same_orientation(const DicomFrame& a, const DicomFrame& b) {
  if (a.orientation.has_value() != b.orientation.has_value()) return false;
  if (!a.orientation) return true;
  for (int v = 0; v < 2; ++v)
    for (int i = 0; i < 3; ++i)
      if (std::abs((*a.orientation)[v][i] - (*b.orientation)[v][i]) > kDirectionTolerance) return false;
  return true;
}

bool same_spacing(const DicomFrame& a, const DicomFrame& b) {
  if (a.pixel_spacing.has_value() != b.pixel_spacing.has_value()) return false;
  if (!a.pixel_spacing) return true;
  for (int i = 0; i < 2; ++i)
    if (std::abs((*a.pixel_spacing)[i] - (*b.pixel_spacing)[i]) > 1e-4 * std::abs((*a.pixel_spacing)[i])) return false;
  return true;
}

bool same_values(const DicomFile& a, const DicomFile& b) {
  return a.bits_allocated == b.bits_allocated && a.is_signed == b.is_signed && a.photometric == b.photometric;
}

bool same_planes(const DicomFile& a, const DicomFile& b) {
  return !a.multi_frame && !b.multi_frame && a.series_uid == b.series_uid && a.rows == b.rows &&
         a.columns == b.columns && a.sop_class == b.sop_class && a.samples == b.samples && a.localizer == b.localizer &&
         same_orientation(a.frames[0], b.frames[0]) && same_spacing(a.frames[0], b.frames[0]);
}

bool same_volume(const DicomFile& a, const DicomFile& b) { return same_planes(a, b) && same_values(a, b); }

Vec3 unit(const Vec3& v) { return (1.0 / norm(v)) * v; }

bool are_perpendicular_units(const std::array<Vec3, 2>& orientation) {
  const auto& [row, column] = orientation;
  constexpr double kWrong = 1e-2;
  return std::abs(norm(row) - 1) <= kWrong && std::abs(norm(column) - 1) <= kWrong &&
         std::abs(dot(row, column)) <= kWrong;
}

/// Unit row and column directions, made exactly perpendicular, and their normal.
std::array<Vec3, 3> plane_axes(const std::array<Vec3, 2>& orientation, const std::string& name) {
  const auto& [row, column] = orientation;
  if (!are_perpendicular_units(orientation))
    refuse(name +
           ": ImageOrientationPatient does not hold two perpendicular unit vectors: repair the header or leave the "
           "file out");
  const Vec3 x = unit(row);
  const Vec3 y = unit(column - dot(x, column) * x);
  return {x, y, cross(x, y)};
}

/// Numbers in their order, other text after them.
bool mark_less(const std::string& a, const std::string& b) {
  const auto number = [](const std::string& text, double& value) {
    std::istringstream stream(text);
    return bool(stream >> value) && stream.eof();
  };
  double x = 0, y = 0;
  const bool a_number = number(a, x), b_number = number(b, y);
  if (a_number && b_number) return x < y;
  return a_number != b_number ? a_number : a < b;
}

bool marks_less(const FrameMarks& a, const FrameMarks& b) {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(), mark_less);
}

struct MarkLess {
  bool operator()(const FrameMarks& a, const FrameMarks& b) const { return marks_less(a, b); }
};

/// Only the mark `which`, or all of them.
FrameMarks selected_marks(const FrameMarks& marks, std::size_t which) {
  if (which == marks.size()) return marks;
  FrameMarks selected;
  selected[which] = marks[which];
  return selected;
}

/// Positions along the normal, ascending, with equal ones (to a tolerance of the usual step) in one row.
std::vector<std::vector<FrameRef>> rows_by_position(const std::vector<DicomFile>& files, std::vector<FrameRef> refs,
                                                    const Vec3& normal) {
  const auto height = [&](const FrameRef& ref) { return dot(*frame_of(files, ref).position, normal); };
  std::stable_sort(refs.begin(), refs.end(),
                   [&](const FrameRef& a, const FrameRef& b) { return height(a) < height(b); });
  std::vector<double> steps;
  for (std::size_t i = 1; i < refs.size(); ++i)
    if (const double step = height(refs[i]) - height(refs[i - 1]); step > 1e-4) steps.push_back(step);
  double usual = 0;
  if (!steps.empty()) {
    std::nth_element(steps.begin(), steps.begin() + std::ptrdiff_t(steps.size() / 2), steps.end());
    usual = steps[steps.size() / 2];
  }
  const double same = std::max(1e-4, kStepTolerance * usual);
  std::vector<std::vector<FrameRef>> rows;
  for (const FrameRef& ref : refs) {
    if (rows.empty() || height(ref) - height(rows.back().front()) > same) rows.emplace_back();
    rows.back().push_back(ref);
  }
  return rows;
}

bool all_positions_once(const std::vector<DicomFile>& files, const std::vector<std::size_t>& list, const Vec3& normal,
                        std::size_t wanted) {
  std::vector<FrameRef> refs;
  for (const std::size_t file : list) refs.push_back({file, 0});
  return list.size() == wanted && rows_by_position(files, refs, normal).size() == wanted;
}

/// A place along a normal, which can be sorted by: a wild orientation would give heights that are not numbers.
bool has_plane(const DicomFile& file) {
  const DicomFrame& frame = file.frames[0];
  return frame.position && frame.orientation && are_perpendicular_units(*frame.orientation);
}

/// Splits single-frame files of which several lie at each position, when one mark (or all together) tells them apart.
std::vector<std::vector<std::size_t>> split_repeats(const std::vector<DicomFile>& files,
                                                    const std::vector<std::size_t>& list) {
  if (list.size() < 2 || !std::all_of(list.begin(), list.end(), [&](std::size_t i) { return has_plane(files[i]); }))
    return {list};
  const auto& orientation = *files[list[0]].frames[0].orientation;
  const Vec3 normal = cross(orientation[0], orientation[1]);
  std::vector<FrameRef> refs;
  for (const std::size_t file : list) refs.push_back({file, 0});
  const std::size_t positions = rows_by_position(files, refs, normal).size();
  if (positions == list.size() || list.size() % positions != 0) return {list};

  for (std::size_t which = 0; which <= kFrameMarkNames.size(); ++which) {
    std::map<FrameMarks, std::vector<std::size_t>, MarkLess> parts;
    for (const std::size_t file : list) parts[selected_marks(files[file].frames[0].marks, which)].push_back(file);
    if (parts.size() != list.size() / positions) continue;
    const auto whole = [&](const auto& part) { return all_positions_once(files, part.second, normal, positions); };
    if (!std::all_of(parts.begin(), parts.end(), whole)) continue;
    std::vector<std::vector<std::size_t>> volumes;
    for (auto& [marks, part] : parts) volumes.push_back(std::move(part));
    return volumes;
  }
  return {list};
}

/// Whether the positions of two lists lie between each other without sharing one.
bool interleave(const std::vector<DicomFile>& files, const std::vector<std::size_t>& a,
                const std::vector<std::size_t>& b) {
  const auto placed = [&](std::size_t i) { return has_plane(files[i]); };
  if (!std::all_of(a.begin(), a.end(), placed) || !std::all_of(b.begin(), b.end(), placed)) return false;
  const auto& orientation = *files[a[0]].frames[0].orientation;
  const Vec3 normal = cross(orientation[0], orientation[1]);
  const auto heights = [&](const std::vector<std::size_t>& list) {
    std::vector<double> values;
    for (const std::size_t i : list) values.push_back(dot(*files[i].frames[0].position, normal));
    std::sort(values.begin(), values.end());
    return values;
  };
  const auto first = heights(a), second = heights(b);
  for (const double height : first) {
    const auto at = std::lower_bound(second.begin(), second.end(), height - 1e-4);
    if (at != second.end() && *at < height + 1e-4) return false;
  }
  return first.front() < second.back() && second.front() < first.back();
}

/// Joins lists that are one stack but for the pixel layout, so that arrange_stack names them.
void join_interleaved(const std::vector<DicomFile>& files, std::vector<std::vector<std::size_t>>& lists) {
  for (std::size_t i = 0; i < lists.size(); ++i)
    for (std::size_t k = i + 1; k < lists.size();) {
      if (same_planes(files[lists[i][0]], files[lists[k][0]]) && interleave(files, lists[i], lists[k])) {
        lists[i].insert(lists[i].end(), lists[k].begin(), lists[k].end());
        lists.erase(lists.begin() + std::ptrdiff_t(k));
      } else {
        ++k;
      }
    }
}

}  // namespace

std::string difference_within_series(const DicomFile& a, const DicomFile& b) {
  if (a.series_uid != b.series_uid || a.multi_frame || b.multi_frame) return {};
  if (a.rows != b.rows || a.columns != b.columns) return "image size";
  if (!same_orientation(a.frames[0], b.frames[0])) return "ImageOrientationPatient";
  if (!same_spacing(a.frames[0], b.frames[0])) return "PixelSpacing";
  return same_volume(a, b) ? "" : "kind of image";
}

std::vector<std::vector<std::size_t>> split_into_volumes(const std::vector<DicomFile>& files) {
  std::vector<std::vector<std::size_t>> alike;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto group = std::find_if(alike.begin(), alike.end(),
                                    [&](const auto& list) { return same_volume(files[list[0]], files[i]); });
    if (group == alike.end()) alike.push_back({i});
    else group->push_back(i);
  }
  join_interleaved(files, alike);
  std::vector<std::vector<std::size_t>> volumes;
  for (const auto& list : alike)
    for (auto& part : split_repeats(files, list)) volumes.push_back(std::move(part));
  return volumes;
}

namespace {

std::vector<FrameRef> all_frames(const std::vector<DicomFile>& files) {
  std::vector<FrameRef> refs;
  for (std::size_t file = 0; file < files.size(); ++file)
    for (std::size_t frame = 0; frame < files[file].frames.size(); ++frame) refs.push_back({file, frame});
  return refs;
}

bool has_spacing(const DicomFrame& frame) {
  return frame.pixel_spacing && (*frame.pixel_spacing)[0] > 0 && (*frame.pixel_spacing)[1] > 0;
}

constexpr char kCureOfNoGeometry[] = ", or give --allow-no-geometry to go by InstanceNumber and 1 mm";

/// Refuses frames without a place in space.
void check_frames_are_placed(const std::vector<DicomFile>& files, const std::vector<FrameRef>& refs) {
  const auto check = [&](auto present, const std::string& what) {
    std::vector<std::string> names;
    for (const FrameRef& ref : refs)
      if (!present(frame_of(files, ref))) names.push_back(name_of(files, ref));
    if (!names.empty())
      refuse(quoted_list(names) + ": " + what +
             " is missing, so the volume has no place in space: export the images with their geometry" +
             kCureOfNoGeometry);
  };
  for (const DicomFile& file : files)
    if (file.multi_frame && !file.lists_frames)
      refuse(file.name() + ": the file holds " + std::to_string(file.frames.size()) +
             " frames without a position for each: only enhanced multi-frame files say where their frames lie, so "
             "export the series as such or as single slices" +
             kCureOfNoGeometry);
  check([](const DicomFrame& f) { return f.position.has_value(); }, "ImagePositionPatient");
  check([](const DicomFrame& f) { return f.orientation.has_value(); }, "ImageOrientationPatient");
  check(has_spacing, "a positive PixelSpacing");
}

/// The frames in the order of InstanceNumber, those without one last, then of names and frame numbers.
std::vector<FrameRef> by_instance(const std::vector<DicomFile>& files, std::vector<FrameRef> refs) {
  const auto key = [&](const FrameRef& ref) {
    const DicomFile& file = files[ref.file];
    return std::tuple(!file.instance_number, file.instance_number.value_or(0), file.name(), ref.frame);
  };
  std::sort(refs.begin(), refs.end(), [&](const FrameRef& a, const FrameRef& b) { return key(a) < key(b); });
  return refs;
}

/// What a step along the normal is taken to be.
struct AssumedStep {
  double mm = 1;
  std::string source;  ///< empty where nothing says more
};

AssumedStep assumed_step(const DicomFrame& frame) {
  if (frame.spacing_between_slices.value_or(0) > 0)
    return {*frame.spacing_between_slices, " as SpacingBetweenSlices says"};
  if (frame.slice_thickness.value_or(0) > 0) return {*frame.slice_thickness, " as SliceThickness says"};
  return {};
}

/// The files with a position, orientation and spacing for every frame.
std::vector<DicomFile> with_assumed_geometry(std::vector<DicomFile> files, const std::vector<FrameRef>& refs,
                                             Notices& notices) {
  const auto frames = [&](const FrameRef& ref) -> DicomFrame& { return files[ref.file].frames[ref.frame]; };
  std::vector<std::string> names;
  for (const FrameRef& ref : refs) names.push_back(name_of(files, ref));
  const auto everywhere = [&](auto present) {
    return std::all_of(refs.begin(), refs.end(), [&](const FrameRef& ref) { return present(frames(ref)); });
  };
  std::vector<std::string> assumed;
  if (!everywhere([](const DicomFrame& f) { return f.orientation.has_value(); })) {
    for (const FrameRef& ref : refs) frames(ref).orientation = {{{1, 0, 0}, {0, 1, 0}}};
    assumed.push_back("the planes are taken for axial");
  }
  if (!everywhere(has_spacing)) {
    for (const FrameRef& ref : refs) frames(ref).pixel_spacing = {{1, 1}};
    assumed.push_back("the pixels are taken for 1 mm");
  }
  const Vec3 normal = plane_axes(*frames(refs[0]).orientation, names[0])[2];
  const AssumedStep step = assumed_step(frames(refs[0]));
  if (!everywhere([](const DicomFrame& f) { return f.position.has_value(); })) {
    const auto ordered = by_instance(files, refs);
    for (std::size_t i = 0; i < ordered.size(); ++i) frames(ordered[i]).position = (step.mm * double(i)) * normal;
    assumed.push_back("the slices are ordered by InstanceNumber and name, " + millimetres(step.mm) + " apart" +
                      step.source);
  }
  if (refs.size() == 1 && step.source.empty()) {
    frames(refs[0]).spacing_between_slices = step.mm;
    assumed.push_back("the slice is taken to be 1 mm thick");
  }
  std::string what;
  for (const std::string& part : assumed) what += (what.empty() ? "" : ", ") + part;
  if (!what.empty())
    notices.add("geometry_assumed", quoted_list(names) + ": the header does not say where the voxels lie: " + what);
  return files;
}

void check_frames_are_alike(const std::vector<DicomFile>& files, const std::vector<FrameRef>& refs) {
  for (const DicomFile& file : files)
    if (file.multi_frame != files[0].multi_frame || (!file.multi_frame && !same_volume(files[0], file)))
      refuse(files[0].name() + " and " + file.name() +
             " belong to different series or differ in size, orientation, spacing or pixel type");
  for (const FrameRef& ref : refs) {
    if (!same_orientation(frame_of(files, refs[0]), frame_of(files, ref)))
      throw Error(
          ErrorCode::unsupported,
          files[ref.file].name() + " holds frames of several orientations: split it into one file an orientation");
    if (!same_spacing(frame_of(files, refs[0]), frame_of(files, ref)))
      refuse(name_of(files, refs[0]) + " and " + name_of(files, ref) + " have different PixelSpacing");
  }
}

void check_pixels(const std::vector<DicomFile>& files) {
  for (const DicomFile& file : files) {
    if (!file.fault.empty()) throw Error(ErrorCode::input, file.fault).with_path(file.path);
    check_transfer_syntax(file);
    const bool grey = file.photometric == "MONOCHROME1" || file.photometric == "MONOCHROME2";  // GDCM knows no other
    if (file.samples == 1 && grey) continue;
    if (file.samples == 3 && file.photometric == "RGB" && file.bits_allocated == 8) continue;
    throw Error(ErrorCode::unsupported, file.name() + ": images of type " + file.photometric + " with " +
                                            std::to_string(file.samples) + " samples of " +
                                            std::to_string(file.bits_allocated) +
                                            " bits are not supported: grey or 8-bit RGB is expected");
  }
}

/// Of the files at one position the first by name stays; the others go to `left_out`.
void leave_out_copies(const std::vector<DicomFile>& files, std::vector<std::vector<FrameRef>>& rows,
                      std::vector<FrameRef>& left_out, Notices& notices) {
  std::vector<std::string> dropped, kept;
  for (auto& row : rows) {
    if (row.size() == 1) continue;
    std::stable_sort(row.begin(), row.end(),
                     [&](const FrameRef& a, const FrameRef& b) { return files[a.file].path < files[b.file].path; });
    kept.push_back(name_of(files, row[0]));
    for (std::size_t i = 1; i < row.size(); ++i) dropped.push_back(name_of(files, row[i]));
    left_out.insert(left_out.end(), row.begin() + 1, row.end());
    row.resize(1);
  }
  if (!dropped.empty())
    notices.add("duplicates_left_out", quoted_list(dropped) + ": left out, because they lie where " +
                                           quoted_list(kept) + " do, which come first by name");
}

/// Several frames a position become components, in the order of their marks and then of the file; the same in every
/// row.
std::vector<std::vector<FrameRef>> components_of(const std::vector<DicomFile>& files,
                                                 std::vector<std::vector<FrameRef>> rows) {
  const std::size_t count = rows[0].size();
  for (const auto& row : rows) {
    if (row.size() == count && (count == 1 || files[0].multi_frame)) continue;
    const auto& several = row.size() > 1 ? row : rows[0];
    std::vector<std::string> names;
    for (const FrameRef& ref : several) names.push_back(name_of(files, ref));
    refuse(quoted_list(names) + " lie at the same position" +
           (row.size() != count ? " while other positions have another number of images"
                                : ", and nothing in their headers tells two volumes apart") +
           ": remove the copies or separate the volumes into folders" +
           (files[0].multi_frame ? "" : ", or give --allow-duplicates to use the first of them by name"));
  }
  for (auto& row : rows)
    std::stable_sort(row.begin(), row.end(), [&](const FrameRef& a, const FrameRef& b) {
      return marks_less(frame_of(files, a).marks, frame_of(files, b).marks);
    });
  std::vector<std::vector<FrameRef>> components(count);
  for (const auto& row : rows)
    for (std::size_t c = 0; c < count; ++c) components[c].push_back(row[c]);
  return components;
}

/// Refuses components whose frames change their meaning from slice to slice.
void check_components(const std::vector<DicomFile>& files, const std::vector<std::vector<FrameRef>>& components) {
  if (components.size() == 1) return;
  for (const auto& slices : components)
    for (const FrameRef& ref : slices)
      for (const FrameMark which :
           {FrameMark::temporal_position, FrameMark::b_value, FrameMark::echo_time, FrameMark::image_type}) {
        const auto mark = std::size_t(which);
        if (frame_of(files, ref).marks[mark] != frame_of(files, slices[0]).marks[mark])
          refuse(name_of(files, slices[0]) + " and " + name_of(files, ref) + " differ in " + kFrameMarkNames[mark] +
                 ", so the frames at one position do not correspond to those at another: split the file first");
      }
}

/// Where and how the distances between slices differ from the usual one, in words; empty when they do not.
std::string fault_of_steps(const std::vector<DicomFile>& files, const std::vector<FrameRef>& slices,
                           const Vec3& normal) {
  const auto height = [&](std::size_t i) { return dot(*frame_of(files, slices[i]).position, normal); };
  std::vector<double> steps;
  for (std::size_t i = 1; i < slices.size(); ++i) steps.push_back(height(i) - height(i - 1));
  std::vector<double> sorted = steps;
  std::sort(sorted.begin(), sorted.end());
  const double usual = sorted[(sorted.size() - 1) / 2];
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (std::abs(steps[i] - usual) <= kStepTolerance * usual) continue;
    const std::string between = name_of(files, slices[i]) + " and " + name_of(files, slices[i + 1]);
    const std::string apart = millimetres(steps[i]) + " apart where the others are " + millimetres(usual);
    const double times = std::round(steps[i] / usual);
    if (times >= 2 && std::abs(steps[i] - times * usual) <= kStepTolerance * usual * times)
      return std::to_string(int(times) - 1) + " slice(s) are missing between " + between + " (" + apart + ")";
    return "the slices are unevenly spaced (" + between + " are " + apart + ")";
  }
  return {};
}

/// The slice that lies farthest, along the normal, from its place on the grid of equal steps.
std::pair<std::size_t, double> farthest_from_grid(const std::vector<DicomFile>& files,
                                                  const std::vector<FrameRef>& slices, const Vec3& normal,
                                                  const Vec3& step) {
  const auto position = [&](std::size_t i) { return *frame_of(files, slices[i]).position; };
  std::pair<std::size_t, double> farthest{0, 0};
  for (std::size_t i = 1; i < slices.size(); ++i) {
    const double away = std::abs(dot(position(i) - position(0) - double(i) * step, normal));
    if (away > farthest.second) farthest = {i, away};
  }
  return farthest;
}

/// Refuses, or with allow_gaps notes, steps that are not all alike. Returns whether they are.
bool check_steps(const std::vector<DicomFile>& files, const std::vector<FrameRef>& slices, const Vec3& normal,
                 const Vec3& step, const ReadOptions& options, Notices& notices) {
  const std::string fault = fault_of_steps(files, slices, normal);
  if (fault.empty()) return true;
  if (!options.allow_gaps)
    refuse(fault +
           ": a volume needs equal steps, so add the missing files, or give --allow-gaps to use the mean step of " +
           millimetres(dot(step, normal)));
  const auto [slice, away] = farthest_from_grid(files, slices, normal, step);
  notices.add("gaps_allowed", fault + ": the slices are kept in order with the mean step of " +
                                  millimetres(dot(step, normal)) + ", which puts them up to " + millimetres(away) +
                                  " from where they were taken (" + name_of(files, slices[slice]) + ")");
  return false;
}

/// Refuses slices that leave the line through the first and the last; where the steps are not alike, each is measured
/// by its own length along the normal.
void check_line(const std::vector<DicomFile>& files, const std::vector<FrameRef>& slices, const Vec3& normal,
                const Vec3& step, bool even) {
  for (std::size_t i = 1; i < slices.size(); ++i) {
    const Vec3 here = *frame_of(files, slices[i]).position - *frame_of(files, slices[i - 1]).position;
    const double steps = even ? 1 : dot(here, normal) / dot(step, normal);
    if (norm(here - steps * step) > 2 * kStepTolerance * norm(step))
      refuse("the slices do not lie on a straight line: " + name_of(files, slices[i - 1]) + " and " +
             name_of(files, slices[i]) + " are displaced against each other in another way than the rest");
  }
}

/// From one slice to the next, LPS mm.
Vec3 slice_step(const std::vector<DicomFile>& files, const std::vector<FrameRef>& slices,
                const std::array<Vec3, 3>& axes, const ReadOptions& options, Notices& notices) {
  if (slices.size() == 1) {
    const DicomFrame& frame = frame_of(files, slices[0]);
    if (frame.spacing_between_slices.value_or(0) > 0) return *frame.spacing_between_slices * axes[2];
    if (frame.slice_thickness.value_or(0) > 0) {
      notices.add("slice_thickness", "the single slice " + name_of(files, slices[0]) +
                                         " does not say how far slices are apart: its SliceThickness of " +
                                         millimetres(*frame.slice_thickness) + " was taken");
      return *frame.slice_thickness * axes[2];
    }
    refuse(name_of(files, slices[0]) +
           " is a single slice without SpacingBetweenSlices or SliceThickness, so its extent across the plane is "
           "unknown: add one of them" +
           kCureOfNoGeometry);
  }
  const auto position = [&](std::size_t i) { return *frame_of(files, slices[i]).position; };
  const Vec3 step = (1.0 / double(slices.size() - 1)) * (position(slices.size() - 1) - position(0));
  check_line(files, slices, axes[2], step, check_steps(files, slices, axes[2], step, options, notices));
  const double along = dot(step, axes[2]);
  const double skew = norm(step - along * axes[2]) / norm(step);
  if (skew < kRoundingSkew) {
    if (skew > 1e-5)
      notices.add("skew_removed",
                  "the slices drift by " + millimetres(skew * norm(step)) +
                      " a step against the normal of the image plane, which was taken for rounding and removed");
    return along * axes[2];
  }
  std::ostringstream degrees;
  degrees.precision(3);
  degrees << std::asin(std::min(1.0, skew)) * 180 / std::numbers::pi;
  notices.add("gantry_tilt", "the slices are stacked at " + degrees.str() +
                                 " degrees from the normal of the image plane (gantry tilt): the grid is kept sheared, "
                                 "as scanned; the stage 'untilt' straightens it");
  return step;
}

Geometry ras_geometry(const DicomFile& file, const DicomFrame& first, std::size_t slices,
                      const std::array<Vec3, 3>& axes, const Vec3& step) {
  const std::array<Vec3, 3> columns = {(*first.pixel_spacing)[1] * axes[0], (*first.pixel_spacing)[0] * axes[1], step};
  Affine map;
  for (int i = 0; i < 3; ++i) {
    const double sign = i < 2 ? -1 : 1;
    for (int j = 0; j < 3; ++j) map.linear[i][j] = sign * columns[j][i] + 0.0;
    map.offset[i] = sign * (*first.position)[i] + 0.0;
  }
  try {
    return Geometry({file.columns, file.rows, std::int64_t(slices)}, map);
  } catch (const Error& error) {
    refuse(file.name() + ": ImagePositionPatient, ImageOrientationPatient and PixelSpacing place no voxels in space (" +
           error.what() + "): repair the header or leave the file out");
  }
}

DataType stored_type(const DicomFile& file) {
  if (file.bits_allocated == 8) return file.is_signed ? DataType::int8 : DataType::uint8;
  if (file.bits_allocated == 16) return file.is_signed ? DataType::int16 : DataType::uint16;
  return file.is_signed ? DataType::int32 : DataType::uint32;
}

bool is_whole(double value) { return value == std::floor(value); }

/// The smallest type that holds every value the header allows: the stored one without rescaling, else int16 or int32
/// when one whole-numbered rescaling serves all slices, else floating point.
DataType value_type(const std::vector<DicomFile>& files, const std::vector<FrameRef>& refs) {
  const DicomFrame& first = frame_of(files, refs[0]);
  const bool one_rescale = std::all_of(refs.begin(), refs.end(), [&](const FrameRef& ref) {
    return frame_of(files, ref).slope == first.slope && frame_of(files, ref).intercept == first.intercept;
  });
  if (one_rescale && first.slope == 1 && first.intercept == 0) return stored_type(files[0]);
  int bits = 0;
  for (const DicomFile& file : files) bits = std::max(bits, file.bits_stored);
  if (one_rescale && is_whole(first.slope) && is_whole(first.intercept)) {
    const double lowest = files[0].is_signed ? -std::ldexp(1, bits - 1) : 0;
    const double highest = std::ldexp(1, files[0].is_signed ? bits - 1 : bits) - 1;
    const auto ends = std::minmax({lowest * first.slope + first.intercept, highest * first.slope + first.intercept});
    for (const DataType type : {DataType::int16, DataType::int32})
      if (ends.first >= integer_range(type).lowest && ends.second <= integer_range(type).highest) return type;
  }
  return bits <= 16 ? DataType::float32 : DataType::float64;
}

}  // namespace

namespace {

void note_surplus(const std::vector<DicomFile>& files, Notices& notices) {
  std::vector<std::string> names;
  std::uint64_t bytes = 0;
  for (const DicomFile& file : files)
    if (file.surplus > 0) {
      names.push_back(file.name());
      bytes += file.surplus;
    }
  if (!names.empty())
    notices.add("trailing_bytes", quoted_list(names) + ": " + std::to_string(bytes) +
                                      " bytes of pixel data lie beyond the rows and columns of the header and are not "
                                      "read");
}

}  // namespace

DicomStack arrange_stack(const std::vector<DicomFile>& given, const ReadOptions& options, Notices& notices) {
  check_pixels(given);
  const std::vector<FrameRef> refs = all_frames(given);
  if (!options.allow_no_geometry) check_frames_are_placed(given, refs);
  std::vector<DicomFile> assumed;
  if (options.allow_no_geometry) assumed = with_assumed_geometry(given, refs, notices);
  const std::vector<DicomFile>& files = options.allow_no_geometry ? assumed : given;
  check_frames_are_alike(files, refs);
  const DicomFrame& any = frame_of(files, refs[0]);
  const auto axes = plane_axes(*any.orientation, name_of(files, refs[0]));

  note_surplus(files, notices);
  DicomStack stack;
  auto rows = rows_by_position(files, refs, axes[2]);
  if (options.allow_duplicates && !files[0].multi_frame) leave_out_copies(files, rows, stack.left_out, notices);
  stack.components = components_of(files, std::move(rows));
  check_components(files, stack.components);
  const auto& slices = stack.components[0];
  const Vec3 step = slice_step(files, slices, axes, options, notices);
  stack.info.geometry = ras_geometry(files[0], frame_of(files, slices[0]), slices.size(), axes, step);
  stack.info.dtype = value_type(files, refs);
  stack.info.components = std::int64_t(stack.components.size());
  if (stack.info.components > 1) stack.info.component_axis = ComponentAxis::frames;
  if (files[0].samples == 3) {
    if (stack.info.components > 1)
      throw Error(ErrorCode::unsupported, files[0].name() + " holds several colour frames a position: split it first");
    stack.info.components = 3;
    stack.info.component_axis = ComponentAxis::channels;
  }
  return stack;
}

}  // namespace volpipe::io
