#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/pretrain/data/comm_records.h"
#include "server/pretrain/testing/synthetic_records.h"
#include "server/pretrain/train/model_training.h"

namespace neuroshard {
namespace {

// Exchanges in `dtype` whose casts take so long, on top of what SyntheticCommRecords cost.
std::vector<CommRecord> Exchanges(DataType dtype, const CastRates& rates) {
  std::vector<CommRecord> records = SyntheticCommRecords(40, 2);
  std::erase_if(records, [](const CommRecord& record) {
    return record.sample.collective != Collective::kAllToAll;
  });
  for (CommRecord& record : records) {
    record.sample.wire_dtype = dtype;
    record.sample.element_bytes = 2;
    for (std::size_t rank = 0; rank < record.cost_ms.size(); ++rank) {
      const double ms = rates.Ms(CastValues(record.sample, rank));
      record.cost_ms[rank] += ms;
      record.environments[rank].properties[std::string(kCastsProperty)] = fmt::format("{}", ms);
    }
  }
  return records;
}

TEST(CastFitTest, FindsBothRatesAndWhatIsCached) {
  const CastRates truth = {0.05, 1e6, 0.15};
  std::vector<CastObservation> observations;
  for (int i = 1; i <= 101; ++i) observations.push_back({i * 4e4, truth.Ms(i * 4e4)});
  const CastRates found = FitCasts(observations);
  EXPECT_NEAR(found.cached_values, truth.cached_values, 4e4);
  EXPECT_NEAR(found.ns_per_value, truth.ns_per_value, 1e-3);
  EXPECT_NEAR(found.ns_per_value_beyond, truth.ns_per_value_beyond, 5e-3);
}

TEST(CastFitTest, ARateThatFallsIsOneRate) {
  std::vector<CastObservation> observations;
  for (int i = 1; i <= 20; ++i) observations.push_back({i * 1e5, 0.01 + i * 1e5 * 0.1 / 1e6});
  const CastRates found = FitCasts(observations);
  EXPECT_EQ(found.ns_per_value, found.ns_per_value_beyond);
  EXPECT_GT(found.ns_per_value, 0.1);
  EXPECT_EQ(FitCasts(std::vector<CastObservation>{{1e6, 2}}), (CastRates{2, 0, 2}));
}

TEST(CastTrainingTest, ValuesAreThoseSentAndThoseReceived) {
  const CommSample sample = {
      .sample_id = "s", .dim_sums = {3, 5}, .start_offsets_ms = {}, .batch_size = 8};
  EXPECT_EQ(CastValues(sample, 0), 8 * 3 + 4 * (3 + 5));
  EXPECT_EQ(CastValues(sample, 1), 8 * 5 + 4 * (3 + 5));
}

TEST(CastTrainingTest, EachTypeHasTheRatesOfItsOwnCasts) {
  std::vector<CommRecord> records = Exchanges(DataType::kFp16, {0.5, 0, 0.5});
  const std::vector<CommRecord> bf16 = Exchanges(DataType::kBf16, {0.75, 0, 0.75});
  records.insert(records.end(), bf16.begin(), bf16.end());
  TrainingOutcome outcome;
  TrainCasts(CastsAlone(records), PresetConfig(TrainingPreset::kUniversal), outcome);
  const MeasuredCasts& casts = outcome.manifest.casts;
  EXPECT_NEAR(casts.fp16.value().ns_per_value_beyond, 0.5, 1e-6);
  EXPECT_NEAR(casts.bf16.value().ns_per_value_beyond, 0.75, 1e-6);
  ASSERT_EQ(outcome.reports.size(), 2U);
  EXPECT_EQ(outcome.reports[0].key, "casts.fp16");
  EXPECT_LT(outcome.reports[0].held_out.mape_percent, 1e-3);
  EXPECT_GT(outcome.reports[0].measured_ms.size(), 0U);
}

TEST(CastTrainingTest, TooFewOfATypeLeaveWhatWasThere) {
  TrainingOutcome outcome;
  outcome.manifest.casts.fp16 = CastRates{2, 1, 3};
  const MeasuredCasts before = outcome.manifest.casts;
  std::vector<CommRecord> few = CastsAlone(Exchanges(DataType::kFp16, {0.5, 0, 0.5}));
  few.resize(1);
  TrainCasts(few, PresetConfig(TrainingPreset::kUniversal), outcome);
  EXPECT_EQ(outcome.manifest.casts, before);
}

TEST(CastTrainingTest, AnExchangeIsItsCastsAndTheRest) {
  const CastRates rates = {0.5, 0, 0.5};
  const std::vector<CommRecord> plain = WithoutCasts(Exchanges(DataType::kFp16, {}));
  std::vector<CommRecord> records = Exchanges(DataType::kFp16, rates);
  records.back().environments[1].properties.clear();  // does not say
  records.front().environments[0].properties[std::string(kCastsProperty)] = "1e9";
  const std::vector<CommRecord> without = WithoutCasts(records);
  const std::vector<CommRecord> alone = CastsAlone(records);
  ASSERT_EQ(without.size(), records.size() - 2);
  ASSERT_EQ(alone.size(), without.size());
  for (std::size_t i = 0; i < without.size(); ++i) {
    EXPECT_EQ(without[i].sample, plain[i + 1].sample);
    EXPECT_EQ(without[i].sample.wire_dtype, DataType::kFp32);
    EXPECT_EQ(alone[i].sample, records[i + 1].sample);
    for (std::size_t rank = 0; rank < without[i].cost_ms.size(); ++rank) {
      EXPECT_NEAR(without[i].cost_ms[rank], plain[i + 1].cost_ms[rank], 1e-9);
      EXPECT_NEAR(alone[i].cost_ms[rank], rates.Ms(CastValues(alone[i].sample, rank)), 1e-9);
    }
  }
  EXPECT_TRUE(CastsAlone(plain).empty());
  EXPECT_TRUE(CastsAlone(Exchanges(DataType::kFp16, {})).empty()) << "casts of 0 ms";
}

}  // namespace
}  // namespace neuroshard
