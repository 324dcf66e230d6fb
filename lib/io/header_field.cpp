#include "io/header_field.h"

#include <cstdio>
#include <sstream>

namespace volpipe::io {

namespace {

std::string digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

/// Of every word, or of none when one is no number.
std::vector<double> numbers_in(const std::string& text) {
  std::vector<double> numbers;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    std::istringstream stream(word);
    double value;
    if (!(stream >> value) || stream.peek() != std::istringstream::traits_type::eof()) return {};
    numbers.push_back(value);
  }
  return numbers;
}

}  // namespace

HeaderField text_field(std::string name, std::string text) { return {std::move(name), std::move(text), {}, 0}; }

HeaderField number_field(std::string name, double value, std::string text) {
  return {std::move(name), text.empty() ? digits(value) : std::move(text), {value}, 0};
}

HeaderField list_field(std::string name, std::vector<double> values) {
  const std::size_t columns = values.size();
  return table_field(std::move(name), std::move(values), columns);
}

HeaderField table_field(std::string name, std::vector<double> values, std::size_t columns) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i)
    text += (i == 0 ? "" : i % columns == 0 ? "; " : " ") + digits(values[i]);
  return {std::move(name), std::move(text), std::move(values), columns};
}

HeaderField parsed_field(std::string name, const std::string& text) {
  std::vector<double> numbers = numbers_in(text);
  const std::size_t columns = numbers.size() > 1 ? numbers.size() : 0;
  return {std::move(name), text, std::move(numbers), columns};
}

}  // namespace volpipe::io
