// What the benches of stages time, on any device and beside any peer: one list of cases, each the stages of a spec, run
// the way `volpipe run` runs them.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/context.h"
#include "pipeline/execute.h"
#include "volume/error.h"

namespace volpipe::bench {

struct Case {
  std::string name;
  std::string stages;   ///< JSON array
  int reads = 1;        ///< times the input has to be read: 2 where statistics come first
  bool labels = false;  ///< for the volume of bench_labels
  bool field = false;   ///< names the image "field", which is bench_field
};

/// Reflections have NumPy's names: "reflect" does not repeat the edge (volpipe's mirror), "symmetric" does (reflect).
inline std::vector<Case> stage_cases(const Index3& size) {
  const auto triple = [&](int numerator, int denominator) {
    std::string text = "[";
    for (const std::int64_t n : size) text += std::to_string(n * numerator / denominator) + ",";
    text.back() = ']';
    return text;
  };
  const auto resize = [](const std::string& interpolation) {
    return R"([{"op":"resize","scale":0.75,"antialias":false,"boundary":"mirror","interpolation":")" + interpolation +
           "\"}]";
  };
  const auto gaussian = [](int sigma) {
    return R"([{"op":"gaussian","units":"voxel","sigma":)" + std::to_string(sigma) + "}]";
  };
  const auto expression = [](const std::string& text) { return R"([{"op":"expression","expr":")" + text + "\"}]"; };
  const auto pad = [](const std::string& boundary) {
    return R"([{"op":"pad","before":16,"after":16,"boundary":")" + boundary + "\"}]";
  };
  const auto turn = [](const std::string& interpolation) {  // some 20 degrees
    return R"([{"op":"affine","rotate":[5,10,17],"interpolation":")" + interpolation + "\"}]";
  };
  return {
      {"clip and scale", R"([{"op":"clip","min":-1,"max":1},{"op":"rescale","from":[-1,1],"to":[0,1]}])"},
      {"pointwise chain of 16",  // as many instructions, and continuous, so that no voxel hangs on a rounding
       R"([{"op":"clip","min":-3,"max":3},
           {"op":"rescale","from":[-3,3],"to":[0,1],"clip":true},
           {"op":"window","center":0.5,"width":0.8},
           {"op":"threshold","above":0.05,"value":0.05},
           {"op":"rescale","from":[0.25,0.75],"to":[-1,1]},
           {"op":"clip","min":-0.75,"max":0.75},
           {"op":"rescale","from":[0,2],"to":[0,1]},
           {"op":"threshold","below":0.3,"value":0.3},
           {"op":"rescale","from":[-0.25,0.25],"to":[0,1],"clip":true}])"},
      {"z-score", R"([{"op":"normalize"}])", 2},
      {"rescale min max", R"([{"op":"rescale","to":[0,255]}])", 2},
      {"expression of 8", expression("abs(image * 2 - 1) * 0.5 + clamp(image, -1, 1) * image")},
      {"expression where", expression("where(image > mean(image), (image - mean(image)) / std(image), 0)"), 2},
      {"expression of functions", expression("exp(-image * image) * sin(3 * image)")},
      {"expression Laplacian",
       expression(
           "image[1,0,0] + image[-1,0,0] + image[0,1,0] + image[0,-1,0] + image[0,0,1] + image[0,0,-1] - 6 * image")},
      {"noise gaussian", R"([{"op":"noise","kind":"gaussian","std":1}])"},
      {"resize nearest 0.75", resize("nearest")},
      {"resize linear 0.75", resize("linear")},
      {"resize bspline3 0.75", resize("bspline3")},
      {"affine nearest", turn("nearest")},
      {"affine linear", turn("linear")},
      {"affine bspline3", turn("bspline3")},
      {"elastic linear", R"([{"op":"elastic","spacing":24,"magnitude":5,"smoothness":1}])"},  // 32 voxels
      {"gaussian 1", gaussian(1)},
      {"gaussian 2", gaussian(2)},
      {"gaussian 4", gaussian(4)},
      {"flip", R"([{"op":"flip","axes":"xyz"}])"},
      {"transpose", R"([{"op":"permute","order":"zyx"}])"},
      {"pad reflect 16", pad("mirror")},
      {"pad symmetric 16", pad("reflect")},
      {"crop", R"([{"op":"crop","start":)" + triple(1, 8) + R"(,"size":)" + triple(3, 4) + "}]"},
  };
}

/// Stages that sample at arbitrary points.
inline std::vector<Case> gather_cases() {
  const auto affine = [](const std::string& interpolation) {
    return R"([{"op":"affine","rotate":[10,15,20],"translate":[1.3,-2.1,0.7],"antialias":false,"interpolation":")" +
           interpolation + "\"}]";
  };
  return {
      {"affine linear", affine("linear")},
      {"affine bspline3", affine("bspline3")},
      {"affine lanczos3", affine("lanczos3")},
      {.name = "affine nearest, uint8", .stages = affine("nearest"), .labels = true},
      {.name = "warp linear", .stages = R"([{"op":"warp","field":"field","on":"image"}])", .field = true},
      {"elastic linear", R"([{"op":"elastic","spacing":30,"magnitude":5}])"},
  };
}

/// For a volume of `bench_geometry`: z, y, x become x, y, z with one flip, then 0.75 voxels for each.
inline Case pipeline_case() {
  return {"pipeline of five stages",
          R"([{"op":"reorient","axes":"RAS"},
              {"op":"resample","spacing":1,"antialias":false,"boundary":"mirror"},
              {"op":"clip","min":-2,"max":2},
              {"op":"normalize"},
              {"op":"gaussian","sigma":1}])"};
}

/// 0.75 mm voxels; x runs to the Inferior, y to the Anterior, z to the Right.
inline Geometry bench_geometry(const Index3& size) {
  return Geometry::from_spacing(size, {0.75, 0.75, 0.75}, {}, Matrix3{{{{0, 0, 1}, {0, 1, 0}, {-1, 0, 0}}}});
}

/// Blocks of seven labels on the grid.
inline Volume bench_labels(const Geometry& geometry) {
  VolumeInfo info;
  info.geometry = geometry;
  info.dtype = DataType::uint8;
  info.kind = ImageKind::label;
  Volume volume(info, Buffer::host(info.bytes()));
  const Index3& n = geometry.size();
  for (std::int64_t i = 0; i < info.value_count(); ++i)
    volume.data_as<std::uint8_t>()[i] = std::uint8_t((i % n[0] / 16 + i / n[0] % n[1] / 16 + i / n[0] / n[1] / 16) % 7);
  return volume;
}

inline VolumeInfo field_info(const Geometry& geometry) {
  VolumeInfo info;
  info.geometry = geometry;
  info.components = 3;
  info.component_axis = ComponentAxis::channels;
  return info;
}

/// Smooth displacements of up to 5 mm on the grid.
inline Volume bench_field(const Geometry& geometry) {
  const VolumeInfo info = field_info(geometry);
  Volume volume(info, Buffer::host(info.bytes()));
  const Index3& n = geometry.size();
  auto* value = volume.data_as<float>();
  for (int component = 0; component < 3; ++component)
    for (std::int64_t z = 0; z < n[2]; ++z)
      for (std::int64_t y = 0; y < n[1]; ++y)
        for (std::int64_t x = 0; x < n[0]; ++x)
          *value++ = 5 * float(std::sin(double(x) / 23 + component) * std::cos(double(y) / 29 - double(z) / 31));
  return volume;
}

inline const Case& case_named(const std::vector<Case>& cases, const std::string& name) {
  for (const Case& one : cases)
    if (one.name == name) return one;
  throw Error(ErrorCode::internal, "there is no case '" + name + "'");
}

/// The same voxels without their ownership, so that a pass can consume them and they are still there for the next.
inline Volume borrowed(const Volume& volume) {
  class Nobody final : public MemorySource {
    void release(void*, std::size_t) noexcept override {}
  };
  static const auto nobody = std::make_shared<Nobody>();
  return {volume.info(), Buffer(const_cast<void*>(volume.data()), volume.info().bytes(), volume.device(), nobody)};
}

/// A case parsed and planned for volumes like `info`.
class PlannedCase {
 public:
  PlannedCase(const Case& one, const VolumeInfo& info)
      : pipeline_(parse_pipeline(R"({"volpipe":1,"inputs":{"image":{})" +
                                     std::string(one.field ? R"(,"field":{"suffix":"_field"})" : "") +
                                     R"(},"stages":)" + one.stages + "}",
                                 one.name)),
        plan_(make_plan(pipeline_, infos(one, info), {})) {}

  Volume run(DeviceContext& context, Volume volume, std::optional<Volume> field = {}) const {
    Images images;
    images.emplace("image", std::move(volume));
    if (field) images.emplace("field", std::move(*field));
    ItemStatistics statistics;
    Notices notices;
    for (const Group& group : plan_.groups) run_group(context, pipeline_, group, images, statistics, notices);
    return std::move(images.at("image"));
  }
  const Plan& plan() const { return plan_; }

 private:
  static ImageInfos infos(const Case& one, const VolumeInfo& info) {
    ImageInfos result{{"image", info}};
    if (one.field) result.emplace("field", field_info(info.geometry));
    return result;
  }

  Pipeline pipeline_;
  Plan plan_;
};

}  // namespace volpipe::bench
