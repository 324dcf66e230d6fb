// Files for tests, gzip by zlib as an independent witness, errors that are expected.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <string>
#include <vector>

#include "support/temporary_folder.h"
#include "volume/error.h"

namespace volpipe::test {

/// One gzip member by zlib.
inline std::string zlib_gzip(const std::string& content, int level = 6) {
  z_stream stream{};
  deflateInit2(&stream, level, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, content.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = uInt(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = uInt(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

/// The content of a gzip file of one member by zlib; fails the test when zlib does not like it or bytes follow.
inline std::string zlib_gunzip(const std::string& packed) {
  z_stream stream{};
  inflateInit2(&stream, 31);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = uInt(packed.size());
  std::string content;
  std::vector<char> chunk(1 << 16);
  int result = Z_OK;
  while (result == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = uInt(chunk.size());
    result = inflate(&stream, Z_NO_FLUSH);
    content.append(chunk.data(), chunk.size() - stream.avail_out);
  }
  EXPECT_EQ(result, Z_STREAM_END);
  EXPECT_EQ(stream.avail_in, 0u);
  inflateEnd(&stream);
  return content;
}

/// `work` must throw an Error of `code` whose message has `part` in it.
template <class Work>
void expect_error(ErrorCode code, const std::string& part, Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << "no '" << part << "' in: " << error.what();
    return;
  }
  ADD_FAILURE() << "no error; expected one about '" << part << "'";
}

}  // namespace volpipe::test
