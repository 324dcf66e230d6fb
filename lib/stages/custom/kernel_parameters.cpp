#include "stages/custom/kernel_parameters.h"

#include <algorithm>
#include <map>

#include "volume/error.h"

namespace volpipe {

namespace {

using Names = std::map<std::string, const char*>;  ///< variables, by where they were given

void check_code(const KernelParams& params, const std::string& pointer, Faults& faults) {
  if (params.source.text.empty() == params.file.path.empty())
    return faults.add(pointer, "'cuda_kernel' takes its code from 'source' or from 'file': give one of them");
  if (params.kind != KernelKind::raw || params.source.text.empty()) return;
  try {
    entry_of(params.source.text, params.entry);
  } catch (const Error& error) { faults.add(pointer + (params.entry ? "/entry" : "/source"), error.what()); }
}

void check_kind(const KernelParams& params, const std::string& pointer, Faults& faults) {
  const bool reduces = params.kind == KernelKind::reduction, raw = params.kind == KernelKind::raw;
  const auto belongs = [&](bool given, bool allowed, const char* key, const char* kind) {
    if (given && !allowed)
      faults.add(pointer + "/" + key, std::string("'") + key + "' is for \"kind\": \"" + kind + "\" alone");
  };
  belongs(!params.reduce.text.empty(), reduces, "reduce", "reduction");
  belongs(!params.identity.text.empty(), reduces, "identity", "reduction");
  belongs(!params.post.text.empty(), reduces, "post", "reduction");
  belongs(params.entry.has_value(), raw, "entry", "raw");
  belongs(params.threads.has_value(), raw, "threads", "raw");
  belongs(params.blocks.has_value(), raw, "blocks", "raw");
  if (reduces && params.reduce.text.empty())
    faults.add(pointer, "a reduction needs 'reduce', an expression of a and b, such as \"a + b\"");
  if (reduces && params.identity.text.empty())
    faults.add(pointer, "a reduction needs 'identity', what changes nothing, such as \"0\" for a sum");
}

void check_name(const std::string& name, const char* key, const std::string& pointer, Names& names, Faults& faults) {
  if (const std::string reason = why_no_variable(name); !reason.empty())
    faults.add(pointer + "/" + key, "'" + name.substr(0, 40) + "' cannot be a variable of the code: " + reason);
  if (const auto [other, is_new] = names.emplace(name, key); !is_new)
    faults.add(pointer + "/" + key,
               "'" + name + "' is in '" + other->second + "' already: the code needs two names to tell them apart");
}

void check_names(const KernelParams& params, const std::string& pointer, Faults& faults) {
  if (params.inputs.images.size() + params.constants.numbers.size() > kMostVariables)
    faults.add(pointer, "at most " + std::to_string(kMostVariables) + " inputs and constants are possible");
  Names names;
  for (const auto& [name, image] : params.inputs.images) check_name(name, "inputs", pointer, names, faults);
  for (const auto& [name, number] : params.constants.numbers) check_name(name, "constants", pointer, names, faults);
}

void check_launch(const KernelParams& params, const std::string& pointer, Faults& faults) {
  if (params.threads) {
    const auto& count = params.threads->count;
    if (count[0] * count[1] * count[2] > kMostThreadsOfBlock)
      faults.add(pointer + "/threads",
                 "a block has at most " + std::to_string(kMostThreadsOfBlock) + " threads in all");
  }
  for (std::size_t axis = 0; params.blocks && axis < 3; ++axis)
    if (params.blocks->count[axis] > kMostBlocks[axis])
      faults.add(pointer + "/blocks", std::string("along ") + "xyz"[axis] + " there are at most " +
                                          std::to_string(kMostBlocks[axis]) + " blocks");
}

}  // namespace

void check_kernel_parameters(const KernelParams& params, const std::string& pointer, Faults& faults) {
  check_code(params, pointer, faults);
  check_kind(params, pointer, faults);
  check_names(params, pointer, faults);
  check_launch(params, pointer, faults);
}

std::string entry_of(const std::string& source, const std::optional<std::string>& wanted) {
  const std::vector<std::string> names = kernels_in(source);
  if (names.empty())
    throw Error(ErrorCode::usage, "raw code needs a kernel: extern \"C\" __global__ void NAME(...) {...}");
  if (source.find("extern") == std::string::npos)
    throw Error(ErrorCode::usage, "a kernel is found by its plain name: declare it as extern \"C\" __global__ void " +
                                      names[0] + "(...)");
  if (!wanted && names.size() > 1)
    throw Error(ErrorCode::usage,
                "the code has several kernels: say with 'entry' which is meant, " + quoted_list(names));
  if (wanted && std::find(names.begin(), names.end(), *wanted) == names.end())
    throw Error(ErrorCode::usage, "the code has no kernel '" + *wanted + "'" + did_you_mean(*wanted, names) +
                                      "; it has " + quoted_list(names));
  return wanted.value_or(names[0]);
}

LaunchSize launch_size(const KernelParams& params, const std::array<std::int64_t, 3>& size) {
  const LaunchExtent threads = params.threads.value_or(LaunchExtent{{kKernelThreads, 1, 1}, true});
  LaunchSize launch{.threads = threads.count};
  if (params.blocks) {
    launch.blocks = params.blocks->count;
    return launch;
  }
  const std::array<std::int64_t, 3> covered =
      threads.one_axis ? std::array<std::int64_t, 3>{size[0] * size[1] * size[2], 1, 1} : size;
  for (std::size_t axis = 0; axis < 3; ++axis)
    launch.blocks[axis] = (covered[axis] + threads.count[axis] - 1) / threads.count[axis];
  return launch;
}

}  // namespace volpipe
