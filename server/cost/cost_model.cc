#include "server/cost/cost_model.h"

#include <algorithm>
#include <cassert>
#include <iterator>

#include "server/cost/step_comm.h"

namespace neuroshard {

namespace {

// The properties of a model whose ranks have compute of several kinds: those that all kinds have.
// What bounds of costs need is not claimed: it holds for ranks that are alike, under one model.
ModelProperties PropertiesOf(const BoundCostModel& comm, std::span<const BoundCostModel> kinds) {
  ModelProperties properties = comm.properties();
  if (kinds.size() == 1 && kinds.front().compute() == comm.compute()) return properties;
  properties.splits_compute = true;
  properties.additive_compute = true;
  properties.convex_compute = kinds.size() == 1 && kinds.front().properties().convex_compute;
  properties.monotone_shard_costs = false;
  for (const BoundCostModel& kind : kinds) {
    const ModelProperties& of_kind = kind.properties();
    properties.splits_compute &= of_kind.splits_compute;
    properties.additive_compute &= of_kind.additive_compute;
    properties.interval_coverage =
        std::min(properties.interval_coverage, of_kind.interval_coverage);
  }
  return properties;
}

// Shards as they are priced; in `made` where some are not priced as they are.
std::span<const ShardFeatures> Priced(std::span<const ShardFeatures> given,
                                      std::int64_t global_batch_size,
                                      std::vector<ShardFeatures>& made) {
  if (std::ranges::none_of(given,
                           [](const ShardFeatures& shard) { return shard.hot_row_blocks; })) {
    return given;
  }
  for (const ShardFeatures& shard : given) {
    made.push_back(AsHottestRowBlock(shard, global_batch_size));
  }
  return made;
}

// What a rank pays for compute. `is_forward`, where requests are served: the forward half of the
// model's cost alone, without intervals. `exposed`: the distribution of ids is added, so that
// searches optimize it, as one more entry of phi, whose sum adds to total_ms alone. The term has no
// constant, so the compute stays additive or convex.
class RankCompute final : public ComputeModel {
 public:
  RankCompute(std::shared_ptr<const ComputeModel> compute, bool is_forward,
              std::optional<InputDist> exposed)
      : compute_(std::move(compute)),
        is_forward_(is_forward),
        exposed_(std::move(exposed)),
        width_(static_cast<std::size_t>(compute_->representation_width())),
        stride_(width_ + (exposed_ ? 1 : 0)) {}

  int representation_width() const override { return static_cast<int>(stride_); }

  void Represent(const PricingConditions& conditions, std::span<const ShardFeatures> shards,
                 std::span<float> phi) const override {
    if (!exposed_) return compute_->Represent(conditions, shards, phi);
    assert(phi.size() == shards.size() * stride_);
    std::vector<float> of_model(shards.size() * width_);
    compute_->Represent(conditions, shards, of_model);
    for (std::size_t i = 0; i < shards.size(); ++i) {
      float* const row = phi.data() + i * stride_;
      std::copy_n(of_model.data() + i * width_, width_, row);
      row[width_] = exposed_->Ms(shards[i]);
    }
  }

  void Costs(std::span<const float> sums, std::span<ComputeCost> out) const override {
    assert(sums.size() == out.size() * stride_);
    thread_local std::vector<float> of_model;  // searches ask thousands of times a millisecond
    if (exposed_) {
      of_model.resize(out.size() * width_);
      for (std::size_t i = 0; i < out.size(); ++i) {
        std::copy_n(sums.data() + i * stride_, width_, of_model.data() + i * width_);
      }
    }
    compute_->Costs(exposed_ ? std::span<const float>(of_model) : sums, out);
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (is_forward_) out[i] = {out[i].forward_ms, out[i].forward_ms, 0};
      if (exposed_) out[i].total_ms += sums[i * stride_ + width_];
    }
  }

  std::vector<ComputeInterval> Intervals(const PricingConditions& conditions,
                                         const ShardSets& ranks,
                                         std::span<const ComputeCost> costs) const override {
    if (is_forward_) return {};
    return compute_->Intervals(conditions, ranks, costs);
  }

 private:
  const std::shared_ptr<const ComputeModel> compute_;
  const bool is_forward_;
  const std::optional<InputDist> exposed_;
  const std::size_t width_;   // of the model's phi
  const std::size_t stride_;  // of phi
};

// A single rank communicates with nobody.
class OneRank final : public CommModel {
 public:
  CommLoad Load(const ShardFeatures& /*shard*/) const override { return {}; }

  void Costs(CommStage /*stage*/, std::span<const float> /*loads*/,
             std::span<const float> /*start_offsets_ms*/, std::span<float> cost_ms) const override {
    std::ranges::fill(cost_ms, 0.0F);
  }

  std::vector<CommInterval> Intervals(std::span<const RankComm> ranks) const override {
    return std::vector<CommInterval>(ranks.size());
  }
};

// The forward stage: no gradients are exchanged, nor replicas kept alike.
class ForwardComm final : public CommModel {
 public:
  explicit ForwardComm(std::shared_ptr<const CommModel> comm) : comm_(std::move(comm)) {}

  CommLoad Load(const ShardFeatures& shard) const override {
    CommLoad load = comm_->Load(shard);
    load.backward = 0;
    return load;
  }

  void Costs(CommStage stage, std::span<const float> loads, std::span<const float> start_offsets_ms,
             std::span<float> cost_ms) const override {
    if (stage == CommStage::kBackward) {
      std::ranges::fill(cost_ms, 0.0F);
    } else {
      comm_->Costs(stage, loads, start_offsets_ms, cost_ms);
    }
  }

  CommSetup SetupOf(const ShardKinds& kinds) const override {
    return {comm_->SetupOf(kinds).forward_ms, 0};
  }

 private:
  const std::shared_ptr<const CommModel> comm_;
};

}  // namespace

BoundCostModel::BoundCostModel(PricingConditions conditions, ModelProperties properties,
                               std::vector<ShardingType> sharding_types,
                               std::shared_ptr<const ComputeModel> compute,
                               std::shared_ptr<const CommModel> comm)
    : conditions_(std::move(conditions)),
      properties_(std::move(properties)),
      sharding_types_(std::move(sharding_types)),
      comm_(std::move(comm)) {
  // Rates of steps were learned as factors of the formula under default bandwidths (step_records.py):
  // under a request's own ones slow links would count twice.
  PricingConditions id_conditions = conditions_;
  if (properties_.measured_steps) id_conditions.bandwidths = {};
  auto input_dist = InputDist::Of(id_conditions, properties_);
  if (properties_.measured_steps && conditions_.num_ranks > 1) {
    const StepRates& rates = properties_.measured_steps->At(conditions_.num_ranks);
    comm_ = WithSteps(std::move(comm_), rates, conditions_);
    conditions_.compute_scales.resize(static_cast<std::size_t>(conditions_.num_ranks), 1.0F);
    for (float& scale : conditions_.compute_scales) {
      scale *= static_cast<float>(rates.compute_scale);
    }
    // The distribution of ids is scaled as the rank's compute is.
    if (input_dist) input_dist->Scale(rates.input_dist_scale / rates.compute_scale);
  }
  const bool is_forward = conditions_.optimizer == Optimizer::kNone;
  if (is_forward) {
    comm_ = std::make_shared<const ForwardComm>(std::move(comm_));
    // Said of both passes together, which hold of a part where all of it is a sum.
    properties_.convex_compute &= properties_.additive_compute;
    properties_.monotone_shard_costs = false;
  }
  const bool is_exposed = input_dist && input_dist->exposed();
  if (is_forward || is_exposed) {
    compute = std::make_shared<const RankCompute>(std::move(compute), is_forward,
                                                  is_exposed ? input_dist : std::nullopt);
  }
  width_ = compute->representation_width();
  kinds_.push_back({input_dist, std::move(compute)});
}

BoundCostModel::BoundCostModel(const BoundCostModel& comm, std::span<const BoundCostModel> kinds,
                               std::vector<int> kind_of_rank)
    : conditions_(comm.conditions_),
      properties_(PropertiesOf(comm, kinds)),
      kind_of_rank_(std::move(kind_of_rank)),
      comm_(comm.comm_) {
  for (const BoundCostModel& kind : kinds) {
    assert(kind.num_kinds() == 1);
    kinds_.push_back(kind.kinds_.front());
    width_ += kind.width_;
  }
  if (kinds_.size() == 1) kind_of_rank_.clear();
  std::copy_if(comm.sharding_types_.begin(), comm.sharding_types_.end(),
               std::back_inserter(sharding_types_), [&](ShardingType type) {
                 return std::ranges::all_of(kinds, [&](const BoundCostModel& kind) {
                   const auto& types = kind.sharding_types_;
                   return std::ranges::find(types, type) != types.end();
                 });
               });
}

float BoundCostModel::fixed_rank_ms() const {
  float fixed_ms = 0;
  for (const Kind& kind : kinds_) {
    if (!kind.input_dist || !kind.input_dist->exposed()) continue;
    fixed_ms = std::max(fixed_ms, kind.input_dist->fixed_ms());
  }
  return fixed_ms;
}

void BoundCostModel::Represent(std::span<const ShardFeatures> given, std::span<float> phi,
                               std::span<CommLoad> loads) const {
  assert(loads.size() == given.size());
  std::vector<ShardFeatures> made;
  const std::span<const ShardFeatures> shards = Priced(given, conditions_.global_batch_size, made);
  if (kinds_.size() == 1) {
    kinds_.front().compute->Represent(conditions_, shards, phi);
  } else {
    const std::size_t stride = static_cast<std::size_t>(width_);
    std::size_t begin = 0;
    std::vector<float> of_kind;
    for (const Kind& kind : kinds_) {
      const std::size_t width = static_cast<std::size_t>(kind.compute->representation_width());
      of_kind.resize(shards.size() * width);
      kind.compute->Represent(conditions_, shards, of_kind);
      for (std::size_t i = 0; i < shards.size(); ++i) {
        std::copy_n(&of_kind[i * width], width, &phi[i * stride + begin]);
      }
      begin += width;
    }
  }
  for (std::size_t i = 0; i < shards.size(); ++i) loads[i] = comm_->Load(shards[i]);
}

void BoundCostModel::ComputeCostsByKind(std::span<const float> sums, std::span<ComputeCost> out,
                                        std::span<const int> kinds) const {
  assert(kinds.size() == out.size());
  const std::size_t stride = static_cast<std::size_t>(width_);
  thread_local std::vector<float> of_kind;  // searches ask thousands of times a millisecond
  thread_local std::vector<ComputeCost> costs;
  std::size_t begin = 0;
  for (int k = 0; k < num_kinds(); ++k) {
    const ComputeModel& compute = *At(kinds_, k).compute;
    const std::size_t width = static_cast<std::size_t>(compute.representation_width());
    of_kind.clear();
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (kinds[i] != k) continue;
      const float* const row = &sums[i * stride + begin];
      of_kind.insert(of_kind.end(), row, row + width);
    }
    begin += width;
    if (of_kind.empty()) continue;
    costs.resize(of_kind.size() / width);
    compute.Costs(of_kind, costs);
    auto cost = costs.begin();
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (kinds[i] == k) out[i] = *cost++;
    }
  }
}

std::vector<ComputeInterval> BoundCostModel::ComputeIntervals(const ShardSets& sets,
                                                              std::span<const ComputeCost> costs,
                                                              std::span<const int> kinds) const {
  std::vector<ShardFeatures> made;
  const std::span<const ShardFeatures> shards =
      Priced(sets.shards, conditions_.global_batch_size, made);
  const auto is_empty = [](const std::vector<int>& set) { return set.empty(); };
  if (kinds_.size() == 1 && made.empty() && std::ranges::none_of(sets.sets, is_empty)) {
    return kinds_.front().compute->Intervals(conditions_, sets, costs);
  }
  std::vector<ComputeInterval> intervals(costs.size());
  for (int k = 0; k < num_kinds(); ++k) {
    std::vector<std::size_t> of_kind;  // positions of sets that are not empty
    ShardSets theirs;
    std::vector<ComputeCost> costs_of_kind;
    std::vector<int> number_of(shards.size(), -1);
    for (std::size_t i = 0; i < costs.size(); ++i) {
      if (sets.sets[i].empty() || (kinds_.size() > 1 && kinds[i] != k)) continue;
      of_kind.push_back(i);
      costs_of_kind.push_back(costs[i]);
      for (int& shard : theirs.sets.emplace_back(sets.sets[i])) {
        int& number = At(number_of, shard);
        if (number < 0) {
          number = static_cast<int>(theirs.shards.size());
          theirs.shards.push_back(At(shards, shard));
        }
        shard = number;
      }
    }
    if (of_kind.empty()) continue;
    const std::vector<ComputeInterval> found =
        At(kinds_, k).compute->Intervals(conditions_, theirs, costs_of_kind);
    if (found.empty()) return {};
    for (std::size_t i = 0; i < of_kind.size(); ++i) intervals[of_kind[i]] = found[i];
  }
  for (std::size_t i = 0; i < costs.size(); ++i) {
    for (auto* const half : {&intervals[i].forward, &intervals[i].backward}) {
      if (!properties_.splits_compute) half->reset();
      if (properties_.splits_compute && sets.sets[i].empty()) half->emplace();
    }
  }
  return intervals;
}

std::vector<ShardSetCost> BoundCostModel::CostsOfSets(const ShardSets& sets,
                                                      std::span<const int> kinds) const {
  std::vector<float> phi(sets.shards.size() * static_cast<std::size_t>(width_));
  std::vector<CommLoad> loads(sets.shards.size());
  Represent(sets.shards, phi, loads);
  return CostsOfSets(phi, loads, sets.sets, kinds);
}

std::vector<ShardSetCost> BoundCostModel::CostsOfSets(std::span<const float> phi,
                                                      std::span<const CommLoad> loads,
                                                      const std::vector<std::vector<int>>& sets,
                                                      std::span<const int> kinds) const {
  const std::size_t width = static_cast<std::size_t>(width_);
  std::vector<ShardSetCost> costs(sets.size());
  std::vector<float> sums;  // of the sets that are not empty, as are the next ones
  std::vector<std::size_t> filled;
  std::vector<int> kinds_of_filled;
  for (std::size_t s = 0; s < costs.size(); ++s) {
    if (sets[s].empty()) continue;
    filled.push_back(s);
    if (kinds_.size() > 1) kinds_of_filled.push_back(kinds[s]);
    sums.resize(filled.size() * width);
    float* const sum = sums.data() + sums.size() - width;
    for (const int shard : sets[s]) {
      const float* const of_shard = phi.data() + static_cast<std::size_t>(shard) * width;
      for (std::size_t w = 0; w < width; ++w) sum[w] += of_shard[w];
      costs[s].load += At(loads, shard);
    }
  }
  std::vector<ComputeCost> compute(filled.size());
  ComputeCosts(sums, compute, kinds_of_filled);
  for (std::size_t i = 0; i < filled.size(); ++i) costs[filled[i]].compute = compute[i];
  return costs;
}

std::shared_ptr<const CommModel> CommOfOneRank() {
  static const auto instance = std::make_shared<const OneRank>();
  return instance;
}

StatusOr<BoundCostModel> BindCompute(const CostModel& model, const PricingConditions& conditions) {
  NS_ASSIGN_OR_RETURN(const BoundCostModel one_rank, model.Bind(OfOneRank(conditions)));
  return BoundCostModel(conditions, one_rank.properties(), one_rank.sharding_types(),
                        one_rank.compute(), CommOfOneRank());
}

}  // namespace neuroshard
