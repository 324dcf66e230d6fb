// What holds a run together: bounds on memory, queues, shards, journals, merged reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "file_helpers.h"
#include "io/file_identity.h"
#include "pipeline/bounded_queue.h"
#include "pipeline/journal.h"
#include "pipeline/memory_budget.h"
#include "pipeline/merge_reports.h"
#include "pipeline/shard.h"
#include "volume/error.h"

namespace volpipe {
namespace {

using testing::HasSubstr;

TEST(MemoryBudget, SharesNeverExceedTheTotal) {
  MemoryBudget budget(1000);
  std::atomic<std::size_t> used{0}, most{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const auto share = budget.acquire(std::size_t(100 + 97 * ((t + i) % 5)));
        ASSERT_TRUE(share);
        const std::size_t now = used += share->bytes();
        for (std::size_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {}
        used -= share->bytes();
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_LE(most, 1000u);
  EXPECT_GE(most, 300u);
}

TEST(MemoryBudget, WhatIsLargerThanAllWaitsForAll) {
  MemoryBudget budget(100);
  auto small = budget.acquire(10);
  std::atomic<bool> got{false};
  std::thread large([&] {
    const auto share = budget.acquire(1000);
    EXPECT_EQ(share->bytes(), 100u);
    got = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(got);
  small.reset();
  large.join();
  EXPECT_TRUE(got);
}

TEST(MemoryBudget, SmallRequestsDoNotOvertakeALargeOne) {
  MemoryBudget budget(100);
  auto first = budget.acquire(60);
  std::vector<int> order;
  std::mutex mutex;
  const auto ask = [&](std::size_t bytes, int name) {
    return std::thread([&, bytes, name] {
      const auto share = budget.acquire(bytes);
      const std::lock_guard lock(mutex);
      order.push_back(name);
    });
  };
  std::thread large = ask(90, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::thread small = ask(20, 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(order.empty());
  first->shrink(0);
  large.join();
  small.join();
  EXPECT_EQ(order.front(), 1);
}

TEST(MemoryBudget, ClosingWakesWhoWaits) {
  MemoryBudget budget(10);
  const auto all = budget.acquire(10);
  std::thread waiting([&] { EXPECT_FALSE(budget.acquire(1)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  budget.close();
  waiting.join();
}

TEST(BoundedQueue, HandsOverEverythingInOrderAndHoldsLittle) {
  BoundedQueue<int> queue(3);
  std::atomic<int> pushed{0}, popped{0}, most{0};
  std::thread producer([&] {
    for (int i = 0; i < 2000; ++i) {
      queue.push(i);
      most = std::max(most.load(), ++pushed - popped.load());
    }
    queue.close();
  });
  int expected = 0;
  while (const auto value = queue.pop()) {
    EXPECT_EQ(*value, expected++);
    ++popped;
  }
  producer.join();
  EXPECT_EQ(expected, 2000);
  EXPECT_LE(most, 5) << "three in the queue, one in each hand";
}

TEST(BoundedQueue, AbandoningItFreesWhoPushes) {
  BoundedQueue<int> queue(1);
  queue.push(1);
  std::thread producer([&] { queue.push(2); });
  queue.abandon();
  producer.join();
  EXPECT_FALSE(queue.pop());
}

class ShardVariables : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) unsetenv(name);
  }
  void TearDown() override { SetUp(); }
  static void set(std::initializer_list<std::pair<const char*, const char*>> variables) {
    for (const auto& [name, value] : variables) setenv(name, value, 1);
  }
  static constexpr const char* kNames[] = {
      "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX", "SGE_TASK_ID",
      "SGE_TASK_FIRST",      "SGE_TASK_LAST",          "SGE_TASK_STEPSIZE",    "PBS_ARRAY_INDEX",      "PBS_ARRAYID",
      "PBS_ARRAY_COUNT",     "PBS_ARRAY_FIRST"};
};

void expect_shard(const Shard& shard, int index, int count) {
  EXPECT_EQ(shard.index, index);
  EXPECT_EQ(shard.count, count);
}

TEST_F(ShardVariables, SlurmNamesTheTask) {
  set({{"SLURM_ARRAY_TASK_ID", "0"},
       {"SLURM_ARRAY_TASK_COUNT", "4"},
       {"SLURM_ARRAY_TASK_MIN", "0"},
       {"SLURM_ARRAY_TASK_MAX", "3"}});
  expect_shard(parse_shard("auto"), 1, 4);
  set({{"SLURM_ARRAY_TASK_ID", "15"},
       {"SLURM_ARRAY_TASK_MIN", "5"},
       {"SLURM_ARRAY_TASK_MAX", "20"}});  // --array=5-20:5
  expect_shard(parse_shard("auto"), 3, 4);
  set({{"SLURM_ARRAY_TASK_ID", "7"}});
  EXPECT_THROW(parse_shard("auto"), Error);
  // --array=1,3,7: the tasks have no common step.
  set({{"SLURM_ARRAY_TASK_COUNT", "3"},
       {"SLURM_ARRAY_TASK_MIN", "1"},
       {"SLURM_ARRAY_TASK_MAX", "7"},
       {"SLURM_ARRAY_TASK_STEP", "1"}});
  for (const char* task : {"1", "3", "7"}) {
    set({{"SLURM_ARRAY_TASK_ID", task}});
    EXPECT_THROW(parse_shard("auto"), Error) << task;
  }
  // --array=3: one task of what was meant to be many.
  set({{"SLURM_ARRAY_TASK_ID", "3"},
       {"SLURM_ARRAY_TASK_COUNT", "1"},
       {"SLURM_ARRAY_TASK_MIN", "3"},
       {"SLURM_ARRAY_TASK_MAX", "3"}});
  EXPECT_THROW(parse_shard("auto"), Error);
  set({{"SLURM_ARRAY_TASK_ID", "1"}, {"SLURM_ARRAY_TASK_MIN", "1"}, {"SLURM_ARRAY_TASK_MAX", "1"}});
  expect_shard(parse_shard("auto"), 1, 1);
}

TEST_F(ShardVariables, OtherSchedulersDoToo) {
  set({{"SGE_TASK_ID", "undefined"}});
  EXPECT_THROW(parse_shard("auto"), Error);
  set({{"SGE_TASK_ID", "5"}, {"SGE_TASK_FIRST", "1"}, {"SGE_TASK_LAST", "10"}, {"SGE_TASK_STEPSIZE", "2"}});
  expect_shard(parse_shard("auto"), 3, 5);
  unsetenv("SGE_TASK_ID");
  set({{"PBS_ARRAY_INDEX", "2"}});
  EXPECT_THROW(parse_shard("auto"), Error) << "of how many?";
  set({{"PBS_ARRAY_COUNT", "9"}});
  expect_shard(parse_shard("auto"), 2, 9);
}

TEST_F(ShardVariables, ShardsAreOneBased) {
  expect_shard(parse_shard("3/16"), 3, 16);
  for (const char* wrong : {"0/4", "5/4", "1", "1/", "/2", "a/b", "-1/3", "1/2/3", ""})
    EXPECT_THROW(parse_shard(wrong), Error) << wrong;
  EXPECT_EQ((Shard{2, 7}.suffix()), ".2-of-7");
  EXPECT_EQ(Shard{}.suffix(), "");
}

Json report_of(int index, int count, const std::vector<std::string>& ids) {
  Json items = Json::array();
  for (const std::string& id : ids) items.push_back({{"id", id}, {"repeat", 0}, {"status", "ok"}});
  Json report = {{"volpipe_report", 1}, {"version", "1"}, {"finished", "2026-01-0" + std::to_string(index)}};
  report["spec"] = {{"path", "s"}, {"sha256", "abc"}, {"content", Json::object()}};
  report["run_key"] = "abc";
  report["all_items"] = "def";
  report["interrupted"] = false;
  report["wall_ms"] = 100.0 * index;
  report["totals"] = {{"items", ids.size()}, {"ok", ids.size()}, {"failed", 0}, {"skipped", 0}, {"resumed", 0}};
  report["throughput"] = {{"volumes_per_s", 10.0 * double(ids.size()) / index}};
  report["peak_host_bytes"] = 1000 * index;
  report["peak_device_bytes"] = 0;
  report["warnings"] = Json::array();
  report["items"] = items;
  report["shard"] = {{"index", index}, {"count", count}};
  return report;
}

TEST(MergeReports, MakesOneOfAll) {
  const Json merged =
      merge_reports({{"b", report_of(2, 3, {"b", "d"})}, {"a", report_of(1, 3, {"a"})}, {"c", report_of(3, 3, {"c"})}});
  std::vector<std::string> ids;
  for (const Json& item : merged["items"]) ids.push_back(item["id"]);
  EXPECT_EQ(ids, (std::vector<std::string>{"a", "b", "c", "d"}));
  EXPECT_EQ(merged["totals"]["items"], 4);
  EXPECT_EQ(merged["totals"]["ok"], 4);
  EXPECT_EQ(merged["wall_ms"], 300.0);
  EXPECT_EQ(merged["finished"], "2026-01-03");
  EXPECT_EQ(merged["peak_host_bytes"], 3000);
  EXPECT_DOUBLE_EQ(merged["throughput"]["volumes_per_s"].get<double>(), 4 / 0.3);
  EXPECT_TRUE(merged["warnings"].empty());
  EXPECT_EQ(merged["shards"].size(), 3u);
  EXPECT_FALSE(merged.contains("shard"));
}

TEST(MergeReports, SaysWhatIsMissing) {
  const Json merged = merge_reports({{"a", report_of(1, 3, {"a"})}, {"c", report_of(3, 3, {"c"})}});
  ASSERT_EQ(merged["warnings"].size(), 1u);
  EXPECT_EQ(merged["warnings"][0]["code"], "missing_shard");
  EXPECT_THAT(merged["warnings"][0]["message"].get<std::string>(), HasSubstr("2 of 3"));
}

TEST(MergeReports, RefusesWhatDoesNotBelongTogether) {
  const auto refused = [](const Json& other, const std::string& why) {
    try {
      merge_reports({{"a", report_of(1, 2, {"a"})}, {"other", other}});
      ADD_FAILURE() << why;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      EXPECT_THAT(std::string(error.what()), HasSubstr(why));
    }
  };
  refused(report_of(2, 2, {"a"}), "too");
  refused(report_of(2, 3, {"b"}), "shards");
  Json other = report_of(2, 2, {"b"});
  other["run_key"] = "other";
  refused(other, "spec");
  other = report_of(2, 2, {"b"});
  other["all_items"] = "other";
  refused(other, "other items");
  other = report_of(2, 2, {"b"});
  other["totals"] = nullptr;
  refused(other, "totals");
  refused(Json::array(), "no report");
  other = report_of(2, 2, {"b"});
  other.erase("totals");
  refused(other, "lacks");
}

class JournalFolder : public testing::Test {
 protected:
  test::TemporaryFolder folder_;
};

TEST_F(JournalFolder, TellsFilesApart) {
  const std::string path = folder_ / "a";
  std::ofstream(path) << "123456789";
  const io::FileIdentity identity = io::identity_of(path);
  EXPECT_EQ(identity.bytes, 9u);
  EXPECT_EQ(identity, io::identity_of(path));
  EXPECT_EQ(io::crc32_of_file(path), 0xCBF43926u) << "the check value of CRC-32 as gzip uses it";
  EXPECT_THROW(io::identity_of(folder_ / "none"), Error);
  EXPECT_THROW(io::crc32_of_file(folder_ / "none"), Error);
}

TEST_F(JournalFolder, OneRunWritesAtATime) {
  const Journal first(folder_.path(), journal_name({}), "key", false);
  EXPECT_THROW(Journal(folder_.path(), journal_name({}), "key", true), Error);
  const Journal shard(folder_.path(), journal_name({1, 2}), "key", false);
}

}  // namespace
}  // namespace volpipe
