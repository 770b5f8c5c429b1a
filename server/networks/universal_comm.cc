#include "server/networks/universal_comm.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "server/cost/volume_equivalent.h"
#include "server/networks/network_tensors.h"

namespace neuroshard {

// What the model and all that were bound from it share.
struct UniversalCommNetworks {
  Normalisation normalisation;
  std::vector<CommNetworkMember> members = {};
  std::size_t num_pricing = 1;  // of them: their mean prices
  std::array<std::optional<IntervalRule>, kCollectiveKinds> interval_rules = {};
  bool tells_hosts_apart = false;
  std::array<bool, kCollectiveKinds> known{};

  bool Knows(CollectiveKind kind) const { return known[static_cast<std::size_t>(kind)]; }

  // Null where the model does not say how sure it is.
  const IntervalRule* RuleOf(CollectiveKind kind) const {
    const auto& rule = interval_rules[static_cast<std::size_t>(kind)];
    return rule ? &*rule : nullptr;
  }
};

namespace {

constexpr double kMinLogMs = -20;
constexpr double kMaxLogMs = 12;
constexpr double kWireElementBytes = 4;
constexpr double kReferenceColumns = 128;

// The inputs of some placements, kept by a thread so that calls ask for no memory.
struct Scratch {
  std::vector<double> bytes;
  std::vector<double> start_offsets_ms;
  std::vector<CommFeatureRow> rows;  // of one placement
  std::vector<float> inputs;         // normalised, of all
  std::vector<double> wait_ms;
  std::vector<double> cost_ms;
  std::vector<double> of_member_ms;
  std::vector<float> log_ms;
};
thread_local Scratch scratch;

// The networks at one request's conditions.
class BoundUniversalComm final : public CommModel {
 public:
  BoundUniversalComm(std::shared_ptr<const UniversalCommNetworks> networks,
                     const PricingConditions& conditions)
      : networks_(std::move(networks)),
        conditions_(conditions),
        layout_(conditions.num_ranks,
                networks_->tells_hosts_apart ? conditions.hosts : std::vector<HostRanks>()),
        bytes_per_column_(kWireElementBytes * static_cast<double>(conditions.global_batch_size)),
        idle_ms_(IdleCosts()),
        reduce_scatter_columns_(
            RatioOf(CollectiveKind::kReduceScatter, CollectiveKind::kAllToAllForward, 1)),
        all_gather_columns_(
            RatioOf(CollectiveKind::kAllGather, CollectiveKind::kAllToAllBackward, 1)),
        all_reduce_columns_(
            RatioOf(CollectiveKind::kAllReduce, CollectiveKind::kAllToAllBackward, 2)) {}

  CommLoad Load(const ShardFeatures& shard) const override {
    if (shard.layout.type == ShardingType::kDataParallel) {
      // The gradient's values, spread over the batch: columns of a buffer of B values each.
      const double columns = static_cast<double>(shard.rows) * static_cast<double>(shard.cols) /
                             static_cast<double>(conditions_.global_batch_size);
      return {0, static_cast<float>(columns * all_reduce_columns_), {.replicas = true}};
    }
    const ExchangedColumns columns = ColumnsOf(conditions_, shard);
    if (!AddsVectors(shard)) {
      return {static_cast<float>(columns.forward),
              static_cast<float>(columns.backward),
              {.whole_rows = true}};
    }
    return {static_cast<float>(columns.forward * reduce_scatter_columns_),
            static_cast<float>(columns.backward * all_gather_columns_),
            {.cut_rows = true}};
  }

  CommSetup SetupOf(const ShardKinds& kinds) const override {
    if (kinds == ShardKinds()) return {};
    const auto idle_ms = [&](bool has, CollectiveKind kind) {
      return has ? idle_ms_[static_cast<std::size_t>(kind)] : 0;
    };
    const double forward_ms = idle_ms(kinds.whole_rows, CollectiveKind::kAllToAllForward) +
                              idle_ms(kinds.cut_rows, CollectiveKind::kReduceScatter);
    const double backward_ms = idle_ms(kinds.whole_rows, CollectiveKind::kAllToAllBackward) +
                               idle_ms(kinds.cut_rows, CollectiveKind::kAllGather) +
                               idle_ms(kinds.replicas, CollectiveKind::kAllReduce);
    return {static_cast<float>(forward_ms - idle_ms(true, CollectiveKind::kAllToAllForward)),
            static_cast<float>(backward_ms - idle_ms(true, CollectiveKind::kAllToAllBackward))};
  }

  void Costs(CommStage stage, std::span<const float> loads, std::span<const float> start_offsets_ms,
             std::span<float> cost_ms) const override {
    Costs(stage == CommStage::kForward ? CollectiveKind::kAllToAllForward
                                       : CollectiveKind::kAllToAllBackward,
          loads, start_offsets_ms, cost_ms);
  }

  std::vector<CommInterval> Intervals(std::span<const RankComm> ranks) const override {
    const bool says = networks_->RuleOf(CollectiveKind::kAllToAllForward) != nullptr &&
                      networks_->RuleOf(CollectiveKind::kAllToAllBackward) != nullptr;
    if (!says) return {};
    assert(ranks.size() == layout_.num_ranks());
    std::vector<CommInterval> intervals(ranks.size());
    for (const bool forward : {true, false}) {
      scratch.bytes.clear();
      scratch.start_offsets_ms.clear();
      for (const RankComm& rank : ranks) {
        scratch.bytes.push_back(bytes_per_column_ *
                                (forward ? rank.load.forward : rank.load.backward));
        if (forward) scratch.start_offsets_ms.push_back(rank.start_offset_ms);
      }
      const CollectiveKind kind =
          forward ? CollectiveKind::kAllToAllForward : CollectiveKind::kAllToAllBackward;
      scratch.inputs.clear();
      scratch.wait_ms.clear();
      AddRows(kind);
      std::vector<std::vector<double>> by_member;
      for (const CommNetworkMember& member : networks_->members) {
        member.Costs(kind, scratch.inputs, scratch.wait_ms, by_member.emplace_back(ranks.size()));
      }
      const std::vector<IntervalRule> rules = RulesOf(kind, ranks);
      std::vector<double> said(by_member.size());
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        for (std::size_t m = 0; m < said.size(); ++m) said[m] = by_member[m][r];
        const double cost_ms = forward ? ranks[r].forward_ms : ranks[r].backward_ms;
        CostInterval& around = forward ? intervals[r].forward : intervals[r].backward;
        around = {cost_ms, cost_ms};
        for (const IntervalRule& rule : rules) {
          const CostInterval by_rule = rule.Around(cost_ms, rule.Deviation(said, cost_ms));
          around.low_ms = std::min(around.low_ms, by_rule.low_ms);
          around.high_ms = std::max(around.high_ms, by_rule.high_ms);
        }
      }
    }
    return intervals;
  }

 private:
  // The rules of the collectives that a stage of the placement has; `all_to_all` is the stage's
  // own.
  std::vector<IntervalRule> RulesOf(CollectiveKind all_to_all,
                                    std::span<const RankComm> ranks) const {
    ShardKinds kinds;
    for (const RankComm& rank : ranks) kinds |= rank.load.kinds;
    const bool forward = all_to_all == CollectiveKind::kAllToAllForward;
    std::vector<IntervalRule> rules;
    const auto add = [&](CollectiveKind kind) {
      const IntervalRule* rule = networks_->RuleOf(kind);
      if (rule == nullptr) rule = networks_->RuleOf(all_to_all);
      rules.push_back(rule->AtRanks(static_cast<int>(layout_.num_ranks())));
    };
    if (kinds.cut_rows) {
      add(forward ? CollectiveKind::kReduceScatter : CollectiveKind::kAllGather);
    }
    if (!forward && kinds.replicas) add(CollectiveKind::kAllReduce);
    if (rules.empty() || kinds.whole_rows) add(all_to_all);
    return rules;
  }

  // Adds the features of one placement, whose bytes and offsets scratch has.
  void AddRows(CollectiveKind kind) const {
    const std::size_t begin = scratch.wait_ms.size();
    scratch.rows.resize(layout_.num_ranks());
    scratch.wait_ms.resize(begin + layout_.num_ranks());
    CommFeaturesOf(layout_, kind, scratch.bytes, scratch.start_offsets_ms, scratch.rows,
                   std::span(scratch.wait_ms).subspan(begin));
    for (const CommFeatureRow& row : scratch.rows) {
      for (std::size_t k = 0; k < kCommFeatures; ++k) {
        scratch.inputs.push_back(networks_->normalisation.Apply(k, row[k]));
      }
    }
  }

  // The networks run on the rows of many placements at once.
  void Costs(CollectiveKind kind, std::span<const float> loads,
             std::span<const float> start_offsets_ms, std::span<float> cost_ms) const {
    constexpr std::size_t kBlockRows = 128;
    const std::size_t ranks = layout_.num_ranks();
    assert(loads.size() == cost_ms.size() && loads.size() % ranks == 0);
    const std::size_t block = ranks * std::max<std::size_t>(1, kBlockRows / ranks);
    for (std::size_t begin = 0; begin < loads.size(); begin += block) {
      const std::size_t rows = std::min(block, loads.size() - begin);
      scratch.inputs.clear();
      scratch.wait_ms.clear();
      for (std::size_t first = begin; first < begin + rows; first += ranks) {
        scratch.bytes.resize(ranks);
        for (std::size_t r = 0; r < ranks; ++r) {
          scratch.bytes[r] = bytes_per_column_ * loads[first + r];
        }
        scratch.start_offsets_ms.clear();
        if (!start_offsets_ms.empty()) {
          const auto of_placement = start_offsets_ms.subspan(first, ranks);
          scratch.start_offsets_ms.assign(of_placement.begin(), of_placement.end());
        }
        AddRows(kind);
      }
      scratch.cost_ms.assign(rows, 0);
      scratch.of_member_ms.resize(rows);
      const std::size_t members = networks_->num_pricing;
      for (std::size_t m = 0; m < members; ++m) {
        networks_->members[m].Costs(kind, scratch.inputs, scratch.wait_ms, scratch.of_member_ms);
        for (std::size_t r = 0; r < rows; ++r) {
          scratch.cost_ms[r] += scratch.of_member_ms[r] / static_cast<double>(members);
        }
      }
      for (std::size_t r = 0; r < rows; ++r) {
        cost_ms[begin + r] = static_cast<float>(
            std::min(scratch.cost_ms[r], static_cast<double>(std::numeric_limits<float>::max())));
      }
    }
  }

  // What the slowest rank takes where every rank has `columns`.
  double LongestMs(CollectiveKind kind, double columns) const {
    const std::vector<float> loads(layout_.num_ranks(), static_cast<float>(columns));
    std::vector<float> cost_ms(loads.size());
    Costs(kind, loads, {}, cost_ms);
    return *std::ranges::max_element(cost_ms);
  }

  // What a collective of nothing takes; 0 where nobody knows.
  std::array<double, kCollectiveKinds> IdleCosts() const {
    std::array<double, kCollectiveKinds> idle_ms{};
    for (std::size_t kind = 0; kind < kCollectiveKinds; ++kind) {
      const auto of = static_cast<CollectiveKind>(kind);
      if (networks_->Knows(of)) idle_ms[kind] = LongestMs(of, 0);
    }
    return idle_ms;
  }

  double RatioOf(CollectiveKind kind, CollectiveKind all_to_all, double unknown) const {
    if (!networks_->Knows(kind) || !networks_->Knows(all_to_all)) return unknown;
    return LongestMs(kind, kReferenceColumns) / LongestMs(all_to_all, kReferenceColumns);
  }

  std::shared_ptr<const UniversalCommNetworks> networks_;
  PricingConditions conditions_;
  CommLayout layout_;
  double bytes_per_column_;
  std::array<double, kCollectiveKinds> idle_ms_;
  // Columns of an all-to-all that cost as much as one column of:
  double reduce_scatter_columns_;
  double all_gather_columns_;
  double all_reduce_columns_;
};

}  // namespace

CommNetworkMember::CommNetworkMember(const TensorFile& file, const std::string& prefix,
                                     const std::vector<std::int64_t>& layers)
    : net_(file, prefix + "layer", layers, DenseActivation::kNone, HiddenUnits::kHalves),
      wait_scale_(file.tensors.at(prefix + "wait_scale").values),
      floor_ms_(file.tensors.at(prefix + "floor_ms").values) {}

void CommNetworkMember::Costs(CollectiveKind kind, std::span<const float> rows,
                              std::span<const double> wait_ms, std::span<double> cost_ms) const {
  scratch.log_ms.resize(cost_ms.size());
  net_.Run(std::ssize(cost_ms), rows, scratch.log_ms);
  const std::size_t c = static_cast<std::size_t>(kind);
  const double wait_scale = wait_scale_[c];
  const double floor_ms = floor_ms_[c];
  for (std::size_t r = 0; r < cost_ms.size(); ++r) {
    const double value = scratch.log_ms[r];
    // NaN is the largest, as what overflows is.
    const double log_ms = value < kMinLogMs ? kMinLogMs : (value < kMaxLogMs ? value : kMaxLogMs);
    cost_ms[r] = wait_scale * wait_ms[r] + floor_ms + std::exp(log_ms);
  }
}

UniversalComm::UniversalComm(const NetworkManifest& network, const TrainedOnManifest& trained_on,
                             const TensorFile& file) {
  UniversalCommNetworks networks{Normalisation(file)};
  networks.num_pricing = static_cast<std::size_t>(network.pricing_members());
  for (int m = 0; m < network.members; ++m) {
    networks.members.emplace_back(file, MemberPrefix(network.kind, m), network.layers);
  }
  for (std::size_t kind = 0; kind < kCollectiveKinds; ++kind) {
    const std::string name(CollectiveName(static_cast<CollectiveKind>(kind)));
    const IntervalManifest* interval = network.IntervalOf(name);
    if (interval != nullptr) networks.interval_rules[kind].emplace(*interval);
  }
  networks.tells_hosts_apart = trained_on.max_hosts > 1;
  for (const std::string& collective : trained_on.collectives) {
    networks.known[static_cast<std::size_t>(CollectiveFromName(collective).value())] = true;
  }
  networks_ = std::make_shared<const UniversalCommNetworks>(std::move(networks));
}

StatusOr<std::shared_ptr<const CommModel>> UniversalComm::Bind(
    const PricingConditions& conditions) const {
  if (conditions.num_ranks > kMaxRanks) {
    return FailedPrecondition("the communication network takes 2 to {} devices, got {}", kMaxRanks,
                              conditions.num_ranks);
  }
  return std::make_shared<const BoundUniversalComm>(networks_, conditions);
}

}  // namespace neuroshard
