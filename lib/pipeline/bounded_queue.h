// A first-in, first-out queue between threads that holds a bounded number of things.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace volpipe {

template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t capacity) : capacity_(capacity) {}

  /// Waits while the queue is full.
  void push(T value) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return abandoned_ || values_.size() < capacity_; });
    if (abandoned_) return;
    values_.push_back(std::move(value));
    changed_.notify_all();
  }

  /// Waits for a value; nothing when the queue is closed and empty.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !values_.empty(); });
    if (values_.empty()) return std::nullopt;
    std::optional<T> value(std::move(values_.front()));
    values_.pop_front();
    changed_.notify_all();
    return value;
  }

  /// Nothing will be popped any more: what is held and what is pushed is dropped.
  void abandon() {
    const std::lock_guard lock(mutex_);
    closed_ = abandoned_ = true;
    values_.clear();
    changed_.notify_all();
  }

  /// Nothing more will be pushed.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  const std::size_t capacity_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> values_;
  bool closed_ = false, abandoned_ = false;
};

}  // namespace volpipe
