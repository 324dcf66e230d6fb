// The same voxels through ITK's ResampleImageFilter: grids, transforms, their files and interpolation mean the same.
#include <itkBSplineInterpolateImageFunction.h>
#include <itkBSplineTransform.h>
#include <itkCompositeTransform.h>
#include <itkDisplacementFieldTransform.h>
#include <itkEuler3DTransform.h>
#include <itkLinearInterpolateImageFunction.h>
#include <itkMatlabTransformIOFactory.h>
#include <itkNearestNeighborInterpolateImageFunction.h>
#include <itkResampleImageFilter.h>
#include <itkTransformFileWriter.h>
#include <itkTxtTransformIOFactory.h>
#include <itkWindowedSincInterpolateImageFunction.h>

#include "stages/geometry/transform_file.h"
#include "support/itk_images.h"
#include "support/oriented_grids.h"
#include "support/pipeline_runs.h"
#include "unit/file_helpers.h"

namespace volpipe {
namespace {

using namespace testing_support;

using Image = itk::Image<float, 3>;
using Labels = itk::Image<std::uint8_t, 3>;
using Transform = itk::Transform<double, 3, 3>;

struct Grids {
  std::string name;
  Geometry input, output;
};

std::vector<Grids> all_grids() {
  const Index3 size{44, 40, 36};
  const Geometry left_handed = oblique_grid(size), oblique = oriented_grid("RAS", size);
  // Other axes, steps and handedness than the input's, around its middle.
  const auto target_of = [](const Geometry& grid, const std::string& code, double step) {
    const Affine part{{{{{step, 0.1, 0}, {0, 0.9 * step, -0.2}, {0.05, 0, 1.1 * step}}}}, {4.3, 3.1, 2.6}};
    return reoriented(grid.remapped({31, 29, 33}, part), code);
  };
  return {{"left-handed on itself", left_handed, left_handed},
          {"oblique on itself", oblique, oblique},
          {"oblique to finer, left-handed", oblique, target_of(oblique, "ASR", 0.8)},
          {"inferior first to coarser", reoriented(oblique, "ILP"), target_of(oblique, "RPI", 1.15)},
          {"sagittal to oblique", reoriented(oblique, "PSL"), target_of(oblique, "LAS", 0.95)}};
}

Vec3 middle_of(const Geometry& geometry) {
  const Index3& n = geometry.size();
  return geometry.to_world({double(n[0] - 1) / 2, double(n[1] - 1) / 2, double(n[2] - 1) / 2});
}

/// Moves the image by a general affine map around its middle.
Affine general_push(const Geometry& input) {
  const Matrix3 linear{{{{1.04, 0.11, -0.06}, {-0.13, 0.97, 0.08}, {0.05, -0.1, 1.02}}}};
  const Vec3 middle = middle_of(input);
  return {linear, middle - linear * middle + Vec3{0.61, -0.83, 1.27}};
}

Json matrix_json(const Affine& affine) {
  Json rows = Json::array();
  for (int row = 0; row < 3; ++row) {
    const auto& linear = affine.linear[row];
    rows.push_back({linear[0], linear[1], linear[2], affine.offset[std::size_t(row)]});
  }
  rows.push_back({0, 0, 0, 1});
  return rows;
}

/// An interpolation by both names.
struct Method {
  std::string name;
  double margin;  ///< voxels from the edge from where on both look at the same voxels
  itk::InterpolateImageFunction<Image, double>::Pointer (*itk)();
  bool normalises = true;  ///< ITK's weights add up to 1
};

template <int kOrder>
itk::InterpolateImageFunction<Image, double>::Pointer itk_spline() {
  const auto spline = itk::BSplineInterpolateImageFunction<Image, double, double>::New();
  spline->SetSplineOrder(kOrder);
  return spline.GetPointer();
}

template <class Interpolator>
itk::InterpolateImageFunction<Image, double>::Pointer itk_kernel() {
  return Interpolator::New().GetPointer();
}

/// ITK mirrors the image about its edge voxels for B-splines, as volpipe does for the constant boundary: the margin is
/// that of rounding alone.
std::vector<Method> methods() {
  using Sinc = itk::WindowedSincInterpolateImageFunction<Image, 3, itk::Function::LanczosWindowFunction<3>>;
  return {{"linear", 0, itk_kernel<itk::LinearInterpolateImageFunction<Image>>},
          {"bspline2", 1e-6, itk_spline<2>},
          {"bspline3", 1e-6, itk_spline<3>},
          {"bspline4", 1e-6, itk_spline<4>},
          {"bspline5", 1e-6, itk_spline<5>},
          {"lanczos3", 3, itk_kernel<Sinc>, false}};
}

template <class Picture>
typename Picture::Pointer itk_resample(const Picture* input, const Geometry& output, const Transform* transform,
                                       itk::InterpolateImageFunction<Picture, double>* interpolator) {
  const auto filter = itk::ResampleImageFilter<Picture, Picture>::New();
  filter->SetInput(input);
  filter->SetReferenceImage(itk_grid<Picture>(output));
  filter->UseReferenceImageOn();
  filter->SetTransform(transform);
  filter->SetInterpolator(interpolator);
  filter->Update();
  return filter->GetOutput();
}

/// By `method`, the weights adding up to 1: those of ITK's windowed sinc do not, so its result is divided by that of an
/// image of ones.
Image::Pointer itk_resample(const Image* input, const Geometry& output, const Transform* transform,
                            const Method& method) {
  const auto result = itk_resample<Image>(input, output, transform, method.itk().GetPointer());
  if (method.normalises) return result;
  const auto ones = Image::New();
  ones->CopyInformation(input);
  ones->SetRegions(input->GetLargestPossibleRegion());
  ones->Allocate();
  ones->FillBuffer(1);
  const auto sums = itk_resample<Image>(ones, output, transform, method.itk().GetPointer());
  for (itk::SizeValueType i = 0; i < result->GetPixelContainer()->Size(); ++i)
    result->GetBufferPointer()[i] /= sums->GetBufferPointer()[i];
  return result;
}

/// `stage` on "image", onto the grid `output`.
Volume run_stage(Json stage, const Volume& input, const Geometry& output, TestFiles files = {},
                 const Volume* field = nullptr) {
  const auto context = make_context(Device::cpu());
  VolumeInfo target;
  target.geometry = output;
  Images images;
  images.emplace("image", copy_of(input));
  images.emplace("target", random_volume(*context, target, 2));
  Json inputs = {{"image", Json::object()}, {"target", {{"suffix", "_target"}}}};
  if (input.info().kind == ImageKind::label) inputs["image"]["kind"] = "label";
  if (field) {
    images.emplace("field", copy_of(*field));
    inputs["field"] = {{"suffix", "_field"}};
  }
  stage["on"] = "image";
  stage["reference"] = "target";
  stage["antialias"] = false;
  const Pipeline pipeline = pipeline_of(stage.dump(), R"(, "inputs": )" + inputs.dump());
  return std::move(run_pipeline(*context, pipeline, std::move(images), {}, std::move(files)).images.at("image"));
}

Volume random_input(const Geometry& geometry, DataType type = DataType::float32) {
  VolumeInfo info;
  info.geometry = geometry;
  info.dtype = type;
  if (type == DataType::uint8) info.kind = ImageKind::label;
  return random_volume(*make_context(Device::cpu()), info, 1);
}

/// Where both have a value by the same rule: `margin` voxels inside the input, away from ties by `tie` voxels.
template <class Picture>
void expect_same(const Volume& ours, const Picture* theirs, const Picture* input, const Transform* transform,
                 double margin, double tolerance, double tie = 0) {
  using Voxel = typename Picture::PixelType;
  ASSERT_EQ(ours.dtype(), data_type_of<Voxel>());
  ASSERT_EQ(ours.geometry().voxel_count(), std::int64_t(theirs->GetPixelContainer()->Size()));
  const auto size = input->GetLargestPossibleRegion().GetSize();
  const Voxel* a = ours.data_as<Voxel>();
  const Voxel* b = theirs->GetBufferPointer();
  double worst = 0, low = 1e300, high = -1e300;
  std::int64_t compared = 0;
  for (std::int64_t i = 0; i < ours.geometry().voxel_count(); ++i) {
    typename Picture::PointType point;
    theirs->TransformIndexToPhysicalPoint(theirs->ComputeIndex(i), point);
    itk::ContinuousIndex<double, 3> at;
    input->TransformPhysicalPointToContinuousIndex(transform->TransformPoint(point), at);
    bool counts = true;
    for (unsigned axis = 0; axis < 3; ++axis) {
      counts = counts && at[axis] >= margin && at[axis] <= double(size[axis] - 1) - margin;
      counts = counts && std::abs(at[axis] - std::floor(at[axis]) - 0.5) >= tie;
    }
    if (!counts) continue;
    ++compared;
    worst = std::max(worst, std::abs(double(a[i]) - double(b[i])));
    low = std::min(low, double(b[i]));
    high = std::max(high, double(b[i]));
  }
  EXPECT_GT(compared, 2000);
  EXPECT_LE(worst, tolerance * (high - low)) << "range " << high - low << ", voxels " << compared;
}

constexpr double kTolerance = 1e-5;

TEST(ItkResample, AffineMapsOfFloats) {
  for (const Grids& grids : all_grids()) {
    const Volume input = random_input(grids.input);
    const auto image = itk_image<Image>(input);
    const Affine push = general_push(grids.input);
    const auto transform = itk_transform(push.inverse());
    for (const Method& method : methods()) {
      SCOPED_TRACE(grids.name + ", " + method.name);
      const Volume ours = run_stage({{"op", "affine"}, {"matrix", matrix_json(push)}, {"interpolation", method.name}},
                                    input, grids.output);
      const auto theirs = itk_resample(image, grids.output, transform, method);
      expect_same<Image>(ours, theirs, image, transform, method.margin, kTolerance);
    }
  }
}

TEST(ItkResample, NearestLabels) {
  for (const Grids& grids : all_grids()) {
    SCOPED_TRACE(grids.name);
    const Volume input = random_input(grids.input, DataType::uint8);
    const auto image = itk_image<Labels>(input);
    const Affine push = general_push(grids.input);
    const auto transform = itk_transform(push.inverse());
    const Volume ours =
        run_stage({{"op", "affine"}, {"matrix", matrix_json(push)}, {"interpolation", "nearest"}}, input, grids.output);
    const auto nearest = itk::NearestNeighborInterpolateImageFunction<Labels>::New();
    const auto theirs = itk_resample<Labels>(image, grids.output, transform, nearest.GetPointer());
    expect_same<Labels>(ours, theirs, image, transform, 0, 0, 1e-8);
  }
}

/// A grid of `size` around the middle of `geometry`, turned, `share` times as long along each axis.
Geometry turned_grid(const Geometry& geometry, const Index3& size, double share) {
  Vec3 spacing = geometry.spacing(), to_middle;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    spacing[axis] *= share * double(geometry.size()[axis] - 1) / double(size[axis] - 1);
    to_middle[axis] = spacing[axis] * double(size[axis] - 1) / 2;
  }
  const Matrix3 direction = oblique_rotation() * geometry.direction();
  return Geometry::from_spacing(size, spacing, middle_of(geometry) - direction * to_middle, direction);
}

Transform::Pointer itk_displacements(const Geometry& grid, const Volume& vectors) {
  using Field = itk::DisplacementFieldTransform<double, 3>;
  const auto field = itk_grid<Field::DisplacementFieldType>(grid);
  field->Allocate();
  const std::int64_t count = grid.voxel_count();
  for (std::int64_t i = 0; i < count; ++i)
    for (unsigned c = 0; c < 3; ++c)
      field->GetBufferPointer()[i][c] = double(vectors.data_as<float>()[std::int64_t(c) * count + i]);
  const auto transform = Field::New();
  transform->SetDisplacementField(field);
  return transform.GetPointer();
}

/// Vectors of up to 2.5 mm.
Volume random_vectors(const Geometry& grid) {
  VolumeInfo info;
  info.geometry = grid;
  info.components = 3;
  info.component_axis = ComponentAxis::channels;
  Volume vectors = random_volume(*make_context(Device::cpu()), info, 3);
  for (std::int64_t i = 0; i < info.value_count(); ++i) {
    float& value = vectors.data_as<float>()[i];
    value = std::clamp((value - 100) / 25, -2.5f, 2.5f);
  }
  return vectors;
}

Transform::Pointer random_displacements(const Geometry& input) {
  const Geometry grid = turned_grid(input, {9, 7, 8}, 0.5);
  return itk_displacements(grid, random_vectors(grid));
}

Transform::Pointer random_bspline(const Geometry& input) {
  const Geometry domain = turned_grid(input, {6, 5, 7}, 0.5);  // its points are the corners of the cells
  const auto grid = itk_grid<Image>(domain);
  using Spline = itk::BSplineTransform<double, 3, 3>;
  const auto transform = Spline::New();
  Spline::PhysicalDimensionsType extent;
  Spline::MeshSizeType cells;
  for (unsigned axis = 0; axis < 3; ++axis) {
    cells[axis] = itk::SizeValueType(domain.size()[axis] - 1);
    extent[axis] = domain.spacing()[axis] * double(cells[axis]);
  }
  transform->SetTransformDomainOrigin(grid->GetOrigin());
  transform->SetTransformDomainDirection(grid->GetDirection());
  transform->SetTransformDomainPhysicalDimensions(extent);
  transform->SetTransformDomainMeshSize(cells);
  Spline::ParametersType parameters(transform->GetNumberOfParameters());
  std::mt19937_64 random(4);
  std::uniform_real_distribution<double> value(-3, 3);
  for (double& parameter : parameters) parameter = value(random);
  transform->SetParametersByValue(parameters);
  return transform.GetPointer();
}

/// A turn about a centre, then a B-spline.
Transform::Pointer random_composite(const Geometry& input) {
  const auto turn = itk::Euler3DTransform<double>::New();
  turn->SetRotation(0.08, -0.05, 0.11);
  turn->SetCenter(itk_grid<Image>(input)->GetOrigin());
  const auto composite = itk::CompositeTransform<double, 3>::New();
  composite->AddTransform(random_bspline(input));
  composite->AddTransform(turn);
  return composite.GetPointer();
}

TEST(ItkResample, TransformFilesThatItkWrites) {
  itk::TxtTransformIOFactory::RegisterOneFactory();
  itk::MatlabTransformIOFactory::RegisterOneFactory();
  struct Kind {
    std::string name, extension;
    Transform::Pointer (*make)(const Geometry&);
  };
  const std::vector<Kind> kinds{
      {"affine text", ".tfm",
       [](const Geometry& input) -> Transform::Pointer { return itk_transform(general_push(input)).GetPointer(); }},
      {"affine Matlab", ".mat",
       [](const Geometry& input) -> Transform::Pointer { return itk_transform(general_push(input)).GetPointer(); }},
      {"B-spline text", ".tfm", random_bspline},
      {"B-spline Matlab", ".mat", random_bspline},
      {"displacement field text", ".tfm", random_displacements},
      {"composite text", ".tfm", random_composite}};
  const test::TemporaryFolder folder;
  for (const Grids& grids : all_grids()) {
    const Volume input = random_input(grids.input);
    const auto image = itk_image<Image>(input);
    for (const Kind& kind : kinds) {
      SCOPED_TRACE(grids.name + ", " + kind.name);
      const auto transform = kind.make(grids.input);
      const std::string path = folder / ("moved" + kind.extension);
      const auto writer = itk::TransformFileWriterTemplate<double>::New();
      writer->SetInput(transform);
      writer->SetFileName(path);
      writer->Update();
      TestFiles files;
      files.texts[path] = test::read_bytes(path);
      for (const Method& method : {methods()[0], methods()[2]}) {
        SCOPED_TRACE(method.name);
        const Volume ours =
            run_stage({{"op", "affine"}, {"file", path}, {"interpolation", method.name}}, input, grids.output, files);
        const auto theirs = itk_resample(image, grids.output, transform, method);
        expect_same<Image>(ours, theirs, image, transform, method.margin, kTolerance);
      }
    }
  }
}

TEST(ItkResample, DisplacementFieldsOfTheItem) {
  for (const Grids& grids : all_grids()) {
    const Volume input = random_input(grids.input);
    const auto image = itk_image<Image>(input);
    const Volume field = random_vectors(turned_grid(grids.output, {9, 7, 8}, 2));
    const auto transform = itk_displacements(field.geometry(), field);
    for (const Method& method : methods()) {
      SCOPED_TRACE(grids.name + ", " + method.name);
      const Volume ours = run_stage({{"op", "warp"}, {"field", "field"}, {"interpolation", method.name}}, input,
                                    grids.output, {}, &field);
      const auto theirs = itk_resample(image, grids.output, transform, method);
      expect_same<Image>(ours, theirs, image, transform, method.margin, kTolerance);
    }
  }
}

}  // namespace
}  // namespace volpipe
