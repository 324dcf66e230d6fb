#include "stages/expression/compiler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "stages/pointwise/program_ops.h"

namespace volpipe {

namespace {

using Kind = ExpressionNode::Kind;

/// What op(a, b) is as an op of b with the operand a, if there is one.
std::optional<Op> reversed(Op op) {
  switch (op) {
    case Op::add:
    case Op::multiply:
    case Op::least:
    case Op::greatest:
    case Op::equal:
    case Op::not_equal:
    case Op::logical_and:
    case Op::logical_or:
      return op;
    case Op::subtract:
      return Op::subtract_from;
    case Op::divide:
      return Op::divide_by;
    case Op::less:
      return Op::greater;
    case Op::less_equal:
      return Op::greater_equal;
    case Op::greater:
      return Op::less;
    case Op::greater_equal:
      return Op::less_equal;
    default:
      return std::nullopt;
  }
}

/// A number that the plain machine's minimum and maximum take as least and greatest do.
bool is_plain_bound(double value) { return !std::isnan(value) && !(value == 0 && std::signbit(value)); }

/// How values that are used again are kept, and which of two equally deep operands is computed first.
struct Policy {
  enum class Keep : std::uint8_t { all, leaves, none } keep = Keep::all;
  bool right_first = false;
};

struct Step {
  Instruction instruction;
  std::optional<Neighbour> neighbour{};
};

struct Code {
  std::vector<Step> steps;
  int registers = 0;
};

constexpr int kMostInstructions = Program::kMaxInstructions - 1;  // and one that converts the result to integers
// An expression runs out of instructions before it runs out of neighbours: to combine n of them takes 3 n - 2.
static_assert(3 * (Program::kMaxNeighbours + 1) - 2 > kMostInstructions);

struct TooLong {};
struct TooManyRegisters {};

/// The instructions of one node under one policy.
class CodeGenerator {
 public:
  CodeGenerator(const Expression& expression, std::span<const double> uniform, const ExpressionSite& site,
                Policy policy)
      : expression_(expression),
        uniform_(uniform),
        site_(site),
        policy_(policy),
        uses_(expression.nodes().size()),
        pins_(expression.nodes().size()),
        home_(expression.nodes().size(), kNowhere),
        depth_(expression.nodes().size()) {}

  /// Throws TooLong or TooManyRegisters.
  Code generate(int node) {
    for (int n = 0; n <= node; ++n) measure_depth(n);
    count_uses(node);
    for (int n = 0; n <= node; ++n)
      if (is_at_hand(n)) acc_ = n;
    evaluate(node);
    return std::move(code_);
  }

 private:
  static constexpr int kNowhere = -1;

  const ExpressionNode& at(int node) const { return expression_[node]; }
  bool varies(int node) const { return at(node).varies; }
  double value(int node) const { return uniform_[std::size_t(node)]; }
  bool is_constant(int node) const { return at(node).kind == Kind::constant; }
  bool is_op(int node, Op op) const { return at(node).kind == Kind::operation && at(node).op == op; }
  bool is_at_hand(int node) const { return at(node).kind == Kind::image && expression_.image_of(at(node)).empty(); }

  bool keeps(int node) const {
    if (policy_.keep == Policy::Keep::all || is_at_hand(node)) return true;
    const Kind kind = at(node).kind;
    return policy_.keep == Policy::Keep::leaves && kind != Kind::operation && kind != Kind::where;
  }

  /// Registers that a node takes while it is computed (Sethi, Ullman 1970).
  void measure_depth(int node) {
    int& depth = depth_[std::size_t(node)];
    if (at(node).kind == Kind::world) depth = 1;
    std::vector<int> depths;
    for (int argument : at(node).arguments)
      if (argument >= 0 && varies(argument)) depths.push_back(depth_[std::size_t(argument)]);
    std::sort(depths.begin(), depths.end(), std::greater<>());
    for (std::size_t n = 0; n < depths.size(); ++n) depth = std::max(depth, depths[n] + int(n));
  }

  void count_uses(int node) {
    if (!varies(node)) return;
    if (++used_ > kMostUses) throw TooLong{};
    if (++uses_[std::size_t(node)] > 1 && keeps(node)) return;
    const auto& arguments = at(node).arguments;
    for (std::size_t n = 0; n < arguments.size(); ++n)
      if (arguments[n] >= 0 && (n == 0 || !is_doubled(node))) count_uses(arguments[n]);
  }

  /// Both operands are one node, which is computed once and counts as used once.
  bool is_doubled(int node) const {
    return at(node).kind == Kind::operation && at(node).arguments[0] == at(node).arguments[1];
  }

  void emit(const Instruction& instruction, std::optional<Neighbour> neighbour = {}) {
    if (code_.steps.size() == kMostInstructions) throw TooLong{};
    code_.steps.push_back({instruction, neighbour});
  }
  void emit(Op op) { emit({op, Operand::immediate, 0, 0, 0}); }
  void emit(Op op, double a, double b = 0) { emit({op, Operand::immediate, 0, a, b}); }
  void emit(Op op, Operand x, double b = 0) { emit({op, x, 0, 0, b}); }

  int take_register() {
    for (int number = 0; number < Program::kRegisters; ++number)
      if (!taken_[std::size_t(number)]) {
        taken_[std::size_t(number)] = true;
        code_.registers = std::max(code_.registers, number + 1);
        return number;
      }
    throw TooManyRegisters{};
  }
  void store(int number) { emit({Op::store, Operand::immediate, std::uint8_t(number), 0, 0}); }
  int store_in_free_register() {
    const int number = take_register();
    store(number);
    return number;
  }
  void free_register(int number) { taken_[std::size_t(number)] = false; }

  int& home(int node) { return home_[std::size_t(node)]; }
  bool has_home(int node) { return home(node) != kNowhere; }
  Operand home_operand(int node) { return register_number(home(node)); }

  /// Before an instruction that forgets the accumulator: the image at hand cannot be had again.
  void forget() {
    if (acc_ != kNowhere && is_at_hand(acc_) && uses_[std::size_t(acc_)] > 0 && !has_home(acc_))
      home(acc_) = store_in_free_register();
    acc_ = kNowhere;
  }

  void set_immediate(double value) {
    forget();
    emit(Op::set, value);
  }

  /// The accumulator becomes `node`, which varies.
  void bring(int node) {
    if (acc_ == node) return;
    if (has_home(node)) {
      forget();
      emit(Op::set, home_operand(node));
    } else {
      compute(node);
    }
    acc_ = node;
  }

  /// The accumulator becomes `node`, which is used once thereby.
  void evaluate(int node) {
    if (!varies(node)) return set_immediate(value(node));
    bring(node);
    if (uses_[std::size_t(node)] > 1 && keeps(node) && !has_home(node)) home(node) = store_in_free_register();
    spend(node);
  }

  /// `node` is in a register until it is let go.
  Operand hold(int node) {
    if (!has_home(node)) {
      bring(node);
      home(node) = store_in_free_register();
    }
    ++pins_[std::size_t(node)];
    return home_operand(node);
  }
  void let_go(int node) {
    --pins_[std::size_t(node)];
    spend(node);
  }

  void spend(int node) {
    --uses_[std::size_t(node)];
    const bool needed = pins_[std::size_t(node)] > 0 || (uses_[std::size_t(node)] > 0 && keeps(node));
    if (needed || !has_home(node)) return;
    free_register(home(node));
    home(node) = kNowhere;
  }

  void compute(int node) {
    switch (at(node).kind) {
      case Kind::image:
        forget();
        return emit({Op::load, Operand::immediate, input_of(node), 0, 0});
      case Kind::neighbour:
        forget();
        return emit({Op::neighbour, Operand::immediate, 0, 0, 0},
                    Neighbour{at(node).offset, input_of(node), site_.boundary, value(at(node).arguments[0])});
      case Kind::index:
        return emit_coordinate(at(node).axis);
      case Kind::world:
        return compute_world(at(node).axis);
      case Kind::where:
        return compute_where(at(node).arguments[0], at(node).arguments[1], at(node).arguments[2]);
      default:
        return compute_operation(node);
    }
  }

  std::uint8_t input_of(int node) const { return std::uint8_t(site_.inputs[std::size_t(at(node).image)]); }

  void emit_coordinate(int axis) {
    forget();
    emit({Op::coordinate, Operand::immediate, std::uint8_t(axis), 0, 0});
  }

  /// Terms of 0 are left out: on a grid along the world's axes, one term remains.
  void compute_world(int axis) {
    const Affine& map = site_.geometry.index_to_world();
    bool first = true;
    for (int column = 0; column < 3; ++column) {
      const double step = map.linear[axis][std::size_t(column)];
      if (step == 0) continue;
      const int sum = first ? kNowhere : store_in_free_register();
      emit_coordinate(column);
      if (first) {
        emit(Op::fma, step, map.offset[std::size_t(axis)]);
      } else {
        emit(Op::multiply, step);
        emit(Op::add, register_number(sum));
        free_register(sum);
      }
      first = false;
    }
  }

  void compute_operation(int node) {
    const Op op = at(node).op;
    const int left = at(node).arguments[0], right = at(node).arguments[1];
    if (right < 0) {
      evaluate(left);
      return emit(op);
    }
    if (left == right) return compute_doubled(op, left);
    if (!varies(right)) return compute_with_right(op, left, right);
    const std::optional<Op> turned = reversed(op);
    if (!varies(left))
      return turned ? compute_with_immediate(*turned, right, value(left)) : compute_from(op, left, right);
    if (!turned || computes_right_first(left, right)) return combine(op, left, right);
    combine(*turned, right, left);
  }

  void compute_doubled(Op op, int node) {
    const Operand operand = hold(node);
    bring(node);
    emit(op, operand);
    let_go(node);
  }

  void compute_with_right(Op op, int left, int right) {
    if (op == Op::least && is_clamp(left, right)) {
      const int value_node = at(left).arguments[0];
      const double low = value(at(left).arguments[1]);
      evaluate(value_node);
      return emit(Op::clamp, low, value(right));
    }
    compute_with_immediate(op, left, value(right));
  }

  /// min(max(v, low), high) between plain numbers, of which nothing else needs the maximum.
  bool is_clamp(int left, int right) const {
    if (!is_op(left, Op::greatest) || !is_constant(right) || !is_plain_bound(value(right))) return false;
    const int low = at(left).arguments[1];
    return uses_[std::size_t(left)] == 1 && is_constant(low) && is_plain_bound(value(low));
  }

  void compute_with_immediate(Op op, int node, double x) {
    evaluate(node);
    if (op == Op::least && is_plain_bound(x)) op = Op::minimum;
    if (op == Op::greatest && is_plain_bound(x)) op = Op::maximum;
    emit(op, x);
  }

  /// Of a number and an operand, where the number must be in the accumulator.
  void compute_from(Op op, int left, int right) {
    const Operand operand = hold(right);
    set_immediate(value(left));
    emit(op, operand);
    let_go(right);
  }

  /// `op` with the accumulator `left` and the operand `right`, computed first where it is in no register; the other way
  /// round where `left` is in one by then.
  void combine(Op op, int left, int right) {
    const std::optional<Op> turned = reversed(op);
    if (turned && !has_home(right)) {
      bring(right);
      if (has_home(left)) {
        evaluate(right);
        emit(*turned, hold(left));
        return let_go(left);
      }
    }
    const bool left_first =
        !turned && !policy_.right_first && depth_[std::size_t(left)] > depth_[std::size_t(right)] && !has_home(right);
    if (left_first) hold(left);
    const Operand operand = hold(right);
    if (left_first) bring(left);
    else evaluate(left);
    emit(op, operand);
    if (left_first) let_go(left);
    let_go(right);
  }

  bool computes_right_first(int left, int right) const {
    const int deeper = depth_[std::size_t(right)] - depth_[std::size_t(left)];
    return deeper > 0 || (deeper == 0 && policy_.right_first);
  }

  /// One select where an alternative does not vary, else a choice between two.
  void compute_where(int condition, int then, int otherwise) {
    if (varies(then) && varies(otherwise)) return compute_choice(condition, then, otherwise);
    const bool turns = varies(otherwise);
    const int taken = turns ? otherwise : then;
    const double constant = value(turns ? then : otherwise);
    if (!varies(condition)) {
      evaluate(taken);
      return emit(Op::select, (value(condition) != 0) != turns ? 1.0 : 0.0, constant);
    }
    if (!turns) {
      const Operand operand = hold(condition);
      evaluate(taken);
      emit(Op::select, operand, constant);
      return let_go(condition);
    }
    evaluate(condition);
    emit(Op::logical_not);
    acc_ = kNowhere;
    const int negation = store_in_free_register();
    evaluate(taken);
    emit(Op::select, register_number(negation), constant);
    free_register(negation);
  }

  void compute_choice(int condition, int then, int otherwise) {
    const bool otherwise_first = !varies(condition) || depth_[std::size_t(otherwise)] > depth_[std::size_t(condition)];
    if (otherwise_first) hold(otherwise);
    if (varies(condition)) hold(condition);
    if (!otherwise_first) hold(otherwise);
    evaluate(then);
    Instruction choose{Op::choose, Operand::immediate, std::uint8_t(home(otherwise)), 0, 0};
    if (varies(condition)) choose.operand = home_operand(condition);
    else choose.a = value(condition) != 0 ? 1 : 0;
    emit(choose);
    if (varies(condition)) let_go(condition);
    let_go(otherwise);
  }

  static constexpr int kMostUses = 4 * kMostInstructions;

  const Expression& expression_;
  std::span<const double> uniform_;
  const ExpressionSite& site_;
  const Policy policy_;
  std::vector<int> uses_;  ///< still to come
  std::vector<int> pins_;
  std::vector<int> home_;  ///< register
  std::vector<int> depth_;
  std::array<bool, Program::kRegisters> taken_{};
  int acc_ = kNowhere;  ///< the node that the accumulator is
  int used_ = 0;
  Code code_;
};

/// Of one voxel, roughly.
int cost(const Code& code) {
  int cost = 0;
  bool general = code.registers > Program::kPlainRegisters;
  for (const Step& step : code.steps) {
    const Op op = step.instruction.op;
    general = general || is_general(op);
    cost += op == Op::neighbour || (is_slow(op) && op != Op::choose) ? 4 : op == Op::load ? 2 : 1;
  }
  return general ? 2 * cost : cost;
}

Code best_code(const Expression& expression, int node, std::span<const double> uniform, const ExpressionSite& site) {
  std::optional<Code> best;
  bool short_of_registers = false;
  for (const auto keep : {Policy::Keep::all, Policy::Keep::leaves, Policy::Keep::none})
    for (const bool right_first : {false, true}) try {
        Code code = CodeGenerator(expression, uniform, site, {keep, right_first}).generate(node);
        if (!best || cost(code) < cost(*best)) best = std::move(code);
      } catch (const TooLong&) {
      } catch (const TooManyRegisters&) { short_of_registers = true; }
  if (best) return std::move(*best);
  const std::string limit = short_of_registers ? std::to_string(Program::kRegisters) + " registers"
                                               : std::to_string(kMostInstructions) + " instructions";
  throw Error(ErrorCode::usage, "the expression needs more than the " + limit +
                                    " of one pass: make it of two stages, the first with an \"output\" of its own");
}

}  // namespace

std::vector<double> uniform_values(const Expression& expression, int last, const Geometry& geometry,
                                   const std::function<double(int)>& measured) {
  std::vector<double> values(std::size_t(last) + 1, std::numeric_limits<double>::quiet_NaN());
  for (int n = 0; n <= last; ++n) {
    const ExpressionNode& node = expression[n];
    const auto argument = [&](std::size_t which) {
      return node.arguments[which] < 0 ? 0.0 : values[std::size_t(node.arguments[which])];
    };
    double& value = values[std::size_t(n)];
    if (node.kind == Kind::reduction) value = measured(n);
    if (node.kind == Kind::constant) value = node.value;
    if (node.kind == Kind::spacing) value = geometry.spacing()[std::size_t(node.axis)];
    if (node.kind == Kind::size) value = double(geometry.size()[std::size_t(node.axis)]);
    if (node.kind == Kind::operation && !node.varies) value = apply_op(node.op, argument(0), argument(1));
    if (node.kind == Kind::where && !node.varies) value = argument(0) != 0 ? argument(1) : argument(2);
  }
  return values;
}

void append_value(Program& program, const Expression& expression, int node, std::span<const double> uniform,
                  const ExpressionSite& site) {
  for (const Step& step : best_code(expression, node, uniform, site).steps) {
    if (step.neighbour) program.neighbour(*step.neighbour);
    else program.add(step.instruction);
  }
}

void check_fits_program(const Expression& expression, Boundary boundary) {
  const Geometry sheared({2, 2, 2}, {{{{{1, 0.1, 0.1}, {0.1, 1, 0.1}, {0.1, 0.1, 1}}}}, {1, 1, 1}});
  const ExpressionSite site{sheared, std::vector<int>(expression.images().size()), boundary};
  const auto uniform = uniform_values(expression, expression.result(), sheared, [](int) { return 1.5; });
  std::vector<int> nodes{expression.result()};
  for (const ExpressionNode& node : expression.nodes())
    if (node.kind == Kind::reduction && std::find(nodes.begin(), nodes.end(), node.arguments[0]) == nodes.end())
      nodes.push_back(node.arguments[0]);
  for (int node : nodes) {
    Program program;
    append_value(program, expression, node, uniform, site);
  }
}

}  // namespace volpipe
