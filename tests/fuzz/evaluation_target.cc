// EvaluatePlan from its bytes on the wire to its answer: somebody else's plan against all rules.
#include "common/codec/plan_codec.h"
#include "server/service/planner_messages.h"
#include "tests/fuzz/wire_request.h"

namespace neuroshard::fuzz {
namespace {

void Evaluate(std::string_view input) {
  const auto message = Admitted<v1::EvaluatePlanRequest>(input);
  if (!message.has_value()) return;
  const auto decoded = DecodeEvaluationRequest(*message, kSmallLimits);
  if (!decoded.ok()) return;
  const auto answer = SmallPlanner().EvaluatePlan(decoded->request, decoded->plan);
  if (!answer.ok()) {
    Promise(!absl::IsInternal(answer.status()), Message(answer.status()));
    return;
  }
  Promise(answer->has_cost() || !answer->violations.empty(), "a legal plan has a price");
  (void)EncodeEvaluation(decoded->request, *answer).SerializeAsString();
}

std::vector<std::string> EvaluationSeeds() {
  std::vector<std::string> seeds;
  for (const v1::ShardPlanRequest& request : SmallRequests(5)) {
    v1::EvaluatePlanRequest message;
    *message.mutable_request() = request;
    seeds.push_back(message.SerializeAsString());
    const auto decoded = DecodePlanRequest(request, kSmallLimits);
    if (!decoded.ok()) continue;
    const StopAfterLooks stop(100);
    const auto answer = SmallPlanner().MakePlan(*decoded, stop, nullptr);
    if (!answer.ok()) continue;
    *message.mutable_plan() = EncodePlan(answer->plan);
    seeds.push_back(message.SerializeAsString());
    // The plan that is in place.
    *message.mutable_request()->mutable_migration()->mutable_previous() = message.plan();
    message.mutable_request()->mutable_search()->set_explain(true);
    seeds.push_back(message.SerializeAsString());
  }
  return seeds;
}

}  // namespace

FuzzTarget EvaluationTarget() { return {"evaluation", Evaluate, EvaluationSeeds}; }

}  // namespace neuroshard::fuzz
