// Plans from files: an answer of the planner, or a bare plan, in JSON.
#include "common/codec/message_text.h"
#include "common/codec/plan_codec.h"
#include "neuroshard/v1/planner.pb.h"
#include "tests/fuzz/fuzz_target.h"

namespace neuroshard::fuzz {
namespace {

void ReadPlanBack(const v1::Plan& message) {
  const auto plan = DecodePlan(message);
  if (!plan.ok()) return;
  const auto again = DecodePlan(EncodePlan(*plan));
  Promise(again.ok() && *again == *plan, "EncodePlan is the inverse");
}

void ReadPlan(std::string_view input) {
  v1::ShardPlanResponse answer;
  v1::Plan plan;
  if (ParseMessageText(input, TextFormat::kJson, &answer).ok()) {
    ReadPlanBack(answer.plan());
    (void)DecodePlanCost(answer.cost());
  } else if (ParseMessageText(input, TextFormat::kJson, &plan).ok()) {
    ReadPlanBack(plan);
  }
}

std::vector<std::string> PlanSeeds() {
  v1::ShardPlanResponse answer;
  v1::Plan& plan = *answer.mutable_plan();
  plan.set_world_size(2);
  plan.set_local_world_size(2);
  for (const char* name : {"users", "items"}) {
    v1::TablePlan& table = *plan.add_tables();
    table.set_name(name);
    table.set_compute_kernel("fused");
    table.set_sharding_type("column_wise");
    for (int rank = 0; rank < 2; ++rank) {
      v1::Shard& shard = *table.add_shards();
      shard.set_rows(1000);
      shard.set_cols(16);
      shard.set_col_offset(16 * rank);
      shard.set_rank(rank);
    }
  }
  for (int rank = 0; rank < 2; ++rank)
    answer.mutable_cost()->add_ranks()->set_forward_compute_ms(1);
  answer.mutable_cost_model()->set_name("m");
  return Joined(SeedsFrom("client/python/testdata", ".json"),
                {MessageToJson(answer), MessageToJson(plan)});
}

}  // namespace

FuzzTarget PlanTextTarget() { return {"plan_text", ReadPlan, PlanSeeds}; }

}  // namespace neuroshard::fuzz
