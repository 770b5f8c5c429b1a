#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/pretrain/data/comm_records.h"
#include "server/pretrain/testing/synthetic_records.h"
#include "server/pretrain/train/model_training.h"

namespace neuroshard {
namespace {

class WarningsObserver final : public TrainingObserver {
 public:
  void OnEpoch(const EpochReport&) override {}
  void OnFinished(const EpochReport&, const std::string&) override {}
  void OnWarning(const std::string& warning) override { warnings.push_back(warning); }
  std::vector<std::string> warnings;
};

// Distributions whose times are those of `truth`, measured on so many hosts.
std::vector<CommRecord> Distributions(int count, const InputDistRates& truth, int num_hosts) {
  Random random(5);
  std::vector<CommRecord> records = SyntheticCommRecords(count, truth.num_ranks);
  for (CommRecord& record : records) {
    InputDistSample input;
    for (int rank = 0; rank < truth.num_ranks; ++rank) {
      input.whole_features.push_back(random.Between(1, 30));
      input.whole_ids.push_back(100 * random.UniformReal());
      record.environments[rank].hostname = std::to_string(rank * num_hosts / truth.num_ranks);
    }
    input.cut_features = random.Between(0, 10);
    input.cut_ids = input.cut_features == 0 ? 0 : 50 * random.UniformReal();
    record.sample.input_dist = input;
    const double ms = truth.fixed_ms + truth.Ms(ObservationOf(record).bytes);
    record.cost_ms.assign(record.cost_ms.size(), ms);
  }
  return records;
}

class InputDistTrainingTest : public ::testing::Test {
 protected:
  void Train(const std::vector<std::vector<CommRecord>>& parts) {
    std::vector<CommRecord> records;
    for (const auto& part : parts) records.insert(records.end(), part.begin(), part.end());
    EXPECT_TRUE(TrainInputDist(records, config_, context_, outcome_).ok());
  }
  const MeasuredInputDist& Learned() const { return outcome_.manifest.input_dist->measured; }

  TrainingConfig config_ = PresetConfig(TrainingPreset::kUniversal);
  WarningsObserver observer_;
  NeverStop stop_;
  FitContext context_ = {&stop_, 1, &observer_, nullptr};
  TrainingOutcome outcome_;
};

constexpr InputDistRates kOfTwo{2, 0.5, 2, 4, 1};
constexpr InputDistRates kOfFour{4, 0.9, 3, 6, 2};

void ExpectRates(const InputDistRates& rates, const InputDistRates& truth) {
  EXPECT_EQ(rates.num_ranks, truth.num_ranks);
  EXPECT_NEAR(rates.fixed_ms, truth.fixed_ms, 1e-6);
  EXPECT_NEAR(rates.whole_ns_per_byte, truth.whole_ns_per_byte, 1e-6);
  EXPECT_NEAR(rates.cut_ns_per_byte, truth.cut_ns_per_byte, 1e-6);
}

TEST_F(InputDistTrainingTest, HostsCountWhereRatesAreLearned) {
  Train({Distributions(60, kOfTwo, 1), Distributions(3, kOfFour, 4)});
  ASSERT_EQ(Learned().rates.size(), 1u);
  ExpectRates(Learned().rates[0], kOfTwo);
  EXPECT_EQ(Learned().max_hosts, 1);
}

TEST_F(InputDistTrainingTest, RatesOfRanksThatAreNotMeasuredAgainStay) {
  Train({Distributions(60, kOfFour, 2)});
  EXPECT_EQ(Learned().max_hosts, 2);
  Train({Distributions(60, kOfTwo, 1)});
  ASSERT_EQ(Learned().rates.size(), 2u);
  ExpectRates(Learned().rates[0], kOfTwo);
  ExpectRates(Learned().rates[1], kOfFour);
  EXPECT_EQ(Learned().max_hosts, 2);

  const InputDistRates faster{2, 0.25, 1, 2, 0.5};
  Train({Distributions(60, faster, 1)});
  ASSERT_EQ(Learned().rates.size(), 2u);
  ExpectRates(Learned().rates[0], faster);

  Train({Distributions(2, kOfTwo, 1)});
  ASSERT_EQ(Learned().rates.size(), 2u);
  EXPECT_THAT(observer_.warnings,
              ::testing::ElementsAre(::testing::HasSubstr("distribution of ids stays as it was")));
}

}  // namespace
}  // namespace neuroshard
