#include "stages/intensity/landmarks.h"

#include <algorithm>
#include <cmath>

#include "volume/error.h"

namespace volpipe {

namespace {

using Numbers = ParameterType<std::vector<double>>;
using Pair = ParameterType<std::array<double, 2>>;

bool descends_anywhere(const std::vector<double>& values) { return !std::is_sorted(values.begin(), values.end()); }

}  // namespace

std::string check_percentiles(const std::vector<double>& percentiles) {
  const bool ascending =
      std::adjacent_find(percentiles.begin(), percentiles.end(), std::greater_equal<>()) == percentiles.end();
  if (percentiles.size() >= 2 && ascending && percentiles.front() >= 0 && percentiles.back() <= 100) return "";
  return "percentiles must be at least two numbers that ascend, from 0 to 100";
}

Json to_json(const Landmarks& landmarks) {
  return {{"percentiles", Numbers::write(landmarks.percentiles)},
          {"landmarks", Numbers::write(landmarks.values)},
          {"scale", Pair::write(landmarks.scale)},
          {"mask", ParameterType<Mask>::write(landmarks.mask)},
          {"images", landmarks.images}};
}

std::string read_landmarks(const Json& json, Landmarks& landmarks) {
  if (!json.is_object()) return "landmarks are an object {\"percentiles\": [...], \"landmarks\": [...]}";
  const std::vector<std::string> known{"percentiles", "landmarks", "scale", "mask", "images"};
  for (const auto& entry : json.items())
    if (std::find(known.begin(), known.end(), entry.key()) == known.end())
      return "landmarks have no '" + entry.key() + "'" + did_you_mean(entry.key(), known) + "; known are " +
             quoted_list(known);
  const auto read = [&](const char* name, auto& value, bool required) -> std::string {
    using Type = ParameterType<std::decay_t<decltype(value)>>;
    const auto found = json.find(name);
    if (found == json.end() || found->is_null())
      return required ? std::string("'") + name + "' is missing from the landmarks" : "";
    const std::string expected = Type::read(*found, {}, value);
    return expected.empty() ? "" : std::string("'") + name + "' of the landmarks must be " + expected;
  };
  for (const std::string& fault : {read("percentiles", landmarks.percentiles, true),
                                   read("landmarks", landmarks.values, true), read("scale", landmarks.scale, false),
                                   read("mask", landmarks.mask, false), read("images", landmarks.images, false)})
    if (!fault.empty()) return fault;
  if (std::string fault = check_percentiles(landmarks.percentiles); !fault.empty()) return fault;
  if (landmarks.values.size() != landmarks.percentiles.size())
    return "there are " + std::to_string(landmarks.values.size()) + " landmarks for " +
           std::to_string(landmarks.percentiles.size()) + " percentiles, expected as many";
  if (descends_anywhere(landmarks.values)) return "landmarks must not descend";
  if (landmarks.mask.kind == Mask::Kind::image) return "the mask of landmarks cannot be an image";
  return "";
}

LandmarkTrainer::LandmarkTrainer(std::vector<double> percentiles, std::array<double, 2> scale, Mask mask)
    : percentiles_(std::move(percentiles)), sums_(percentiles_.size()), scale_(scale), mask_(std::move(mask)) {}

void LandmarkTrainer::add(const std::vector<double>& image_percentiles) {
  const double low = image_percentiles.front(), range = image_percentiles.back() - low;
  if (std::isnan(low))
    throw Error(ErrorCode::input, "no finite voxel lies under the mask, so there are no percentiles");
  if (range == 0)
    throw Error(ErrorCode::input, "the first and the last percentile are the same, so the image shows no scale");
  for (std::size_t i = 0; i < sums_.size(); ++i)
    sums_[i] += scale_[0] + (image_percentiles[i] - low) / range * (scale_[1] - scale_[0]);
  ++images_;
}

Landmarks LandmarkTrainer::result() const {
  Landmarks result{percentiles_, sums_, scale_, mask_, images_};
  for (double& value : result.values) value /= double(images_);
  return result;
}

}  // namespace volpipe
