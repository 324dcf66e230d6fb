// ITK's own readers and writers through volpipe's NIfTI.
#include "io/module/nifti_image_io.h"

#include <itkImageFileReader.h>
#include <itkImageFileWriter.h>
#include <itkVectorImage.h>

#include "unit/file_helpers.h"
#include "unit/nifti_samples.h"

namespace volpipe::io {
namespace {

using test::bytes_of;
using test::counting;
using test::expect_error;
using test::NiftiSample;
using test::TemporaryFolder;
using test::write_bytes;

template <class Image>
typename Image::Pointer read_with_itk(const std::string& path) {
  NiftiImageIOFactory::RegisterOneFactory();
  auto reader = itk::ImageFileReader<Image>::New();
  reader->SetFileName(path);
  reader->Update();
  return reader->GetOutput();
}

template <class Image>
void write_with_itk(const Image* image, const std::string& path) {
  NiftiImageIOFactory::RegisterOneFactory();
  auto writer = itk::ImageFileWriter<Image>::New();
  writer->SetFileName(path);
  writer->SetInput(image);
  writer->Update();
}

TEST(NiftiImageIO, ReadsGeometryAsLps) {
  TemporaryFolder folder;
  NiftiSample sample;
  sample.pixdim = {1, 2, 3};
  sample.srow = {{-1, 0, 0, 10}, {0, 2, 0, 20}, {0, 0, 3, 30}};
  const auto image = read_with_itk<itk::Image<float, 3>>(write_bytes(folder / "a.nii", sample.file()));
  EXPECT_EQ(image->GetSpacing()[2], 3.0);
  EXPECT_EQ(image->GetOrigin()[0], -10.0);
  EXPECT_EQ(image->GetOrigin()[1], -20.0);
  EXPECT_EQ(image->GetOrigin()[2], 30.0);
  EXPECT_EQ(image->GetDirection()[0][0], 1.0);
  EXPECT_EQ(image->GetDirection()[1][1], -1.0);
  EXPECT_EQ(image->GetDirection()[2][2], 1.0);
  EXPECT_EQ(image->GetPixel({1, 2, 3}), float((1 + 4 * (2 + 5 * 3)) % 100));
}

TEST(NiftiImageIO, KeepsShearAndNonFiniteVoxels) {
  TemporaryFolder folder;
  NiftiSample sample;
  sample.srow = {{1, 0, 0, 0}, {0, 1, 0.25, 0}, {0, 0, 1, 0}};
  std::vector<float> values(120, std::numeric_limits<float>::infinity());
  sample.body = bytes_of(values);
  const auto image = read_with_itk<itk::Image<float, 3>>(write_bytes(folder / "a.nii", sample.file()));
  EXPECT_NEAR(image->GetDirection()[1][2] / image->GetDirection()[2][2], -0.25, 1e-12);
  EXPECT_EQ(image->GetPixel({0, 0, 0}), values[0]);
}

TEST(NiftiImageIO, AFaultIsAnErrorAndNotTheEndOfTheProcess) {
  TemporaryFolder folder;
  NiftiSample sample;
  sample.srow = {{std::nan(""), 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};
  expect_error(ErrorCode::input, "srow_x[0]",
               [&] { read_with_itk<itk::Image<float, 3>>(write_bytes(folder / "a.nii", sample.file())); });
  const std::string packed = test::zlib_gzip(NiftiSample().file());
  write_bytes(folder / "b.nii.gz", packed.substr(0, packed.size() - 8));
  expect_error(ErrorCode::input, "truncated", [&] { read_with_itk<itk::Image<float, 3>>(folder / "b.nii.gz"); });
}

TEST(NiftiImageIO, FramesAndChannelsComeBack) {
  TemporaryFolder folder;
  NiftiSample sample;
  sample.shape = {4, 5, 6, 3};
  sample.pixdim = {1, 1, 1, 2};
  const auto frames = read_with_itk<itk::Image<float, 4>>(write_bytes(folder / "f.nii", sample.file()));
  EXPECT_EQ(frames->GetSpacing()[3], 2.0);
  EXPECT_EQ(frames->GetPixel({1, 0, 0, 2}), float((1 + 240) % 100));
  EXPECT_EQ(frames->GetDirection()[0][0], -1.0);

  sample.shape = {4, 5, 6, 1, 3};
  sample.pixdim = {1, 1, 1, 1, 1};
  const auto channels = read_with_itk<itk::VectorImage<float, 3>>(write_bytes(folder / "c.nii", sample.file()));
  EXPECT_EQ(channels->GetNumberOfComponentsPerPixel(), 3u);
  EXPECT_EQ(channels->GetPixel({1, 0, 0})[2], float((1 + 240) % 100));

  write_with_itk(frames.GetPointer(), folder / "f2.nii.gz");
  write_with_itk(channels.GetPointer(), folder / "c2.nii.gz");
  for (const char* name : {"f", "c"}) {
    Notices notices;
    const Volume first = read_nifti(folder / (std::string(name) + ".nii"), Buffer::host, notices);
    const Volume second = read_nifti(folder / (std::string(name) + "2.nii.gz"), Buffer::host, notices);
    EXPECT_EQ(first.info(), second.info());
    EXPECT_EQ(std::memcmp(first.data(), second.data(), first.info().bytes()), 0);
  }
}

TEST(NiftiImageIO, WritesWhatWasRead) {
  TemporaryFolder folder;
  NiftiSample sample;
  sample.datatype = 4, sample.bitpix = 16;
  sample.body = bytes_of(counting<std::int16_t>(120));
  sample.srow = {{0, -2, 0, 5}, {3, 0, 0, 6}, {0, 0, 4, 7}};
  sample.pixdim = {3, 2, 4};
  const auto image = read_with_itk<itk::Image<short, 3>>(write_bytes(folder / "a.nii", sample.file()));
  write_with_itk(image.GetPointer(), folder / "b.nii.gz");
  Notices notices;
  const Volume first = read_nifti(folder / "a.nii", Buffer::host, notices),
               second = read_nifti(folder / "b.nii.gz", Buffer::host, notices);
  EXPECT_EQ(first.info(), second.info());
  EXPECT_EQ(std::memcmp(first.data(), second.data(), 240), 0);
  EXPECT_TRUE(notices.empty());
}

TEST(NiftiImageIO, DoesNotWriteOtherFormats) {
  const auto io = NiftiImageIO::New();
  EXPECT_TRUE(io->CanWriteFile("a.nii"));
  EXPECT_TRUE(io->CanWriteFile("a.nii.gz"));
  EXPECT_FALSE(io->CanWriteFile("a.hdr"));
  EXPECT_FALSE(io->CanWriteFile("a.nrrd"));
}

}  // namespace
}  // namespace volpipe::io
