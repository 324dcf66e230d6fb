// Decisions taken and oddities seen while an item is worked on: shown on standard error and kept in the report.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace volpipe {

struct Notice {
  std::string code;     ///< stable word for scripts, such as "no_affine"
  std::string message;  ///< one sentence for people
};

class Notices {
 public:
  void add(std::string code, std::string message) { list_.push_back({std::move(code), std::move(message)}); }
  const std::vector<Notice>& list() const { return list_; }
  bool empty() const { return list_.empty(); }

 private:
  std::vector<Notice> list_;
};

}  // namespace volpipe
