#include "pipeline/group_program.h"

#include <algorithm>
#include <array>

#include "pipeline/plan.h"

namespace volpipe {

namespace {

/// Half the range of example images: an ordinary one, one that fills float32, a constant.
constexpr std::array kExamples{101.5, 2e38, 0.0};

StatisticsResult example_answer(const StatisticsRequest& request, double largest) {
  StatisticsResult answer{
      {.count = 1000, .min = -largest, .max = 0.9 * largest, .mean = 0.1 * largest, .sum_squares = largest}, {}, {}};
  for (const double percent : request.percentiles) answer.percentiles.push_back((percent / 50 - 1) * largest);
  if (largest > 0) answer.histogram.assign(std::size_t(request.bins), 10);
  return answer;
}

/// What a stage appends when its questions are answered for an example image; `measured` gets what is measured for
/// them.
Program example_program(const PointwiseStage& stage, const VolumeInfo& input, std::span<const std::string> inputs,
                        double largest, std::vector<Program>& measured) {
  std::vector<StatisticsResult> answers;
  Notices ignored;
  for (const StatisticsRequest& request : stage.requests()) {
    Program& program = measured.emplace_back();
    if (request.of) request.of(program, {input, answers, inputs, ignored});
    answers.push_back(example_answer(request, largest));
  }
  Program program;
  stage.append(program, {input, answers, inputs, ignored});
  return program;
}

ProgramUse use_of(const Program& program) {
  return {program.size(),          program.neighbours().size(), program.curves().size(),
          program.fields().size(), program.keys().size(),       program.is_general()};
}

ProgramUse most_of(const ProgramUse& a, const ProgramUse& b) {
  return {std::max(a.instructions, b.instructions),
          std::max(a.neighbours, b.neighbours),
          std::max(a.curves, b.curves),
          std::max(a.fields, b.fields),
          std::max(a.streams, b.streams),
          a.general || b.general};
}

/// Inputs and neighbours by the images' names instead of their numbers.
std::vector<std::string> named_lines(const Program& program, const Program& other,
                                     const std::vector<std::string>& inputs) {
  std::vector<std::string> lines = common_lines(program, other);
  const auto instructions = program.instructions();
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (instructions[i].op == Op::load) lines[i] = "load " + inputs[instructions[i].index];
    if (instructions[i].op != Op::neighbour) continue;
    const Neighbour& neighbour = program.neighbours()[instructions[i].index];
    const auto& [x, y, z] = neighbour.offset;
    lines[i] = "load " + inputs[neighbour.input] + "[" + std::to_string(x) + "," + std::to_string(y) + "," +
               std::to_string(z) + "]";
  }
  return lines;
}

std::string in_words(const StatisticsRequest& request) {
  std::vector<std::string> parts;
  if (request.moments) parts.push_back("mean, standard deviation, minimum, maximum");
  else if (request.range || request.bins > 0) parts.push_back("minimum, maximum");
  if (!request.percentiles.empty()) {
    std::string text = "percentiles";
    for (const double percent : request.percentiles) text += " " + ParameterType<double>::write(percent).dump();
    parts.push_back(text);
  }
  if (request.bins > 0) parts.push_back("histogram of " + std::to_string(request.bins) + " bins");
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  if (request.mask.kind != Mask::Kind::all) text += " under mask " + ParameterType<Mask>::write(request.mask).dump();
  if (request.over == StatisticsRequest::Over::component) text += ", each component";
  if (request.over == StatisticsRequest::Over::item) text += ", all images together";
  return text;
}

}  // namespace

ProgramUse ProgramUse::operator+(const ProgramUse& other) const {
  return {
      instructions + other.instructions, neighbours + other.neighbours, curves + other.curves, fields + other.fields,
      streams + other.streams,           general || other.general};
}

bool ProgramUse::fits() const {
  return instructions <= Program::kMaxInstructions && neighbours <= Program::kMaxNeighbours &&
         curves <= Program::kMaxCurves && fields <= Program::kMaxFields && streams <= Program::kMaxStreams;
}

ProgramUse program_use(const PointwiseStage& stage, const VolumeInfo& input, std::span<const std::string> inputs) {
  ProgramUse most;
  for (const double largest : kExamples) {
    std::vector<Program> programs;
    programs.push_back(example_program(stage, input, inputs, largest, programs));
    for (const Program& program : programs) most = most_of(most, use_of(program));
  }
  return most;
}

std::vector<Program> example_programs(const Group& group) {
  std::vector<Program> programs;
  VolumeInfo info = group.input;
  for (const auto& stage : group.pointwise) {
    Program program = example_program(*stage, info, group.inputs, kExamples[0], programs);
    programs.push_back(std::move(program));
    info = stage->output(info);
  }
  return programs;
}

std::vector<StageProgram> programs_of(const Group& group) {
  std::vector<StageProgram> programs;
  VolumeInfo info = group.input;
  for (const auto& stage : group.pointwise) {
    std::vector<Program> first, second;
    const Program one = example_program(*stage, info, group.inputs, kExamples[0], first);
    const Program other = example_program(*stage, info, group.inputs, 0.5 * kExamples[0], second);
    StageProgram& text = programs.emplace_back();
    text.instructions = named_lines(one, other, group.inputs);
    const auto requests = stage->requests();
    for (std::size_t r = 0; r < requests.size(); ++r) {
      std::string words = in_words(requests[r]);
      const auto measured = named_lines(first[r], second[r], group.inputs);
      for (std::size_t i = 0; i < measured.size(); ++i) words += (i == 0 ? " of: " : "; ") + measured[i];
      text.statistics.push_back(std::move(words));
    }
    info = stage->output(info);
  }
  return programs;
}

}  // namespace volpipe
