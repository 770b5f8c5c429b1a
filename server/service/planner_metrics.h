// Metrics of a planner, besides those that every RPC server has. Labels are bounded: strategies are
// the ones there are.
//   neuroshard_search_duration_seconds{strategy}        histogram of searches that found a plan
//   neuroshard_plans_total{strategy,outcome}            outcome: complete or time_limit
//   neuroshard_rejected_plans_total                     plans that failed the check before they
//                                                       were sent
//   neuroshard_models{state}                            versions serving, directories refused
//   neuroshard_model_drift_ratio{model,version,stage}   measured / predicted since the model was
//                                                       made
//   neuroshard_model_loads_total                        versions loaded, at the start and by
//                                                       reloads
//   neuroshard_model_refusals_total                     directories found bad, once for each
//                                                       content
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "server/cost/cost_model.h"
#include "server/search/search_result.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
class Registry;
template <typename T>
class Family;
}  // namespace prometheus

namespace neuroshard {

// Thread-safe.
class PlannerMetrics {
 public:
  // `registry` must outlive this.
  explicit PlannerMetrics(prometheus::Registry& registry);

  void PlanMade(const SearchStatistics& statistics, double search_ms);
  void PlanRejected();
  void ModelsLoaded(std::size_t count);
  void ModelsRefused(std::size_t count);
  void ModelsNow(std::size_t serving, std::size_t refused);
  // Of the models that are loaded now; others' gauges go.
  void DriftNow(const std::vector<std::shared_ptr<const CostModel>>& models);

 private:
  prometheus::Family<prometheus::Histogram>& search_seconds_;
  prometheus::Family<prometheus::Counter>& plans_;
  prometheus::Family<prometheus::Gauge>& drift_;
  prometheus::Counter& rejected_plans_;
  prometheus::Gauge& models_serving_;
  prometheus::Gauge& models_refused_;
  prometheus::Counter& model_loads_;
  prometheus::Counter& model_refusals_;

  Mutex drift_mutex_;
  // By labels.
  std::map<std::map<std::string, std::string>, prometheus::Gauge*> drift_gauges_
      NS_GUARDED_BY(drift_mutex_);
};

}  // namespace neuroshard
