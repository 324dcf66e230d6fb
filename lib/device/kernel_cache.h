// Compiled kernels on disk, shared by all processes of a user.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace volpipe {

/// A folder of entries named by their keys. An entry appears whole or not at all and carries its own hash, so processes
/// may read, write and clear one cache at the same time, and a damaged entry counts as missing.
class KernelCache {
 public:
  static constexpr std::uint64_t kMostBytes = std::uint64_t(256) << 20;

  /// Entries lie in `folder`/kernels, at most `most_bytes` of them in all; with no folder nothing is kept.
  explicit KernelCache(std::string folder, std::uint64_t most_bytes = kMostBytes);
  /// In $VOLPIPE_CACHE_DIR, else $XDG_CACHE_HOME/volpipe, else $HOME/.cache/volpipe.
  static KernelCache of_user();

  const std::string& folder() const { return folder_; }

  /// What is kept under `key`; empty when there is no such entry or it is damaged. Marks it as used now.
  std::optional<std::string> find(const std::string& key) const;

  /// Keeps `content`, then removes what was used longest ago until the bound holds. Returns why it could not be kept,
  /// or "". `key` is a file's name.
  std::string store(const std::string& key, std::string_view content) const;

 private:
  void remove_oldest(const std::string& kept) const;

  std::string folder_;
  std::uint64_t most_bytes_;
};

}  // namespace volpipe
