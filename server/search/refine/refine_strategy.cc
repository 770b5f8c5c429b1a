#include "server/search/refine/refine_strategy.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/failure_reason.h"
#include "common/domain/memory_pools.h"
#include "common/domain/memory_use.h"
#include "server/evaluate/migration_report.h"
#include "server/evaluate/price_plan.h"
#include "server/search/conflict/find_any_plan.h"
#include "server/search/core/fixed_tables.h"
#include "server/search/core/merge_shards.h"
#include "server/search/feasibility/migration_repair.h"
#include "server/search/neuroshard/neuroshard_strategy.h"
#include "server/search/placement/placement.h"
#include "server/search/refine/batch_descent.h"
#include "server/search/refine/initial/initial_solutions.h"
#include "server/search/refine/local_search.h"
#include "server/search/refine/objective/workbench.h"
#include "server/search/refine/solution/plan_units.h"

namespace neuroshard {
namespace {

// Tables x ranks up to which `neuroshard` is run first, and at all: last, in case local search ends
// above it. Where its kind of plan is all there is, it is worth half of a default budget.
constexpr std::size_t kMaxForNeuroShardFirst = 256;
constexpr std::size_t kMaxForNeuroShardFirstOfColumns = 1024;
constexpr std::size_t kMaxTablesForNeuroShardFirst = 64;
constexpr std::size_t kMaxForNeuroShard = 4'096;
constexpr std::size_t kMaxForNeuroShardOfColumns = 20'000;
// What its plans are made of.
constexpr TypeSet kNeuroShardTypes{ShardingType::kTableWise, ShardingType::kColumnWise};

// The largest share of device memory that all tables take where host memory and SSDs are left
// alone.
constexpr double kPlentyOfDeviceMemory = 0.5;

// Passes on what `neuroshard` inside this one finds, where it is cheaper.
class Relay final : public SearchObserver {
 public:
  explicit Relay(SearchContext& context) : context_(context) {}

  void OnImprovement(const SearchResult& result) override {
    if (context_.has_plan() && result.cost.embedding_cost_ms >= context_.best_cost_ms()) return;
    if (status_.ok()) status_ = context_.ImproveIfCheaper(result.plan).status();
  }
  void OnProgress(double share) override { context_.ReportProgress(kShareOfSearch * share); }

  const Status& status() const { return status_; }

 private:
  static constexpr double kShareOfSearch = 0.3;

  SearchContext& context_;
  Status status_;
};

Status RunNeuroShardInside(SearchContext& context) {
  Relay relay(context);
  SearchContext inner(context.request(), context.model(), context.stop(), &relay);
  const Status status = RunNeuroShard(inner);
  context.CountInside(inner);
  NS_RETURN_IF_ERROR(relay.status());
  // It may know of no plan where others are legal than it makes.
  return context.has_plan() && absl::IsFailedPrecondition(status) ? absl::OkStatus() : status;
}

// A bench, and where its search may begin anew. For one thread, and one search at a time.
struct Searcher {
  Searcher(SearchContext& context, const CompiledRules& rules, const TableLayouts& layouts)
      : bench(context, rules, layouts), initial(bench) {}

  // `start`: SearchLocally's.
  Status SearchFrom(const Plan& plan, int start) {
    bench.Load(plan);
    return SearchLocally(bench, initial, start);
  }

  Workbench bench;
  InitialSolutions initial;
};

// A search beside the first one.
struct Companion {
  // `work_ns`: what the first one had done when both began.
  Companion(const SearchContext& main, double work_ns, const CompiledRules& rules,
            const TableLayouts& layouts)
      : context(main.request(), main.model(), main.stop(), nullptr),
        searcher(context, rules, layouts) {
    context.Begin(main.stage());
    context.StartWithWork(work_ns);
  }

  SearchContext context;
  Searcher searcher;
  Status status;
};

// Whether there is so much device memory that no table has a reason to leave it.
bool HasPlentyOfDeviceMemory(const PlanRequest& request, const CompiledRules& rules) {
  if (!rules.has_off_device() || request.migration.has_value()) return false;
  double bytes = 0;
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    const std::vector<int>& residencies = *rules.of(static_cast<int>(t)).residencies;
    if (std::ranges::find(residencies, 0) == residencies.end()) return false;
    const Table& table = request.tables[t];
    const ShardLayout whole = LayoutIn({}, ShardingType::kTableWise, 1);
    bytes += static_cast<double>(
        ShardMemory(request, table, whole, table.num_embeddings, table.embedding_dim)
            .total_bytes());
  }
  double room = 0;
  for (const std::int64_t of_rank : AvailableBytes(request)) {
    room += static_cast<double>(std::max<std::int64_t>(0, of_rank));
  }
  return bytes <= kPlentyOfDeviceMemory * room;
}

// One stage of the strategy, in the memories that its rules know: initial solutions, `neuroshard`
// where it is quick, local searches side by side, and for a plan in place more and more tables that
// may move.
class RefineSearch {
 public:
  // Where no construction finds a plan: any is looked for, and proofs that there is none; or all are
  // tried if they are few; or nothing. A long search for a plan in fewer memories, which need not
  // exist, would take the next stage's time.
  enum class IfNoneIsFound { kLookFurther, kTryFew, kGiveUp };

  RefineSearch(SearchContext& context, const CompiledRules& rules, IfNoneIsFound if_none)
      : context_(context),
        if_none_(if_none),
        request_(context.request()),
        rules_(rules),
        layouts_(request_, rules_),
        searcher_(context, rules_, layouts_) {}

  Status Run() {
    NS_RETURN_IF_ERROR(FindBest());
    return UseFasterMemories();
  }

 private:
  Status FindBest() {
    if (request_.migration.has_value()) return RunFromPrevious();
    NS_RETURN_IF_ERROR(FindFirst());
    if (context_.ShouldStop()) return absl::OkStatus();
    const std::size_t size = request_.tables.size() * request_.topology.devices.size();
    const bool columns_alone = rules_.of(0).types == kNeuroShardTypes;
    const bool few_columns =
        columns_alone && request_.tables.size() <= kMaxTablesForNeuroShardFirst;
    const bool neuroshard_first =
        IsForNeuroShard() &&
        size <= (few_columns ? kMaxForNeuroShardFirstOfColumns : kMaxForNeuroShardFirst);
    if (neuroshard_first) NS_RETURN_IF_ERROR(RunNeuroShardInside(context_));
    if (context_.ShouldStop()) return absl::OkStatus();
    NS_RETURN_IF_ERROR(SearchFromCheap());
    // Local search moves table by table, and does not get from few cut tables to all.
    if (searcher_.initial.CutAll()) NS_RETURN_IF_ERROR(PublishSolution());
    if (neuroshard_first || !IsForNeuroShard() ||
        size > (columns_alone ? kMaxForNeuroShardOfColumns : kMaxForNeuroShard) ||
        context_.ShouldStop()) {
      return absl::OkStatus();
    }
    const double before_ms = context_.best_cost_ms();
    NS_RETURN_IF_ERROR(RunNeuroShardInside(context_));
    if (context_.best_cost_ms() >= before_ms) return absl::OkStatus();
    return SearchFrom(context_.best_plan());
  }

  // Local search looks at the costliest rank; tables elsewhere may be in slow memories for nothing.
  // All that device memory has room for go there, where the plan costs no more for it, then what is
  // slower than hosts' memory to the faster ones; and caches of the others take what is left of
  // device memory, all a step at a time. Not every model says what a cache saves (TorchRec's
  // formulas do not), so a search alone would leave the smallest.
  Status UseFasterMemories() {
    NS_RETURN_IF_ERROR(PromoteTo(MemoryTier::kDevice).status());
    const MemoryTier slowest = rules_.slowest_tier();
    if (slowest <= MemoryTier::kHost) return absl::OkStatus();
    for (const SharedMemory& memory : rules_.shared_memories()) {
      if (memory.tier < slowest) NS_RETURN_IF_ERROR(PromoteTo(memory.tier).status());
    }
    while (true) {
      NS_ASSIGN_OR_RETURN(const bool promoted, PromoteTo(slowest));
      if (!promoted) return absl::OkStatus();
    }
  }

  // The faster residencies of a table in `tier`, largest caches first, or where it is there, and
  // that is slower than its host's memory, the next larger cache.
  std::vector<Residency> FasterResidencies(std::size_t t, const TablePlan& table,
                                           MemoryTier tier) const {
    std::vector<Residency> faster;
    const MemoryTier now = TierOf(table.compute_kernel);
    if (now < tier || (now == tier && tier <= MemoryTier::kHost)) return faster;
    for (const int position : *rules_.of(static_cast<int>(t)).residencies) {
      const Residency& residency = rules_.residency(position);
      if (residency.tier() != tier ||
          !rules_.Allows(static_cast<int>(t), position, table.sharding_type)) {
        continue;
      }
      if (tier < now) {
        faster.insert(faster.begin(), residency);
      } else if (faster.empty() && residency.cache_load_factor > table.cache_load_factor) {
        faster.push_back(residency);
      }
    }
    return faster;
  }

  // Gives tables of the best plan, one after the other, the first of their faster residencies in
  // `tier` for which all memories have room, where the plan costs no more for it. Whether it did.
  StatusOr<bool> PromoteTo(MemoryTier tier) {
    if (!rules_.has_off_device() || request_.migration.has_value() || !context_.has_plan() ||
        context_.ShouldStop()) {
      return false;
    }
    Plan plan = context_.best_plan();
    MemoryPools pools(request_);
    // The shards' bytes, taken or given back, on their ranks.
    const auto count = [&](std::size_t t, const TablePlan& table, int sign) {
      bool fits = true;
      for (const Shard& shard : table.shards) {
        const ShardLayout layout = LayoutOf(table, rules_.row_cut(static_cast<int>(t)));
        const MemoryUse use =
            ShardMemory(request_, request_.tables[t], layout, shard.rows, shard.cols);
        pools.Add(shard.rank, use.by_tier(), sign);
        fits = fits && pools.LeftOnDevice(shard.rank) >= 0 && !pools.SharesTooMuch(shard.rank);
      }
      return fits;
    };
    for (std::size_t t = 0; t < plan.tables.size(); ++t) count(t, plan.tables[t], 1);
    bool promoted = false;
    for (std::size_t t = 0; t < plan.tables.size(); ++t) {
      TablePlan& table = plan.tables[t];
      for (const Residency& residency : FasterResidencies(t, table, tier)) {
        TablePlan then = table;
        then.compute_kernel = residency.kernel;
        then.cache_load_factor = residency.cache_load_factor;
        count(t, table, -1);
        if (count(t, then, 1)) {
          table = std::move(then);
          promoted = true;
          break;
        }
        count(t, then, -1);
        count(t, table, 1);
      }
    }
    if (!promoted) return false;
    NS_ASSIGN_OR_RETURN(const PlanCost cost, PricePlan(request_, plan, context_.model()));
    if (cost.embedding_cost_ms > context_.best_cost_ms()) return false;
    // What follows needs the room more than a plan that is no cheaper for it.
    const bool is_cheaper = cost.embedding_cost_ms < context_.best_cost_ms();
    if (!is_cheaper && !context_.stage().is_last) return false;
    NS_RETURN_IF_ERROR(context_.Improve(std::move(plan)));
    return true;
  }

  Plan SolutionAsPlan() const {
    const Solution& solution = searcher_.bench.solution;
    return MakePlan(request_, solution, solution.Units());
  }
  Status PublishSolution() { return context_.ImproveIfCheaper(SolutionAsPlan()).status(); }

  // A plan, whatever it costs; none only where the context says stop.
  Status FindFirst() {
    // It does not know of tables that stay in place.
    const bool all_may_move =
        !request_.migration.has_value() || request_.migration->only_types.empty();
    const Status status =
        all_may_move ? searcher_.initial.FindLegal() : FailedPrecondition("tables stay in place");
    if (context_.ShouldStop()) return absl::OkStatus();
    if (status.ok() && !context_.has_plan()) NS_RETURN_IF_ERROR(PublishSolution());
    if (context_.has_plan()) return absl::OkStatus();
    if (if_none_ == IfNoneIsFound::kGiveUp) return status;
    if (if_none_ == IfNoneIsFound::kTryFew) {
      std::optional<Plan> found = FindPlanOfFew(request_, rules_);
      return found.has_value() ? context_.Improve(*std::move(found)) : status;
    }
    StatusOr<Plan> plan =
        FindAnyPlan(request_, rules_, TypeSet(context_.model().sharding_types()), context_.stop());
    if (plan.ok()) return context_.Improve(*std::move(plan));
    // What is proven by then is an answer; that nothing was found in so little time is none.
    const bool is_proof = ReasonOf(plan.status()) != FailureReason::kNoPlanFound;
    return context_.ShouldStop() && !is_proof ? absl::OkStatus() : plan.status();
  }

  // Local search from the construction that promises most, or else from the best plan so far.
  Status SearchFromCheap() {
    NS_ASSIGN_OR_RETURN(const InitialSolutions::Found found, searcher_.initial.FindCheap());
    const double start_ms = context_.best_cost_ms();
    if (found == InitialSolutions::Found::kPromising) {
      NS_RETURN_IF_ERROR(SearchFrom(SolutionAsPlan()));
    }
    if (context_.best_cost_ms() >= start_ms) NS_RETURN_IF_ERROR(SearchFrom(context_.best_plan()));
    return absl::OkStatus();
  }

  // First what is in place is made legal, with as little moved as can be; then more and more of it
  // is free to move.
  Status RunFromPrevious() {
    const Migration& migration = *request_.migration;
    NS_RETURN_IF_ERROR(CheckKeptTables(request_));
    const std::optional<Plan> near = RepairPrevious(request_, rules_, context_.stop());
    if (context_.ShouldStop()) return absl::OkStatus();
    if (near.has_value()) NS_RETURN_IF_ERROR(context_.ImproveIfCheaper(*near).status());
    if (!context_.has_plan()) {
      NS_RETURN_IF_ERROR(FindFirst());
      if (context_.ShouldStop() || !context_.has_plan()) return absl::OkStatus();
    }
    base_ = context_.best_plan();
    const PreviousPlacement previous(request_);
    std::vector<const TablePlan*> stay(request_.tables.size(), nullptr);
    std::vector<double> paid(stay.size(), 0);
    double all_paid = 0;
    for (std::size_t t = 0; t < stay.size(); ++t) {
      if (!previous.Has(static_cast<int>(t))) continue;
      stay[t] = &base_.tables[t];
      for (const Shard& shard : stay[t]->shards) {
        paid[t] += static_cast<double>(
            previous.MovedBytes(static_cast<int>(t), stay[t]->compute_kernel, shard));
      }
      all_paid += paid[t];
    }
    const double all = BytesOf(request_, rules_, stay, paid);
    double most = all;
    if (migration.budget_bytes.has_value()) {
      most = std::min(most, static_cast<double>(*migration.budget_bytes) - all_paid);
    }
    const bool has_price = migration.price_ms_per_gib > 0;
    counts_moves_ = most < all || has_price;
    const auto fixed = [&](double bytes) { return FixAllBut(request_, rules_, stay, paid, bytes); };
    if (!counts_moves_) return SearchBeside(fixed(all), nullptr);
    // What is new finds its place first; then the tables with the most lookups a byte, as many as the
    // budget pays for whichever way they move; then all. Alone the last would spend the budget on
    // what gains most, whatever it takes of it. Each does the work of a search, and the last one uses
    // the time budget.
    const SearchStage stage = context_.stage();
    const double work_ns = context_.work_ns();
    const auto begin = [&](bool is_last) {
      context_.Begin({stage.slowest, is_last});
      context_.StartWithWork(work_ns);
    };
    if (most <= 0) return SearchBeside(fixed(0), &base_);
    if (has_price) {
      begin(false);
      NS_RETURN_IF_ERROR(SearchBeside(fixed(0), &base_));
    }
    const bool pays_for_all = fixed(most) == fixed(all);
    if (!pays_for_all) {
      begin(false);
      NS_RETURN_IF_ERROR(SearchBeside(fixed(most), &base_));
    }
    begin(stage.is_last);
    const Plan best = context_.best_plan();
    return SearchBeside(fixed(all), pays_for_all ? nullptr : &best);
  }

  // From `start`, or null: from whatever promises most where all tables are free, and base_
  // otherwise.
  Status SearchBeside(FixedTables fixed, const Plan* start) {
    if (context_.ShouldStop()) return absl::OkStatus();
    fixed_ = std::move(fixed);
    const auto free = std::ranges::count(fixed_, nullptr);
    if (free == 0) return absl::OkStatus();
    Prepare(searcher_.bench);
    if (start != nullptr) return SearchFrom(*start);
    return free == std::ssize(fixed_) ? SearchFromCheap() : SearchFrom(base_);
  }

  // What of the plan in place is to stay.
  void Prepare(Workbench& bench) const {
    if (!fixed_.empty()) bench.Fix(fixed_);
    if (counts_moves_) bench.CountMoves();
  }

  // As many searches as there may be threads, none of which knows of the others. The first is what
  // it would be alone, so that more threads never make a plan dearer. What the others find is
  // handed out when all have ended, in their order.
  Status SearchFrom(const Plan& start) {
    if (context_.ShouldStop()) return absl::OkStatus();
    const Plan plan = start;  // the context's best changes meanwhile
    const int searches = request_.search.max_threads;
    if (searches == 1) return searcher_.SearchFrom(plan, 0);
    std::vector<std::unique_ptr<Companion>> companions(static_cast<std::size_t>(searches - 1));
    const double work_ns = context_.work_ns();
    Status status;
    context_.RunJobs(searches, [&](int i) {
      if (i == 0) {
        status = searcher_.SearchFrom(plan, 0);
        return;
      }
      auto& companion = companions[static_cast<std::size_t>(i - 1)];
      companion = std::make_unique<Companion>(context_, work_ns, rules_, layouts_);
      Prepare(companion->searcher.bench);
      companion->status = companion->searcher.SearchFrom(plan, i);
    });
    NS_RETURN_IF_ERROR(status);
    for (const auto& companion : companions) {
      NS_RETURN_IF_ERROR(companion->status);
      context_.CountBeside(companion->context);
      if (!companion->context.has_plan()) continue;
      NS_RETURN_IF_ERROR(context_.ImproveIfCheaper(companion->context.best_plan()).status());
    }
    return absl::OkStatus();
  }

  // Whether its plans are legal here.
  bool IsForNeuroShard() const {
    return request_.demands_nothing() && !rules_.has_off_device() &&
           (rules_.of(0).types & kNeuroShardTypes) == kNeuroShardTypes;
  }

  SearchContext& context_;
  const IfNoneIsFound if_none_;
  const PlanRequest& request_;
  const CompiledRules& rules_;
  const TableLayouts layouts_;
  Searcher searcher_;
  Plan base_;          // that fixed_ points into
  FixedTables fixed_;  // as the bench keeps them; empty: nothing to keep
  bool counts_moves_ = false;
};

// A stage that others follow, and so need find no plan.
Status RunEarlyStage(SearchContext& context, const SearchStage& stage, const CompiledRules& rules,
                     RefineSearch::IfNoneIsFound if_none) {
  context.Begin(stage);
  const Status status = RefineSearch(context, rules, if_none).Run();
  return absl::IsFailedPrecondition(status) ? absl::OkStatus() : status;
}

// Where a plan pays for each exchange that it has (ShardKinds::exchanges): the cheapest plan of one
// sharding type is where the search in all types begins. Local search alone moves table by table,
// and giving up a type saves nothing before its last table moves. Where a plan is in place, its
// tables have their types. `slowest`: of the first stage, which begins with this plan.
Status SearchInOneType(SearchContext& context, TypeSet types, MemoryTier slowest) {
  const PlanRequest& request = context.request();
  if (!context.model().prices_exchanges() || request.migration.has_value()) return absl::OkStatus();
  const double work_ns = context.work_ns();
  for (const ShardingType type :
       {ShardingType::kTableWise, ShardingType::kColumnWise, ShardingType::kRowWise,
        ShardingType::kTableRowWise, ShardingType::kDataParallel}) {
    if (context.ShouldStop()) break;
    const CompiledRules rules(request, types, slowest, {type});
    const bool all_may = std::ranges::all_of(
        rules.tables(), [&](const TableRules& of) { return of.types == TypeSet{type}; });
    if (!all_may) continue;
    NS_RETURN_IF_ERROR(
        RunEarlyStage(context, {slowest, false}, rules, RefineSearch::IfNoneIsFound::kGiveUp));
    context.StartWithWork(work_ns);
  }
  return absl::OkStatus();
}

// The plan in fewer memories is where the search in more of them begins, so that leave to use a
// memory makes no plan dearer. `is_last`: whether the plan of all stages is the answer.
Status SearchByStages(SearchContext& context, bool is_last) {
  using enum RefineSearch::IfNoneIsFound;
  const PlanRequest& request = context.request();
  const TypeSet types(context.model().sharding_types());
  const CompiledRules rules(request, types);
  const auto search_without_slower = [&](const SearchStage& stage,
                                         RefineSearch::IfNoneIsFound if_none) {
    return RunEarlyStage(context, stage, CompiledRules(request, types, stage.slowest), if_none);
  };
  // No plan of one stage may be in memories that the next one does not know.
  const bool has_plenty = HasPlentyOfDeviceMemory(request, rules);
  const std::vector<SharedMemory> memories = rules.shared_memories();
  const MemoryTier fewest = has_plenty || memories.empty() ? MemoryTier::kDevice : memories[0].tier;
  NS_RETURN_IF_ERROR(SearchInOneType(context, types, fewest));
  if (context.ShouldStop()) return absl::OkStatus();
  const double work_ns = context.work_ns();
  if (has_plenty) {
    NS_RETURN_IF_ERROR(search_without_slower({MemoryTier::kDevice, is_last}, kTryFew));
    if (context.has_plan() || context.ShouldStop()) return absl::OkStatus();
    context.StartWithWork(work_ns);
  }
  for (const SharedMemory& memory : memories) {
    if (memory.tier == rules.slowest_tier()) break;
    // The time budget would leave no time for the next stage.
    NS_RETURN_IF_ERROR(search_without_slower({memory.tier, false}, kGiveUp));
    if (context.ShouldStop()) return absl::OkStatus();
    context.StartWithWork(work_ns);
  }
  context.Begin({.is_last = is_last});
  return RefineSearch(context, rules, kLookFurther).Run();
}

}  // namespace

Status RunRefine(SearchContext& context) {
  if (context.request().search.objective != PlanObjective::kMeanOfMax) {
    NS_RETURN_IF_ERROR(SearchByStages(context, true));
    return MergeShards(context);
  }
  // First the plan for the mean batch, as if nothing else were asked, without a time budget, which
  // would leave no time; then what the batches change.
  NS_RETURN_IF_ERROR(SearchByStages(context, false));
  if (!context.has_plan() || context.ShouldStop()) return absl::OkStatus();
  context.Begin({});
  context.StartWithWork(0);
  return DescendByBatches(context);
}

}  // namespace neuroshard
