// What the pipeline tests share: random volumes on a grid, a pipeline run on a context.
#pragma once

#include <cstring>
#include <random>

#include "pipeline/execute.h"
#include "pipeline/runner.h"

namespace volpipe::testing_support {

/// An oblique, anisotropic, left-handed grid.
inline Geometry oblique_grid(const Index3& size) {
  const double c = std::cos(0.3), s = std::sin(0.3);
  return Geometry::from_spacing(size, {0.9, 1.3, 2.1}, {-20, 35.5, 7.25}, {{{{-c, s, 0}, {s, c, 0}, {0, 0, 1}}}});
}

/// Random values: normal around 100 for floating types, whole numbers of the type's range (32-bit included) else.
inline Volume random_volume(DeviceContext& context, const VolumeInfo& info, unsigned seed) {
  Volume volume(info, context.allocate_host(info.bytes()));
  std::mt19937_64 random(seed);
  visit(info.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* values = volume.data_as<T>();
    std::normal_distribution<double> normal(100, 25);
    for (std::int64_t i = 0; i < info.value_count(); ++i)
      if constexpr (std::is_floating_point_v<T>) values[i] = T(normal(random));
      else values[i] = T(random());
  });
  return volume;
}

/// An image of values value(i).
template <class Value>
Volume volume_of(const VolumeInfo& info, const Value& value) {
  Volume volume(info, Buffer::host(info.bytes()));
  visit(info.dtype, [&]<class Tag>(Tag) {
    using T = typename Tag::type;
    for (std::int64_t i = 0; i < info.value_count(); ++i) volume.data_as<T>()[i] = T(value(i));
  });
  return volume;
}

inline Volume copy_of(const Volume& volume) {
  Volume copied(volume.info(), Buffer::host(volume.info().bytes()));
  std::memcpy(copied.data(), volume.data(), volume.info().bytes());
  return copied;
}

inline Pipeline pipeline_of(const std::string& stages, const std::string& more = "") {
  return parse_pipeline(R"({"volpipe": 1, "stages": [)" + stages + "]" + more + "}", "test");
}

/// A spec that runs a stage's example, with what it needs.
inline std::string example_spec(const StageDefinition& stage) {
  Json spec = {{"volpipe", 1}, {"inputs", {{"image", Json::object()}}}};
  for (const std::string& name : stage.needs.images) spec["inputs"][name] = {{"suffix", "_" + name}};
  spec["stages"] = stage.needs.stages;
  spec["stages"].push_back(stage.example);
  return spec.dump();
}

inline Pipeline example_pipeline(const StageDefinition& stage) {
  return parse_pipeline(example_spec(stage), "example");
}

/// What the images of example_pipeline(stage) look like when "image" is `info`.
inline ImageInfos example_infos(const StageDefinition& stage, const VolumeInfo& info) {
  ImageInfos infos{{"image", info}};
  if (stage.needs.images.empty() && stage.needs.components > 1) infos.at("image").components = stage.needs.components;
  for (const std::string& name : stage.needs.images) {
    VolumeInfo more = info;
    more.components = stage.needs.components;
    if (more.components == 3) more.dtype = DataType::float32;
    infos.emplace(name, more);
  }
  return infos;
}

inline Images random_images(DeviceContext& context, const ImageInfos& infos, unsigned seed) {
  Images images;
  for (const auto& [name, info] : infos) images.emplace(name, random_volume(context, info, seed++));
  return images;
}

/// Files that a test's pipeline names.
class TestFiles final : public StageFiles {
 public:
  std::map<std::string, std::shared_ptr<const Volume>> volumes{};
  std::map<std::string, std::string> texts{};
  VolumeInfo info(const std::string& path) override { return volumes.at(path)->info(); }
  std::shared_ptr<const Volume> volume(const std::string& path) override { return volumes.at(path); }
  std::string bytes(const std::string& path) override { return texts.at(path); }
  std::string resolved(const std::string& path) override { return path; }
};

struct PipelineResult {
  Images images;
  ItemRecord record;
  Plan plan;
};

inline PipelineResult run_pipeline(DeviceContext& context, const Pipeline& pipeline, Images images,
                                   const ItemKey& key = {}, TestFiles files = {}) {
  PipelineResult result;
  result.plan = make_plan(pipeline, infos_of(images), key, &files);
  result.images = compute_item(context, pipeline, result.plan, key, files, images, result.record);
  return result;
}

inline std::vector<double> values_of(const Volume& volume) {
  std::vector<double> values(std::size_t(volume.info().value_count()));
  visit(volume.dtype(), [&](auto tag) {
    const auto* data = volume.data_as<typename decltype(tag)::type>();
    std::copy_n(data, values.size(), values.begin());
  });
  return values;
}

inline bool same_bytes(const Volume& a, const Volume& b) {
  return a.info() == b.info() && std::memcmp(a.data(), b.data(), a.info().bytes()) == 0;
}

/// To the bit, but that the devices make NaN of different signs and payloads.
inline bool same_voxels(const Volume& a, const Volume& b) {
  const std::vector<double> x = values_of(a), y = values_of(b);
  const auto same = [](double u, double v) { return u == v ? std::signbit(u) == std::signbit(v) : u != u && v != v; };
  return a.info() == b.info() && std::equal(x.begin(), x.end(), y.begin(), same);
}

}  // namespace volpipe::testing_support
