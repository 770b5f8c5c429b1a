#include "server/planner/planner.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <future>

#include "common/base/failure_reason.h"
#include "common/devices/device_table.h"
#include "common/domain/table_names.h"
#include "server/cost/compute_features.h"
#include "server/cost/fabric/fabric_cost_model.h"
#include "server/cost/shard_features.h"
#include "server/evaluate/batch_imbalance.h"
#include "server/evaluate/check_plan.h"
#include "server/evaluate/cost_limit.h"
#include "server/evaluate/explain_plan.h"
#include "server/evaluate/lower_bound.h"
#include "server/evaluate/migration_report.h"
#include "server/evaluate/price_plan.h"
#include "server/evaluate/stash.h"
#include "server/planner/budget_stop.h"
#include "server/planner/device_models.h"
#include "server/planner/gaps.h"
#include "server/planner/price_basis.h"
#include "server/planner/table_warnings.h"

namespace neuroshard {
namespace {

// INTERNAL unless the plan keeps every rule and has a cost. Searches are promised valid requests,
// so this only ever fails for a fault of ours.
Status CheckAnswer(const PlanRequest& request, const SearchResult& result) {
  const std::vector<Violation> violations = CheckPlan(request, result.plan);
  if (!violations.empty()) {
    return Internal("strategy {} made an illegal plan ({} faults), first: {}: {}",
                    request.search.strategy, violations.size(), violations.front().field,
                    violations.front().description);
  }
  if (!std::isfinite(result.cost.embedding_cost_ms)) {
    return Internal("the plan of strategy {} has no finite cost", request.search.strategy);
  }
  return absl::OkStatus();
}

CostModelRef RefOf(const CostModelInfo& model) { return {model.name, model.version, model.digest}; }

// What there is to say of the answer's plan and cost by the model that priced it.
void AddModel(const PlanRequest& request, const Pricing& pricing, PlanAnswer& answer) {
  const CostModelInfo& model = pricing.info();
  const Plan& plan = answer.plan;
  const std::vector<Gap> gaps = GapsOf(request, model, plan);
  const std::vector<DeviceModel> devices = WithGaps(pricing.devices, request, plan);
  answer.model = RefOf(model);
  answer.basis = PriceBasisOf(request, model, gaps, pricing.why_not_measured, devices);
  answer.cost.measured_with = model.measured_with;
  if (request.migration && answer.has_cost()) answer.migration = ReportMigration(request, plan);
  answer.warnings = request.warnings;
  for (const auto& lines :
       {GapWarnings(gaps, model), KernelWarnings(request, model), QualityWarnings(model),
        DeviceWarnings(model, devices), MigrationWarnings(request),
        HostMemoryWarnings(request, model.coverage.sharding_types, plan)}) {
    answer.warnings.insert(answer.warnings.end(), lines.begin(), lines.end());
  }
}

// A bound of so many tables takes the time of a first plan, and is worked out beside it. The first
// plan goes out without one.
constexpr std::size_t kManyTables = 1000;

// Stands between a search and whoever watches it: starts the budget's clock, completes and checks
// what goes out.
class Watcher final : public SearchObserver {
 public:
  Watcher(const PlanRequest& request, const Pricing& pricing, const Clock& clock,
          std::shared_future<std::optional<LowerBound>> bound, bool is_beside, BudgetStop& budget,
          PlanObserver* observer)
      : request_(request),
        pricing_(pricing),
        clock_(clock),
        begin_(clock.Now()),
        bound_(std::move(bound)),
        awaits_first_(is_beside),
        budget_(budget),
        observer_(observer) {}

  void OnImprovement(const SearchResult& result) override {
    const bool is_told = observer_ != nullptr && CheckAnswer(request_, result).ok();
    const bool is_before_bound = std::exchange(awaits_first_, false);
    if (is_told && is_before_bound) observer_->OnImprovement(Complete(result, std::nullopt));
    bound_.wait();  // of which the budget pays nothing
    budget_.Start();
    if (!is_told || is_before_bound) return;
    if (budget_.spent() > share_) OnProgress(share_);
    observer_->OnImprovement(Complete(result, bound_.get()));
  }

  // A search that cannot tell how far it is has its budget at least.
  void OnProgress(double share) override {
    share_ = std::max(share, budget_.spent());
    if (observer_ != nullptr) observer_->OnProgress(share_);
  }

  PlanAnswer Complete(SearchResult result, std::optional<LowerBound> bound) const {
    PlanAnswer answer;
    static_cast<SearchResult&>(answer) = std::move(result);
    answer.search_ms = MillisecondsBetween(begin_, clock_.Now());
    answer.lower_bound = std::move(bound);
    // Improvements do not know which rules hold the bound.
    if (answer.lower_bound) answer.lower_bound->limit.reset();
    AddModel(request_, pricing_, answer);
    return answer;
  }

 private:
  const PlanRequest& request_;
  const Pricing& pricing_;
  const Clock& clock_;
  const TimePoint begin_;
  const std::shared_future<std::optional<LowerBound>> bound_;
  bool awaits_first_;  // the first plan, which does not wait for a bound worked out beside it
  BudgetStop& budget_;
  PlanObserver* const observer_;
  double share_ = 0;  // of the search that is done
};

// The model with the links of the request's devices, where it has measured none of its own.
std::shared_ptr<const CostModel> WithLinksOf(const Topology& topology,
                                             std::shared_ptr<const CostModel> model) {
  const bool prices_comm =
      model->info().kind == kAnalyticKind || model->info().coverage.prices_comm();
  if (prices_comm || !topology.fabric || topology.num_ranks() == 1) return model;
  return MakeFabricCostModel(std::move(model), *topology.fabric);
}

// Why the formulas price a request that names no model; of one that names no device, with the
// devices that a model here was measured on.
std::string WhyNotMeasured(const Topology& topology, const ModelFinder& find_model) {
  if (!DeviceNames(topology).empty()) {
    return "no cost model here was measured on the request's device";
  }
  std::string why = UnnamedDevices(topology);
  if (const auto kind = topology.compute_device) {
    why += fmt::format(", and no cost model here is the default for {} devices", ToText(*kind));
    if (kind == ComputeDevice::kCpu) return why;
  }
  std::vector<std::string> names;
  PlanRequest question;
  for (const PublishedDevice& device : PublishedDevices()) {
    question.topology.devices = {{.name = device.name}};
    const auto found = find_model(question);
    if (found.ok() && IsEachOf(found->front()->info().measured_with.device, {{device.name}})) {
      names.push_back(device.name);
    }
  }
  if (names.empty()) return why;
  return fmt::format("{}, and naming the device {} takes a cost model that was measured on it", why,
                     fmt::join(names, " or "));
}

// The first of the models that can price the request, and `plan` even where it has rows in a memory
// that the request does not have.
StatusOr<Pricing> PriceBy(const PlanRequest& request,
                          const std::vector<std::shared_ptr<const CostModel>>& models,
                          std::string why_not_measured, const Plan& plan) {
  const PricingConditions conditions = ConditionsOf(request, plan);
  Status unfit = FailedPrecondition("there is no cost model");
  for (std::size_t i = 0; i < models.size(); ++i) {
    std::shared_ptr<const CostModel> model = WithLinksOf(request.topology, models[i]);
    StatusOr<BoundCostModel> bound = model->Bind(conditions);
    if (!bound.ok()) {
      if (i > 0) continue;
      unfit = bound.status();
      why_not_measured = fmt::format(
          "the cost model that was measured on the device cannot price this request: {}",
          Message(unfit));
      continue;
    }
    NS_RETURN_IF_ERROR(CheckDigest(request.cost_model, model->info()));
    // Only the formulas stand in for others; whoever asks for them by name misses no measurement.
    if (!request.cost_model.name.empty()) why_not_measured.clear();
    return Pricing{std::move(model), *std::move(bound), std::move(why_not_measured)};
  }
  return WithReason(unfit, FailureReason::kModelUnfit);
}

// Prices with the models of the request's devices.
StatusOr<Pricing> PriceBy(const PlanRequest& request, const ModelFinder& find_model,
                          const Plan& plan = {}) {
  NS_ASSIGN_OR_RETURN(const auto models, find_model(request));
  NS_ASSIGN_OR_RETURN(Pricing pricing,
                      PriceBy(request, models, WhyNotMeasured(request.topology, find_model), plan));
  if (request.device_cost_models.empty()) return pricing;
  PlanRequest asked = request;
  const auto find = [&](const CostModelRef& ref) -> StatusOr<std::shared_ptr<const CostModel>> {
    asked.cost_model = ref;
    NS_ASSIGN_OR_RETURN(const auto found, find_model(asked));
    NS_RETURN_IF_ERROR(CheckDigest(ref, found.front()->info()));
    return found.front();
  };
  NS_RETURN_IF_ERROR(BindDevices(request, find, pricing));
  return pricing;
}

// Requests with models by device name theirs.
void AddVersionHint(const PlanRequest& request, const Pricing& pricing,
                    const VersionFinder& versions_of, PlanAnswer& answer) {
  if (!pricing.devices.empty() || versions_of == nullptr) return;
  const auto with_links = [&](const std::string& name) {
    auto versions = versions_of(name);
    for (auto& model : versions) model = WithLinksOf(request.topology, std::move(model));
    return versions;
  };
  if (auto hint = VersionHint(request, answer.plan, pricing.info(), answer.basis, with_links)) {
    answer.warnings.push_back(*std::move(hint));
  }
}

// Why the model's measurements may not be of the request's devices; empty: they are, or whoever asks
// does not say what these are.
std::string DoubtOfDevices(const PlanRequest& request, const CostModelInfo& model) {
  const Topology& topology = request.topology;
  if (const std::string others = OtherDevices(topology, model); !others.empty()) {
    return fmt::format("was not measured on {}, which the request is for", others);
  }
  if (topology.compute_device != ComputeDevice::kCuda || !request.cost_model.name.empty() ||
      !DeviceNames(topology).empty()) {
    return "";
  }
  return fmt::format("was measured on {}, and {}", model.measured_with.device,
                     UnnamedDevices(topology));
}

// The plan's cost by the formulas, where something else priced it and they can. Where that was not
// measured on what the request is for, both are told: the plan may be dearer than any that the
// formulas would choose.
void AddAnalyticCost(const PlanRequest& request, const Pricing& pricing,
                     const ModelFinder& find_model, PlanAnswer& answer) {
  const CostModelInfo& model = pricing.info();
  if (model.kind == kAnalyticKind && pricing.devices.empty()) return;
  PlanRequest formulas;
  formulas.cost_model.name = kAnalyticKind;
  const auto models = find_model(formulas);
  if (!models.ok()) return;  // a repository without them
  const StatusOr<Pricing> analytic = PriceBy(request, *models, "", answer.plan);
  if (!analytic.ok()) return;
  const StatusOr<PlanCost> by_formulas = PricePlan(request, answer.plan, analytic->bound);
  if (!by_formulas.ok()) return;
  answer.analytic_cost_ms = by_formulas->embedding_cost_ms;
  const std::string doubt = DoubtOfDevices(request, model);
  if (doubt.empty() || !pricing.devices.empty()) return;
  answer.warnings.push_back(
      fmt::format("cost model {} version {} {}: the plan costs {:.4g} ms by that model and {:.4g} "
                  "ms by TorchRec's formulas with the request's figures, by which another plan may "
                  "be cheaper (cost_model: {{name: {}}})",
                  model.name, model.version, doubt, answer.cost.embedding_cost_ms,
                  *answer.analytic_cost_ms, kAnalyticKind));
}

bool AsksForMeanOfMax(const PlanRequest& request) {
  return request.search.objective == PlanObjective::kMeanOfMax;
}

// The mean over the batches, and its bound where that is the objective.
Status AddMeanOfMax(const PlanRequest& request, const BoundCostModel& model, const StopSignal& stop,
                    PlanAnswer& answer) {
  NS_ASSIGN_OR_RETURN(answer.cost.mean_of_max_ms, MeanOfMaxMs(request, answer.plan, model, stop));
  const bool is_objective = AsksForMeanOfMax(request);
  if (!answer.cost.mean_of_max_ms) {
    if (NumBatches(request) == 0) return absl::OkStatus();
    answer.warnings.push_back(
        fmt::format("there is no mean over batches (batch_pooling_factors){}: no time was left, or "
                    "the batches have more than {} shards to price",
                    is_objective ? ", and the plan is the one for the objective max_of_means" : "",
                    kMaxShardsOfBatches));
    return absl::OkStatus();
  }
  if (!is_objective) return absl::OkStatus();
  if (!stop.ShouldStop()) answer.lower_bound = LowerBoundOfMean(request, model, stop);
  if (!answer.lower_bound) {
    answer.warnings.push_back(
        fmt::format("there is no lower bound of the mean over batches: no time was left, or there "
                    "are more than {} tables x batches",
                    kMaxTablesOfBounds));
  }
  return absl::OkStatus();
}

// What a legal plan stashes; where tables are chosen for it, its memory with theirs.
Status AddStash(const PlanRequest& request, const BoundCostModel& model, PlanAnswer& answer) {
  if (!request.stashes()) return absl::OkStatus();
  NS_ASSIGN_OR_RETURN(const Stash stash, ChooseStash(request, answer.plan));
  NS_ASSIGN_OR_RETURN(const PlanCost cost, PricePlan(stash.request, answer.plan, model));
  for (std::size_t r = 0; r < cost.ranks.size(); ++r) {
    answer.cost.ranks[r].memory = cost.ranks[r].memory;
  }
  answer.cost.shared = cost.shared;
  answer.stash = ReportStash(stash.request, cost);
  return absl::OkStatus();
}

// The costliest rank of those that have shards of the table.
std::optional<int> CostliestRankOf(const PlanRequest& request, const Plan& plan,
                                   const PlanCost& cost, const std::string& table) {
  const int index = TableNames(request.tables).Resolve(table);
  const std::vector<int> table_of = TablesOf(plan, request.tables);
  std::optional<int> costliest;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    if (table_of[t] != index) continue;
    for (const Shard& shard : plan.tables[t].shards) {
      const auto total_ms = [&](int rank) { return At(cost.ranks, rank).total_ms(); };
      if (!costliest || total_ms(shard.rank) > total_ms(*costliest)) costliest = shard.rank;
    }
  }
  return costliest;
}

// What a final answer has besides: intervals, the mean over batches, the cost by the formulas, what
// holds `bound` (none of a mean over batches) and explanations. Where these are asked for and rules
// hold the bound, returns the request without them.
StatusOr<std::optional<PlanRequest>> AddReport(const PlanRequest& request, const Pricing& pricing,
                                               const ModelFinder& find_model,
                                               std::optional<LowerBound> bound,
                                               const StopSignal& stop, PlanAnswer& answer) {
  const BoundCostModel& model = pricing.bound;
  NS_RETURN_IF_ERROR(AddIntervals(request, answer.plan, model, answer.cost));
  NS_RETURN_IF_ERROR(AddMeanOfMax(request, model, stop, answer));
  AddAnalyticCost(request, pricing, find_model, answer);
  std::optional<PlanRequest> without_rules;
  if (bound && !stop.ShouldStop()) {
    std::optional<LiftedRules> lifted = CostLimitOf(request, model, *bound, stop);
    bound->limit.reset();
    if (lifted) {
      const std::string& table = lifted->limit.table;
      if (!table.empty()) {
        lifted->limit.rank = CostliestRankOf(request, answer.plan, answer.cost, table);
      }
      bound->limit = std::move(lifted->limit);
      without_rules = std::move(lifted->without);
    }
    answer.lower_bound = std::move(bound);
  }
  if (!request.search.explain) return std::nullopt;
  if (stop.ShouldStop()) {
    answer.warnings.push_back("there was no time left to explain the plan");
    return std::nullopt;
  }
  NS_ASSIGN_OR_RETURN(answer.explanations, ExplainPlan(request, answer.plan, model));
  return without_rules;
}

// Shards that are represented together.
constexpr std::size_t kBlockShards = 4096;

bool IsPlain(const ComputeSample& set) {
  return std::ranges::all_of(set.shards, [](const MeasuredShard& shard) {
    return !IsLowPrecision(shard.weight_dtype) && shard.pooling_mode != PoolingMode::kNone;
  });
}

bool HasHostMemory(const ComputeSample& set) {
  return std::ranges::any_of(
      set.shards, [](const MeasuredShard& shard) { return IsInHostMemory(shard.compute_kernel); });
}

// Sets from the front on that one call of the model takes: under the same conditions, not many.
std::span<const ComputeSample> NextBlock(std::span<const ComputeSample> sets) {
  std::size_t shards = sets.front().shards.size();
  std::size_t count = 1;
  while (count < sets.size() && sets[count].batch_size == sets.front().batch_size &&
         sets[count].optimizer == sets.front().optimizer &&
         shards + sets[count].shards.size() <= kBlockShards) {
    shards += sets[count++].shards.size();
  }
  return sets.first(count);
}

// Each set of the block, added to `predictions`.
void PredictBlock(const BoundCostModel& model, std::span<const ComputeSample> block,
                  std::vector<ComputePrediction>& predictions) {
  const ShardSets sets(Mapped(block, [](const ComputeSample& set) {
    return Mapped(set.shards, [](const MeasuredShard& shard) { return FeaturesOf(shard); });
  }));
  const std::vector<ComputeCost> costs = Mapped(model.CostsOfSets(sets), &ShardSetCost::compute);
  const std::vector<ComputeInterval> intervals = model.ComputeIntervals(sets, costs);
  for (std::size_t set = 0; set < block.size(); ++set) {
    ComputePrediction& prediction = predictions.emplace_back();
    prediction.cost = costs[set];
    if (!intervals.empty()) prediction.interval = intervals[set];
  }
}

// One prediction per set, in order.
StatusOr<std::vector<ComputePrediction>> PredictCompute(const CostModel& model,
                                                        std::span<const ComputeSample> sets,
                                                        const StopSignal& stop) {
  std::vector<ComputePrediction> predictions;
  predictions.reserve(sets.size());
  while (!sets.empty()) {
    if (stop.ShouldStop()) {
      return absl::DeadlineExceededError("no time left to predict all sets");
    }
    const std::span<const ComputeSample> block = NextBlock(sets);
    PricingConditions conditions = ConditionsOf(block.front());
    conditions.has_plain_tables = std::ranges::all_of(block, IsPlain);
    conditions.has_rows_off_device = std::ranges::any_of(block, HasHostMemory);
    NS_ASSIGN_OR_RETURN(const BoundCostModel bound, model.Bind(conditions));
    PredictBlock(bound, block, predictions);
    sets = sets.subspan(block.size());
  }
  return predictions;
}

}  // namespace

Status CheckDigest(const CostModelRef& asked, const CostModelInfo& model) {
  if (asked.digest.empty() || asked.digest == model.digest) return absl::OkStatus();
  return WithReason(FailedPrecondition(
                        "cost model {} version {} has {} here, the request is for digest {}: its "
                        "files were replaced, or this planner has other ones",
                        model.name, model.version,
                        model.digest.empty() ? "no files" : "digest " + model.digest, asked.digest),
                    FailureReason::kModelUnfit);
}

StatusOr<PlanAnswer> Planner::MakePlan(const PlanRequest& asked, const StopSignal& stop,
                                       PlanObserver* observer) const {
  NS_ASSIGN_OR_RETURN(const Pricing pricing, PriceBy(asked, find_model_));
  const std::optional<PlanRequest> with_trainer = WithTrainer(asked, pricing.info());
  const PlanRequest& request = with_trainer ? *with_trainer : asked;

  const bool is_beside = request.tables.size() >= kManyTables;
  // Both: where the system has no thread left, whoever asks for it first works it out.
  const std::launch policy =
      is_beside ? std::launch::async | std::launch::deferred : std::launch::deferred;
  // Improvements have no mean, and so no bound of it.
  const std::shared_future<std::optional<LowerBound>> bound =
      std::async(policy, [&]() -> std::optional<LowerBound> {
        if (AsksForMeanOfMax(request)) return std::nullopt;
        return LowerBoundOf(request, pricing.bound);
      });
  if (!is_beside) bound.wait();
  BudgetStop budget(stop, clock_, request.search.time_budget);
  Watcher watcher(request, pricing, clock_, bound, is_beside, budget, observer);
  NS_ASSIGN_OR_RETURN(SearchResult result, search_(request, pricing.bound, budget, &watcher));
  NS_RETURN_IF_ERROR(CheckAnswer(request, result));
  PlanAnswer answer = watcher.Complete(std::move(result), bound.get());
  NS_RETURN_IF_ERROR(AddStash(request, pricing.bound, answer));
  AddVersionHint(request, pricing, versions_of_, answer);
  if (request.search.seed.has_value() && answer.statistics.time_limit_reached) {
    answer.warnings.push_back(
        "a clock cut the search (search.time_budget_ms or the deadline): the same request and seed "
        "may get another plan; search.refine_steps, or neither, makes it the same every time");
  }
  for (std::size_t i = 1 + answer.trades.size(); i < request.search.goals.size(); ++i) {
    answer.warnings.push_back(fmt::format("no time was left for search.goals[{}] ({})", i,
                                          ToText(request.search.goals[i].measure)));
  }
  NS_ASSIGN_OR_RETURN(auto without_rules,
                      AddReport(request, pricing, find_model_, bound.get(), stop, answer));
  // A plan in place binds the search to more than the bound knows of.
  if (without_rules && !request.migration.has_value()) {
    without_rules->search.goals.clear();
    BudgetStop of_search(stop, clock_, without_rules->search.time_budget);
    const auto found = search_(*without_rules, pricing.bound, of_search, nullptr);
    if (found.ok()) answer.lower_bound->limit->cost_without_ms = found->cost.embedding_cost_ms;
  }
  return answer;
}

StatusOr<PlanAnswer> Planner::EvaluatePlan(const PlanRequest& asked, const Plan& plan) const {
  NS_ASSIGN_OR_RETURN(const Pricing pricing, PriceBy(asked, find_model_, plan));
  const std::optional<PlanRequest> with_trainer = WithTrainer(asked, pricing.info());
  const PlanRequest& request = with_trainer ? *with_trainer : asked;

  PlanAnswer answer;
  answer.plan = plan;
  answer.violations = CheckPlan(request, plan);
  StatusOr<PlanCost> cost = PricePlan(request, plan, pricing.bound);
  if (cost.ok()) {
    answer.cost = *std::move(cost);
  } else if (!absl::IsInvalidArgument(cost.status())) {
    return cost.status();
  } else if (answer.violations.empty()) {
    return Internal("a legal plan was not priced: {}", Message(cost.status()));
  }
  if (answer.violations.empty()) {
    const Status stash = AddStash(request, pricing.bound, answer);
    if (absl::IsFailedPrecondition(stash)) {
      answer.violations.push_back({"plan.tables", Message(stash)});
    } else if (!stash.ok()) {
      return stash;
    }
  }
  AddModel(request, pricing, answer);
  AddVersionHint(request, pricing, versions_of_, answer);
  if (!answer.has_cost()) return answer;
  std::optional<LowerBound> bound;
  if (!AsksForMeanOfMax(request)) bound = LowerBoundOf(request, pricing.bound);
  NS_RETURN_IF_ERROR(
      AddReport(request, pricing, find_model_, std::move(bound), NeverStop(), answer).status());
  return answer;
}

StatusOr<PredictionAnswer> Planner::Predict(const CostModelRef& ref,
                                            std::span<const ComputeSample> sets,
                                            const StopSignal& stop) const {
  PlanRequest question;
  question.cost_model = ref;
  NS_ASSIGN_OR_RETURN(const auto models, find_model_(question));
  const CostModelInfo& model = models.front()->info();
  NS_RETURN_IF_ERROR(CheckDigest(ref, model));
  PredictionAnswer answer;
  NS_ASSIGN_OR_RETURN(answer.predictions, PredictCompute(*models.front(), sets, stop));
  const std::vector<Gap> gaps = GapsOf(sets, model);
  answer.model = RefOf(model);
  answer.basis = PriceBasisOf(model, gaps);
  answer.splits_compute = model.properties.splits_compute;
  answer.interval_coverage = model.properties.interval_coverage;
  answer.measured_with = model.measured_with;
  answer.warnings = GapWarnings(gaps, model);
  for (std::string& warning : QualityWarnings(model)) {
    answer.warnings.push_back(std::move(warning));
  }
  return answer;
}

}  // namespace neuroshard
