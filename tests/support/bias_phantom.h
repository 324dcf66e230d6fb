// Tissues under a smooth field that is known, and the stage that is to find it.
#pragma once

#include <cmath>

#include "support/pipeline_runs.h"
#include "volume/phantom.h"

namespace volpipe::testing_support {

struct BiasPhantom {
  Volume image;   ///< float32, with field and noise
  Volume tissue;  ///< uint8: 0 background, 1 to 3
  std::vector<double> field;
};

/// A ball of tissues 600, 800 and 1000 that lie in between each other, times a field from about 0.6 to 1.7.
inline BiasPhantom bias_phantom(const Index3& size, double noise = 0.02) {
  VolumeInfo info;
  info.geometry = oblique_grid(size);
  VolumeInfo labels = info;
  labels.dtype = DataType::uint8;
  labels.kind = ImageKind::label;
  BiasPhantom phantom{{info, Buffer::host(info.bytes())}, {labels, Buffer::host(labels.bytes())}, {}};
  constexpr double kValues[] = {0, 600, 800, 1000};
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal(0, noise);
  for (std::int64_t i = 0; i < info.value_count(); ++i) {
    const auto share = [&](std::int64_t at, std::size_t axis) {
      return size[axis] > 1 ? 2 * double(at) / double(size[axis] - 1) - 1 : 0;
    };
    const double x = share(i % size[0], 0), y = share(i / size[0] % size[1], 1), z = share(i / size[0] / size[1], 2);
    const double waves = std::sin(9 * x + 1) + std::sin(8 * y + 2 * x) + std::sin(10 * z - y);
    const int tissue = x * x + y * y + z * z > 0.9 ? 0 : 1 + (waves > -0.7) + (waves > 0.7);
    const double field = std::exp(0.3 * x - 0.2 * y * y + 0.25 * std::sin(2 * z) + 0.1 * x * z);
    phantom.field.push_back(field);
    phantom.tissue.data_as<std::uint8_t>()[i] = std::uint8_t(tissue);
    phantom.image.data_as<float>()[i] = float(kValues[tissue] * field * (1 + normal(random)));
  }
  return phantom;
}

/// "image" and "tissue" through bias_field_correct with these parameters.
inline PipelineResult run_correction(const BiasPhantom& phantom, const std::string& parameters, int threads = 2) {
  Images images;
  images.emplace("image", copy_of(phantom.image));
  images.emplace("tissue", copy_of(phantom.tissue));
  const auto cpu = make_context(Device::cpu(), threads);
  return run_pipeline(*cpu,
                      pipeline_of(R"({"op": "bias_field_correct", )" + parameters + "}",
                                  R"(, "inputs": {"image": {}, "tissue": {"suffix": "_t", "kind": "label"}})"),
                      std::move(images));
}

inline Volume corrected(const BiasPhantom& phantom, const std::string& parameters, int threads = 2) {
  return std::move(run_correction(phantom, parameters, threads).images.at("image"));
}

}  // namespace volpipe::testing_support
