#include "server/cost/model_error.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <string>

namespace neuroshard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A universal model of which nothing is known to be wrong.
CostModelInfo GoodModel() {
  CostModelInfo model;
  model.kind = kUniversalKind;
  model.coverage.max_ranks = 8;
  model.properties.interval_coverage = 0.9;
  model.typical_errors = {{"compute", 0.1}, {"forward_comm", 0.2}, {"backward_comm", 0.2}};
  for (const char* stage : {"compute", "forward_comm", "all_reduce"}) {
    const std::string metrics = fmt::format("metrics.{}.", stage);
    model.details[metrics + "mape_percent"] = "10.5";
    model.details[metrics + "samples"] = "40";
    model.details[metrics + "interval_coverage"] = "0.88";
  }
  return model;
}

TEST(ModelErrorTest, NothingIsHeldAgainstAGoodModelNorAgainstOneThatSaysNothing) {
  EXPECT_THAT(ReasonsAgainst(GoodModel()), IsEmpty());
  EXPECT_THAT(ReasonsAgainst(CostModelInfo()), IsEmpty());
  CostModelInfo model;
  model.details = {{"metrics.compute.mape_percent", "214.5"}, {"metrics.compute.samples", "many"}};
  EXPECT_THAT(ReasonsAgainst(model), IsEmpty());
}

TEST(ModelErrorTest, EveryStageIsHeldToItsErrorItsSamplesAndItsIntervals) {
  for (const char* stage : {"compute", "forward_comm", "all_reduce"}) {
    const std::string metrics = fmt::format("metrics.{}.", stage);
    CostModelInfo model = GoodModel();
    model.details[metrics + "mape_percent"] = "141.2";
    EXPECT_THAT(ReasonsAgainst(model),
                ElementsAre(HasSubstr(fmt::format("{} is 141% off on 40 held-out", stage))));
    model = GoodModel();
    model.details[metrics + "samples"] = "9";
    EXPECT_THAT(ReasonsAgainst(model),
                ElementsAre(HasSubstr(fmt::format("{} was held against 9 samples", stage))));
    model = GoodModel();
    model.details[metrics + "interval_coverage"] = "0.5";
    EXPECT_THAT(ReasonsAgainst(model),
                ElementsAre(HasSubstr(fmt::format("90% intervals of {} hold 50% of 40", stage))));
    model = GoodModel();
    model.details[metrics + "mape_percent"] = "nan";
    EXPECT_EQ(ReasonsAgainst(model).size(), 1U) << stage;
  }
}

TEST(ModelErrorTest, NetworksForEachNumberOfRanksAreStagesAndPartsOfAStageAreNot) {
  CostModelInfo model = GoodModel();
  for (const char* part : {"compute.adam", "compute.before", "forward_comm.ranks_2"}) {
    model.details[fmt::format("metrics.{}.mape_percent", part)] = "900";
    model.details[fmt::format("metrics.{}.samples", part)] = "3";
  }
  EXPECT_THAT(ReasonsAgainst(model), IsEmpty());
  std::erase_if(model.details, [](const auto& entry) {
    return entry.first.starts_with("metrics.forward_comm.") &&
           !entry.first.starts_with("metrics.forward_comm.ranks_2");
  });
  EXPECT_THAT(ReasonsAgainst(model),
              ElementsAre(HasSubstr("forward_comm.ranks_2 was held against 3")));
}

TEST(ModelErrorTest, AUniversalModelHasIntervalsOfWhatItMeasured) {
  CostModelInfo model = GoodModel();
  model.typical_errors.erase("compute");
  EXPECT_THAT(ReasonsAgainst(model), ElementsAre("its compute has no intervals"));
  model = GoodModel();
  model.typical_errors.erase("forward_comm");
  EXPECT_THAT(ReasonsAgainst(model), ElementsAre("its communication has no intervals"));
  model.coverage.comm_fabric = "published";
  EXPECT_THAT(ReasonsAgainst(model), IsEmpty()) << "its communication is not measured";
  model = GoodModel();
  model.unusable_reason = "tau 0.3";
  EXPECT_THAT(ReasonsAgainst(model), ElementsAre("it is marked as unusable: tau 0.3"));
}

StageDrift Drift(const char* stage, double ratio, std::int64_t samples, double spread = 1) {
  return {stage, samples, ratio, ratio / spread, ratio * spread, "", ""};
}

TEST(ModelErrorTest, DriftIsWhatIsFurtherOffThanUsual) {
  CostModelInfo model;
  model.typical_errors["compute"] = 0.1;
  EXPECT_FALSE(HasDrifted(model, Drift("compute", 1.09, 40)));
  EXPECT_TRUE(HasDrifted(model, Drift("compute", 1.11, 40)));
  EXPECT_FALSE(HasDrifted(model, Drift("compute", 0.92, 40)));
  EXPECT_TRUE(HasDrifted(model, Drift("compute", 0.9, 40)));
  EXPECT_FALSE(HasDrifted(model, Drift("all_reduce", 1.24, 40)));
  EXPECT_TRUE(HasDrifted(model, Drift("all_reduce", 0.79, 40)));
}

TEST(ModelErrorTest, FewSamplesAndWideOnesDoNotTellOfDrift) {
  CostModelInfo model;
  model.typical_errors["compute"] = 0.1;
  for (std::int64_t samples = 1; samples < kTellingSamples; ++samples) {
    EXPECT_FALSE(HasDrifted(model, Drift("compute", 100, samples)));
  }
  EXPECT_TRUE(HasDrifted(model, Drift("compute", 1.2, kTellingSamples)));
  EXPECT_FALSE(HasDrifted(model, Drift("compute", 1.2, kTellingSamples, 2)));
  EXPECT_TRUE(HasDrifted(model, Drift("compute", 1.2, 1000, 2)));
}

}  // namespace
}  // namespace neuroshard
