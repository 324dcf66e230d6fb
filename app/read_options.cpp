#include "read_options.h"

#include <map>

namespace volpipe::app {

void add_read_options(CLI::App& command, ReadFlags& flags) {
  static const std::map<std::string, io::NiftiAffine> kAffines = {{"auto", io::NiftiAffine::automatic},
                                                                  {"sform", io::NiftiAffine::sform},
                                                                  {"qform", io::NiftiAffine::qform},
                                                                  {"pixdim", io::NiftiAffine::pixdim}};
  command
      .add_option_function<std::string>(
          "--affine", [&flags](const std::string& name) { flags.affine = kAffines.at(name); },
          "NIfTI: the map from voxels to the world to use; auto: sform, else qform, else pixdim")
      ->check(CLI::IsMember(kAffines))
      ->type_name("MAP");
  command.add_flag("--allow-gaps", flags.allow_gaps,
                   "DICOM: slices at uneven distances are kept in order, with the mean step");
  command.add_flag("--allow-duplicates", flags.allow_duplicates,
                   "DICOM: of several slices at one position the first by file name is used");
  command.add_flag("--allow-no-geometry", flags.allow_no_geometry,
                   "DICOM: without positions or spacing, InstanceNumber orders the slices and 1 mm is taken");
}

io::ReadOptions to_read_options(const ReadFlags& flags, const HostThreads* threads) {
  io::ReadOptions options;
  options.affine = flags.affine;
  options.allow_gaps = flags.allow_gaps;
  options.allow_duplicates = flags.allow_duplicates;
  options.allow_no_geometry = flags.allow_no_geometry;
  options.threads = threads;
  return options;
}

Json to_json(const ReadFlags& flags) {
  return {{"affine", io::to_string(flags.affine)},
          {"allow_gaps", flags.allow_gaps},
          {"allow_duplicates", flags.allow_duplicates},
          {"allow_no_geometry", flags.allow_no_geometry}};
}

}  // namespace volpipe::app
