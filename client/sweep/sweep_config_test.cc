#include "client/sweep/sweep_config.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <tuple>

#include "client/sweep/sampling.h"
#include "common/base/violations.h"
#include "common/codec/table_files.h"
#include "common/codec/text_file.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

std::uint64_t Fnv(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

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
  expected.conditions.batch_sizes = {64};
  expected.conditions.optimizers = {Optimizer::kRowwiseAdagrad};
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

TEST(SweepConfigTest, ReadsConditionsThatVary) {
  const auto config = ParseSweepConfig(R"(
kind: compute
num_samples: 7
tables: t.csv
dims: {min: 8, max: 20}
row_shares: [1, 0.5]
batch_sizes: [256, 4096]
optimizers: [sgd, rowwise_adagrad]
weighted: [false, true, false, false]
pooling_modes: [mean, sum]
weight_dtypes: [fp32, bf16]
compute_kernels: [fused_uvm, fused_uvm_caching]
cache_load_factors: [0.1, 0.5]
active: {candidates: 8}
)",
                                       "c.yaml");
  ASSERT_THAT(config, IsOk());
  ComputeSweepConfig expected;
  expected.num_samples = 7;
  expected.tables = "t.csv";
  expected.dims = {8, 12, 16, 20};
  expected.row_shares = {1, 0.5};
  expected.conditions = {{256, 4096},
                         {Optimizer::kSgd, Optimizer::kRowwiseAdagrad},
                         0.25,
                         {PoolingMode::kMean, PoolingMode::kSum},
                         {DataType::kFp32, DataType::kBf16},
                         {ComputeKernel::kFusedUvm, ComputeKernel::kFusedUvmCaching},
                         {0.1, 0.5}};
  expected.active_candidates = 8;
  EXPECT_EQ(std::get<ComputeSweepConfig>(*config), expected);
}

TEST(SweepConfigTest, WireTypesAreThoseThatWorkersCastTo) {
  const std::string text = "kind: comm\nnum_samples: 3\nnum_ranks: [2]\n";
  const auto config = ParseSweepConfig(text + "wire_dtypes: [fp32, bf16]\n", "m.yaml");
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(std::get<CommSweepConfig>(*config).wire_dtypes,
            (std::vector{DataType::kFp32, DataType::kBf16}));
  const Status faults =
      ParseSweepConfig(text + "wire_dtypes: [fp16, int8]\ninput_dist: {pooling_factors: [1]}\n",
                       "m.yaml")
          .status();
  EXPECT_THAT(Message(faults), HasSubstr("wire_dtypes[1]: must be one of fp32, fp16, bf16"));
  EXPECT_THAT(Message(faults), HasSubstr("wire_dtypes: does not go with input_dist"));
}

TEST(SweepConfigTest, ACadenceWithoutBarriersHasNoStartOffsets) {
  const std::string text = "kind: comm\nnum_samples: 3\nnum_ranks: [2]\n";
  const auto barrier = ParseSweepConfig(text + "cadence: barrier\nmax_start_offset: 3\n", "m.yaml");
  ASSERT_THAT(barrier, IsOk());
  const auto in_rows = ParseSweepConfig(text + "cadence: back_to_back\n", "m.yaml");
  ASSERT_THAT(in_rows, IsOk());
  CommSweepConfig same = std::get<CommSweepConfig>(*in_rows);
  const std::vector<CommSample> samples = MakeCommSamples(same);
  same.cadence = Cadence::kBarrier;
  std::vector<CommSample> alone = MakeCommSamples(same);
  ASSERT_EQ(alone.size(), samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    alone[i].cadence = Cadence::kBackToBack;
    alone[i].start_offsets_ms.clear();
    EXPECT_EQ(samples[i], alone[i]) << "the same placements";
  }
  EXPECT_NE(SweepHash(*in_rows, ""), SweepHash(same, ""));
  EXPECT_EQ(SweepHash(*ParseSweepConfig(text, "m.yaml"), ""), SweepHash(same, ""));
  const Status faults =
      ParseSweepConfig(text + "cadence: back_to_back\nmax_start_offset: 3\n", "m.yaml").status();
  EXPECT_THAT(Message(faults),
              HasSubstr("max_start_offset: does not go with cadence back_to_back"));
}

TEST(SweepConfigTest, FaultsOfConditionsHaveTheirPaths) {
  const auto config = ParseSweepConfig(R"(
kind: compute
num_samples: 7
tables: t.csv
dims: {min: 6, max: 4}
row_shares: [0.5, 0]
batch_size: 64
batch_sizes: [256, 0]
optimizers: [sgd, best]
weighted: 1.5
pooling_modes: []
weight_dtypes: [fp32, int3]
compute_kernels: [fused, offload]
cache_load_factors: [0.5, 1.5]
active: {candidates: 1, rounds: 2}
)",
                                       "c.yaml");
  EXPECT_THAT(
      config,
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("dims.min: must be a multiple of 4, got 6"), HasSubstr("dims.max"),
                     HasSubstr("row_shares[1]"), HasSubstr("batch_sizes[1]"),
                     HasSubstr("batch_sizes: cannot be given beside batch_size"),
                     HasSubstr("optimizers[1]"), HasSubstr("weighted: must be in [0, 1]"),
                     HasSubstr("pooling_modes: must not be empty"), HasSubstr("weight_dtypes[1]"),
                     HasSubstr("compute_kernels[1]: must be one of fused, fused_uvm"),
                     HasSubstr("cache_load_factors: is for compute_kernels with"),
                     HasSubstr("cache_load_factors[1]"))));
}

TEST(SweepConfigTest, CollectivesAreASetWhoseDefaultIsAllToAll) {
  const std::string text = "kind: comm\nnum_samples: 1\nnum_ranks: [2]\n";
  const auto canonical = [&](const std::string& line) {
    const auto config = ParseSweepConfig(text + line, "c.yaml");
    EXPECT_THAT(config, IsOk());
    return SweepHash(*config, "");
  };
  EXPECT_EQ(canonical(""), canonical("collectives: [all_to_all]\n"));
  EXPECT_EQ(canonical("collectives: [all_reduce, all_to_all]\n"),
            canonical("collectives: [all_to_all, all_reduce]\n"));
  EXPECT_NE(canonical(""), canonical("collectives: [all_reduce]\n"));
  EXPECT_THAT(ParseSweepConfig(text + "collectives: [all_reduce, gossip, all_reduce]\n", "c.yaml"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("collectives[1]"), HasSubstr("all_reduce more than once"))));
  EXPECT_THAT(ParseSweepConfig(text + "collectives: []\n", "c.yaml"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("collectives: must not be")));
}

TEST(SweepConfigTest, EveryBatchSizeIsAMultipleOfEveryNumberOfRanks) {
  const std::string text = "kind: comm\nnum_samples: 1\nnum_ranks: [2, 3]\n";
  EXPECT_THAT(ParseSweepConfig(text + "batch_sizes: [12, 24]\n", "c.yaml"), IsOk());
  EXPECT_THAT(ParseSweepConfig(text + "batch_sizes: [12, 16]\n", "c.yaml"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("num_ranks: batch_size 16 is not a multiple of 3 ranks")));
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
  for (const char* condition :
       {"batch_sizes: [512, 65536]", "optimizers: [rowwise_adagrad, sgd]", "weighted: 0.5",
        "pooling_modes: [mean]", "row_shares: [0.5, 1]", "compute_kernels: [fused_uvm]",
        "active: {candidates: 4}", "dims: {min: 4, max: 8}"}) {
    EXPECT_NE(hash(base, "x"), hash(base + condition + "\n", "x")) << condition;
  }
  // Other words for the same sweep.
  EXPECT_EQ(hash(base + "batch_size: 64\n", "x"), hash(base + "batch_sizes: [64]\n", "x"));
  EXPECT_EQ(hash(base, "x"),
            hash(base + "optimizers: [sgd]\nweighted: [false]\nrow_shares: [1]\n", "x"));
}

// Of everything a worker is sent. FNV-1a.
std::uint64_t Digest(const std::vector<ComputeSample>& samples) {
  std::string text;
  for (const ComputeSample& sample : samples) {
    text += fmt::format("{} {} {} {}\n", sample.sample_id, sample.batch_size,
                        ToText(sample.optimizer), sample.seed);
    for (const MeasuredShard& shard : sample.shards) {
      text += fmt::format("{} {} {} {} {} {} {} {}\n", shard.table, shard.rows, shard.cols,
                          shard.pooling_factor, fmt::join(shard.reuse_histogram, ","),
                          ToText(shard.weight_dtype), ToText(shard.pooling_mode), shard.weighted);
    }
  }
  return Fnv(text);
}

std::uint64_t Digest(const std::vector<CommSample>& samples) {
  std::string text;
  for (const CommSample& sample : samples) {
    text += fmt::format("{} {} {} {} {} {}\n", sample.sample_id, ToText(sample.direction),
                        fmt::join(sample.dim_sums, ","), fmt::join(sample.start_offsets_ms, ","),
                        sample.batch_size, sample.element_bytes);
  }
  return Fnv(text);
}

// The figures are those of the release that made the stores: a store of that time goes on.
TEST(SweepConfigTest, ASweepWithOneConditionKeepsItsHashAndItsSamples) {
  const std::filesystem::path folder =
      std::filesystem::path(NEUROSHARD_SOURCE_DIR) / "configs" / "sweeps";
  const std::vector<std::tuple<std::string, std::string, std::uint64_t>> sweeps = {
      {"shipped_compute.yaml", "53b9392259c9c94220238572a847c828e4b928e6029d54fdac74b2e14926ca9c",
       13165698404521707717ULL},
      {"shipped_comm.yaml", "dade032ccc38cf9ea5d4c429f95bad58f0382ab9ea9d733e52eaa52999c94456",
       7379771987087559192ULL}};
  for (const auto& [file, hash, digest] : sweeps) {
    SCOPED_TRACE(file);
    NS_ASSERT_OK_AND_ASSIGN(const std::string text, ReadTextFile(folder / file));
    NS_ASSERT_OK_AND_ASSIGN(const SweepConfig config, ParseSweepConfig(text, file));
    if (const auto* compute = std::get_if<ComputeSweepConfig>(&config)) {
      NS_ASSERT_OK_AND_ASSIGN(const std::string csv, ReadTextFile(folder / compute->tables));
      NS_ASSERT_OK_AND_ASSIGN(const auto tables, ParseTableCsv(csv));
      NS_ASSERT_OK_AND_ASSIGN(const auto samples, MakeComputeSamples(*compute, tables));
      EXPECT_EQ(SweepHash(config, csv), hash);
      EXPECT_EQ(Digest(samples), digest);
    } else {
      EXPECT_EQ(SweepHash(config, ""), hash);
      EXPECT_EQ(Digest(MakeCommSamples(std::get<CommSweepConfig>(config))), digest);
    }
  }
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
      EXPECT_EQ(comm.collectives.front(), Collective::kAllToAll);  // in both directions
      const std::size_t kinds = comm.input_dist ? 1 : 1 + comm.collectives.size();
      EXPECT_EQ(MakeCommSamples(comm).size(),
                kinds * comm.num_ranks.size() *
                    static_cast<std::size_t>(comm.num_samples * comm.repeats));
    }
  }
  EXPECT_GE(files, 7);
}

}  // namespace
}  // namespace neuroshard
