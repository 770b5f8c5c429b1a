#include "server/cost/universal/universal_comm.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "common/domain/shard_layout.h"
#include "server/cost/comm_features.h"
#include "server/cost/universal/comm_network_member.h"
#include "server/cost/volume_equivalent.h"

namespace neuroshard {
namespace {

constexpr int kMostRanks = 16384;
constexpr double kWireElementBytes = 4;
constexpr double kReferenceColumns = 128;

// What the model and all that were bound from it share.
struct CommNetworks {
  std::vector<CommNetworkMember> members;
  std::optional<IntervalRule> interval_rule;
  bool tells_hosts_apart = false;
  std::array<bool, kCollectiveKinds> known{};

  bool Knows(CollectiveKind kind) const { return known[static_cast<std::size_t>(kind)]; }
};

// One placement's inputs, kept by a thread so that calls ask for no memory.
struct Scratch {
  std::vector<double> bytes;
  std::vector<double> start_offsets_ms;
  std::vector<CommFeatureRow> rows;
  std::vector<double> wait_ms;
  std::vector<double> cost_ms;
};
thread_local Scratch scratch;

class UniversalBoundComm final : public BoundComm {
 public:
  UniversalBoundComm(std::shared_ptr<const CommNetworks> networks,
                     const PricingConditions& conditions)
      : networks_(std::move(networks)),
        conditions_(conditions),
        layout_(conditions.num_ranks,
                networks_->tells_hosts_apart ? conditions.hosts : std::vector<HostRanks>()),
        bytes_per_column_(kWireElementBytes * static_cast<double>(conditions.global_batch_size)),
        reduce_scatter_columns_(
            RatioOf(CollectiveKind::kReduceScatter, CollectiveKind::kAllToAllForward, 1)),
        all_gather_columns_(
            RatioOf(CollectiveKind::kAllGather, CollectiveKind::kAllToAllBackward, 1)),
        all_reduce_columns_(
            RatioOf(CollectiveKind::kAllReduce, CollectiveKind::kAllToAllBackward, 2)) {}

  CommLoad Load(const ShardFeatures& shard) const override {
    const double cols = static_cast<double>(shard.cols);
    if (shard.layout.type == ShardingType::kDataParallel) {
      // The gradient's values, spread over the batch: columns of a buffer of B values each.
      const double columns = static_cast<double>(shard.rows) * cols /
                             static_cast<double>(conditions_.global_batch_size);
      return {0, static_cast<float>(columns * all_reduce_columns_)};
    }
    if (!CutsRows(shard.layout.type)) return {static_cast<float>(cols), static_cast<float>(cols)};
    return {static_cast<float>(cols * reduce_scatter_columns_),
            static_cast<float>(cols * all_gather_columns_)};
  }

  void BackwardCosts(std::span<const float> loads, std::span<float> cost_ms) const override {
    Costs(CollectiveKind::kAllToAllBackward, loads, {}, cost_ms);
  }

  void ForwardCosts(std::span<const float> loads, std::span<const float> start_offsets_ms,
                    std::span<float> cost_ms) const override {
    Costs(CollectiveKind::kAllToAllForward, loads, start_offsets_ms, cost_ms);
  }

  std::vector<CommInterval> Intervals(std::span<const RankComm> ranks) const override {
    if (!networks_->interval_rule) return {};
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
      FillRows(kind);
      std::vector<std::vector<double>> by_member;
      for (const CommNetworkMember& member : networks_->members) {
        member.Costs(kind, scratch.rows, scratch.wait_ms, by_member.emplace_back(ranks.size()));
      }
      std::vector<double> said(by_member.size());
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        for (std::size_t m = 0; m < said.size(); ++m) said[m] = by_member[m][r];
        const double cost_ms = forward ? ranks[r].forward_ms : ranks[r].backward_ms;
        (forward ? intervals[r].forward : intervals[r].backward) =
            networks_->interval_rule->Around(cost_ms, networks_->interval_rule->Deviation(said));
      }
    }
    return intervals;
  }

 private:
  // Features of what scratch has of bytes and offsets.
  void FillRows(CollectiveKind kind) const {
    scratch.rows.resize(layout_.num_ranks());
    scratch.wait_ms.resize(layout_.num_ranks());
    CommFeaturesOf(layout_, kind, scratch.bytes, scratch.start_offsets_ms, scratch.rows,
                   scratch.wait_ms);
  }

  void Costs(CollectiveKind kind, std::span<const float> loads,
             std::span<const float> start_offsets_ms, std::span<float> cost_ms) const {
    const std::size_t ranks = layout_.num_ranks();
    assert(loads.size() == cost_ms.size() && loads.size() % ranks == 0);
    const CommNetworkMember& member = networks_->members.front();
    for (std::size_t begin = 0; begin < loads.size(); begin += ranks) {
      scratch.bytes.resize(ranks);
      for (std::size_t r = 0; r < ranks; ++r) {
        scratch.bytes[r] = bytes_per_column_ * loads[begin + r];
      }
      scratch.start_offsets_ms.clear();
      if (!start_offsets_ms.empty()) {
        const auto of_placement = start_offsets_ms.subspan(begin, ranks);
        scratch.start_offsets_ms.assign(of_placement.begin(), of_placement.end());
      }
      FillRows(kind);
      scratch.cost_ms.resize(ranks);
      member.Costs(kind, scratch.rows, scratch.wait_ms, scratch.cost_ms);
      for (std::size_t r = 0; r < ranks; ++r) {
        cost_ms[begin + r] = static_cast<float>(
            std::min(scratch.cost_ms[r], static_cast<double>(std::numeric_limits<float>::max())));
      }
    }
  }

  // What `kind` costs against `all_to_all`, the same bytes on every rank, where they take longest.
  double RatioOf(CollectiveKind kind, CollectiveKind all_to_all, double unknown) const {
    if (!networks_->Knows(kind) || !networks_->Knows(all_to_all)) return unknown;
    const std::vector<float> loads(layout_.num_ranks(), static_cast<float>(kReferenceColumns));
    const auto longest = [&](CollectiveKind of) {
      std::vector<float> cost_ms(loads.size());
      Costs(of, loads, {}, cost_ms);
      return static_cast<double>(*std::max_element(cost_ms.begin(), cost_ms.end()));
    };
    return longest(kind) / longest(all_to_all);
  }

  std::shared_ptr<const CommNetworks> networks_;
  PricingConditions conditions_;
  CommLayout layout_;
  double bytes_per_column_;
  // Columns of an all-to-all that cost as much as one column of:
  double reduce_scatter_columns_;
  double all_gather_columns_;
  double all_reduce_columns_;
};

class UniversalComm final : public CommModel {
 public:
  explicit UniversalComm(std::shared_ptr<const CommNetworks> networks)
      : networks_(std::move(networks)) {}

  Status CheckConditions(const PricingConditions& conditions) const override {
    if (conditions.num_ranks <= kMostRanks) return absl::OkStatus();
    return FailedPrecondition("the communication network takes 2 to {} devices, got {}", kMostRanks,
                              conditions.num_ranks);
  }

  std::shared_ptr<const BoundComm> BoundTo(const PricingConditions& conditions) const override {
    return std::make_shared<const UniversalBoundComm>(networks_, conditions);
  }

 private:
  std::shared_ptr<const CommNetworks> networks_;
};

}  // namespace

std::shared_ptr<const CommModel> MakeUniversalComm(const UniversalCommManifest& manifest,
                                                   const TrainedOnManifest& trained_on,
                                                   const TensorFile& file) {
  CommNetworks networks;
  for (int m = 0; m < manifest.members; ++m) {
    networks.members.emplace_back(file, fmt::format("member.{}", m), manifest.layers);
  }
  if (manifest.interval) networks.interval_rule.emplace(*manifest.interval);
  networks.tells_hosts_apart = trained_on.max_hosts > 1;
  for (const std::string& collective : trained_on.collectives) {
    networks.known[static_cast<std::size_t>(CollectiveFromName(collective).value())] = true;
  }
  return std::make_shared<const UniversalComm>(
      std::make_shared<const CommNetworks>(std::move(networks)));
}

}  // namespace neuroshard
