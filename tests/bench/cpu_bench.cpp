// The stages on the CPU beside ITK's filters for the same work, on the same voxels and as many threads. A benchmark is
// named <case>/<who>; its counter "difference" is the greatest difference from volpipe's result away from the edges
// (where the two may extend the image differently), in parts of the result's range. cpu.py makes a table of the output.
#include <benchmark/benchmark.h>
#include <itkBSplineInterpolateImageFunction.h>
#include <itkBSplineTransform.h>
#include <itkClampImageFilter.h>
#include <itkDiscreteGaussianImageFilter.h>
#include <itkDisplacementFieldTransform.h>
#include <itkFlipImageFilter.h>
#include <itkIntensityWindowingImageFilter.h>
#include <itkLinearInterpolateImageFunction.h>
#include <itkMirrorPadImageFilter.h>
#include <itkMultiThreaderBase.h>
#include <itkNearestNeighborInterpolateImageFunction.h>
#include <itkNormalizeImageFilter.h>
#include <itkPermuteAxesImageFilter.h>
#include <itkRegionOfInterestImageFilter.h>
#include <itkResampleImageFilter.h>
#include <itkRescaleIntensityImageFilter.h>
#include <itkShiftScaleImageFilter.h>
#include <itkSmoothingRecursiveGaussianImageFilter.h>
#include <itkStatisticsImageFilter.h>
#include <itkThresholdImageFilter.h>
#include <itkVersion.h>
#include <itkWarpImageFilter.h>
#include <itkWindowedSincInterpolateImageFunction.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "bench/cases.h"
#include "support/itk_images.h"

namespace volpipe::bench {
namespace {

using Image = itk::Image<float, 3>;
using Picture = Image::Pointer;
using Labels = itk::Image<std::uint8_t, 3>;
using Result = itk::ImageBase<3>::Pointer;
using Transform = itk::Transform<double, 3, 3>;
template <class Voxel>
using Vectors = itk::Image<itk::Vector<Voxel, 3>, 3>;
using Threader = itk::MultiThreaderBase::ThreaderEnum;

template <class Filter>
auto output_of(const itk::SmartPointer<Filter>& filter) {
  filter->Update();
  const typename Filter::OutputImageType::Pointer output = filter->GetOutput();
  output->DisconnectPipeline();
  return output;
}

template <class Filter>
auto filter_of(const typename Filter::InputImageType* input) {
  const auto filter = Filter::New();
  filter->SetInput(input);
  return filter;
}

// Each builds its filter anew, as a program does for each image; so does volpipe with its output.
namespace with_itk {

Picture clamp(const Image* input, float low, float high) {
  const auto filter = filter_of<itk::ClampImageFilter<Image, Image>>(input);
  filter->SetBounds(low, high);
  return output_of(filter);
}

Picture window(const Image* input, float low, float high, float to_low, float to_high) {
  const auto filter = filter_of<itk::IntensityWindowingImageFilter<Image, Image>>(input);
  filter->SetWindowMinimum(low);
  filter->SetWindowMaximum(high);
  filter->SetOutputMinimum(to_low);
  filter->SetOutputMaximum(to_high);
  return output_of(filter);
}

Picture shift_scale(const Image* input, double shift, double scale) {
  const auto filter = filter_of<itk::ShiftScaleImageFilter<Image, Image>>(input);
  filter->SetShift(shift);
  filter->SetScale(scale);
  return output_of(filter);
}

Picture raise(const Image* input, float low) {
  const auto filter = filter_of<itk::ThresholdImageFilter<Image>>(input);
  filter->ThresholdBelow(low);
  filter->SetOutsideValue(low);
  return output_of(filter);
}

Picture lower(const Image* input, float high) {
  const auto filter = filter_of<itk::ThresholdImageFilter<Image>>(input);
  filter->ThresholdAbove(high);
  filter->SetOutsideValue(high);
  return output_of(filter);
}

Picture chain(const Image* input) {
  Picture image = clamp(input, -3, 3);
  image = window(image, -3, 3, 0, 1);
  image = window(image, 0.1f, 0.9f, 0, 1);
  image = raise(image, 0.05f);
  image = shift_scale(image, -0.5, 4);
  image = clamp(image, -0.75f, 0.75f);
  image = shift_scale(image, 0, 0.5);
  image = lower(image, 0.3f);
  return window(image, -0.25f, 0.25f, 0, 1);
}

Picture normalize(const Image* input) {
  const auto filter = filter_of<itk::NormalizeImageFilter<Image, Image>>(input);
  return output_of(filter);
}

Picture rescale(const Image* input) {
  const auto filter = filter_of<itk::RescaleIntensityImageFilter<Image, Image>>(input);
  filter->SetOutputMinimum(0);
  filter->SetOutputMaximum(255);
  return output_of(filter);
}

template <class Interpolator>
Picture resize(const Image* input, const auto& prepare) {
  const auto filter = filter_of<itk::ResampleImageFilter<Image, Image>>(input);
  const auto interpolator = Interpolator::New();
  prepare(*interpolator);
  filter->SetInterpolator(interpolator);
  Image::SizeType size = input->GetLargestPossibleRegion().GetSize();
  Image::SpacingType spacing = input->GetSpacing();
  Image::PointType origin = input->GetOrigin();
  itk::ContinuousIndex<double, 3> first;
  for (unsigned axis = 0; axis < 3; ++axis) {
    const double old = double(size[axis]);
    size[axis] = itk::SizeValueType(std::floor(old * 0.75 + 0.5));
    const double ratio = old / double(size[axis]);
    spacing[axis] *= ratio;
    first[axis] = (ratio - 1) / 2;
  }
  input->TransformContinuousIndexToPhysicalPoint(first, origin);
  filter->SetSize(size);
  filter->SetOutputSpacing(spacing);
  filter->SetOutputOrigin(origin);
  filter->SetOutputDirection(input->GetDirection());
  return output_of(filter);
}

Picture resize_nearest(const Image* input) {
  return resize<itk::NearestNeighborInterpolateImageFunction<Image>>(input, [](auto&) {});
}

Picture resize_linear(const Image* input) {
  return resize<itk::LinearInterpolateImageFunction<Image>>(input, [](auto&) {});
}

using Spline = itk::BSplineInterpolateImageFunction<Image, double, float>;

void prepare_cubic(Spline& interpolator) {
  interpolator.SetSplineOrder(3);
  interpolator.SetNumberOfWorkUnits(itk::MultiThreaderBase::GetGlobalDefaultNumberOfThreads());
}

Picture resize_bspline3(const Image* input) { return resize<Spline>(input, prepare_cubic); }

/// On the input's grid.
template <class Interpolator>
auto resample(const typename Interpolator::InputImageType* input, const Transform* transform, const auto& prepare) {
  using Voxels = typename Interpolator::InputImageType;
  const auto filter = filter_of<itk::ResampleImageFilter<Voxels, Voxels>>(input);
  const auto interpolator = Interpolator::New();
  prepare(*interpolator);
  filter->SetInterpolator(interpolator);
  filter->SetReferenceImage(input);
  filter->UseReferenceImageOn();
  filter->SetTransform(transform);
  return output_of(filter);
}

Picture resample_linear(const Image* input, const Transform* transform) {
  return resample<itk::LinearInterpolateImageFunction<Image>>(input, transform, [](auto&) {});
}

Labels::Pointer resample_nearest(const Labels* input, const Transform* transform) {
  return resample<itk::NearestNeighborInterpolateImageFunction<Labels>>(input, transform, [](auto&) {});
}

Picture resample_bspline3(const Image* input, const Transform* transform) {
  return resample<Spline>(input, transform, prepare_cubic);
}

Picture resample_lanczos3(const Image* input, const Transform* transform) {
  using Sinc = itk::WindowedSincInterpolateImageFunction<Image, 3, itk::Function::LanczosWindowFunction<3>>;
  return resample<Sinc>(input, transform, [](auto&) {});
}

Picture warp(const Image* input, const Vectors<float>* field) {
  const auto filter = filter_of<itk::WarpImageFilter<Image, Image, Vectors<float>>>(input);
  filter->SetDisplacementField(field);
  filter->SetOutputParametersFromImage(input);
  return output_of(filter);
}

Picture discrete_gaussian(const Image* input, double sigma, double error) {
  const auto filter = filter_of<itk::DiscreteGaussianImageFilter<Image, Image>>(input);
  filter->SetUseImageSpacing(false);
  filter->SetVariance(sigma * sigma);
  filter->SetMaximumError(error);
  filter->SetMaximumKernelWidth(1000);
  return output_of(filter);
}

Picture recursive_gaussian(const Image* input, double sigma) {
  const auto filter = filter_of<itk::SmoothingRecursiveGaussianImageFilter<Image, Image>>(input);
  filter->SetSigma(sigma * input->GetSpacing()[0]);
  return output_of(filter);
}

Picture flip(const Image* input, bool x, bool y, bool z) {
  const auto filter = filter_of<itk::FlipImageFilter<Image>>(input);
  itk::FixedArray<bool, 3> axes;
  axes[0] = x, axes[1] = y, axes[2] = z;
  filter->SetFlipAxes(axes);
  return output_of(filter);
}

Picture transpose(const Image* input) {
  const auto filter = filter_of<itk::PermuteAxesImageFilter<Image>>(input);
  itk::FixedArray<unsigned, 3> order;
  for (unsigned axis = 0; axis < 3; ++axis) order[axis] = 2 - axis;
  filter->SetOrder(order);
  return output_of(filter);
}

Picture pad(const Image* input) {
  const auto filter = filter_of<itk::MirrorPadImageFilter<Image, Image>>(input);
  filter->SetPadBound(Image::SizeType::Filled(16));
  return output_of(filter);
}

Picture crop(const Image* input) {
  const auto filter = filter_of<itk::RegionOfInterestImageFilter<Image, Image>>(input);
  Image::RegionType region = input->GetLargestPossibleRegion();
  for (unsigned axis = 0; axis < 3; ++axis) {
    region.SetIndex(axis, itk::IndexValueType(region.GetSize(axis) / 8));
    region.SetSize(axis, region.GetSize(axis) * 3 / 4);
  }
  filter->SetRegionOfInterest(region);
  return output_of(filter);
}

Picture pipeline(const Image* input) {
  Picture image = flip(transpose(input), false, false, true);
  image = clamp(resize_linear(image), -2, 2);
  return recursive_gaussian(normalize(image), 1);
}

}  // namespace with_itk

/// What a plan of one affine stage does, for ITK.
Transform::Pointer affine_transform(const Plan& plan, const Geometry& geometry) {
  const Affine points = plan.groups.front().gather.points.affine();
  return testing_support::itk_transform(geometry.index_to_world() * points * geometry.world_to_index()).GetPointer();
}

/// The same of one elastic stage.
Transform::Pointer bspline_transform(const Plan& plan) {
  for (const PointMap::Step& step : plan.groups.front().gather.points.steps()) {
    const auto* field = std::get_if<FieldStep>(&step);
    if (!field) continue;
    const Geometry points(field->field.size, field->to_grid.inverse());
    const auto grid = testing_support::itk_grid<Image>(points);
    using Spline = itk::BSplineTransform<double, 3, 3>;
    const auto transform = Spline::New();
    Spline::FixedParametersType fixed(18);
    for (unsigned axis = 0; axis < 3; ++axis) {
      fixed[axis] = double(points.size()[axis]);
      fixed[3 + axis] = grid->GetOrigin()[axis];
      fixed[6 + axis] = grid->GetSpacing()[axis];
      for (unsigned column = 0; column < 3; ++column) fixed[9 + 3 * axis + column] = grid->GetDirection()[axis][column];
    }
    transform->SetFixedParameters(fixed);
    const std::int64_t count = points.voxel_count();
    Spline::ParametersType parameters(transform->GetNumberOfParameters());
    for (std::int64_t i = 0; i < 3 * count; ++i)
      parameters[unsigned(i)] = (i < 2 * count ? -1 : 1) * double(field->field.vectors->data_as<float>()[i]);
    transform->SetParametersByValue(parameters);
    return transform.GetPointer();
  }
  throw Error(ErrorCode::internal, "the plan has no field");
}

template <class Voxel>
typename Vectors<Voxel>::Pointer itk_field(const Volume& field) {
  const auto vectors = testing_support::itk_grid<Vectors<Voxel>>(field.geometry());
  vectors->Allocate();
  const std::int64_t count = field.geometry().voxel_count();
  for (std::int64_t i = 0; i < count; ++i)
    for (unsigned c = 0; c < 3; ++c)
      vectors->GetBufferPointer()[i][c] = Voxel(field.data_as<float>()[std::int64_t(c) * count + i]);
  return vectors;
}

/// The voxels of both, and what volpipe makes of them, computed once a case.
class Bench {
 public:
  Bench(std::int64_t edge, int threads)
      : context_(make_context(Device::cpu(), threads)),
        input_(random_volume(edge)),
        image_(testing_support::itk_image<Image>(input_)),
        labels_(bench_labels(input_.geometry())),
        label_image_(testing_support::itk_image<Labels>(labels_)),
        field_(bench_field(input_.geometry())) {
    itk::MultiThreaderBase::SetGlobalMaximumNumberOfThreads(itk::ThreadIdType(threads));
    itk::MultiThreaderBase::SetGlobalDefaultNumberOfThreads(itk::ThreadIdType(threads));
  }

  void add_all() {
    add_stages(
        "clip and scale",
        {{"ClampImageFilter, ShiftScaleImageFilter",
          [](const Image* image) { return with_itk::shift_scale(with_itk::clamp(image, -1, 1), 1, 0.5); }},
         {"IntensityWindowingImageFilter", [](const Image* image) { return with_itk::window(image, -1, 1, 0, 1); }}});
    add_stages("pointwise chain of 16", {{"nine filters", with_itk::chain}});
    add_stages("z-score", {{"NormalizeImageFilter", with_itk::normalize}});
    add_stages("rescale min max", {{"RescaleIntensityImageFilter", with_itk::rescale}});
    add_stages("resize nearest 0.75", {{"ResampleImageFilter, NearestNeighbor", with_itk::resize_nearest}});
    add_stages("resize linear 0.75", {{"ResampleImageFilter, Linear", with_itk::resize_linear}});
    add_stages("resize bspline3 0.75", {{"ResampleImageFilter, BSpline 3", with_itk::resize_bspline3}});
    for (const int sigma : {1, 2, 4})
      add_stages("gaussian " + std::to_string(sigma),
                 {{"DiscreteGaussianImageFilter, error 1e-2",
                   [sigma](const Image* image) { return with_itk::discrete_gaussian(image, sigma, 1e-2); }},
                  {"DiscreteGaussianImageFilter, error 1e-4",
                   [sigma](const Image* image) { return with_itk::discrete_gaussian(image, sigma, 1e-4); }},
                  {"SmoothingRecursiveGaussianImageFilter",
                   [sigma](const Image* image) { return with_itk::recursive_gaussian(image, sigma); }}});
    add_stages("flip",
               {{"FlipImageFilter", [](const Image* image) { return with_itk::flip(image, true, true, true); }}});
    add_stages("transpose", {{"PermuteAxesImageFilter", with_itk::transpose}});
    add_stages("pad symmetric 16", {{"MirrorPadImageFilter", with_itk::pad}});
    add_stages("crop", {{"RegionOfInterestImageFilter", with_itk::crop}});
    add_gathers();
    add(pipeline_case(), {{"six filters", with_itk::pipeline}});
    add_statistics();
    add_percentiles();
  }

 private:
  using Peer = std::pair<std::string, std::function<Result(const Image*)>>;

  static Volume random_volume(std::int64_t edge) {
    VolumeInfo info;
    info.geometry = bench_geometry({edge, edge, edge});
    Volume volume(info, Buffer::host(info.bytes()));
    std::mt19937 engine(1);
    std::normal_distribution<float> normal;
    std::generate_n(volume.data_as<float>(), info.value_count(), [&] { return normal(engine); });
    return volume;
  }

  template <class Work>
  static void add_benchmark(const std::string& name, Work work) {
    benchmark::RegisterBenchmark(name.c_str(), work)
        ->Unit(benchmark::kMillisecond)
        ->MeasureProcessCPUTime()
        ->UseRealTime();
  }

  /// The peer with either of ITK's own threaders.
  template <class Work>
  void add_peer(const std::string& name, Work work) {
    for (const auto& [threader, word] : {std::pair{Threader::Pool, "pool"}, std::pair{Threader::Platform, "platform"}})
      add_benchmark(name + ", " + word, [threader = threader, work](benchmark::State& state) {
        itk::MultiThreaderBase::SetGlobalDefaultThreader(threader);
        work(state);
      });
  }

  void add_stages(const std::string& name, const std::vector<Peer>& peers) {
    add(case_named(stage_cases(input_.geometry().size()), name), peers);
  }

  /// `edge`: voxels next to the edges that are not compared, where each side has rules of its own.
  void add(const Case& one, const std::vector<Peer>& peers, std::int64_t edge = 24) {
    const auto planned = std::make_shared<PlannedCase>(one, (one.labels ? labels_ : input_).info());
    const auto run = [this, planned, one] {
      return planned->run(*context_, borrowed(one.labels ? labels_ : input_),
                          one.field ? std::optional(borrowed(field_)) : std::nullopt);
    };
    add_benchmark(one.name + "/volpipe", [run](benchmark::State& state) {
      for (auto _ : state) benchmark::DoNotOptimize(run().data());
    });
    for (const Peer& peer : peers)
      add_peer(one.name + "/" + peer.first,
               [this, run, edge, its = peer.second, name = one.name + peer.first](benchmark::State& state) {
                 for (auto _ : state) benchmark::DoNotOptimize(its(image_).GetPointer());
                 if (!differences_.contains(name))
                   differences_[name] = difference(run(), its(image_).GetPointer(), edge);
                 state.counters["difference"] = differences_[name];
               });
  }

  void add_gathers() {
    const std::int64_t edge = input_.geometry().size()[0] / 3;  // the image turns: its corners leave the grid
    const std::vector<Case> cases = gather_cases();
    const auto planned = [&](const char* name) { return PlannedCase(case_named(cases, name), input_.info()).plan(); };
    const Transform::Pointer affine = affine_transform(planned("affine linear"), input_.geometry());
    const Transform::Pointer elastic = bspline_transform(planned("elastic linear"));
    const auto field = itk_field<float>(field_);
    const auto displacements = itk::DisplacementFieldTransform<double, 3>::New();
    displacements->SetDisplacementField(itk_field<double>(field_));

    add(case_named(cases, "affine linear"),
        {{"ResampleImageFilter, Linear",
          [affine](const Image* image) { return with_itk::resample_linear(image, affine); }}},
        edge);
    add(case_named(cases, "affine bspline3"),
        {{"ResampleImageFilter, BSpline 3",
          [affine](const Image* image) { return with_itk::resample_bspline3(image, affine); }}},
        edge);
    add(case_named(cases, "affine lanczos3"),
        {{"ResampleImageFilter, WindowedSinc 3 Lanczos",
          [affine](const Image* image) { return with_itk::resample_lanczos3(image, affine); }}},
        edge);
    add(case_named(cases, "affine nearest, uint8"),
        {{"ResampleImageFilter, NearestNeighbor",
          [this, affine](const Image*) { return with_itk::resample_nearest(label_image_, affine); }}},
        edge);
    add(case_named(cases, "warp linear"),
        {{"WarpImageFilter", [field](const Image* image) { return with_itk::warp(image, field); }},
         {"ResampleImageFilter, DisplacementFieldTransform",
          [displacements](const Image* image) { return with_itk::resample_linear(image, displacements); }}},
        edge);
    add(case_named(cases, "elastic linear"),
        {{"ResampleImageFilter, BSplineTransform",
          [elastic](const Image* image) { return with_itk::resample_linear(image, elastic); }}},
        edge);
  }

  void add_statistics() {
    add_benchmark("statistics/volpipe", [this](benchmark::State& state) {
      for (auto _ : state) benchmark::DoNotOptimize(compute_moments(*context_, values()));
    });
    add_peer("statistics/StatisticsImageFilter", [this](benchmark::State& state) {
      for (auto _ : state) {
        const auto filter = filter_of<itk::StatisticsImageFilter<Image>>(image_.GetPointer());
        filter->Update();
        benchmark::DoNotOptimize(filter->GetSigma());
      }
    });
  }

  void add_percentiles() {
    add_benchmark("percentiles 1 and 99/volpipe", [this](benchmark::State& state) {
      const double percents[] = {1, 99};
      for (auto _ : state) benchmark::DoNotOptimize(compute_percentiles(*context_, values(), percents));
    });
    add_benchmark("percentiles 1 and 99/std::nth_element twice on a copy, one thread", [this](benchmark::State& state) {
      const float* voxels = input_.data_as<float>();
      const std::ptrdiff_t count = input_.info().value_count();
      for (auto _ : state) {
        std::vector<float> copy(voxels, voxels + count);
        const auto low = copy.begin() + count / 100, high = copy.begin() + count - 1 - count / 100;
        std::nth_element(copy.begin(), high, copy.end());
        std::nth_element(copy.begin(), low, high);
        benchmark::DoNotOptimize(*low + *high);
      }
    });
  }

  SampledValues values() const { return {inputs_, &identity_, input_.info().value_count()}; }

  static double difference(const Volume& ours, const itk::ImageBase<3>* theirs, std::int64_t edge) {
    if (const auto* labels = dynamic_cast<const Labels*>(theirs)) return greatest_difference(ours, *labels, edge);
    return greatest_difference(ours, dynamic_cast<const Image&>(*theirs), edge);
  }

  /// Greatest difference away from the edges in parts of the range; a failure when the sizes differ.
  template <class Voxels>
  static double greatest_difference(const Volume& ours, const Voxels& theirs, std::int64_t edge) {
    const Index3& size = ours.geometry().size();
    const Image::SizeType its = theirs.GetLargestPossibleRegion().GetSize();
    if (its != Image::SizeType{{itk::SizeValueType(size[0]), itk::SizeValueType(size[1]), itk::SizeValueType(size[2])}})
      throw Error(ErrorCode::internal, "the peer's result has another size");
    const auto* a = ours.data_as<typename Voxels::PixelType>();
    const auto* b = theirs.GetBufferPointer();
    const auto [low, high] = std::minmax_element(a, a + ours.info().value_count());
    double worst = 0;
    edge = std::min(edge, size[0] / 3);
    for (std::int64_t z = edge; z < size[2] - edge; ++z)
      for (std::int64_t y = edge; y < size[1] - edge; ++y)
        for (std::int64_t x = edge; x < size[0] - edge; ++x) {
          const std::int64_t i = (z * size[1] + y) * size[0] + x;
          worst = std::max(worst, std::abs(double(a[i]) - double(b[i])));
        }
    return worst / (double(*high) - double(*low));
  }

  std::unique_ptr<DeviceContext> context_;
  Volume input_;
  Picture image_;
  Volume labels_;
  Labels::Pointer label_image_;
  Volume field_;
  Program identity_;
  std::array<ProgramInput, 1> inputs_{ProgramInput{input_.data(), input_.dtype()}};
  std::map<std::string, double> differences_;
};

}  // namespace
}  // namespace volpipe::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  std::int64_t size = 256;
  int threads = volpipe::available_threads();
  CLI::App app("Stages of volpipe and ITK's filters on the CPU; takes Google Benchmark's flags too");
  app.add_option("--size", size, "edge of the volume, voxels")->capture_default_str()->check(CLI::Range(16, 1024));
  app.add_option("--threads", threads, "threads of both")->capture_default_str()->check(CLI::Range(1, 1024));
  CLI11_PARSE(app, argc, argv);
  benchmark::AddCustomContext("volpipe_threads", std::to_string(threads));
  benchmark::AddCustomContext("volpipe_size", std::to_string(size));
  benchmark::AddCustomContext("itk_version", ITK_VERSION);
  volpipe::bench::Bench bench(size, threads);
  bench.add_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
