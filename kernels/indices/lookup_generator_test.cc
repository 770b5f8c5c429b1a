#include "kernels/indices/lookup_generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "common/domain/testing/reuse_histograms.h"
#include "kernels/indices/testing/zipf_lookups.h"

namespace neuroshard {
namespace {

using ::testing::HasSubstr;

// The last rank + 1 of run i.
std::int64_t EndOf(const ZipfRuns& zipf, std::size_t i, std::int64_t ranks) {
  return i + 1 < zipf.runs.size() ? zipf.runs[i + 1].first_rank : ranks;
}

class ZipfRunsTest : public ::testing::TestWithParam<double> {};

TEST_P(ZipfRunsTest, ProbabilitiesAreThoseOfTheDefinition) {
  const double exponent = GetParam();
  for (const std::int64_t ranks : {1, 2, 255, 256, 257, 100'000}) {
    const ZipfRuns zipf = MakeZipfRuns(ranks, exponent);
    double normaliser = 0;
    for (std::int64_t k = ranks; k > 0; --k) normaliser += std::pow(k, -exponent);
    std::int64_t keys = 0;
    for (std::size_t i = 0; i < zipf.runs.size(); ++i) {
      const RankRun& run = zipf.runs[i];
      const std::int64_t end = EndOf(zipf, i, ranks);
      EXPECT_EQ(run.first_key, keys);
      keys += run.keys_per_rank * (end - run.first_rank);
      const double probability =
          static_cast<double>(run.keys_per_rank) / static_cast<double>(zipf.num_keys);
      const double rounding = 1e-5 + 0.5 / static_cast<double>(run.keys_per_rank);
      double expected = 0;
      for (std::int64_t rank = run.first_rank; rank < end; ++rank) {
        const double own = std::pow(static_cast<double>(rank + 1), -exponent) / normaliser;
        expected += own;
        ASSERT_NEAR(probability / own, 1, exponent / 256 * 1.02 + rounding) << rank;
      }
      ASSERT_NEAR(probability * static_cast<double>(end - run.first_rank) / expected, 1, rounding)
          << run.first_rank;
    }
    EXPECT_EQ(zipf.num_keys, keys);
  }
}

INSTANTIATE_TEST_SUITE_P(Exponents, ZipfRunsTest,
                         ::testing::Values(0.0, 0.5, 0.999999999, 1.0, 1.2, 3.0));

TEST(MakeZipfRunsTest, UniformRanksAreOneRun) {
  EXPECT_EQ(MakeZipfRuns(123'456'789, 0).runs.size(), 1U);
}

TEST(MakeZipfRunsTest, HugeRangesStaySmallAndInside) {
  for (const std::int64_t ranks : {std::int64_t{1} << 48, std::int64_t{1} << 62}) {
    for (const double exponent : {0.0, 0.8, 1.0, 2.0, 50.0}) {
      const ZipfRuns zipf = MakeZipfRuns(ranks, exponent);
      EXPECT_LT(zipf.runs.size(), 6000U);
      EXPECT_GT(zipf.num_keys, std::int64_t{1} << 60);
      // The last key's rank.
      const RankRun& last = zipf.runs.back();
      EXPECT_LT(last.first_rank + (zipf.num_keys - 1 - last.first_key) / last.keys_per_rank, ranks);
    }
  }
}

// Tables 0, 3, 19, 29, 76, 98, 300, 582 and 663 of the DLRM 2021 trace at batch size 65,536: rows,
// pooling factor, reuse histogram.
struct TraceTable {
  std::int64_t rows;
  double pooling_factor;
  ReuseHistogram histogram;
};
// clang-format off
constexpr TraceTable kTraceTables[] = {
    {8015938, 22.3756, {0.593916, 0.154943, 0.106533, 0.0641165, 0.0363141, 0.0203616, 0.010956, 0.00630498, 0.00370957, 0.00154602, 0.000768689, 0.000388663, 0.000116599, 2.15924e-05, 4.31848e-06, 0, 0}},
    {6138289, 104.995, {0.197812, 0.135819, 0.193206, 0.205415, 0.155796, 0.0778414, 0.0246495, 0.00679334, 0.00187831, 0.000571289, 0.000158353, 4.14154e-05, 1.46172e-05, 2.4362e-06, 0, 0, 0}},
    {6612561, 43.042, {0.268123, 0.180019, 0.22257, 0.192641, 0.0979624, 0.0273497, 0.00756906, 0.00237204, 0.00079849, 0.000335795, 0.000148375, 7.02827e-05, 2.73322e-05, 7.80919e-06, 3.9046e-06, 0, 1.9523e-06}},
    {11645, 92.4935, {0.015239, 0.0124683, 0.0213577, 0.0341722, 0.0475641, 0.0685754, 0.0909721, 0.122374, 0.14477, 0.147656, 0.124913, 0.0952436, 0.0462942, 0.0200877, 0.00611868, 0.00150081, 0.000692681}},
    {586400, 62.0159, {0.140431, 0.101937, 0.145473, 0.172344, 0.158233, 0.114809, 0.0724662, 0.0428271, 0.0248906, 0.0133792, 0.00731414, 0.00324073, 0.00159786, 0.000753919, 0.00022505, 5.62626e-05, 2.2505e-05}},
    {100, 0, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
    {5999905, 8.75328, {0.193112, 0.154205, 0.244044, 0.179802, 0.139286, 0.0669735, 0.0176633, 0.00344286, 0.000823292, 0.000399172, 0.000162164, 7.48447e-05, 1.24741e-05, 0, 0, 0, 0}},
    {100, 1, {0, 0, 0, 0, 0.125, 0, 0, 0.25, 0, 0, 0, 0.125, 0.125, 0.125, 0, 0.125, 0.125}},
    {100, 1, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}},
};
// clang-format on

StatusOr<LookupBatch> Generate(const LookupSpec& spec, const ReuseHistogram& histogram) {
  NS_ASSIGN_OR_RETURN(const LookupPlan plan, PlanLookups(spec, histogram));
  return ExpandLookups(plan);
}

StatusOr<LookupBatch> GenerateZipf(const LookupSpec& spec, double exponent) {
  NS_ASSIGN_OR_RETURN(const LookupPlan plan, PlanZipfLookups(spec, exponent));
  return ExpandLookups(plan);
}

std::uint64_t Fnv(std::uint64_t hash, std::uint64_t word) {
  for (int byte = 0; byte < 8; ++byte, word >>= 8) hash = (hash ^ (word & 0xff)) * 0x100000001b3;
  return hash;
}

// Of ids, offsets and weights (their bits).
std::uint64_t Digest(const LookupBatch& batch) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::int64_t id : batch.ids) hash = Fnv(hash, static_cast<std::uint64_t>(id));
  for (const std::int64_t offset : batch.offsets) {
    hash = Fnv(hash, static_cast<std::uint64_t>(offset));
  }
  for (const float weight : batch.weights) hash = Fnv(hash, std::bit_cast<std::uint32_t>(weight));
  return hash;
}

// A line: rows, batch size, pooling factor, weighted, seed, the histogram, the digest.
// client/python/neuroshard/worker/lookups_test.py reads the same file: both kinds of workers make
// the same ids.
TEST(LookupGeneratorTest, MakesTheLookupsOfTheFileThatPythonReadsToo) {
  std::ifstream file(std::string(NEUROSHARD_SOURCE_DIR) + "/kernels/indices/testdata/lookups.txt");
  int lines = 0;
  for (LookupSpec spec; file >> spec.rows; ++lines) {
    ReuseHistogram histogram;
    std::uint64_t digest = 0;
    file >> spec.batch_size >> spec.pooling_factor >> spec.weighted >> spec.seed;
    for (double& share : histogram) file >> share;
    file >> std::hex >> digest >> std::dec;
    ASSERT_TRUE(file.good());
    const StatusOr<LookupBatch> batch = Generate(spec, histogram);
    ASSERT_TRUE(batch.ok()) << batch.status();
    EXPECT_EQ(Digest(*batch), digest) << "line " << lines + 1;
  }
  EXPECT_EQ(lines, 24);
}

void ExpectWellFormed(const LookupBatch& batch, const LookupSpec& spec) {
  const std::int64_t lookups = NumLookups(spec.batch_size, spec.pooling_factor);
  ASSERT_EQ(static_cast<std::int64_t>(batch.ids.size()), lookups);
  ASSERT_EQ(static_cast<std::int64_t>(batch.offsets.size()), spec.batch_size + 1);
  EXPECT_EQ(batch.offsets.front(), 0);
  EXPECT_EQ(batch.offsets.back(), lookups);
  for (std::int64_t sample = 0; sample < spec.batch_size; ++sample) {
    const std::int64_t length = batch.offsets[sample + 1] - batch.offsets[sample];
    ASSERT_GE(length, lookups / spec.batch_size);
    ASSERT_LE(length, lookups / spec.batch_size + 1);
  }
  EXPECT_TRUE(std::all_of(batch.ids.begin(), batch.ids.end(),
                          [&](std::int64_t id) { return id >= 0 && id < spec.rows; }));
  EXPECT_EQ(batch.weights.size(), spec.weighted ? batch.ids.size() : 0);
}

class TraceTableTest : public ::testing::TestWithParam<TraceTable> {};

TEST_P(TraceTableTest, TheHistogramOfTheIdsIsTheRequestedOne) {
  const TraceTable& table = GetParam();
  // The full batch where it is quick, an eighth of it where it is not; there the rare bins round to
  // few ids.
  const std::int64_t batch_size = table.pooling_factor < 30 ? 65536 : 8192;
  const LookupSpec spec = {table.rows, batch_size, table.pooling_factor, false, 42};

  const auto batch = Generate(spec, table.histogram);

  ASSERT_TRUE(batch.ok()) << batch.status();
  ExpectWellFormed(*batch, spec);
  const ReuseHistogram measured = MeasureReuseHistogram(batch->ids);
  std::vector<std::int64_t> distinct = batch->ids;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  for (int bin = 0; bin < kReuseBins; ++bin) {
    EXPECT_NEAR(measured[bin], table.histogram[bin],
                9.0 / std::max<double>(1, static_cast<double>(distinct.size())))
        << bin;
  }
}

INSTANTIATE_TEST_SUITE_P(Dlrm2021, TraceTableTest, ::testing::ValuesIn(kTraceTables),
                         [](const auto& table) { return "table_" + std::to_string(table.index); });

LookupSpec SmallSpec() { return {1000, 256, 3.7, true, 7}; }

TEST(PlanLookupsTest, SeedDecidesEverything) {
  const auto a = Generate(SmallSpec(), DefaultReuseHistogram());
  const auto b = Generate(SmallSpec(), DefaultReuseHistogram());
  LookupSpec other = SmallSpec();
  other.seed = 8;
  const auto c = Generate(other, DefaultReuseHistogram());
  ExpectWellFormed(*a, SmallSpec());
  EXPECT_EQ(a->ids, b->ids);
  EXPECT_EQ(a->offsets, b->offsets);
  EXPECT_EQ(a->weights, b->weights);
  EXPECT_NE(a->ids, c->ids);
  EXPECT_NE(a->offsets, c->offsets);
}

TEST(PlanLookupsTest, RowsAndOrderAreScattered) {
  const LookupSpec spec = {1'000'000, 1000, 1.0, false, 3};
  const auto batch = Generate(spec, {1});
  double mean = 0;
  int ascending = 0;
  for (std::size_t i = 0; i < batch->ids.size(); ++i) {
    mean += static_cast<double>(batch->ids[i]) / 1000;
    ascending += i > 0 && batch->ids[i] > batch->ids[i - 1];
  }
  EXPECT_NEAR(mean, 500'000, 5 * 1e6 / std::sqrt(12 * 1000.0));
  EXPECT_NEAR(ascending, 500, 60);
  EXPECT_EQ(std::set<std::int64_t>(batch->ids.begin(), batch->ids.end()).size(), 1000);
}

TEST(PlanLookupsTest, LongerSamplesAreSpreadEvenly) {
  const LookupSpec spec = {1000, 10000, 0.25, false, 3};
  const auto batch = Generate(spec, {1, 1, 1});
  ExpectWellFormed(*batch, spec);
  for (int quarter = 1; quarter < 4; ++quarter) {
    EXPECT_NEAR(static_cast<double>(batch->offsets[quarter * 2500]), quarter * 625, 100);
  }
}

TEST(PlanLookupsTest, NoLookupsNeedNoHistogram) {
  const LookupSpec spec = {100, 64, 0, true, 1};
  const auto batch = Generate(spec, {});
  ASSERT_TRUE(batch.ok()) << batch.status();
  ExpectWellFormed(*batch, spec);
}

TEST(PlanLookupsTest, OneRowTakesAll) {
  const LookupSpec spec = {1, 100, 5, false, 1};
  const auto batch = Generate(spec, DefaultReuseHistogram());
  ASSERT_TRUE(batch.ok()) << batch.status();
  ExpectWellFormed(*batch, spec);
}

TEST(PlanLookupsTest, ValuesOutOfRangeAreNamed) {
  const auto error = [](auto change, ReuseHistogram histogram = DefaultReuseHistogram()) {
    LookupSpec spec = SmallSpec();
    change(spec);
    const Status status = Generate(spec, histogram).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return Message(status);
  };
  EXPECT_THAT(error([](LookupSpec& spec) { spec.rows = 0; }), HasSubstr("rows"));
  EXPECT_THAT(error([](LookupSpec& spec) { spec.batch_size = 0; }), HasSubstr("batch_size"));
  EXPECT_THAT(error([](LookupSpec& spec) { spec.pooling_factor = -1; }), HasSubstr("-1"));
  EXPECT_THAT(error([](LookupSpec& spec) { spec.pooling_factor = 1e300; }), HasSubstr("2^40"));
  EXPECT_THAT(error([](LookupSpec&) {}, {}), HasSubstr("reuse_histogram"));
  EXPECT_THAT(error([](LookupSpec&) {}, {1, -0.5}), HasSubstr("reuse_histogram[1]"));
  EXPECT_THAT(error([](LookupSpec&) {}, {std::numeric_limits<double>::quiet_NaN()}),
              HasSubstr("reuse_histogram[0]"));
}

TEST(PlanZipfLookupsTest, AgreesWithThePredictedHistogram) {
  const LookupSpec spec = {20000, 10000, 6, false, 5};
  const auto batch = GenerateZipf(spec, 1.05);
  ASSERT_TRUE(batch.ok()) << batch.status();
  ExpectWellFormed(*batch, spec);
  const ReuseHistogram measured = MeasureReuseHistogram(batch->ids);
  const ReuseHistogram predicted = ZipfReuseHistogram(20000, 60000, 1.05);
  for (int bin = 0; bin < kReuseBins; ++bin)
    EXPECT_NEAR(measured[bin], predicted[bin], 0.03) << bin;
}

TEST(PlanZipfLookupsTest, BadExponentIsNamed) {
  EXPECT_THAT(Message(GenerateZipf(SmallSpec(), -1).status()), HasSubstr("exponent"));
}

}  // namespace
}  // namespace neuroshard
