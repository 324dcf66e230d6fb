// Mid-slices of volumes as one picture.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/context.h"
#include "volume/notices.h"
#include "volume/volume.h"

namespace volpipe {

/// 8-bit RGB, row by row from the top.
class Picture {
 public:
  using Color = std::array<std::uint8_t, 3>;

  Picture(int width, int height) : width_(width), height_(height), pixels_(std::size_t(width) * height * 3) {}

  int width() const { return width_; }
  int height() const { return height_; }
  const std::vector<std::uint8_t>& pixels() const { return pixels_; }

  Color at(int x, int y) const;
  void set(int x, int y, Color color);  ///< outside the picture: nothing
  void paste(const Picture& other, int x, int y);
  /// One line of text in 5x7 letters on a 6x8 raster, its top left corner at (x, y); a character outside ASCII shows as
  /// '?'.
  void write(const std::string& text, int x, int y, Color color);

 private:
  int width_, height_;
  std::vector<std::uint8_t> pixels_;
};

struct PreviewOptions {
  std::optional<std::pair<double, double>>
      window{};         ///< values shown black and white; absent: percentiles 0.5 and 99.5
  bool labels = false;  ///< colours for values; also taken for integers of at most 64 different values without a window
  int cell = 256;       ///< pixels of the longest side of a slice
};

/// A caption and three slices side by side through the middle of the volume: axial, coronal, sagittal. The picture is
/// neurological: the patient's Right is on the right, Anterior (axial) or Superior up, and Anterior on the right of the
/// sagittal slice. Voxel axes are brought to the closest world axes, never resampled obliquely; spacing is respected.
/// Of several components the first is shown, with a notice. `volume` is on the host, `context` the CPU's.
Picture preview_row(DeviceContext& context, const Volume& volume, const std::string& caption,
                    const PreviewOptions& options, Notices& notices);

/// The rows one below the other.
Picture stack_rows(const std::vector<Picture>& rows);

}  // namespace volpipe
