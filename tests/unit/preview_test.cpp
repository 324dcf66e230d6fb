#include "pipeline/preview.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace volpipe {
namespace {

constexpr int kCell = 32;
constexpr int kCaption = 14;
constexpr int kGap = 6;

/// 4x4x4, dark but for the half of voxel axis 0 where `bright(i)`; the axes run as `direction` says.
template <class Bright>
Volume half_bright(int axis, const Matrix3& direction, const Bright& bright) {
  VolumeInfo info{.geometry = Geometry::from_spacing({4, 4, 4}, {1, 1, 1}, {}, direction)};
  Buffer buffer = Buffer::host(info.bytes());
  auto* voxel = static_cast<float*>(buffer.data());
  for (int k = 0; k < 4; ++k)
    for (int j = 0; j < 4; ++j)
      for (int i = 0; i < 4; ++i) {
        const int index[3] = {i, j, k};
        *voxel++ = bright(index[axis]) ? 100.f : 0.f;
      }
  return {info, std::move(buffer)};
}

Picture draw(const Volume& volume, PreviewOptions options = {}, Notices* notices = nullptr) {
  Notices unused;
  options.cell = kCell;
  return preview_row(*make_context(Device::cpu(), 1), volume, "", options, notices ? *notices : unused);
}

/// Mean grey of a quarter strip at the named side of slice 0 (axial), 1 (coronal), 2 (sagittal), away from the letters.
int side(const Picture& picture, int slice, char where) {
  const int left = slice * (kCell + kGap), x0 = where == 'r' ? kCell - 4 : 2, y0 = where == 'd' ? kCell - 4 : 2;
  return picture.at(left + x0, kCaption + y0)[0];
}

TEST(Preview, RightIsRightAndUpIsAnteriorOrSuperior) {
  const auto high = [](int i) { return i >= 2; };
  const Picture right = draw(half_bright(0, Matrix3::identity(), high));
  EXPECT_GT(side(right, 0, 'r'), 200);
  EXPECT_LT(side(right, 0, 'l'), 50);
  EXPECT_GT(side(right, 1, 'r'), 200);
  const Picture anterior = draw(half_bright(1, Matrix3::identity(), high));
  EXPECT_GT(side(anterior, 0, 'u'), 200);
  EXPECT_LT(side(anterior, 0, 'd'), 50);
  EXPECT_GT(side(anterior, 2, 'r'), 200);
  const Picture superior = draw(half_bright(2, Matrix3::identity(), high));
  EXPECT_GT(side(superior, 1, 'u'), 200);
  EXPECT_GT(side(superior, 2, 'u'), 200);
}

TEST(Preview, VoxelOrderDoesNotMatter) {
  Matrix3 flipped = Matrix3::identity();
  flipped[0][0] = -1;
  const Picture left_first = draw(half_bright(0, flipped, [](int i) { return i < 2; }));
  const Picture right_first = draw(half_bright(0, Matrix3::identity(), [](int i) { return i >= 2; }));
  EXPECT_EQ(left_first.pixels(), right_first.pixels());
}

TEST(Preview, SpacingGivesTheProportions) {
  VolumeInfo info{.geometry = Geometry::from_spacing({8, 8, 2}, {1, 1, 2})};
  Buffer buffer = Buffer::host(info.bytes());
  std::fill_n(static_cast<float*>(buffer.data()), info.value_count(), 5.f);
  const Picture picture = draw({info, std::move(buffer)}, {.window = {{0, 5}}});
  const int x = kCell + kGap + 3;  // the coronal slice is 8 x 4 mm: half a cell high
  EXPECT_EQ(picture.at(x, kCaption + kCell / 2)[0], 255);
  EXPECT_EQ(picture.at(x, kCaption + kCell / 4 + 1)[0], 255);
  EXPECT_EQ(picture.at(x, kCaption + kCell / 4 - 1)[0], 0);
}

TEST(Preview, LabelsHaveTheirOwnColours) {
  VolumeInfo info{.geometry = Geometry::from_spacing({4, 1, 1}, {1, 1, 1}), .dtype = DataType::int32};
  Buffer buffer = Buffer::host(info.bytes());
  const std::int32_t labels[] = {0, 1, 2, 1};
  std::copy_n(labels, 4, static_cast<std::int32_t*>(buffer.data()));
  const Picture picture = draw({info, std::move(buffer)});
  const auto color = [&](int voxel) { return picture.at(voxel * kCell / 4 + 1, kCaption + kCell / 2); };
  EXPECT_EQ(color(0), (Picture::Color{0, 0, 0}));
  EXPECT_EQ(color(1), color(3));
  EXPECT_NE(color(1), color(2));
}

TEST(Preview, SeveralComponentsGiveANotice) {
  VolumeInfo info{.geometry = Geometry::from_spacing({2, 2, 2}, {1, 1, 1}), .components = 3};
  Buffer buffer = Buffer::host(info.bytes());
  std::fill_n(static_cast<float*>(buffer.data()), info.value_count(), std::numeric_limits<float>::quiet_NaN());
  Notices notices;
  draw({info, std::move(buffer)}, {}, &notices);
  EXPECT_EQ(notices.list().at(0).code, "first_component");
}

TEST(Preview, RowsAreStacked) {
  const Picture all = stack_rows({Picture(10, 4), Picture(20, 5)});
  EXPECT_EQ(all.width(), 20);
  EXPECT_EQ(all.height(), 4 + kGap + 5);
}

}  // namespace
}  // namespace volpipe
