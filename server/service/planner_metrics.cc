#include "server/service/planner_metrics.h"

#include <optional>
#include <utility>

#include "common/base/failure_reason.h"
#include "common/observe/metric_families.h"
#include "server/cost/model_error.h"

namespace neuroshard {
namespace {

const prometheus::Histogram::BucketBoundaries kSearchSeconds = {
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};
const prometheus::Histogram::BucketBoundaries kCostSeconds = {
    1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10};
const prometheus::Histogram::BucketBoundaries kBoundRatios = {1.0001, 1.001, 1.003, 1.01, 1.03,
                                                              1.1,    1.3,   2,     5};

prometheus::Gauge& ModelGauge(prometheus::Registry& registry, const char* state) {
  return FamilyOf(registry, prometheus::BuildGauge(), "neuroshard_models",
                  "Cost model versions serving, and directories refused")
      .Add({{"state", state}});
}

}  // namespace

struct PlannerMetrics::Families {
  using Counters = prometheus::Family<prometheus::Counter>;
  using Gauges = prometheus::Family<prometheus::Gauge>;
  using Histograms = prometheus::Family<prometheus::Histogram>;

  explicit Families(prometheus::Registry& to) : registry(to) {}

  prometheus::Registry& registry;
  Histograms& search_seconds =
      FamilyOf(registry, prometheus::BuildHistogram(), "neuroshard_search_duration_seconds",
               "Time of searches that found a plan, by strategy");
  Counters& plans_evaluated =
      FamilyOf(registry, prometheus::BuildCounter(), "neuroshard_search_plans_evaluated_total",
               "Complete placements priced by searches, by strategy");
  Counters& plans =
      FamilyOf(registry, prometheus::BuildCounter(), "neuroshard_plans_total",
               "Plans made, by strategy, cost model and whether the search ran to its end");
  Histograms& plan_cost =
      FamilyOf(registry, prometheus::BuildHistogram(), "neuroshard_plan_cost_seconds",
               "Predicted cost of the plans made, by cost model");
  Histograms& bound_ratio = FamilyOf(
      registry, prometheus::BuildHistogram(), "neuroshard_plan_cost_bound_ratio",
      "Predicted cost of a plan to the lower bound of all plans, by strategy and cost model");
  Counters& plan_failures =
      FamilyOf(registry, prometheus::BuildCounter(), "neuroshard_plan_failures_total",
               "Calls for a plan that got none, by reason and cost model");
  Gauges& drift = FamilyOf(registry, prometheus::BuildGauge(), "neuroshard_model_drift_ratio",
                           "Measured / predicted since the cost model was made, median by stage");
  Gauges& drifted = FamilyOf(registry, prometheus::BuildGauge(), "neuroshard_model_drifted",
                             "1 where enough measurements say that the cost model no longer fits");
  Gauges& poor = FamilyOf(registry, prometheus::BuildGauge(), "neuroshard_model_poor",
                          "1 where the prices of the cost model should not be relied on");
  Gauges& default_model =
      FamilyOf(registry, prometheus::BuildGauge(), "neuroshard_default_model_info",
               "1 for the cost model of requests that name none");
  Gauges& share =
      FamilyOf(registry, prometheus::BuildGauge(), "neuroshard_model_share",
               "Share of the requests for a model without a version that this one prices");
  prometheus::Counter& rejected_plans =
      OneCounter(registry, "neuroshard_rejected_plans_total",
                 "Plans that failed the check on their way out: a fault of ours");
  prometheus::Gauge& models_serving = ModelGauge(registry, "serving");
  prometheus::Gauge& models_refused = ModelGauge(registry, "refused");
  prometheus::Counter& model_loads =
      OneCounter(registry, "neuroshard_model_loads_total",
                 "Cost model versions loaded, at the start and by reloads");
  prometheus::Counter& model_refusals =
      OneCounter(registry, "neuroshard_model_refusals_total",
                 "Cost model directories found bad, once for each content");
  prometheus::Counter& content_changes =
      OneCounter(registry, "neuroshard_model_content_changes_total",
                 "Cost model versions that were loaded with other files than before");
  prometheus::Gauge& last_poll = OneGauge(registry, "neuroshard_models_last_poll_timestamp_seconds",
                                          "When the model root was last read, Unix time");
  prometheus::Gauge& search_threads = OneGauge(registry, "neuroshard_search_threads",
                                               "Threads that the searches in flight may use");
  prometheus::Gauge& search_threads_limit =
      OneGauge(registry, "neuroshard_search_threads_limit",
               "Threads that all searches in flight may use together");
  prometheus::Gauge& request_memory = OneGauge(registry, "neuroshard_request_memory_bytes",
                                               "Estimated memory of the requests in flight");
  prometheus::Gauge& request_memory_limit =
      OneGauge(registry, "neuroshard_request_memory_limit_bytes",
               "Memory that all requests in flight may take together");
};

PlannerMetrics::PlannerMetrics(prometheus::Registry& registry)
    : families_(std::make_unique<Families>(registry)) {}

PlannerMetrics::~PlannerMetrics() = default;

void PlannerMetrics::PlanMade(const PlanAnswer& answer) {
  const Labels strategy = {{"strategy", answer.statistics.strategy}};
  const Labels model = {{"model", answer.model.name},
                        {"version", std::to_string(answer.model.version)}};
  families_->search_seconds.Add(strategy, kSearchSeconds).Observe(answer.search_ms / 1e3);
  families_->plans_evaluated.Add(strategy).Increment(
      static_cast<double>(answer.statistics.plans_evaluated));
  families_->plans
      .Add({{"strategy", answer.statistics.strategy},
            {"model", answer.model.name},
            {"version", std::to_string(answer.model.version)},
            {"outcome", answer.statistics.time_limit_reached ? "time_limit" : "complete"}})
      .Increment();
  families_->plan_cost.Add(model, kCostSeconds).Observe(answer.cost.embedding_cost_ms / 1e3);
  if (answer.lower_bound.has_value() && answer.lower_bound->cost_ms > 0) {
    Labels both = strategy;
    both.insert(model.begin(), model.end());
    families_->bound_ratio.Add(both, kBoundRatios)
        .Observe(answer.lower_bound->BoundedMs(answer.cost) / answer.lower_bound->cost_ms);
  }
}

void PlannerMetrics::PlanFailed(const Status& status, const CostModelRef& model) {
  const std::optional<FailureReason> reason = ReasonOf(status);
  families_->plan_failures
      .Add({{"reason", reason.has_value() ? std::string(ReasonText(*reason))
                                          : absl::StatusCodeToString(status.code())},
            {"model", model.name},
            {"version", model.name.empty() ? "" : std::to_string(model.version)}})
      .Increment();
}

void PlannerMetrics::SetSearchThreads(std::int64_t taken, std::int64_t limit) {
  families_->search_threads.Set(static_cast<double>(taken));
  families_->search_threads_limit.Set(static_cast<double>(limit));
}

void PlannerMetrics::SetRequestMemory(std::int64_t taken_bytes, std::int64_t limit_bytes) {
  families_->request_memory.Set(static_cast<double>(taken_bytes));
  families_->request_memory_limit.Set(static_cast<double>(limit_bytes));
}

void PlannerMetrics::PlanRejected() { families_->rejected_plans.Increment(); }

void PlannerMetrics::ModelsNow(const ModelSnapshot& models) {
  families_->models_serving.Set(static_cast<double>(models.loaded().size()));
  families_->models_refused.Set(static_cast<double>(models.refused().size()));
  const auto labels_of = [](const CostModel& model) {
    return Labels{{"model", model.info().name}, {"version", std::to_string(model.info().version)}};
  };
  std::map<Labels, double> drifts, drifted, poor, defaults, shares;
  for (const auto& model : models.loaded()) {
    const CostModelInfo& info = model->info();
    if (models.ShareOf(info) == 0) continue;
    poor[labels_of(*model)] = ReasonsAgainst(info).empty() ? 0 : 1;
    for (const StageDrift& drift : info.drift) {
      Labels labels = labels_of(*model);
      labels["stage"] = drift.stage;
      drifts[labels] = drift.median_ratio;
      drifted[labels] = HasDrifted(info, drift) ? 1 : 0;
    }
  }
  if (const auto model = models.Find({}); model.ok()) defaults[labels_of(**model)] = 1;
  for (const auto& model : models.models()) {
    if (const double share = models.ShareOf(model->info()); share > 0) {
      shares[labels_of(*model)] = share;
    }
  }
  const MutexLock lock(mutex_);
  Replace(families_->drift, drifts);
  Replace(families_->drifted, drifted);
  Replace(families_->poor, poor);
  Replace(families_->default_model, defaults);
  Replace(families_->share, shares);
}

void PlannerMetrics::ModelsReloaded(const ReloadReport& report, const ModelSnapshot& models) {
  families_->model_loads.Increment(static_cast<double>(report.loaded.size()));
  families_->content_changes.Increment(static_cast<double>(report.changed_content.size()));
  families_->model_refusals.Increment(static_cast<double>(report.refused.size()));
  if (report.root_status.ok()) families_->last_poll.SetToCurrentTime();
  ModelsNow(models);
}

void PlannerMetrics::Replace(prometheus::Family<prometheus::Gauge>& family,
                             const std::map<Labels, double>& values) {
  Gauges& gauges = gauges_[&family];
  Gauges gone = std::exchange(gauges, {});
  for (const auto& [labels, value] : values) {
    gauges[labels] = &family.Add(labels, value);  // a scrape before Set reads no 0
    gauges[labels]->Set(value);                   // of one that was there
    gone.erase(labels);
  }
  for (const auto& [labels, gauge] : gone) family.Remove(gauge);
}

}  // namespace neuroshard
