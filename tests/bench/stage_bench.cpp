// Times stages on one device through the path that `volpipe run` takes. One JSON object a line and case:
//   ms, min_ms   median and least of the device's own clock, with work queued ahead so that the host's share is hidden
//   wall_ms      median of the host's clock from the call to the end of the work, as a single caller sees it
//   bytes        what has to move at least: over the device's memory, or over the link for "traffic": "link"
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <optional>
#include <random>

#include "bench/cases.h"

namespace volpipe::bench {
namespace {

struct Options {
  std::string device = "cpu";
  std::vector<std::int64_t> size{512};
  std::string data, json, save;
  std::vector<std::string> cases;
  int runs = 20;
  int threads = 0;
  double seconds = 3;  ///< no further run of a case begins after these, once there were three
};

double milliseconds_since(std::chrono::steady_clock::time_point from) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - from).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ptrdiff_t(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// Slow work that is quick to queue: a device that has some is busy while the host prepares what is timed.
class Backlog {
 public:
  Backlog(DeviceContext& context, const Volume& input)
      : context_(context), input_(input), output_(context.allocate(input.info().bytes())) {
    program_.add(Op::abs);
    for (int i = 0; i < 8; ++i) program_.add(Op::power, 0.7);
    queue_one();
    const auto from = context.record_time();
    queue_one();
    const auto to = context.record_time();
    ms_ = std::max(context.elapsed_ms(*from, *to), 0.01);
  }

  void queue(double ms) {
    for (double queued = 0; queued < std::min(ms, kMost); queued += ms_) queue_one();
  }

 private:
  static constexpr double kMost = 50;

  void queue_one() {
    const ProgramInput inputs[] = {{input_.data(), input_.dtype()}};
    run_program(context_, program_, inputs, output_.data(), DataType::float32, input_.info().value_count(),
                Precision::single);
  }

  DeviceContext& context_;
  const Volume& input_;
  Buffer output_;
  Program program_;
  double ms_ = 0;
};

struct Timing {
  double ms, min_ms, wall_ms;
  std::size_t runs;
};

class Stopwatch {
 public:
  Stopwatch(DeviceContext& context, const Volume& input, const Options& options)
      : context_(context), options_(options) {
    if (context.device().is_cuda() && input.dtype() == DataType::float32) backlog_.emplace(context, input);
  }

  Timing time(const std::function<void()>& work) {
    double host_ms = 0;
    for (int i = 0; i < 3; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      work();
      host_ms = milliseconds_since(begin);
      context_.synchronize();
    }
    const std::vector<double> device = repeat([&] {
      if (backlog_) backlog_->queue(2 * host_ms);
      const auto from = context_.record_time();
      work();
      const auto to = context_.record_time();
      return context_.elapsed_ms(*from, *to);
    });
    const std::vector<double> wall = !backlog_ ? device : repeat([&] {
      const auto begin = std::chrono::steady_clock::now();
      work();
      context_.synchronize();
      return milliseconds_since(begin);
    });
    return {median(device), *std::min_element(device.begin(), device.end()), median(wall), device.size()};
  }

 private:
  std::vector<double> repeat(const std::function<double()>& timed) const {
    std::vector<double> times;
    const auto begin = std::chrono::steady_clock::now();
    while (int(times.size()) < options_.runs &&
           (times.size() < 3 || milliseconds_since(begin) < 1000 * options_.seconds))
      times.push_back(timed());
    return times;
  }

  DeviceContext& context_;
  const Options& options_;
  std::optional<Backlog> backlog_;
};

class StageBench {
 public:
  StageBench(DeviceContext& context, Volume host, const Options& options, std::ostream& out)
      : context_(context),
        options_(options),
        out_(out),
        host_(std::move(host)),
        input_(context.to_device(borrowed(host_))),
        stopwatch_(context, input_, options) {}

  void run_all() {
    for (const Case& one : stage_cases(input_.geometry().size()))
      if (wanted(one.name)) run_stages(one);
    if (wanted("percentiles 1 and 99")) run_percentiles();
    if (context_.device().is_cuda()) run_transfers();
    if (wanted(pipeline_case().name)) run_pipeline(pipeline_case());
  }

 private:
  bool wanted(const std::string& name) const {
    return options_.cases.empty() || std::ranges::find(options_.cases, name) != options_.cases.end();
  }

  void run_stages(const Case& one) {
    const PlannedCase planned(one, input_.info());
    const Timing timing = stopwatch_.time([&] { planned.run(context_, borrowed(input_)); });
    const Volume result = planned.run(context_, borrowed(input_));
    Json line = line_of(one.name, timing, std::size_t(one.reads) * input_.info().bytes() + result.info().bytes());
    line["output_size"] = result.geometry().size();
    if (const Group& group = planned.plan().groups.front(); group.kind == GroupKind::pointwise && one.reads == 1)
      line["instructions"] = group.use.instructions;
    save(one.name, result);
    print(line);
  }

  void run_percentiles() {
    const Program identity;
    const ProgramInput inputs[] = {{input_.data(), input_.dtype()}};
    const double percents[] = {1, 99};
    std::vector<double> found;
    const Timing timing = stopwatch_.time([&] {
      found = compute_percentiles(context_, {inputs, &identity, input_.info().value_count()}, percents);
    });
    Json line = line_of("percentiles 1 and 99", timing, input_.info().bytes());
    line["values"] = found;
    print(line);
  }

  void run_transfers() {
    run_transfer("float32", host_);
    VolumeInfo info = host_.info();
    info.dtype = DataType::int16;
    Volume integers(info, context_.allocate_host(info.bytes()));
    for (std::int64_t i = 0; i < info.value_count(); ++i)
      integers.data_as<std::int16_t>()[i] = std::int16_t(std::lround(200 * host_.data_as<float>()[i]));
    run_transfer("int16", integers);
  }

  void run_transfer(const std::string& type, const Volume& host) {
    if (wanted("upload " + type)) {
      const Timing timing = stopwatch_.time([&] { context_.to_device(borrowed(host)); });
      print_link(line_of("upload " + type, timing, host.info().bytes()));
    }
    if (wanted("download " + type)) {
      const Volume device = context_.to_device(borrowed(host));
      const Timing timing = stopwatch_.time([&] { context_.to_host(borrowed(device)); });
      print_link(line_of("download " + type, timing, host.info().bytes()));
    }
  }

  void run_pipeline(const Case& one) {
    const PlannedCase planned(one, host_.info());
    const auto once = [&] { return context_.to_host(planned.run(context_, context_.to_device(borrowed(host_)))); };
    const TransferCounts before = context_.transfers();
    const Volume result = once();
    const TransferCounts after = context_.transfers();
    const Timing timing = stopwatch_.time([&] { once(); });
    Json line = line_of(one.name, timing, host_.info().bytes() + result.info().bytes());
    line["output_size"] = result.geometry().size();
    line["groups"] = planned.plan().groups.size();
    line["transfers"] = {{"h2d_count", after.h2d_count - before.h2d_count},
                         {"h2d_bytes", after.h2d_bytes - before.h2d_bytes},
                         {"d2h_count", after.d2h_count - before.d2h_count},
                         {"d2h_bytes", after.d2h_bytes - before.d2h_bytes}};
    save(one.name, result);
    print_link(line);
  }

  Json line_of(const std::string& name, const Timing& timing, std::size_t bytes) const {
    return {{"case", name},
            {"device", context_.device().name()},
            {"size", input_.geometry().size()},
            {"ms", timing.ms},
            {"min_ms", timing.min_ms},
            {"wall_ms", timing.wall_ms},
            {"runs", timing.runs},
            {"bytes", bytes},
            {"traffic", "device"},
            {"threads", context_.threads()}};
  }
  void print_link(Json line) const {
    line["traffic"] = "link";
    print(line);
  }
  void print(const Json& line) const { out_ << line.dump() << std::endl; }

  void save(const std::string& name, const Volume& result) const {
    if (options_.save.empty()) return;
    const Volume host = result.device().is_cpu() ? borrowed(result) : context_.to_host(borrowed(result));
    const std::string path = options_.save + "/" + name + ".raw";
    std::ofstream file(path, std::ios::binary);
    file.write(static_cast<const char*>(host.data()), std::streamsize(host.info().bytes()));
    if (!file.flush()) throw Error(ErrorCode::output, "cannot write the result of '" + name + "'").with_path(path);
  }

  DeviceContext& context_;
  const Options& options_;
  std::ostream& out_;
  const Volume host_;
  const Volume input_;
  Stopwatch stopwatch_;
};

Device parse_device(const std::string& name) {
  if (name == "cpu") return Device::cpu();
  if (name == "cuda") return Device::cuda(0);
  int index = 0;
  if (name.starts_with("cuda:") && std::from_chars(name.data() + 5, name.data() + name.size(), index).ec == std::errc())
    return Device::cuda(index);
  throw Error(ErrorCode::usage, "'" + name + "' is no device: cpu, cuda or cuda:N");
}

VolumeInfo info_of(const std::vector<std::int64_t>& size) {
  if (size.size() != 1 && size.size() != 3) throw Error(ErrorCode::usage, "--size takes one number, or three");
  VolumeInfo info;
  info.geometry =
      bench_geometry(size.size() == 1 ? Index3{size[0], size[0], size[0]} : Index3{size[0], size[1], size[2]});
  return info;
}

/// Standard normal, the same for any number of threads.
void fill_normal(DeviceContext& context, Volume& volume) {
  constexpr std::int64_t kPiece = 1 << 20;
  context.parallel(volume.info().value_count(), kPiece, [&](std::int64_t begin, std::int64_t end) {
    std::mt19937 engine(unsigned(begin / kPiece));
    std::normal_distribution<float> normal;
    std::generate(volume.data_as<float>() + begin, volume.data_as<float>() + end, [&] { return normal(engine); });
  });
}

void read_raw(const std::string& path, Volume& volume) {
  const std::size_t bytes = volume.info().bytes();
  std::ifstream file(path, std::ios::binary);
  file.read(static_cast<char*>(volume.data()), std::streamsize(bytes));
  if (!file || file.peek() != std::ifstream::traits_type::eof())
    throw Error(ErrorCode::input, "expected a file of " + std::to_string(bytes) + " bytes, float32, x fastest")
        .with_path(path);
}

void run(const Options& options) {
  const auto context = make_context(parse_device(options.device), options.threads);
  const VolumeInfo info = info_of(options.size);
  Volume host(info, context->allocate_host(info.bytes()));
  if (options.data.empty()) fill_normal(*context, host);
  else read_raw(options.data, host);
  if (!options.save.empty()) std::filesystem::create_directories(options.save);
  std::ofstream file;
  if (!options.json.empty()) {
    file.open(options.json);
    if (!file) throw Error(ErrorCode::output, "cannot write").with_path(options.json);
  }
  StageBench(*context, std::move(host), options, options.json.empty() ? std::cout : file).run_all();
}

}  // namespace
}  // namespace volpipe::bench

int main(int argc, char** argv) {
  volpipe::bench::Options options;
  CLI::App app("Times stages of volpipe on one device; a JSON object a line");
  app.add_option("--device", options.device, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("--size", options.size, "edge, or x,y,z, in voxels")->delimiter(',')->capture_default_str();
  app.add_option("--data", options.data, "raw float32 voxels, x fastest; else standard normal");
  app.add_option("--json", options.json, "write the lines here instead of to standard output");
  app.add_option("--save", options.save, "folder for each case's result as raw voxels");
  app.add_option("--case", options.cases, "only these cases")->delimiter(',');
  app.add_option("--runs", options.runs, "most runs of a case")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--seconds", options.seconds, "most seconds of a case, but three runs")->capture_default_str();
  app.add_option("--threads", options.threads, "host threads; 0: all")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    volpipe::bench::run(options);
  } catch (const volpipe::Error& error) {
    std::cerr << "volpipe_stage_bench: " << (error.path().empty() ? "" : error.path() + ": ") << error.what() << "\n";
    return error.code() == volpipe::ErrorCode::device ? 3 : 1;
  }
}
