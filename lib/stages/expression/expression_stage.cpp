#include "stages/expression/expression_stage.h"

#include <algorithm>
#include <cmath>

#include "stages/expression/compiler.h"
#include "stages/stage_context.h"

namespace volpipe {

namespace {

using Kind = ExpressionNode::Kind;
using Params = ExpressionStage::Params;

constexpr std::size_t kMostMeasures = 64;

bool is_wide_integer(DataType type) { return !is_floating(type) && !fits_float32(type); }

/// Beyond the image a filter's constant is constant everywhere, and its period is the grid's.
Boundary neighbour_boundary(Boundary boundary) {
  if (boundary == Boundary::constant) return Boundary::grid_constant;
  return boundary == Boundary::wrap ? Boundary::grid_wrap : boundary;
}

/// "" stands for the image at hand.
ExpressionNames names_of(const Params& params, const std::string& at_hand) {
  ExpressionNames names;
  names.variables = params.expr.variables;
  names.unusable = params.expr.unusable;
  if (has_fill(neighbour_boundary(params.boundary))) names.fill = params.fill;
  names.any_image = !params.expr.images;
  if (params.expr.images)
    for (const std::string& image : *params.expr.images) names.images[image] = image;
  for (const auto& [alias, image] : params.inputs.images) names.images[alias] = image;
  if (params.output && params.expr.on.size() == 1) names.images.emplace("this", params.expr.on[0]);
  if (at_hand.empty()) return names;
  names.images.emplace(at_hand, at_hand);
  for (auto& [name, image] : names.images)
    if (image == at_hand) image = "";
  return names;
}

/// The images that are named, `this` not among them.
std::vector<std::string> named_images(const Expression& expression) {
  std::vector<std::string> names = expression.images();
  std::erase(names, "");
  return names;
}

bool uses_this(const Expression& expression) { return named_images(expression).size() < expression.images().size(); }

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Images that would be replaced one after another must each be told from the others.
void check_targets(const Params& params, const Expression& expression, const std::string& pointer, Faults& faults) {
  const std::vector<std::string>& on = params.expr.on;
  if (params.output && params.expr.images && on.empty() && uses_this(expression))
    faults.add(pointer + "/expr", "'this' is no image here: name the image, or give it with \"on\"");
  if (on.size() < 2) return;
  if (params.output) {
    if (uses_this(expression))
      faults.add(pointer + "/expr",
                 "'this' could be " + quoted_list(on) + ": name the image, or give \"on\" the one that is meant");
    return;
  }
  const auto named = std::count_if(on.begin(), on.end(),
                                   [names = named_images(expression)](auto& image) { return has(names, image); });
  if (!uses_this(expression) || named > 1)
    faults.add(pointer + "/expr",
               "it would replace each of the images " + quoted_list(on) +
                   " by the same: give \"output\" the image that gets the result, \"on\" the one that is replaced, or "
                   "call it 'this'");
}

void check_size(const Params& params, const Expression& expression, const std::string& pointer, Faults& faults) {
  const std::vector<std::string> named = named_images(expression);
  const bool base_is_named = !params.output ? std::all_of(params.expr.on.begin(), params.expr.on.end(),
                                                          [&](const std::string& image) { return has(named, image); })
                                            : !named.empty();
  if (const std::size_t inputs = named.size() + !base_is_named; inputs > Program::kMaxInputs)
    faults.add(pointer + "/expr", "it reads " + std::to_string(inputs) + " images, at most " +
                                      std::to_string(Program::kMaxInputs) +
                                      " are possible: make it of two stages, the first with an \"output\" of its own");
  const Measures measures(expression);
  if (measures.size() > kMostMeasures)
    return faults.add(pointer + "/expr", "it measures " + std::to_string(measures.size()) +
                                             " different things, at most " + std::to_string(kMostMeasures) +
                                             " are possible: make it of several stages");
  try {
    check_fits_program(expression, neighbour_boundary(params.boundary));
  } catch (const Error& error) { faults.add(pointer + "/expr", error.what()); }
}

}  // namespace

ExpressionStage::ExpressionStage(Params params) : ExpressionStage(std::move(params), "") {}

ExpressionStage::ExpressionStage(Params params, std::string image)
    : params_(std::move(params)),
      image_(std::move(image)),
      expression_(parse_expression(params_.expr.text, names_of(params_, image_))),
      measures_(expression_) {}

void ExpressionStage::check(const Params& params, const std::string& pointer, Faults& faults) {
  if (params.kind && !params.output)
    faults.add(pointer + "/kind", "'kind' is that of a new image: name it with \"output\"");
  if (params.output && params.output->empty()) faults.add(pointer + "/output", "'output' must be an image's name");
  try {
    const Expression expression = parse_expression(params.expr.text, names_of(params, ""));
    check_targets(params, expression, pointer, faults);
    check_size(params, expression, pointer, faults);
  } catch (const ExpressionError& error) { faults.add(pointer + "/expr", error.what()); }
}

std::shared_ptr<const VoxelStage> ExpressionStage::for_image(const std::string& image, const VolumeInfo& input,
                                                             const StageContext& context) const {
  auto bound = std::shared_ptr<ExpressionStage>(new ExpressionStage(params_, image));
  bound->learn_types(input, context.images);
  return bound;
}

void ExpressionStage::learn_types(const VolumeInfo& input, const ImageInfos& images) {
  const FindInfo info = [&](const std::string& name) -> const VolumeInfo* {
    if (name.empty()) return &input;
    const auto found = images.find(name);
    return found == images.end() ? nullptr : &found->second;
  };
  const auto ranges =
      value_ranges(expression_, input.geometry.size(), input.value_count(), [&](const std::string& name) {
        const VolumeInfo* known = info(name);
        return range_of(known ? known->dtype : DataType::float32);
      });
  for (std::size_t n = 0; n < measures_.size(); ++n) {
    ExpressionMeasure& measure = measures_[n];
    measure.whole = ranges[std::size_t(measure.node)].whole;
    needs_double_ = needs_double_ || exceeds_float32(expression_, measure.node, ranges);
  }
  const DataType result = output(input).dtype;
  if (result == DataType::float64) needs_double_ = true;
  if (!is_floating(result) && exceeds_float32(expression_, expression_.result(), ranges)) needs_double_ = true;
  for (const std::string& name : expression_.images())
    if (info(name) && is_wide_integer(info(name)->dtype)) needs_double_ = true;
}

std::vector<StatisticsRequest> ExpressionStage::requests() const {
  std::vector<StatisticsRequest> requests;
  for (const ExpressionMeasure& measure : measures_.list()) {
    StatisticsRequest request{.moments = measure.moments, .range = measure.range, .percentiles = measure.percentiles};
    request.of = [this, node = measure.node](Program& program, const PointwiseContext& context) {
      append_node(program, node, context);
    };
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<std::string> ExpressionStage::reads() const { return named_images(expression_); }

bool ExpressionStage::reads_neighbours() const {
  return std::any_of(expression_.nodes().begin(), expression_.nodes().end(), [this](const ExpressionNode& node) {
    return node.kind == Kind::neighbour && (image_.empty() || expression_.image_of(node).empty());
  });
}

VolumeInfo ExpressionStage::output(const VolumeInfo& input) const {
  VolumeInfo result = input;
  const bool truth = expression_[expression_.result()].truth;
  if (makes_new()) result.kind = params_.kind.value_or(truth ? ImageKind::label : ImageKind::image);
  if (params_.dtype) result.dtype = *params_.dtype;
  else if (makes_new())
    result.dtype = truth ? DataType::uint8 : result.kind == ImageKind::label ? DataType::int32 : DataType::float32;
  else if (input.kind != ImageKind::label) result.dtype = DataType::float32;
  return result;
}

void ExpressionStage::append_node(Program& program, int node, const PointwiseContext& context) const {
  const auto uniform = uniform_values(expression_, node, context.input.geometry, [&](int reduction) {
    return measures_.value(expression_[reduction], context.answers);
  });
  ExpressionSite site{.geometry = context.input.geometry, .boundary = neighbour_boundary(params_.boundary)};
  for (const std::string& name : expression_.images()) {
    const std::string& at_hand = image_.empty() ? context.inputs[0] : image_;
    site.inputs.push_back(name.empty() && !reads_neighbours() ? 0
                                                              : context.input_number(name.empty() ? at_hand : name));
  }
  append_value(program, expression_, node, uniform, site);
}

void ExpressionStage::append(Program& program, const PointwiseContext& context) const {
  append_node(program, expression_.result(), context);
  for (const ExpressionNode& node : expression_.nodes())
    if (node.kind == Kind::reduction && std::isnan(measures_.value(node, context.answers)))
      context.notices.add("no_voxels", "expression: '" +
                                           expression_.text().substr(node.place.position, node.place.length) +
                                           "' found no finite voxel and is NaN");
  const DataType result = output(context.input).dtype;
  if (is_floating(result) || expression_[expression_.result()].truth) return;
  const IntegerRange range = integer_range(result);
  program.add(Op::to_integer, range.lowest, range.highest);
}

StageDefinition stage_expression() {
  return define_stage<ExpressionStage>(
      {.op = "expression",
       .family = "intensity",
       .summary = "image arithmetic: operators, functions, statistics of whole images, neighbours and places",
       .example = {{"op", "expression"},
                   {"expr", "where(image > mean(image), (image - mean(image)) / std(image), 0)"}}},
      Parameters<Params>()
          .add(
              "expr", &Params::expr, {.required = true},
              "what each voxel becomes. Operands: images by name, 'this' (the image acted on), the spec's variables, "
              "voxel index i j k, world x y z (mm), spacing_x.., size_x.., pi, e, inf, nan; image[dx,dy,dz] is a "
              "neighbour. Operators: + - * / % ^, comparisons, and or not. Functions of voxels: abs sqrt exp log log10 "
              "sin cos tan atan2 floor ceil round sign pow mod min max clamp where isfinite isnan; of all finite "
              "voxels: min max mean std sum count median percentile, most with a mask as last argument")
          .add("inputs", &Params::inputs, {}, "other names for images within the expression")
          .add("output", &Params::output, {},
               "the image that gets the result, a new one or one of the item; without it, each image acted on is "
               "replaced")
          .add("dtype", &Params::dtype, {},
               "pixel type of the result; without it a replaced label keeps its own, comparisons make a new image "
               "uint8, a new label is int32, and all else float32")
          .add("kind", &Params::kind, {}, "of a new image; without it, comparisons make a label and all else an image")
          .add("boundary", &Params::boundary, {}, "what neighbours beyond the image are")
          .add("fill", &Params::fill, {}, "value beyond the image for the constant boundaries"));
}

}  // namespace volpipe
