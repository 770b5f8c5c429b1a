#include "client/sweep/sweep_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "client/sweep/comm_sampling.h"
#include "client/sweep/compute_sampling.h"
#include "client/sweep/sweep_hash.h"
#include "common/base/violations.h"
#include "common/codec/table_csv.h"
#include "common/codec/text_file.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

TEST(SweepConfigTest, ReadsAComputeSweep) {
  const auto config = ParseSweepConfig(R"(
kind: compute
seed: 5
num_samples: 7
tables: t.csv
dims: [8, 4]
max_tables: 3
max_weights_bytes: 1000
batch_size: 64
optimizer: rowwise_adagrad
settings: {max_iterations: 9, flush_cache: false}
)",
                                       "c.yaml");
  ASSERT_THAT(config, IsOk());
  ComputeSweepConfig expected;
  expected.seed = 5;
  expected.num_samples = 7;
  expected.tables = "t.csv";
  expected.dims = {8, 4};
  expected.max_tables = 3;
  expected.max_weights_bytes = 1000;
  expected.batch_size = 64;
  expected.optimizer = Optimizer::kRowwiseAdagrad;
  expected.settings.max_iterations = 9;
  expected.settings.flush_cache = false;
  EXPECT_EQ(std::get<ComputeSweepConfig>(*config), expected);
}

TEST(SweepConfigTest, AllFaultsAtOnce) {
  const auto config = ParseSweepConfig(R"(
kind: comm
num_samples: -1
num_ranks: [2, 3, 2]
batch_size: 512
dims: [0]
min_tables: 9
max_tables: 4
max_random_placement: 1.5
tables: t.csv
settings: {max_time_ms: 0}
)",
                                       "c.yaml");
  EXPECT_THAT(config, StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr("num_samples"), HasSubstr("3 ranks"),
                                     HasSubstr("more than once"), HasSubstr("dims"),
                                     HasSubstr("max_tables"), HasSubstr("max_random_placement"),
                                     HasSubstr("tables"), HasSubstr("settings.max_time_ms"))));
}

TEST(SweepConfigTest, TheKindIsRequired) {
  EXPECT_THAT(ParseSweepConfig("seed: 1\n", "c.yaml"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("c.yaml: kind")));
  EXPECT_THAT(ParseSweepConfig("[1", "c.yaml"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("c.yaml")));
}

TEST(SweepHashTest, DependsOnEveryValueAndOnTheTablesButNotOnTheWriting) {
  const auto hash = [](const std::string& text, const std::string& csv) {
    const auto config = ParseSweepConfig(text, "c.yaml");
    EXPECT_THAT(config, IsOk());
    return SweepHash(*config, csv);
  };
  const std::string base = "kind: compute\nnum_samples: 2\ntables: t.csv\n";
  EXPECT_EQ(hash(base, "x"),
            hash("# comment\ntables: t.csv\nkind: compute\nnum_samples: 2\nseed: 0\n", "x"));
  EXPECT_NE(hash(base, "x"), hash(base, "y"));
  EXPECT_NE(hash(base, "x"), hash(base + "seed: 1\n", "x"));
  EXPECT_NE(hash(base, "x"), hash(base + "repeats: 2\n", "x"));
  EXPECT_NE(hash(base, "x"), hash(base + "settings: {max_time_ms: 9}\n", "x"));
}

// The files that are shipped: they parse, and their samples can be made.
TEST(SweepConfigTest, EveryShippedSweepCanBePlanned) {
  const std::filesystem::path folder =
      std::filesystem::path(NEUROSHARD_SOURCE_DIR) / "configs" / "sweeps";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path());
    ++files;
    NS_ASSERT_OK_AND_ASSIGN(const std::string text, ReadTextFile(entry.path()));
    NS_ASSERT_OK_AND_ASSIGN(const SweepConfig config, ParseSweepConfig(text, entry.path()));
    if (const auto* compute = std::get_if<ComputeSweepConfig>(&config)) {
      NS_ASSERT_OK_AND_ASSIGN(const auto tables, ReadTableCsv(folder / compute->tables));
      NS_ASSERT_OK_AND_ASSIGN(const auto samples, MakeComputeSamples(*compute, tables));
      EXPECT_EQ(samples.size(), static_cast<std::size_t>(compute->num_samples * compute->repeats));
    } else {
      const auto& comm = std::get<CommSweepConfig>(config);
      EXPECT_EQ(
          MakeCommSamples(comm).size(),
          2 * comm.num_ranks.size() * static_cast<std::size_t>(comm.num_samples * comm.repeats));
    }
  }
  EXPECT_EQ(files, 4);
}

}  // namespace
}  // namespace neuroshard
