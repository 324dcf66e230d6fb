// The program of a pointwise group before its statistics are known: how much room it takes, how it reads.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "stages/pointwise/pointwise_stage.h"

namespace volpipe {

struct Group;

/// How much of a program's limited places stages take.
struct ProgramUse {
  std::size_t instructions = 0, neighbours = 0, curves = 0, fields = 0, streams = 0;
  bool general = false;  ///< needs the general machine

  ProgramUse operator+(const ProgramUse& other) const;
  bool fits() const;
};

/// The most that a stage appends, over statistics of an ordinary image, of one that fills float32 and of a constant.
ProgramUse program_use(const PointwiseStage& stage, const VolumeInfo& input, std::span<const std::string> inputs);

/// What a group's stages append and measure over an ordinary image, stage by stage: the constants stand for others, the
/// neighbours and places are those of any image.
std::vector<Program> example_programs(const Group& group);

/// One stage of a group in words.
struct StageProgram {
  std::vector<std::string> statistics;    ///< what it asks for first: "mean, standard deviation, minimum and maximum"
  std::vector<std::string> instructions;  ///< constants that depend on the answers are "?"
};

/// For each stage of a pointwise group.
std::vector<StageProgram> programs_of(const Group& group);

}  // namespace volpipe
