// What the tests of single stages share: small images from numbers, a stage run on them as the pipeline runs it.
#pragma once

#include <gtest/gtest.h>

#include "support/pipeline_runs.h"

namespace volpipe::testing_support {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// An image with these voxels, on a row unless `size` says otherwise; components one after another.
template <class T>
Volume volume_of(const std::vector<T>& values, Index3 size = {}, std::int64_t components = 1) {
  VolumeInfo info;
  if (size[0] == 0) size = {std::int64_t(values.size()) / components, 1, 1};
  info.geometry = Geometry(size, Affine{});
  info.dtype = data_type_of<T>();
  info.components = components;
  Volume volume(info, Buffer::host(info.bytes()));
  EXPECT_EQ(info.bytes(), values.size() * sizeof(T));
  std::memcpy(volume.data(), values.data(), info.bytes());
  return volume;
}

/// {name, volume, ...} as the images of an item.
template <class... More>
Images images_of(const std::string& name, Volume volume, More&&... more) {
  Images images;
  if constexpr (sizeof...(more) > 0) images = images_of(std::forward<More>(more)...);
  images.emplace(name, std::move(volume));
  return images;
}

struct StageOutcome {
  Images images;
  std::vector<Notice> notices;

  const Volume& operator[](const std::string& name) const { return images.at(name); }
  DataType dtype() const { return images.at("image").dtype(); }
  std::vector<double> values(const std::string& name = "image") const { return values_of(images.at(name)); }
  double at(std::int64_t i) const { return values()[std::size_t(i)]; }
  std::vector<std::string> codes() const {
    std::vector<std::string> codes;
    for (const Notice& notice : notices) codes.push_back(notice.code);
    return codes;
  }
};

/// A spec of these stages over images of these names; "label" is one of labels.
inline std::string spec_of(const std::vector<Json>& stages, const std::vector<std::string>& images) {
  Json spec = {{"volpipe", 1}, {"inputs", Json::object()}, {"stages", stages}};
  for (const std::string& name : images)
    spec["inputs"][name] = {{"suffix", "_" + name}, {"kind", name == "label" ? "label" : "image"}};
  return spec.dump();
}

inline StageOutcome run_stages(const std::vector<Json>& stages, Images images, const ItemKey& key = {},
                               TestFiles files = {}, int threads = 2) {
  const auto context = make_context(Device::cpu(), threads);
  std::vector<std::string> names;
  for (const auto& [name, volume] : images) names.push_back(name);
  PipelineResult result =
      run_pipeline(*context, parse_pipeline(spec_of(stages, names), "test"), std::move(images), key, std::move(files));
  return {std::move(result.images), std::move(result.record.warnings)};
}

inline StageOutcome run_stage(const Json& stage, const Volume& image, const ItemKey& key = {}) {
  return run_stages({stage}, images_of("image", copy_of(image)), key);
}

/// Where the faults of a stage entry are, below the entry.
inline std::vector<std::string> fault_places(const Json& entry) {
  Faults faults;
  const StageDefinition* definition = find_stage(entry["op"].get<std::string>());
  EXPECT_EQ(definition->make(entry, "", faults), nullptr) << entry;
  std::vector<std::string> places;
  for (const Fault& fault : faults.list()) places.push_back(fault.pointer);
  return places;
}

/// Expects `formula` of every voxel, in float32, without notices. `tolerance` is absolute.
template <class Formula>
void expect_formula(const Json& stage, const Volume& image, Formula&& formula, double tolerance = 1e-6) {
  const StageOutcome outcome = run_stage(stage, image);
  EXPECT_TRUE(outcome.notices.empty()) << stage;
  EXPECT_EQ(outcome.dtype(), DataType::float32) << stage;
  const std::vector<double> before = values_of(image), after = outcome.values();
  for (std::size_t i = 0; i < before.size(); ++i) {
    const double expected = formula(before[i]);
    if (std::isnan(expected)) ASSERT_TRUE(std::isnan(after[i])) << stage << " of " << before[i];
    else if (std::isinf(expected)) ASSERT_EQ(after[i], expected) << stage << " of " << before[i];
    else ASSERT_NEAR(after[i], expected, tolerance) << stage << " of " << before[i];
  }
}

/// -50 to 150 in steps of 2, mean 50.
inline Volume ramp() {
  std::vector<float> values;
  for (int i = 0; i <= 100; ++i) values.push_back(float(i) * 2 - 50);
  return volume_of(values);
}

struct MeanAndStd {
  double mean = 0, std = 0;
};
inline MeanAndStd mean_and_std(const std::vector<double>& values) {
  MeanAndStd result;
  for (const double v : values) result.mean += v / double(values.size());
  for (const double v : values) result.std += (v - result.mean) * (v - result.mean) / double(values.size());
  result.std = std::sqrt(result.std);
  return result;
}

}  // namespace volpipe::testing_support
