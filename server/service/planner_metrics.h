// Metrics of a planner, besides those that every RPC server has. Labels are bounded: strategies and
// reasons are the ones there are, models those that were served.
//   neuroshard_search_duration_seconds{strategy}        histogram of searches that found a plan
//   neuroshard_search_plans_evaluated_total{strategy}   complete placements priced
//   neuroshard_plans_total{strategy,model,version,outcome}
//                                                       outcome: complete or time_limit
//   neuroshard_plan_cost_bound_ratio{strategy}          histogram of cost / lower bound
//   neuroshard_plan_failures_total{reason}              ShardPlan calls without a plan;
//                                                       ErrorInfo.reason, else the status code
//   neuroshard_rejected_plans_total                     plans that failed the check before they
//                                                       were sent
//   neuroshard_models{state}                            versions serving, directories refused
//   neuroshard_default_model_info{model,version}        1 for the model of requests that name none;
//                                                       no series where there is none
//   neuroshard_model_share{model,version}               share of the requests for a model without a
//                                                       version that this version prices; no
//                                                       series for 0
//   neuroshard_models_last_poll_timestamp_seconds       when the root was last read
//   neuroshard_model_drift_ratio{model,version,stage}   measured / predicted since the model was
//                                                       made
//   neuroshard_model_loads_total                        versions loaded, at the start and by
//                                                       reloads
//   neuroshard_model_refusals_total                     directories found bad, once for each
//                                                       content
#pragma once

#include <map>
#include <string>

#include "common/base/mutex.h"
#include "server/models/model_repository.h"
#include "server/planner/planner.h"

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

  void PlanMade(const PlanAnswer& answer);
  void PlanFailed(const Status& status);
  void PlanRejected();
  void ModelsLoaded(std::size_t count);
  void ModelsRefused(std::size_t count);
  // Numbers, drift and default of what is served; gauges of what is not go.
  void ModelsNow(const ModelSnapshot& models);
  void ModelRootRead();

 private:
  using Labels = std::map<std::string, std::string>;
  // The gauges of one family that are there, by labels.
  using Gauges = std::map<Labels, prometheus::Gauge*>;
  static void Replace(prometheus::Family<prometheus::Gauge>& family, Gauges& gauges,
                      const std::map<Labels, double>& values);

  prometheus::Family<prometheus::Histogram>& search_seconds_;
  prometheus::Family<prometheus::Counter>& plans_evaluated_;
  prometheus::Family<prometheus::Counter>& plans_;
  prometheus::Family<prometheus::Histogram>& bound_ratio_;
  prometheus::Family<prometheus::Counter>& plan_failures_;
  prometheus::Family<prometheus::Gauge>& drift_;
  prometheus::Family<prometheus::Gauge>& default_model_;
  prometheus::Family<prometheus::Gauge>& share_;
  prometheus::Counter& rejected_plans_;
  prometheus::Gauge& models_serving_;
  prometheus::Gauge& models_refused_;
  prometheus::Counter& model_loads_;
  prometheus::Counter& model_refusals_;

  prometheus::Gauge& last_poll_;
  Mutex mutex_;
  Gauges drift_gauges_ NS_GUARDED_BY(mutex_);
  Gauges default_gauges_ NS_GUARDED_BY(mutex_);
  Gauges share_gauges_ NS_GUARDED_BY(mutex_);
};

}  // namespace neuroshard
