#include "pipeline/preview.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "pipeline/font_5x7.h"
#include "pipeline/summary.h"

namespace volpipe {

namespace {

constexpr int kGap = 6;
constexpr int kCaption = 14;
constexpr int kLetterWidth = 6;
constexpr int kLetterHeight = 7;
constexpr Picture::Color kText{230, 230, 230};
constexpr Picture::Color kMark{255, 190, 60};
constexpr Picture::Color kNotANumber{160, 0, 90};
constexpr std::size_t kMaxAutomaticLabels = 64;

/// The first component seen along the closest world axes: index 0 runs toward Right, 1 Anterior, 2 Superior.
class RasView {
 public:
  explicit RasView(const Volume& volume) : volume_(volume) {
    const Geometry& geometry = volume.geometry();
    const AxisOrder order = axis_order_for(geometry, "RAS");
    std::int64_t strides[3] = {1, geometry.size()[0], geometry.size()[0] * geometry.size()[1]};
    for (int world = 0; world < 3; ++world) {
      const int axis = order.source_axis[world];
      size_[world] = geometry.size()[axis];
      spacing_[world] = geometry.spacing()[axis];
      stride_[world] = order.flipped[world] ? -strides[axis] : strides[axis];
      if (order.flipped[world]) start_ += strides[axis] * (size_[world] - 1);
    }
  }

  std::int64_t size(int world) const { return size_[world]; }
  double extent(int world) const { return double(size_[world]) * spacing_[world]; }

  double operator()(const Index3& index) const {
    const std::int64_t at = start_ + index[0] * stride_[0] + index[1] * stride_[1] + index[2] * stride_[2];
    return visit(volume_.dtype(),
                 [&](auto tag) { return double(volume_.data_as<typename decltype(tag)::type>()[at]); });
  }

 private:
  const Volume& volume_;
  Index3 size_{}, stride_{};
  Vec3 spacing_{};
  std::int64_t start_ = 0;
};

/// Which world axes run right and up in a slice, and the letters at their ends.
struct Plane {
  int right, up, across;
  char right_letter, up_letter;
};
constexpr Plane kAxial{0, 1, 2, 'R', 'A'}, kCoronal{0, 2, 1, 'R', 'S'}, kSagittal{1, 2, 0, 'A', 'S'};

double fraction_to_index(int pixel, int pixels, std::int64_t voxels) {
  return std::clamp((pixel + 0.5) / pixels * double(voxels) - 0.5, 0.0, double(voxels - 1));
}

double nearest_value(const RasView& view, const Plane& plane, Index3 index, double u, double v) {
  index[plane.right] = std::int64_t(u + 0.5);
  index[plane.up] = std::int64_t(v + 0.5);
  return view(index);
}

double bilinear_value(const RasView& view, const Plane& plane, Index3 index, double u, double v) {
  const auto u0 = std::int64_t(u), v0 = std::int64_t(v);
  double sum = 0;
  for (int corner = 0; corner < 4; ++corner) {
    const int du = corner & 1, dv = corner >> 1;
    const double weight = (du ? u - double(u0) : 1 - (u - double(u0))) * (dv ? v - double(v0) : 1 - (v - double(v0)));
    if (weight == 0) continue;
    index[plane.right] = u0 + du;
    index[plane.up] = v0 + dv;
    sum += weight * view(index);
  }
  return sum;
}

Picture::Color grey(double value, double low, double high) {
  if (std::isnan(value)) return kNotANumber;
  const double shade = high > low ? (value - low) / (high - low) : 0.5;
  const auto level = std::uint8_t(std::lround(255 * std::clamp(shade, 0.0, 1.0)));
  return {level, level, level};
}

/// Hues by the golden angle: neighbours in value are far apart in colour. 0 is black.
Picture::Color label_color(double value) {
  if (std::isnan(value)) return kNotANumber;
  if (value == 0) return {0, 0, 0};
  const double hue = std::fmod(std::abs(value) * 0.6180339887498949, 1.0) * 6;
  const double lightness = std::fmod(std::floor(std::abs(value) / 7), 2.0) == 0 ? 1.0 : 0.75;
  Picture::Color color;
  for (int channel = 0; channel < 3; ++channel) {
    const double k = std::fmod(5.0 - 2 * channel + hue, 6.0);
    const double level = lightness * (1 - 0.75 * std::clamp(std::min(k, 4 - k), 0.0, 1.0));
    color[std::size_t(channel)] = std::uint8_t(std::lround(255 * level));
  }
  return color;
}

struct Shading {
  bool labels;
  double low = 0, high = 1;
};

Shading choose_shading(DeviceContext& context, const Volume& volume, const PreviewOptions& options) {
  if (options.labels) return {true};
  if (options.window) return {false, options.window->first, options.window->second};
  if (distinct_values(volume, kMaxAutomaticLabels)) return {true};
  const double percents[] = {0.5, 99.5, 0, 100};
  const auto values = component_percentiles(context, volume, 0, percents);
  if (std::isnan(values[0])) return {false};
  return values[1] > values[0] ? Shading{false, values[0], values[1]} : Shading{false, values[2], values[3]};
}

Picture draw_slice(const RasView& view, const Plane& plane, const Shading& shading, double mm_per_pixel) {
  const auto pixels = [&](int world) { return std::max(1, int(std::lround(view.extent(world) / mm_per_pixel))); };
  Picture picture(pixels(plane.right), pixels(plane.up));
  Index3 index{};
  index[plane.across] = view.size(plane.across) / 2;
  for (int y = 0; y < picture.height(); ++y) {
    const double v = fraction_to_index(picture.height() - 1 - y, picture.height(), view.size(plane.up));
    for (int x = 0; x < picture.width(); ++x) {
      const double u = fraction_to_index(x, picture.width(), view.size(plane.right));
      picture.set(x, y,
                  shading.labels ? label_color(nearest_value(view, plane, index, u, v))
                                 : grey(bilinear_value(view, plane, index, u, v), shading.low, shading.high));
    }
  }
  return picture;
}

void draw_cell(Picture& row, const RasView& view, const Plane& plane, const Shading& shading, int cell, int x) {
  const double longest = std::max({view.extent(0), view.extent(1), view.extent(2)});
  const Picture slice = draw_slice(view, plane, shading, longest / cell);
  row.paste(slice, x + (cell - slice.width()) / 2, kCaption + (cell - slice.height()) / 2);
  row.write(std::string(1, plane.right_letter), x + cell - kLetterWidth, kCaption + (cell - kLetterHeight) / 2, kMark);
  row.write(std::string(1, plane.up_letter), x + (cell - kLetterWidth) / 2, kCaption + 1, kMark);
}

}  // namespace

Picture::Color Picture::at(int x, int y) const {
  const std::uint8_t* pixel = pixels_.data() + (std::size_t(y) * width_ + x) * 3;
  return {pixel[0], pixel[1], pixel[2]};
}

void Picture::set(int x, int y, Color color) {
  if (x < 0 || y < 0 || x >= width_ || y >= height_) return;
  std::copy(color.begin(), color.end(), pixels_.begin() + (std::ptrdiff_t(y) * width_ + x) * 3);
}

void Picture::paste(const Picture& other, int x, int y) {
  for (int row = 0; row < other.height(); ++row)
    for (int column = 0; column < other.width(); ++column) set(x + column, y + row, other.at(column, row));
}

void Picture::write(const std::string& text, int x, int y, Color color) {
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if ((byte & 0xC0) == 0x80) continue;  // one '?' for a multi-byte character
    const auto& columns = kFont5x7[(byte < 32 || byte > 126 ? '?' : byte) - 32u];
    for (int column = 0; column < 5; ++column)
      for (int bit = 0; bit < kLetterHeight; ++bit)
        if (columns[std::size_t(column)] >> bit & 1) set(x + column, y + bit, color);
    x += kLetterWidth;
  }
}

Picture preview_row(DeviceContext& context, const Volume& volume, const std::string& caption,
                    const PreviewOptions& options, Notices& notices) {
  if (volume.info().components > 1)
    notices.add("first_component", "the first of " + std::to_string(volume.info().components) + " components is shown");
  const RasView view(volume);
  const Shading shading = choose_shading(context, volume, options);
  const int cell = options.cell;
  Picture row(3 * cell + 2 * kGap, kCaption + cell);
  row.write(caption, 2, 3, kText);
  draw_cell(row, view, kAxial, shading, cell, 0);
  draw_cell(row, view, kCoronal, shading, cell, cell + kGap);
  draw_cell(row, view, kSagittal, shading, cell, 2 * (cell + kGap));
  return row;
}

Picture stack_rows(const std::vector<Picture>& rows) {
  int width = 1, height = 0;
  for (const Picture& row : rows) {
    width = std::max(width, row.width());
    height += row.height() + kGap;
  }
  Picture all(width, std::max(1, height - kGap));
  int y = 0;
  for (const Picture& row : rows) {
    all.paste(row, 0, y);
    y += row.height() + kGap;
  }
  return all;
}

}  // namespace volpipe
