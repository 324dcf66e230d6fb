// What the header of a file says, field by field, for people and for programs.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace volpipe::io {

struct HeaderField {
  std::string name;
  std::string text;             ///< as people read it
  std::vector<double> numbers;  ///< what it is made of; none: it is text
  std::size_t columns = 0;      ///< 0: one number; else rows of so many
};

HeaderField text_field(std::string name, std::string text);
/// With `text` in place of the digits where it is given.
HeaderField number_field(std::string name, double value, std::string text = {});
HeaderField list_field(std::string name, std::vector<double> values);
/// Rows of `columns` numbers, "; " between them.
HeaderField table_field(std::string name, std::vector<double> values, std::size_t columns);
/// A number or a list where every word of `text` is a number, else text.
HeaderField parsed_field(std::string name, const std::string& text);

}  // namespace volpipe::io
