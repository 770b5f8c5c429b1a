#include "server/search/refine/refine_strategy.h"

#include <algorithm>
#include <vector>

#include "server/search/neuroshard/neuroshard_strategy.h"
#include "server/search/refine/kept_tables.h"
#include "server/search/refine/local_search.h"
#include "server/search/refine/plan_units.h"
#include "server/search/refine/starts.h"

namespace neuroshard {
namespace {

// Tables x ranks up to which `neuroshard` is run first, and at all: last, in case local search ends
// above it.
constexpr std::size_t kMostForNeuroShardFirst = 256;
constexpr std::size_t kMostForNeuroShard = 20'000;

// Passes on what a strategy inside this one finds, where it is cheaper.
class Relay final : public SearchObserver {
 public:
  explicit Relay(SearchContext& context) : context_(context) {}

  void OnImprovement(const SearchResult& result) override {
    if (context_.has_plan() && result.cost.embedding_cost_ms >= context_.best_cost_ms()) return;
    if (status_.ok()) status_ = context_.ImproveIfCheaper(result.plan).status();
  }
  void OnProgress(double share) override { context_.ReportProgress(0.3 * share); }

  const Status& status() const { return status_; }

 private:
  SearchContext& context_;
  Status status_;
};

Status RunInside(const Strategy& strategy, SearchContext& context) {
  Relay relay(context);
  SearchContext inner(context.request(), context.model(), context.stop(), &relay);
  const Status status = strategy.Search(inner);
  context.statistics().plans_evaluated += inner.statistics().plans_evaluated;
  context.statistics().compute_evaluations += inner.statistics().compute_evaluations;
  NS_RETURN_IF_ERROR(relay.status());
  return status;
}

class RefineSearch {
 public:
  explicit RefineSearch(SearchContext& context)
      : context_(context),
        request_(context.request()),
        rules_(request_, TypeSet(context.model().info().sharding_types)),
        layouts_(request_, rules_),
        book_(context),
        memo_(context, book_),
        solution_(request_, rules_, book_),
        pricer_(context, book_, memo_),
        starts_(context, rules_, layouts_, book_, pricer_) {}

  Status Run() {
    if (request_.migration.has_value()) return RunFromPrevious();
    NS_RETURN_IF_ERROR(starts_.FindLegal(solution_));
    if (context_.ShouldStop()) return absl::OkStatus();
    if (!context_.has_plan()) NS_RETURN_IF_ERROR(PublishSolution());
    const std::size_t size = request_.tables.size() * request_.topology.devices.size();
    const bool neuroshard_first = IsForNeuroShard() && size <= kMostForNeuroShardFirst;
    if (neuroshard_first) NS_RETURN_IF_ERROR(RunInside(NeuroShardStrategy(), context_));
    if (context_.ShouldStop()) return absl::OkStatus();
    if (starts_.FindCheap(solution_)) NS_RETURN_IF_ERROR(PublishSolution());
    NS_RETURN_IF_ERROR(SearchFromBest());
    if (neuroshard_first || !IsForNeuroShard() || size > kMostForNeuroShard ||
        context_.ShouldStop()) {
      return absl::OkStatus();
    }
    const double before_ms = context_.best_cost_ms();
    NS_RETURN_IF_ERROR(RunInside(NeuroShardStrategy(), context_));
    return context_.best_cost_ms() < before_ms ? SearchFromBest() : absl::OkStatus();
  }

 private:
  Status PublishSolution() {
    const std::vector<Unit> units = solution_.Units();
    return context_.ImproveIfCheaper(MakePlan(request_, solution_, units)).status();
  }

  // First with everything kept that can be, then with more and more of it free to move. Where what
  // moves has a price, the smaller steps are there for the objective to choose from.
  Status RunFromPrevious() {
    const TypeSet default_types(context_.model().info().sharding_types);
    const std::vector<const TablePlan*> stay = TablesThatCanStay(request_, default_types);
    const Migration& migration = *request_.migration;
    bool copies = false;
    for (const TableRules& of : rules_.tables()) {
      copies = copies || of.types.contains(ShardingType::kDataParallel);
    }
    const double all = BytesOf(request_, stay) * (copies ? rules_.num_ranks() : 1);
    const double most =
        migration.budget_bytes ? std::min(all, static_cast<double>(*migration.budget_bytes)) : all;
    Status failure;
    for (const double share : {0.0, 0.25, 0.5, 1.0}) {
      if (share > 0 && (most == 0 || context_.ShouldStop())) break;
      if (share > 0 && share < 1 && migration.price_ms_per_gib == 0 && context_.has_plan())
        continue;
      Keep(KeepAllBut(request_, stay, share * most, copies));
      if (!context_.has_plan()) {
        failure = starts_.FindLegal(solution_);
        if (context_.stopped()) return absl::OkStatus();
        if (!failure.ok()) continue;
        if (!context_.has_plan()) NS_RETURN_IF_ERROR(PublishSolution());
        if (!context_.has_plan()) continue;
      }
      NS_RETURN_IF_ERROR(SearchFromBest());
    }
    if (context_.has_plan() || context_.stopped()) return absl::OkStatus();
    if (!failure.ok()) return failure;
    return FailedPrecondition(
        "no plan was found that moves no more than migration.budget_bytes; it is not proven that "
        "there is none");
  }

  void Keep(const std::vector<const TablePlan*>& kept) {
    solution_.Keep(kept, {});
    Plan plan;
    for (const TablePlan* const table : kept) {
      if (table != nullptr) plan.tables.push_back(*table);
    }
    solution_.Keep(kept, UnitsOf(request_, layouts_, plan, book_, solution_));
  }

  Status SearchFromBest() {
    if (context_.ShouldStop()) return absl::OkStatus();
    LoadPlan(request_, layouts_, context_.best_plan(), book_, solution_);
    pricer_.PriceSolution(solution_);
    return LocalSearch(context_, rules_, layouts_, book_, memo_, pricer_, solution_).Run();
  }

  // Whether its plans are legal here.
  bool IsForNeuroShard() const {
    const TypeSet types{ShardingType::kTableWise, ShardingType::kColumnWise};
    return request_.constraints.empty() && !request_.migration.has_value() &&
           (rules_.of(0).types & types) == types;
  }

  SearchContext& context_;
  const PlanRequest& request_;
  const CompiledRules rules_;
  const TableLayouts layouts_;
  ShardBook book_;
  ComputeMemo memo_;
  Solution solution_;
  ExchangePricer pricer_;
  Starts starts_;
};

}  // namespace

Status RefineStrategy::Search(SearchContext& context) const { return RefineSearch(context).Run(); }

}  // namespace neuroshard
