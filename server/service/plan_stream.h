// PlanStream: sends the improvements of one search to the caller.
#pragma once

#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/domain/plan_request.h"
#include "neuroshard/v1/planner.pb.h"
#include "server/planner/planner.h"
#include "server/service/update_stream.h"

namespace neuroshard {

// Writes every improvement, and progress at most every 50 ms. A caller that reads slowly holds the
// search up, until the stream's write timeout cancels the call.
class PlanStream final : public PlanObserver {
 public:
  // All outlive the stream.
  PlanStream(const PlanRequest& request, const Clock& clock, UpdateStream& writer)
      : request_(request), clock_(clock), writer_(writer) {}

  void OnImprovement(const PlanAnswer& answer) override;
  void OnProgress(double share) override;

 private:
  void Write(v1::ShardPlanUpdate& update);

  const PlanRequest& request_;
  const Clock& clock_;
  UpdateStream& writer_;
  std::string fingerprint_;  // of the request with the model, once known
  double best_cost_ms_ = 0;
  double progress_ = 0;
  std::optional<TimePoint> last_write_;
};

}  // namespace neuroshard
