#include "stages/n4/module/module.h"

#include <itkN4BiasFieldCorrectionImageFilter.h>

#include <algorithm>

#include "stages/n4/module/arena_threader.h"
#include "volume/error.h"

namespace volpipe {

namespace {

using Image = itk::Image<float, 3>;
using MaskImage = itk::Image<unsigned char, 3>;
using Filter = itk::N4BiasFieldCorrectionImageFilter<Image, MaskImage, Image>;

/// With voxels of 1 mm from the origin on: the field does not depend on them, and points are whole numbers in float32.
template <class T>
typename itk::Image<T, 3>::Pointer imported(const N4Image& image, const std::vector<T>& values) {
  const auto result = itk::Image<T, 3>::New();
  typename itk::Image<T, 3>::SizeType size;
  std::copy(image.size.begin(), image.size.end(), size.begin());
  result->SetRegions(size);
  result->Allocate();
  std::copy(values.begin(), values.end(), result->GetBufferPointer());
  return result;
}

Filter::Pointer filter_for(const N4Image& image, const N4Settings& settings) {
  const auto filter = Filter::New();
  filter->SetInput(imported(image, image.values));
  filter->SetMaskImage(imported(image, image.mask));
  Filter::VariableSizeArrayType iterations(static_cast<unsigned>(settings.iterations.size()));
  std::copy(settings.iterations.begin(), settings.iterations.end(), iterations.begin());
  filter->SetMaximumNumberOfIterations(iterations);
  filter->SetNumberOfFittingLevels(unsigned(settings.iterations.size()));
  filter->SetConvergenceThreshold(float(settings.convergence));
  Filter::ArrayType control_points;
  std::copy(settings.control_points.begin(), settings.control_points.end(), control_points.Begin());
  filter->SetNumberOfControlPoints(control_points);
  filter->SetSplineOrder(unsigned(settings.order));
  filter->SetNumberOfHistogramBins(unsigned(settings.bins));
  filter->SetBiasFieldFullWidthAtHalfMaximum(float(settings.fwhm));
  filter->SetWienerFilterNoise(float(settings.wiener));
  return filter;
}

SplineLattice fit(const N4Image& image, const N4Settings& settings, const HostThreads& threads) {
  try {
    const ItkThreads filters_on(threads);
    const auto filter = filter_for(image, settings);
    filter->Update();
    const auto* points = filter->GetLogBiasFieldControlPointLattice();
    const auto size = points->GetLargestPossibleRegion().GetSize();
    SplineLattice lattice{{}, settings.order, {}};
    std::copy(size.begin(), size.end(), lattice.control_points.begin());
    const auto* begin = points->GetBufferPointer();
    for (const auto* point = begin; point != begin + points->GetPixelContainer()->Size(); ++point)
      lattice.coefficients.push_back(double((*point)[0]));
    return lattice;
  } catch (const itk::ExceptionObject& error) {
    throw Error(ErrorCode::unsupported, "ITK's N4 filter failed: " + itk_reason(error.GetDescription()));
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory, "no host memory for ITK's N4 filter");
  } catch (const std::exception& error) {
    throw Error(ErrorCode::unsupported, "ITK's N4 filter failed: " + std::string(error.what()));
  }
}

}  // namespace

const N4Module* volpipe_n4_module() {
  static const N4Module module{fit};
  static const bool silenced = (itk::Object::GlobalWarningDisplayOff(), true);
  return silenced ? &module : nullptr;
}

}  // namespace volpipe
