#include "server/search/run_search.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "common/base/failure_reason.h"
#include "common/base/violations.h"
#include "common/domain/table_names.h"
#include "server/evaluate/rules/list_text.h"
#include "server/search/baselines/baselines.h"
#include "server/search/core/search_context.h"
#include "server/search/distributed_embeddings/distributed_embeddings_strategy.h"
#include "server/search/goals/second_goals.h"
#include "server/search/hugectr/hugectr_strategy.h"
#include "server/search/neuroshard/neuroshard_strategy.h"
#include "server/search/refine/refine_strategy.h"

namespace neuroshard {
namespace {

// Null when there is no strategy of that name.
Strategy StrategyOf(std::string_view name) {
  const auto greedy = [](TableLoad load) {
    return [load](SearchContext& context) { return RunGreedyBaseline(context, load); };
  };
  const auto slices = [](SlicePlacement placement) {
    return [placement](SearchContext& context) {
      return RunDistributedEmbeddings(context, placement);
    };
  };
  if (name == "neuroshard") return RunNeuroShard;
  if (name == "refine") return RunRefine;
  if (name == "random") return RunRandomBaseline;
  if (name == "size_greedy") return greedy(TableLoad::kSize);
  if (name == "dim_greedy") return greedy(TableLoad::kDim);
  if (name == "lookup_greedy") return greedy(TableLoad::kLookup);
  if (name == "size_lookup_greedy") return greedy(TableLoad::kSizeLookup);
  if (name == "basic") return slices(SlicePlacement::kBasic);
  if (name == "memory_balanced") return slices(SlicePlacement::kMemoryBalanced);
  if (name == "memory_optimized") return slices(SlicePlacement::kMemoryOptimized);
  if (name == "hugectr_auto") return RunHugeCtr;
  return nullptr;
}

// NeuroShard's baselines.
bool KeepsTablesWhole(std::string_view strategy) {
  return strategy == "random" || strategy.ends_with("_greedy");
}

Status CheckDemands(const PlanRequest& request) {
  const std::string& strategy = request.search.strategy;
  if (strategy == kObeysConstraints) return absl::OkStatus();
  Violations violations;
  if (!request.constraints.empty()) {
    violations.Add("search.strategy", "'{}' obeys no constraints; '{}' does", strategy,
                   kObeysConstraints);
  }
  if (request.has_copies_in_host_memory()) {
    violations.Add("search.strategy",
                   "'{}' does not know that copies of stashed tables take host memory; '{}' does",
                   strategy, kObeysConstraints);
  }
  if (request.has_unpooled_tables() && !KeepsTablesWhole(strategy)) {
    violations.Add(
        "search.strategy",
        "'{}' does not know what TorchRec runs of unpooled tables (kind \"embedding\"); '{}' does",
        strategy, kObeysConstraints);
  }
  if (const std::vector<int> wide = request.too_wide_tables(); !wide.empty()) {
    const KernelLimits& limits = request.kernels();
    violations.Add("search.strategy",
                   "'{}' does not know that {} takes at most {} columns a shard, which {} must be "
                   "cut for; '{}' does",
                   strategy, limits.kernels, limits.max_columns,
                   ListText(TableNames(request.tables).ReferencesTo(wide)), kObeysConstraints);
  }
  if (request.migration.has_value()) {
    violations.Add("search.strategy", "'{}' starts from no previous plan; '{}' does", strategy,
                   kObeysConstraints);
  }
  return violations.ToStatus();
}

// The failure of a strategy that knows device memory alone, or was not asked to offload, where
// there is more.
Status SayWhatItKeepsTo(const PlanRequest& request, const Status& failure) {
  if (request.search.strategy == kObeysConstraints || request.topology.host_memory_bytes.empty() ||
      request.search.distributed_embeddings.gpu_embedding_size_elements.has_value() ||
      failure.code() != absl::StatusCode::kFailedPrecondition) {
    return failure;
  }
  return WithPayloadsOf(
      failure, WithReason(FailedPrecondition("'{}' keeps to device memory, '{}' puts tables into "
                                             "host memory too; in device memory alone: {}",
                                             request.search.strategy, kObeysConstraints,
                                             std::string(failure.message())),
                          FailureReason::kNoPlanFound));
}

StatusOr<SearchResult> Search(const PlanRequest& request, const BoundCostModel& model,
                              const StopSignal& stop, SearchObserver* observer,
                              const JobRunner& runner) {
  const Strategy strategy = StrategyOf(request.search.strategy);
  if (strategy == nullptr) {
    Violations violations;
    violations.Add("search.strategy", "must be one of {}, got '{}'",
                   fmt::join(kStrategyNames, ", "), request.search.strategy);
    return violations.ToStatus();
  }
  NS_RETURN_IF_ERROR(CheckDemands(request));
  const SearchForCost search_for_cost = [&](const PlanRequest& of, const StopSignal& until,
                                            SearchObserver* watcher) {
    SearchContext context(of, model, until, watcher, &runner);
    return context.Finish(strategy(context));
  };
  const bool has_second_goals =
      !request.search.goals.empty() ||
      (request.memory.dense_bytes > 0 && request.search.strategy == kObeysConstraints);
  StatusOr<SearchResult> result =
      has_second_goals ? SearchByGoals(request, model, stop, observer, search_for_cost)
                       : search_for_cost(request, stop, observer);
  if (!result.ok()) return SayWhatItKeepsTo(request, result.status());
  return result;
}

}  // namespace

StatusOr<SearchResult> RunSearch(const PlanRequest& request, const BoundCostModel& model,
                                 const StopSignal& stop, SearchObserver* observer) {
  return Search(request, model, stop, observer, SerialRunner());
}

SearchOnRunner SearchOn(const JobRunner& runner) {
  return [&runner](const PlanRequest& request, const BoundCostModel& model, const StopSignal& stop,
                   SearchObserver* observer) {
    return Search(request, model, stop, observer, runner);
  };
}

}  // namespace neuroshard
