#include "volume/error.h"

namespace volpipe {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::usage:
      return "usage";
    case ErrorCode::input:
      return "input";
    case ErrorCode::output:
      return "output";
    case ErrorCode::exists:
      return "exists";
    case ErrorCode::device:
      return "device";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::internal:
      return "internal";
  }
  return "internal";
}

}  // namespace volpipe
