// Image arithmetic as people write it: a text becomes an immutable tree, and what is wrong points into the text.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spec/parameters.h"
#include "stages/pointwise/program.h"
#include "volume/error.h"

namespace volpipe {

/// Bytes of a text.
struct TextRange {
  std::size_t position = 0, length = 0;
};

/// A fault of an expression. what() is the message, the text's line and a line with a caret under the place.
class ExpressionError : public Error {
 public:
  ExpressionError(std::string_view text, TextRange place, std::string message);
  const std::string& message() const { return message_; }
  std::size_t position() const { return place_.position; }
  std::size_t length() const { return place_.length; }

 private:
  std::string message_;
  TextRange place_;
};

/// A measure of all finite voxels. A mask makes the voxels outside it NaN: mean(v, mask) is mean(where(mask, v, nan)),
/// and count(c) counts the voxels of where(c, 1, nan).
enum class Reduction : std::uint8_t { minimum, maximum, mean, std, sum, count, percentile };

/// One step of an expression. Its arguments are numbers of earlier nodes; equal nodes are one.
struct ExpressionNode {
  enum class Kind : std::uint8_t {
    constant,   ///< value
    image,      ///< here, of images()[image]
    neighbour,  ///< of images()[image] at `offset`; arguments[0] is the value outside
    index,      ///< voxel index along `axis`
    world,      ///< RAS millimetres along `axis`
    spacing,    ///< of the image at hand along `axis`, mm
    size,       ///< of the image at hand along `axis`, voxels
    operation,  ///< `op` with acc = arguments[0] and x = arguments[1], where it has one
    where,      ///< arguments[0] != 0 ? arguments[1] : arguments[2]; the other one does not count
    reduction   ///< `reduction` of arguments[0]; percentile: value
  };
  Kind kind = Kind::constant;
  Op op = Op::set;
  Reduction reduction = Reduction::mean;
  std::array<int, 3> arguments{-1, -1, -1};  ///< -1: none
  double value = 0;
  int image = -1, axis = -1;
  std::array<std::int16_t, 3> offset{};
  bool varies = false;  ///< from voxel to voxel
  bool truth = false;   ///< 1 or 0, as comparisons give
  TextRange place{};    ///< where it was first written
};

/// An expression that was understood: constants are folded, each node is used.
class Expression {
 public:
  Expression(std::string text, std::vector<ExpressionNode> nodes, std::vector<std::string> images)
      : text_(std::move(text)), nodes_(std::move(nodes)), images_(std::move(images)) {}

  const std::string& text() const { return text_; }
  /// Arguments come before what they are arguments of; the last node is the result.
  const std::vector<ExpressionNode>& nodes() const { return nodes_; }
  const ExpressionNode& operator[](int node) const { return nodes_[std::size_t(node)]; }
  int result() const { return int(nodes_.size()) - 1; }
  /// The images that are read, each once; "" is the image at hand.
  const std::vector<std::string>& images() const { return images_; }
  const std::string& image_of(const ExpressionNode& node) const { return images_[std::size_t(node.image)]; }
  /// The nodes that vary and that `node` is made of, itself among them; a reduction does not vary.
  std::vector<int> varying_part(int node) const;

 private:
  std::string text_;
  std::vector<ExpressionNode> nodes_;
  std::vector<std::string> images_;
};

/// What bare names mean, besides the built-in ones. An image's name wins over a variable's, and both over the others.
struct ExpressionNames {
  std::map<std::string, std::string> images{};  ///< name in the text -> image of the item, "" for the one at hand
  bool any_image = false;                       ///< a name that is nothing else is an image of that name
  std::map<std::string, double> variables{};
  std::map<std::string, std::string> unusable{};  ///< variable -> why it cannot be used ("is random")
  Fill fill{};                                    ///< value of neighbours outside, for boundaries that have one
};

inline constexpr std::size_t kLongestExpression = std::size_t(64) << 10;  ///< bytes
inline constexpr int kDeepestExpression = 200;  ///< parentheses, calls and signs in each other

/// Throws ExpressionError.
Expression parse_expression(const std::string& text, const ExpressionNames& names);

/// `op` in double, as programs compute it.
double apply_op(Op op, double acc, double x);

}  // namespace volpipe
