#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/pretrain/data/cast_observation.h"
#include "server/pretrain/testing/synthetic_records.h"
#include "server/pretrain/train/universal_stages.h"

namespace neuroshard {
namespace {

// Exchanges in `dtype` whose casts take so much a value, on top of what SyntheticCommRecords cost.
std::vector<CommRecord> Exchanges(DataType dtype, double ns_per_value) {
  std::vector<CommRecord> records = SyntheticCommRecords(40, 2);
  std::erase_if(records, [](const CommRecord& record) {
    return record.sample.collective != Collective::kAllToAll;
  });
  for (CommRecord& record : records) {
    record.sample.wire_dtype = dtype;
    record.sample.element_bytes = 2;
    for (std::size_t rank = 0; rank < record.cost_ms.size(); ++rank) {
      const double ms = CastValues(record.sample, rank) * ns_per_value / 1e6;
      record.cost_ms[rank] += ms;
      record.environments[rank].properties[std::string(kCastsProperty)] = fmt::format("{}", ms);
    }
  }
  return records;
}

TEST(CastTrainingTest, ValuesAreThoseSentAndThoseReceived) {
  const CommSample sample = {
      .sample_id = "s", .dim_sums = {3, 5}, .start_offsets_ms = {}, .batch_size = 8};
  EXPECT_EQ(CastValues(sample, 0), 8 * 3 + 4 * (3 + 5));
  EXPECT_EQ(CastValues(sample, 1), 8 * 5 + 4 * (3 + 5));
}

TEST(CastTrainingTest, EachTypeHasTheRateOfItsOwnCasts) {
  std::vector<CommRecord> records = Exchanges(DataType::kFp16, 0.5);
  const std::vector<CommRecord> bf16 = Exchanges(DataType::kBf16, 0.75);
  records.insert(records.end(), bf16.begin(), bf16.end());
  TrainingOutcome outcome;
  TrainCasts(CastsOf(records), PresetConfig(TrainingPreset::kUniversal), outcome);
  EXPECT_NEAR(outcome.manifest.casts.fp16_ns_per_value.value(), 0.5, 1e-6);
  EXPECT_NEAR(outcome.manifest.casts.bf16_ns_per_value.value(), 0.75, 1e-6);
  ASSERT_EQ(outcome.reports.size(), 2U);
  EXPECT_EQ(outcome.reports[0].key, "casts.fp16");
  EXPECT_LT(outcome.reports[0].held_out.mape_percent, 1e-3);
  EXPECT_GT(outcome.reports[0].measured_ms.size(), 0U);
}

TEST(CastTrainingTest, TooFewOfATypeLeaveWhatWasThere) {
  TrainingOutcome outcome;
  outcome.manifest.casts.fp16_ns_per_value = 2;
  TrainCasts({{DataType::kFp16, 1e6, 1}}, PresetConfig(TrainingPreset::kUniversal), outcome);
  EXPECT_EQ(outcome.manifest.casts, (MeasuredCasts{.fp16_ns_per_value = 2}));
}

TEST(CastTrainingTest, WithoutItsCastsAnExchangeCostsWhatItDid) {
  const std::vector<CommRecord> plain = WithoutCasts(Exchanges(DataType::kFp16, 0));
  std::vector<CommRecord> records = Exchanges(DataType::kFp16, 0.5);
  records.back().environments[1].properties.clear();  // does not say
  records.front().environments[0].properties[std::string(kCastsProperty)] = "1e9";
  const std::vector<CommRecord> without = WithoutCasts(records);
  ASSERT_EQ(without.size(), records.size() - 2);
  for (std::size_t i = 0; i < without.size(); ++i) {
    EXPECT_EQ(without[i].sample, plain[i + 1].sample);
    EXPECT_EQ(without[i].sample.wire_dtype, DataType::kFp32);
    for (std::size_t rank = 0; rank < without[i].cost_ms.size(); ++rank) {
      EXPECT_NEAR(without[i].cost_ms[rank], plain[i + 1].cost_ms[rank], 1e-9);
    }
  }
  EXPECT_EQ(CastsOf(records).size(), 2 * records.size() - 2);
}

}  // namespace
}  // namespace neuroshard
