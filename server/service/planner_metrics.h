// Metrics of a planner, besides those of every RPC server; server/README.md lists them. Label
// values are bounded: strategies and reasons of fixed lists, and models that were served.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "common/base/mutex.h"
#include "common/observe/prometheus_types.h"
#include "server/models/model_repository.h"
#include "server/planner/planner.h"

namespace neuroshard {

// Counts searches, and models served and refused. Thread-safe.
class PlannerMetrics {
 public:
  // `registry` must outlive the metrics.
  explicit PlannerMetrics(prometheus::Registry& registry);
  ~PlannerMetrics();

  void PlanMade(const PlanAnswer& answer);
  // `model` is the one that would have priced the plan, without a name where that is not known.
  void PlanFailed(const Status& status, const CostModelRef& model = {});
  void PlanRejected();
  void SetSearchThreads(std::int64_t taken, std::int64_t limit);
  void SetRequestMemory(std::int64_t taken_bytes, std::int64_t limit_bytes);
  // Sets the numbers, shares, verdicts and default of the served models; gauges of others are
  // removed.
  void ModelsNow(const ModelSnapshot& models);
  // Counts what a reload found, and sets what it left (ModelsNow).
  void ModelsReloaded(const ReloadReport& report, const ModelSnapshot& models);

 private:
  struct Families;
  using Labels = std::map<std::string, std::string>;
  using Gauges = std::map<Labels, prometheus::Gauge*>;
  // Sets the gauges of a family to these values; all others of it are removed.
  void Replace(prometheus::Family<prometheus::Gauge>& family,
               const std::map<Labels, double>& values) NS_REQUIRES(mutex_);

  const std::unique_ptr<Families> families_;
  Mutex mutex_;
  // Existing gauges of each family that has other labels now and then.
  std::map<prometheus::Family<prometheus::Gauge>*, Gauges> gauges_ NS_GUARDED_BY(mutex_);
};

}  // namespace neuroshard
