// Words of text headers.
#pragma once

#include <string>

namespace volpipe::io {

/// Without the blanks at its ends.
std::string trimmed(const std::string& text);
std::string lower(std::string text);

}  // namespace volpipe::io
