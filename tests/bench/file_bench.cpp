// Files of .nii.gz by volpipe and by ITK, on the same voxels: a head of MR with its noise, as int16 and as float32,
// with noise in the background as a scanner gives it and with an empty background as after skull stripping. Prints a
// table of megabytes of voxels (10^6 bytes). A core's figures are voxels by the processor time of the whole process,
// kernel included; a file that volpipe writes is synced to the disk, which ITK leaves out, and waiting for a disk takes
// no processor time. Those of all cores are by the clock. Medians; the runs of both sides alternate.
#include <itkImageFileReader.h>
#include <itkImageFileWriter.h>
#include <itkNiftiImageIO.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>
#include <stdexcept>

#include "device/host_threads.h"
#include "io/io.h"
#include "support/itk_images.h"
#include "volume/phantom.h"

namespace volpipe::bench {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::array<std::int64_t, 3> size{256, 256, 192};
  int runs = 5;
  std::string folder = fs::temp_directory_path().string();
};

struct Seconds {
  double processor, wall;
};

Seconds time_of(const std::function<void()>& work) {
  const auto processor = [] {
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
  };
  const auto start = std::chrono::steady_clock::now();
  const double before = processor();
  work();
  return {processor() - before, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ptrdiff_t(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// The head's slices are stretched over the grid; the noise is new for each voxel, so that no slice comes twice.
template <class Voxel>
Volume noisy_head(const Options& options, bool empty_background) {
  constexpr float kNoise = 12;  // of the phantom, whose white matter has about 900
  const auto [nx, ny, nz] = options.size;
  const Volume head = head_phantom(std::max(nx, ny)).image;
  const Index3 from = head.geometry().size();
  VolumeInfo info;
  info.geometry = Geometry({nx, ny, nz}, head.geometry().index_to_world());
  info.dtype = std::is_integral_v<Voxel> ? DataType::int16 : DataType::float32;
  Volume volume(info, Buffer::host(info.bytes()));
  std::mt19937_64 random(1);
  std::normal_distribution<float> noise(0, kNoise);
  auto* out = volume.data_as<Voxel>();
  for (std::int64_t z = 0; z < nz; ++z)
    for (std::int64_t y = 0; y < ny; ++y)
      for (std::int64_t x = 0; x < nx; ++x) {
        const auto value = float(head.data_as<std::uint16_t>()[(z * from[2] / nz * from[1] + y) * from[0] + x]);
        const float magnitude = std::hypot(value + noise(random), noise(random));
        *out++ = Voxel(value == 0 && empty_background ? 0 : magnitude);
      }
  return volume;
}

template <class Image>
void write_with_itk(const Image* image, const std::string& path) {
  const auto writer = itk::ImageFileWriter<Image>::New();
  writer->SetImageIO(itk::NiftiImageIO::New());
  writer->SetFileName(path);
  writer->SetInput(image);
  writer->Update();
}

template <class Image>
typename Image::Pointer read_with_itk(const std::string& path) {
  const auto reader = itk::ImageFileReader<Image>::New();
  reader->SetImageIO(itk::NiftiImageIO::New());
  reader->SetFileName(path);
  reader->Update();
  return reader->GetOutput();
}

Volume read_with_volpipe(const std::string& path) {
  io::Source source;
  source.path = path;
  Notices notices;
  return io::read(source, Buffer::host, notices);
}

void check_same(const Volume& volume, const void* voxels, const char* who) {
  if (std::memcmp(volume.data(), voxels, volume.info().bytes()) != 0)
    throw std::runtime_error(std::string(who) + " read other voxels than were written");
}

class Table {
 public:
  explicit Table(double megabytes, int runs) : megabytes_(megabytes), runs_(runs) {}

  struct Case {
    std::string what;
    std::function<void()> itk, volpipe, volpipe_threaded;
  };

  void row(const std::string& volume, const Case& compared, const std::string& note) const {
    std::vector<double> itk, one, all;
    for (int run = 0; run < runs_; ++run) {
      itk.push_back(time_of(compared.itk).processor);
      one.push_back(time_of(compared.volpipe).processor);
      if (compared.volpipe_threaded) all.push_back(time_of(compared.volpipe_threaded).wall);
    }
    const std::string threaded = all.empty() ? "" : text("%.0f", megabytes_ / median(all));
    std::printf("| %s | %s | %.0f | %.0f | %.1f | %s | %s |\n", volume.c_str(), compared.what.c_str(),
                megabytes_ / median(itk), megabytes_ / median(one), median(itk) / median(one), threaded.c_str(),
                note.c_str());
    std::fflush(stdout);
  }

  static std::string text(const char* format, double value) {
    char out[32];
    std::snprintf(out, sizeof out, format, value);
    return out;
  }

 private:
  double megabytes_;
  int runs_;
};

template <class Voxel>
void measure(const Options& options, bool empty_background, const HostThreads& threads, const std::string& folder) {
  using Image = itk::Image<Voxel, 3>;
  const Volume volume = noisy_head<Voxel>(options, empty_background);
  const auto image = testing_support::itk_image<Image>(volume);
  const std::string by_itk = folder + "/itk.nii.gz", by_volpipe = folder + "/volpipe.nii.gz";
  const auto write = [&](const HostThreads* with) {
    io::WriteOptions how;
    how.overwrite = true;
    how.threads = with;
    io::write(volume, by_volpipe, how);
  };
  write_with_itk<Image>(image, by_itk);
  write(nullptr);
  for (const auto& path : {by_itk, by_volpipe}) {
    check_same(volume, read_with_volpipe(path).data(), "volpipe");
    check_same(volume, read_with_itk<Image>(path)->GetBufferPointer(), "ITK");
  }
  const auto bytes = [](const std::string& path) { return double(fs::file_size(path)); };
  const std::string name = std::string(std::is_integral_v<Voxel> ? "int16" : "float32") +
                           (empty_background ? ", empty background" : ", noise everywhere");
  const std::string sizes = Table::text("%.2f", bytes(by_itk) / 1e6) + " / " +
                            Table::text("%.2f MB, ", bytes(by_volpipe) / 1e6) +
                            Table::text("%.3f", bytes(by_volpipe) / bytes(by_itk));
  const Table table(double(volume.info().bytes()) / 1e6, options.runs);
  table.row(name,
            {"write", [&] { write_with_itk<Image>(image, by_itk); }, [&] { write(nullptr); }, [&] { write(&threads); }},
            sizes);
  for (const auto& [what, path] : {std::pair{"read ITK's", by_itk}, std::pair{"read volpipe's", by_volpipe}})
    table.row(name,
              {what, [&path = path] { read_with_itk<Image>(path); }, [&path = path] { read_with_volpipe(path); }, {}},
              "");
}

void measure_all(const Options& options) {
  const fs::path folder = fs::path(options.folder) / ("volpipe-file-bench-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  const HostThreads threads;
  std::printf("%lld x %lld x %lld voxels, medians of %d runs, all cores: %d\n\n", (long long)options.size[0],
              (long long)options.size[1], (long long)options.size[2], options.runs, threads.count());
  std::printf(
      "| volume | | ITK, MB/s a core | volpipe, MB/s a core | times | volpipe, MB/s with all cores | files |\n");
  std::printf("|---|---|---|---|---|---|---|\n");
  try {
    for (const bool empty_background : {false, true}) {
      measure<std::int16_t>(options, empty_background, threads, folder.string());
      measure<float>(options, empty_background, threads, folder.string());
    }
  } catch (...) {
    fs::remove_all(folder);
    throw;
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace volpipe::bench

int main(int argc, char** argv) {
  CLI::App app("Reading and writing .nii.gz beside ITK");
  volpipe::bench::Options options;
  app.add_option("--size", options.size, "voxels along x, y, z")->delimiter(',');
  app.add_option("--runs", options.runs, "of each side")->check(CLI::PositiveNumber);
  app.add_option("--folder", options.folder, "where the files are written")->check(CLI::ExistingDirectory);
  CLI11_PARSE(app, argc, argv);
  try {
    volpipe::bench::measure_all(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "volpipe_file_bench: %s\n", error.what());
    return 1;
  }
}
