#include "volume/phantom.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace volpipe {
namespace {

/// FNV-1a of the voxels: pins them for every compiler and machine.
std::uint64_t hash(const Volume& volume) {
  std::uint64_t h = 0xcbf29ce484222325u;
  const auto* bytes = volume.data_as<unsigned char>();
  for (std::size_t i = 0; i < volume.info().bytes(); ++i) h = (h ^ bytes[i]) * 0x100000001b3u;
  return h;
}

template <class T>
T voxel_at(const Volume& volume, const Vec3& world) {
  const Vec3 index = volume.geometry().world_to_index()(world);
  const Index3& size = volume.geometry().size();
  std::int64_t offset = 0;
  for (int axis = 2; axis >= 0; --axis) offset = offset * size[axis] + std::lround(index[axis]);
  return volume.data_as<T>()[offset];
}

TEST(Phantom, VoxelsAreTheSameEverywhere) {
  EXPECT_EQ(hash(shepp_logan_phantom(32).image), 10072489287332356145u);
  const Phantom torso = torso_phantom(32), head = head_phantom(32);
  EXPECT_EQ(hash(torso.image), 14728584096819312293u);
  EXPECT_EQ(hash(*torso.label), 17361234287826036505u);
  EXPECT_EQ(hash(head.image), 2476389994629181383u);
  EXPECT_EQ(hash(*head.label), 5152987985611056210u);
}

TEST(Phantom, SheppLoganHasTheValuesOfItsTable) {
  const Volume image = shepp_logan_phantom(64).image;
  EXPECT_EQ(image.geometry().orientation(), "RAS");
  EXPECT_FLOAT_EQ(voxel_at<float>(image, {-98, -98, -98}), 0.0f);
  EXPECT_FLOAT_EQ(voxel_at<float>(image, {67, 0, 0}), 1.0f);   // skull
  EXPECT_FLOAT_EQ(voxel_at<float>(image, {0, -40, 0}), 0.2f);   // brain
  EXPECT_FLOAT_EQ(voxel_at<float>(image, {22, 0, 0}), 0.0f);    // ventricles
  EXPECT_FLOAT_EQ(voxel_at<float>(image, {-22, 0, 0}), 0.0f);
  EXPECT_FLOAT_EQ(voxel_at<float>(image, {0, 35, -15}), 0.3f);  // the large ellipsoid in front
}

TEST(Phantom, SizesSpacingsAndOrientations) {
  const Phantom torso = torso_phantom(48), head = head_phantom(48);
  EXPECT_EQ(torso.image.geometry().size(), (Index3{48, 48, 30}));
  EXPECT_EQ(torso.image.geometry().orientation(), "LPS");
  EXPECT_EQ(head.image.geometry().size(), (Index3{48, 48, 24}));
  EXPECT_EQ(head.image.geometry().orientation(), "PSR");
  EXPECT_LT(head.image.geometry().direction().determinant(), 0);
  EXPECT_LT(head.image.geometry().shear(), 1e-12);
  EXPECT_EQ(torso.label->geometry(), torso.image.geometry());
  EXPECT_EQ(torso_slab_phantom(16, 20).image.geometry().size(), (Index3{16, 16, 20}));
  EXPECT_NEAR(torso_slab_phantom(16, 20).image.geometry().spacing()[2], 7.5, 1e-12);
}

TEST(Phantom, TorsoHasEveryLabelAndSidesAreRight) {
  const Phantom torso = torso_phantom(96);
  const auto* label = torso.label->data_as<std::uint8_t>();
  const std::set<int> labels(label, label + torso.label->info().value_count());
  EXPECT_EQ(labels, (std::set<int>{0, 1, 2, 3, 4, 5, 6, 7}));

  const auto at = [&](double x, double y, double z) { return voxel_at<std::uint8_t>(*torso.label, {3.5 + x, -12.25 + y, -412.5 + z}); };
  EXPECT_EQ(at(65, 5, -105), 4);   // the liver is on the right
  EXPECT_EQ(at(-95, -30, -95), 6); // the spleen on the left
  EXPECT_EQ(at(0, -72, 10), 5);    // the spine behind
  EXPECT_EQ(at(85, 20, 60), 7);
  EXPECT_NEAR(voxel_at<std::int16_t>(torso.image, {3.5 - 72, -12.25 + 8, -412.5 + 80}), -850, 60);
}

TEST(Phantom, HeadHasTissuesAndZeroBackground) {
  const Phantom head = head_phantom(64);
  const auto* label = head.label->data_as<std::uint8_t>();
  const std::set<int> labels(label, label + head.label->info().value_count());
  EXPECT_EQ(labels, (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(head.image.data_as<std::uint16_t>()[0], 0);
}

}  // namespace
}  // namespace volpipe
