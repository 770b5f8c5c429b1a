// ShardPlan from its bytes on the wire to its answer: admission, decoding, a short search,
// encoding.
#include <algorithm>

#include "common/codec/fingerprint.h"
#include "server/service/planner_messages.h"
#include "tests/fuzz/wire_request.h"

namespace neuroshard::fuzz {
namespace {

constexpr int kLooks = 300;

void MakePlan(std::string_view input) {
  const auto message = Admitted<v1::ShardPlanRequest>(input);
  if (!message.has_value()) return;
  auto request = DecodePlanRequest(*message, kSmallLimits);
  if (!request.ok()) return;
  // Work that no stop cuts.
  request->search.beam_width = std::min(request->search.beam_width, 3);
  request->search.num_candidates = std::min(request->search.num_candidates, 10);
  request->search.hugectr.iterations = std::min(request->search.hugectr.iterations, 20);
  request->search.time_budget.reset();
  const StopAfterLooks stop(kLooks);
  const auto answer = SmallPlanner().MakePlan(*request, stop, nullptr);
  if (!answer.ok()) {
    Promise(!absl::IsInternal(answer.status()), Message(answer.status()));
    return;
  }
  const auto fingerprint = RequestFingerprint(*request, answer->model.name, answer->model.version);
  const std::string bytes = EncodePlanAnswer(*request, *answer, fingerprint).SerializeAsString();
  Promise(!bytes.empty(), "a plan is encoded");
}

std::vector<std::string> PlanRequestSeeds() {
  std::vector<std::string> seeds;
  for (v1::ShardPlanRequest request : SmallRequests(8)) {
    seeds.push_back(request.SerializeAsString());
    for (const char* strategy : {"neuroshard", "size_greedy", "memory_optimized", "hugectr_auto"}) {
      request.mutable_search()->set_strategy(strategy);
      seeds.push_back(request.SerializeAsString());
    }
  }
  return seeds;
}

}  // namespace

FuzzTarget PlanRequestTarget() { return {"plan_request", MakePlan, PlanRequestSeeds}; }

}  // namespace neuroshard::fuzz
