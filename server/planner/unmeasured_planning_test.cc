// The planner and a shipped model, at conditions that the model was not measured at.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "server/networks/model_manifest.h"
#include "server/networks/network_cost_model.h"
#include "server/planner/planner.h"
#include "server/search/run_search.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::FakeClock;
using ::neuroshard::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Tables of one rank each, and a plan of them that the tests change.
class UnmeasuredPlanningTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Load("4");
    request_.global_batch_size = 1024;
    request_.search.refine_steps = 100;
    plan_.world_size = plan_.local_world_size = 2;
    for (int t = 0; t < 4; ++t) {
      Table& table = request_.tables.emplace_back();
      table.name = "t" + std::to_string(t);
      table.num_embeddings = 400'000;
      table.embedding_dim = 64;
      table.pooling_factor = 8;
      table.reuse_histogram[0] = 1;  // every id once
      TablePlan& of_table = plan_.tables.emplace_back();
      of_table.name = table.name;
      of_table.shards = {{0, table.num_embeddings, 0, table.embedding_dim, t % 2}};
    }
    request_.topology.devices.assign(2, {.host = 0, .memory_bytes = std::int64_t{1} << 33});
    request_.topology.bandwidths.host_to_device_bytes_per_s = 1e9;
    request_.topology.compute_device = ComputeDevice::kCpu;
  }

  void Load(const std::string& version) {
    const auto directory = std::filesystem::path(NEUROSHARD_SOURCE_DIR) / "configs" / "models" /
                           "cpu-amd-epyc" / version;
    NS_ASSERT_OK_AND_ASSIGN(const ModelManifest manifest, ReadModelManifest(directory));
    NS_ASSERT_OK_AND_ASSIGN(model_, LoadCostModel(manifest, directory));
  }
  Planner MakePlanner() const {
    return Planner([this](const PlanRequest&) { return std::vector{model_}; }, RunSearch, clock_);
  }
  PlanAnswer Evaluate() const {
    auto answer = MakePlanner().EvaluatePlan(request_, plan_);
    EXPECT_THAT(answer, IsOk());
    return *std::move(answer);
  }
  double Cost() const { return Evaluate().cost.embedding_cost_ms; }
  void GiveHostMemory() { request_.topology.host_memory_bytes = {std::int64_t{1} << 40}; }

  FakeClock clock_;
  NeverStop never_;
  std::shared_ptr<const CostModel> model_;
  PlanRequest request_;
  Plan plan_;
};

TEST_F(UnmeasuredPlanningTest, HostMemoryThatNobodyUsesChangesNothing) {
  const PlanAnswer before = Evaluate();
  GiveHostMemory();
  const PlanAnswer after = Evaluate();
  EXPECT_EQ(after.cost, before.cost);
  EXPECT_EQ(after.basis, before.basis);
  EXPECT_EQ(after.warnings, before.warnings);
  EXPECT_TRUE(after.cost.interval.has_value());
}

TEST_F(UnmeasuredPlanningTest, RowsInHostMemoryCostTheirTrafficAndTheAnswerSaysSo) {
  const double on_device_ms = Cost();
  GiveHostMemory();
  plan_.tables[0].compute_kernel = ComputeKernel::kFusedUvm;
  const PlanAnswer answer = Evaluate();
  EXPECT_GT(answer.cost.embedding_cost_ms, 2 * on_device_ms);
  EXPECT_FALSE(answer.cost.interval.has_value());
  EXPECT_EQ(answer.basis.kind, BasisKind::kMixed);
  EXPECT_THAT(answer.basis.differences,
              ElementsAre(HasSubstr("rows in host memory were not measured")));
  EXPECT_THAT(answer.warnings, ElementsAre(HasSubstr("rows in host memory were not measured")));

  double before_ms = answer.cost.embedding_cost_ms;
  plan_.tables[0].compute_kernel = ComputeKernel::kFusedUvmCaching;
  for (const double load_factor : {0.05, 0.2, 0.5, 0.9}) {
    plan_.tables[0].cache_load_factor = load_factor;
    const double now_ms = Cost();
    EXPECT_LT(now_ms, before_ms);
    EXPECT_GT(now_ms, on_device_ms);
    before_ms = now_ms;
  }
  plan_.tables[0].cache_load_factor = 1;
  EXPECT_EQ(Cost(), on_device_ms);
  request_.pipeline_type = PipelineType::kTrainPrefetchSparseDist;
  plan_.tables[0].cache_load_factor = 0.5;
  EXPECT_LT(Cost(), before_ms * 2);
}

// Such a plan breaks a rule, and is not cheap besides.
TEST_F(UnmeasuredPlanningTest, RowsInHostMemoryThatIsNotThereArePricedToo) {
  const double on_device_ms = Cost();
  plan_.tables[0].compute_kernel = ComputeKernel::kFusedUvm;
  EXPECT_GT(Cost(), 2 * on_device_ms);
}

TEST_F(UnmeasuredPlanningTest, SsdsThatNoRuleNamesChangeNothing) {
  const PlanAnswer before = Evaluate();
  request_.topology.ssd_bytes = {std::int64_t{1} << 40};
  const PlanAnswer after = Evaluate();
  EXPECT_EQ(after.cost, before.cost);
  EXPECT_EQ(after.basis, before.basis);
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer with, MakePlanner().MakePlan(request_, never_, nullptr));
  request_.topology.ssd_bytes.clear();
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer without,
                          MakePlanner().MakePlan(request_, never_, nullptr));
  EXPECT_EQ(with.plan, without.plan);
}

TEST_F(UnmeasuredPlanningTest, RowsOnSsdCostWhatTheirCachesMissAndTheAnswerSaysSo) {
  const double on_device_ms = Cost();
  request_.topology.ssd_bytes = {std::int64_t{1} << 40};
  request_.topology.bandwidths.ssd_bytes_per_s = 5e8;
  plan_.tables[0].compute_kernel = ComputeKernel::kKeyValue;
  double before_ms = 1e9;
  for (const double load_factor : {0.05, 0.2, 0.5, 0.9}) {
    plan_.tables[0].cache_load_factor = load_factor;
    const double now_ms = Cost();
    EXPECT_LT(now_ms, before_ms);
    EXPECT_GT(now_ms, on_device_ms);
    before_ms = now_ms;
  }
  plan_.tables[0].cache_load_factor = 0.2;
  const PlanAnswer answer = Evaluate();
  EXPECT_FALSE(answer.cost.interval.has_value());
  EXPECT_EQ(answer.basis.kind, BasisKind::kMixed);
  EXPECT_THAT(answer.basis.differences, ElementsAre(HasSubstr("rows on SSD (key_value) were not")));
  // Larger caches, on the device or in host memory, read less.
  request_.tables[0].l2_cache_bytes = std::int64_t{1} << 25;
  EXPECT_LT(Cost(), answer.cost.embedding_cost_ms);
  request_.tables[0].l2_cache_bytes = 0;
  request_.tables[0].max_l1_cache_bytes = std::int64_t{1} << 20;
  EXPECT_GT(Cost(), answer.cost.embedding_cost_ms);
}

// Version 5 was measured at every optimizer and without pooling.
TEST_F(UnmeasuredPlanningTest, AModelThatLearnedThemPricesThemItself) {
  request_.tables[0].kind = TableKind::kEmbedding;
  request_.optimizer = Optimizer::kLamb;
  const double by_formula_ms = Cost();
  Load("5");
  const PlanAnswer answer = Evaluate();
  EXPECT_EQ(answer.basis.kind, BasisKind::kMixed);
  EXPECT_THAT(answer.basis.differences, ElementsAre(HasSubstr("the exchange of unpooled tables")));
  EXPECT_NE(answer.cost.embedding_cost_ms, by_formula_ms);
  EXPECT_TRUE(answer.cost.interval.has_value());
  request_.tables[0].kind = TableKind::kEmbeddingBag;
  const PlanAnswer pooled = Evaluate();
  EXPECT_EQ(pooled.basis.kind, BasisKind::kMeasured);
  EXPECT_THAT(pooled.warnings, ElementsAre(HasSubstr("FBGEMM on CPUs trains with")));
  EXPECT_LT(pooled.cost.embedding_cost_ms, answer.cost.embedding_cost_ms);
  EXPECT_LT(pooled.cost.ranks[0].compute_ms, answer.cost.ranks[0].compute_ms);
}

TEST_F(UnmeasuredPlanningTest, PlansOfSuchRequestsSayWhatWasAdded) {
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer plain,
                          MakePlanner().MakePlan(request_, never_, nullptr));
  EXPECT_EQ(plain.basis.kind, BasisKind::kMeasured);
  EXPECT_THAT(plain.warnings, IsEmpty());
  request_.tables[0].kind = TableKind::kEmbedding;
  request_.tables[1].weight_dtype = DataType::kInt8;
  request_.quantized_comms.forward_dtype = DataType::kBf16;
  request_.optimizer = Optimizer::kPartialRowwiseAdam;
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer answer,
                          MakePlanner().MakePlan(request_, never_, nullptr));
  EXPECT_EQ(answer.basis.kind, BasisKind::kMixed);
  EXPECT_THAT(answer.basis.differences,
              ElementsAre(HasSubstr("unpooled tables"), HasSubstr("rows of int8"),
                          HasSubstr("exchanges in bf16"),
                          HasSubstr("partial_rowwise_adam was not measured: priced as rowwise")));
  EXPECT_GT(answer.cost.embedding_cost_ms, plain.cost.embedding_cost_ms);  // eight times the bytes
  EXPECT_FALSE(answer.cost.interval.has_value());
  NS_ASSERT_OK_AND_ASSIGN(const PlanAnswer evaluation,
                          MakePlanner().EvaluatePlan(request_, answer.plan));
  EXPECT_EQ(evaluation.cost, answer.cost);
  EXPECT_EQ(evaluation.basis, answer.basis);
}

}  // namespace
}  // namespace neuroshard
