#include "server/service/planner_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <utility>

namespace neuroshard {
namespace {

prometheus::Counter& OneCounter(prometheus::Registry& registry, const char* name,
                                const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add({});
}

prometheus::Gauge& ModelGauge(prometheus::Registry& registry, const char* state) {
  return prometheus::BuildGauge()
      .Name("neuroshard_models")
      .Help("Cost model versions serving, and directories refused")
      .Register(registry)
      .Add({{"state", state}});
}

}  // namespace

PlannerMetrics::PlannerMetrics(prometheus::Registry& registry)
    : search_seconds_(prometheus::BuildHistogram()
                          .Name("neuroshard_search_duration_seconds")
                          .Help("Time of searches that found a plan, by strategy")
                          .Register(registry)),
      plans_(prometheus::BuildCounter()
                 .Name("neuroshard_plans_total")
                 .Help("Plans made, by strategy and by whether the search ran to its end")
                 .Register(registry)),
      drift_(prometheus::BuildGauge()
                 .Name("neuroshard_model_drift_ratio")
                 .Help("Measured / predicted since the cost model was made, median by stage")
                 .Register(registry)),
      rejected_plans_(OneCounter(registry, "neuroshard_rejected_plans_total",
                                 "Plans that failed the check on their way out: a fault of ours")),
      models_serving_(ModelGauge(registry, "serving")),
      models_refused_(ModelGauge(registry, "refused")),
      model_loads_(OneCounter(registry, "neuroshard_model_loads_total",
                              "Cost model versions loaded, at the start and by reloads")),
      model_refusals_(OneCounter(registry, "neuroshard_model_refusals_total",
                                 "Cost model directories found bad, once for each content")) {}

void PlannerMetrics::PlanMade(const SearchStatistics& statistics, double search_ms) {
  search_seconds_
      .Add({{"strategy", statistics.strategy}},
           prometheus::Histogram::BucketBoundaries{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                   0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300})
      .Observe(search_ms / 1e3);
  plans_
      .Add({{"strategy", statistics.strategy},
            {"outcome", statistics.time_limit_reached ? "time_limit" : "complete"}})
      .Increment();
}

void PlannerMetrics::PlanRejected() { rejected_plans_.Increment(); }

void PlannerMetrics::ModelsLoaded(std::size_t count) {
  model_loads_.Increment(static_cast<double>(count));
}

void PlannerMetrics::ModelsRefused(std::size_t count) {
  model_refusals_.Increment(static_cast<double>(count));
}

void PlannerMetrics::ModelsNow(std::size_t serving, std::size_t refused) {
  models_serving_.Set(static_cast<double>(serving));
  models_refused_.Set(static_cast<double>(refused));
}

void PlannerMetrics::DriftNow(const std::vector<std::shared_ptr<const CostModel>>& models) {
  const MutexLock lock(drift_mutex_);
  auto gone = std::move(drift_gauges_);
  drift_gauges_.clear();
  for (const auto& model : models) {
    for (const StageDrift& drift : model->info().drift) {
      const std::map<std::string, std::string> labels = {
          {"model", model->info().name},
          {"version", std::to_string(model->info().version)},
          {"stage", drift.stage}};
      prometheus::Gauge& gauge = drift_.Add(labels);
      gauge.Set(drift.median_ratio);
      drift_gauges_[labels] = &gauge;
      gone.erase(labels);
    }
  }
  for (const auto& [labels, gauge] : gone) drift_.Remove(gauge);
}

}  // namespace neuroshard
