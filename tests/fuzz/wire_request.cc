#include "tests/fuzz/wire_request.h"

#include "common/base/clock.h"

namespace neuroshard::fuzz {

const Planner& SmallPlanner() {
  static const SteadyClock clock;
  static const Planner planner(
      [](const PlanRequest&) -> StatusOr<std::vector<std::shared_ptr<const CostModel>>> {
        return std::vector<std::shared_ptr<const CostModel>>{MakeAnalyticCostModel()};
      },
      RunSearch, clock);
  return planner;
}

std::vector<v1::ShardPlanRequest> SmallRequests(int max_tables) {
  std::vector<v1::ShardPlanRequest> requests;
  for (const char* folder : {"configs/workloads", "common/codec/testdata"}) {
    for (const std::string& text : SeedsFrom(folder, ".yaml")) {
      v1::ShardPlanRequest request;
      // Lists of tables and sets to be predicted are there as well.
      if (!ParseMessageText(text, TextFormat::kYaml, &request).ok()) continue;
      while (request.tables_size() > max_tables) request.mutable_tables()->RemoveLast();
      requests.push_back(std::move(request));
    }
  }
  Promise(!requests.empty(), "there are shipped requests");
  return requests;
}

}  // namespace neuroshard::fuzz
