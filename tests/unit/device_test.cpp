// The CPU context, the choice of a device, and items of a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "pipeline/items.h"
#include "pipeline/runner.h"
#include "support/pipeline_runs.h"
#include "volume/error.h"

namespace volpipe {
namespace {

using namespace testing_support;
using testing::HasSubstr;

TEST(CpuContext, CoversEveryIndexOnceWhateverTheThreads) {
  for (int threads : {1, 2, 7})
    for (std::int64_t count : {0, 1, 2, 63, 64, 65, 1000}) {
      std::vector<int> visits(std::size_t(count), 0);
      make_context(Device::cpu(), threads)->parallel(count, 64, [&](std::int64_t begin, std::int64_t end) {
        EXPECT_EQ(begin % 64, 0);
        for (std::int64_t i = begin; i < end; ++i) ++visits[std::size_t(i)];
      });
      EXPECT_EQ(std::accumulate(visits.begin(), visits.end(), std::int64_t(0)), count);
      EXPECT_TRUE(std::all_of(visits.begin(), visits.end(), [](int n) { return n == 1; }));
    }
}

TEST(CpuContext, KeepsWhatWasMadeOnce) {
  std::weak_ptr<int> made;
  int calls = 0;
  {
    const auto context = make_context(Device::cpu(), 1);
    const auto make = [&] {
      ++calls;
      const auto object = std::make_shared<int>(7);
      made = object;
      return object;
    };
    EXPECT_THROW(context->kept<int>("key", []() -> std::shared_ptr<int> { throw Error(ErrorCode::device, "no"); }),
                 Error);
    EXPECT_EQ(&context->kept<int>("key", make), &context->kept<int>("key", make));
    EXPECT_EQ(context->kept<int>("key", make), 7);
    EXPECT_EQ(calls, 1);
    context->kept<int>("other", make);
    EXPECT_EQ(calls, 2);
    EXPECT_FALSE(made.expired());
  }
  EXPECT_TRUE(made.expired());
}

TEST(CpuContext, ReportsItsPeak) {
  const auto context = make_context(Device::cpu(), 1);
  { const Buffer a = context->allocate(1000), b = context->allocate(500); }
  const Buffer c = context->allocate(1200);
  EXPECT_EQ(context->peak_memory(), 1500u);
}

TEST(CpuContext, UsesTheBlockOfAFreedVolumeAgain) {
  constexpr std::size_t kBytes = std::size_t(64) << 20;
  const auto context = make_context(Device::cpu(), 1);
  const auto address = [&](std::size_t bytes) { return context->allocate(bytes).data(); };
  const void* first = address(kBytes);
  EXPECT_EQ(address(kBytes - 1000), first);
  const Buffer other = context->allocate(2 * kBytes);  // the kept block is given up: together they would pass the peak
  EXPECT_EQ(context->peak_memory(), 2 * kBytes);
}

TEST(Threads, FollowSlurm) {
  setenv("SLURM_CPUS_PER_TASK", "1", 1);
  EXPECT_EQ(available_threads(), 1);
  setenv("SLURM_CPUS_PER_TASK", "nonsense", 1);
  EXPECT_GE(available_threads(), 1);
  unsetenv("SLURM_CPUS_PER_TASK");
}

TEST(ChooseDevice, RefusesOtherWordsAndFallsBackWithAReason) {
  for (const char* word : {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "CPU", ""})
    EXPECT_THROW(choose_device(word, true), Error) << word;
  EXPECT_TRUE(choose_device("cpu", false).fallback_reason.empty());
  const DeviceChoice absent = choose_device("cuda:4096", true);
  EXPECT_TRUE(absent.used.front().is_cpu());
  EXPECT_FALSE(absent.fallback_reason.empty());
  try {
    choose_device("cuda:4096", false);
    FAIL() << "a device that is not there was accepted";
  } catch (const Error& error) { EXPECT_EQ(error.code(), ErrorCode::device); }
}

Item item_of(const std::string& directory, const std::string& stem) {
  Item item{directory.empty() ? stem : directory + "/" + stem, directory, stem, {}};
  io::Source source;
  source.path = "/in/" + item.id + ".nii";
  item.images.emplace("image", source);
  return item;
}

TEST(OutputPath, FillsItsFieldsAndStaysInside) {
  const Item item = item_of("a/b", "head");
  EXPECT_EQ(output_path({"image", "{dir}/{stem}_{name}.nii", {}}, item, "/out"), "/out/a/b/head_image.nii");
  EXPECT_EQ(output_path({"image", "{dir}/{stem}.nii", {}}, item_of("", "head"), "/out"), "/out/head.nii");
  EXPECT_THROW(output_path({"image", "../{stem}.nii", {}}, item, "/out"), Error);
  EXPECT_THROW(output_path({"image", "x/../../{stem}.nii", {}}, item, "/out"), Error);
}

TEST(CheckOutputPaths, NamesBothItemsOfOnePath) {
  const Pipeline pipeline =
      parse_pipeline(R"({"volpipe": 1, "stages": [], "outputs": {"image": {"path": "{stem}.nii"}}})", "s");
  Items items;
  items.items = {item_of("a", "x"), item_of("b", "x"), item_of("c", "y")};
  const auto faults = check_output_paths(pipeline, items, "/out");
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_THAT(faults[0], testing::AllOf(HasSubstr("'a/x'"), HasSubstr("'b/x'"), HasSubstr("{dir}")));
}

TEST(Shards, PartitionTheItems) {
  std::vector<std::string> seen;
  for (int shard = 1; shard <= 3; ++shard) {
    Items items;
    for (char c = 'a'; c < 'k'; ++c) items.items.push_back(item_of("", std::string(1, c)));
    take_shard(items, {shard, 3});
    for (const Item& item : items.items) seen.push_back(item.id);
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen.size(), 10u);
  EXPECT_TRUE(std::unique(seen.begin(), seen.end()) == seen.end());
}

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/volpipe-items-XXXXXX";
    root_ = mkdtemp(name);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void put(const std::string& name) {
    const VolumeInfo info{oblique_grid({3, 3, 3}), DataType::uint8, 1, ImageKind::image, ComponentAxis::none, 1.0};
    io::write(random_volume(*context_, info, 1), root_ + "/" + name, {.overwrite = true});
  }
  void put_text(const std::string& name, const std::string& text) { std::ofstream(root_ + "/" + name) << text; }

  std::unique_ptr<DeviceContext> context_ = make_context(Device::cpu(), 1);
  std::string root_;
};

const char* const kPairs =
    R"({"volpipe": 1, "stages": [], "inputs": {"image": {"suffix": "_T1"}, "label": {"suffix": "_seg", "kind": "label"}}})";

TEST_F(Folder, FilesThatShareAStemAreOneItemAndAMissingOneIsNamed) {
  for (const char* name : {"s/a_T1.nii", "s/a_seg.nii", "s/b_T1.nii", "other.nii"}) put(name);
  const Items items = collect_items(parse_pipeline(kPairs, "p"), {root_}, "");
  ASSERT_EQ(items.items.size(), 1u);
  EXPECT_EQ(items.items[0].id, "s/a");
  EXPECT_EQ(items.items[0].images.size(), 2u);
  ASSERT_EQ(items.faults.size(), 1u);
  EXPECT_THAT(items.faults[0].message, HasSubstr("'label' is missing"));
}

TEST_F(Folder, AManifestNamesItemsByRow) {
  for (const char* name : {"one.nii", "two.nii", "seg.nii"}) put(name);
  put_text("m.csv", "id,image,label\nfirst,one.nii,seg.nii\n\"second, quoted\",two.nii,seg.nii\n");
  put_text("m.json", R"([{"image": "one.nii", "label": "seg.nii"}])");
  put_text("bad.csv", "id,image,labl\nfirst,one.nii,seg.nii\n");
  const Pipeline pipeline = parse_pipeline(kPairs, "p");
  const Items csv = collect_items(pipeline, {}, root_ + "/m.csv"),
              json = collect_items(pipeline, {}, root_ + "/m.json");
  ASSERT_EQ(csv.items.size(), 2u);
  EXPECT_EQ(csv.items[1].id, "second, quoted");
  ASSERT_EQ(json.items.size(), 1u);
  EXPECT_EQ(json.items[0].id, "one");
  EXPECT_THROW(collect_items(pipeline, {}, root_ + "/bad.csv"), Error);
  EXPECT_THROW(collect_items(pipeline, {}, root_ + "/absent.csv"), Error);
}

TEST_F(Folder, ARunRecordsEachItemAndGoesOnAfterAFault) {
  put("good.nii");
  put_text("bad.nii", std::string(400, 'x'));
  const Pipeline pipeline = parse_pipeline(R"({"volpipe": 1, "stages": [{"op": "normalize"}]})", "p");
  RunOptions options;
  options.output_directory = root_ + "/out";
  options.device = choose_device("cpu", true);
  struct Counter final : RunObserver {
    std::size_t finished_items = 0;
    void finished(const ItemRecord&, const RunProgress& progress) override {
      EXPECT_EQ(progress.done, ++finished_items);
      EXPECT_EQ(progress.total, 2u);
    }
  } observer;
  const RunRecord run =
      run_items(pipeline, collect_items(pipeline, {root_}, ""), options, std::atomic<int>{0}, observer);
  EXPECT_EQ(observer.finished_items, 2u);
  EXPECT_EQ(run.count(ItemStatus::ok), 1u);
  EXPECT_EQ(run.count(ItemStatus::failed), 1u);
  EXPECT_TRUE(std::filesystem::exists(root_ + "/out/good.nii.gz"));
  const Json report = make_report(run, pipeline, {"volpipe", "run"});
  EXPECT_EQ(report["totals"]["failed"], 1);
  EXPECT_EQ(report["items"].size(), 2u);

  RunObserver nobody;
  options.stop_on_error = true;
  options.overwrite = true;
  Items many = collect_items(pipeline, {root_ + "/bad.nii", root_ + "/good.nii"}, "");
  for (int i = 0; i < 200; ++i) {
    many.items.push_back(many.items.back());
    many.items.back().stem = "good" + std::to_string(i);
  }
  const RunRecord stopped = run_items(pipeline, many, options, std::atomic<int>{0}, nobody);
  EXPECT_EQ(stopped.count(ItemStatus::failed), 1u);
  EXPECT_GT(stopped.count(ItemStatus::skipped), 100u);
  const RunRecord interrupted = run_items(pipeline, collect_items(pipeline, {root_ + "/good.nii"}, ""), options,
                                          std::atomic<int>{2}, nobody);
  EXPECT_TRUE(interrupted.interrupted);
  EXPECT_EQ(interrupted.count(ItemStatus::skipped), 1u);
}

TEST_F(Folder, ABoundOnMemoryFailsTheItemThatNeedsMore) {
  put("good.nii");
  const Pipeline pipeline = parse_pipeline(R"({"volpipe": 1, "stages": [{"op": "resize", "size": 64}]})", "p");
  RunOptions options;
  options.output_directory = root_ + "/out";
  options.device = choose_device("cpu", true);
  options.memory_limit = 100000;
  RunObserver nobody;
  const RunRecord run =
      run_items(pipeline, collect_items(pipeline, {root_}, ""), options, std::atomic<int>{0}, nobody);
  ASSERT_EQ(run.count(ItemStatus::failed), 1u);
  EXPECT_EQ(run.items[0].error_code, ErrorCode::out_of_memory);
}

}  // namespace
}  // namespace volpipe
