// The communication half of a cost model, bound to the conditions of one request.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/domain/plan_cost.h"
#include "server/cost/shard_features.h"

namespace neuroshard {

// Kinds of shards, by the collectives that they need and the exchanges that they are part of.
struct ShardKinds {
  bool whole_rows = false;  // all-to-all in both stages
  bool cut_rows = false;    // reduce-scatter forward, all-gather backward
  bool replicas = false;    // data_parallel: all-reduce backward
  // A bit for each module and sharding type, which a trainer exchanges apart; 0 where the model does
  // not price that (step_comm.h).
  std::uint64_t exchanges = 0;

  ShardKinds& operator|=(const ShardKinds& other) {
    exchanges |= other.exchanges;
    whole_rows = whole_rows || other.whole_rows;
    cut_rows = cut_rows || other.cut_rows;
    replicas = replicas || other.replicas;
    return *this;
  }
  bool operator==(const ShardKinds&) const = default;
};

// Load of a shard on the communication of its rank, in the model's own unit: prices are functions
// of the sums over a rank's shards. For NeuroShard's networks it is columns of pooled vectors that
// the rank exchanges for the whole batch.
struct CommLoad {
  float forward = 0;
  float backward = 0;
  ShardKinds kinds = {};  // none set where the model does not tell them apart

  CommLoad& operator+=(const CommLoad& other) {
    forward += other.forward;
    backward += other.backward;
    kinds |= other.kinds;
    return *this;
  }
  bool operator==(const CommLoad&) const = default;
};

// Stages of a step's communication.
enum class CommStage { kForward, kBackward };

// Time of a stage on every rank besides the price of the loads.
struct CommSetup {
  float forward_ms = 0;
  float backward_ms = 0;
};

// The communication of one rank of a placement, with its price in ms.
struct RankComm {
  CommLoad load = {};  // summed over the rank's shards
  double start_offset_ms = 0;
  double forward_ms = 0;
  double backward_ms = 0;
};

// Intervals of a rank's communication: low <= cost <= high, in ms.
struct CommInterval {
  CostInterval forward;
  CostInterval backward;
};

// Prices the communication of placements on the ranks that it was made for. It owns what it needs.
// Immutable, so thread-safe. Callers ensure the sizes of spans (assertions check them).
class CommModel {
 public:
  virtual ~CommModel() = default;

  virtual CommLoad Load(const ShardFeatures& shard) const = 0;

  // Prices a stage. `loads` is [n, ranks], CommLoad::forward or backward summed by rank; `cost_ms` is
  // [n, ranks], at least 0. `start_offsets_ms` is [n, ranks] in the forward stage, how much later
  // than the first rank each rank enters, and empty in the backward one. Searches call it in their
  // inner loop: it allocates only in a thread's first call.
  virtual void Costs(CommStage stage, std::span<const float> loads,
                     std::span<const float> start_offsets_ms, std::span<float> cost_ms) const = 0;
  void BackwardCosts(std::span<const float> loads, std::span<float> cost_ms) const {
    Costs(CommStage::kBackward, loads, {}, cost_ms);
  }
  void ForwardCosts(std::span<const float> loads, std::span<const float> start_offsets_ms,
                    std::span<float> cost_ms) const {
    Costs(CommStage::kForward, loads, start_offsets_ms, cost_ms);
  }

  // Returns what a placement with shards of these kinds pays besides, since a stage of several
  // collectives takes longer than one all-to-all of all loads. It is 0 for whole rows alone and may
  // be negative; costs stay at least 0.
  virtual CommSetup SetupOf(const ShardKinds& /*kinds*/) const { return {}; }

  // Part of SetupOf in both stages that is of these exchanges (ShardKinds::exchanges).
  double ExchangesMs(std::uint64_t exchanges) const {
    const CommSetup setup = SetupOf({.whole_rows = true, .exchanges = exchanges});
    return static_cast<double>(setup.forward_ms) + setup.backward_ms;
  }

  // Returns the intervals of one placement, by rank. Empty where the model has none.
  virtual std::vector<CommInterval> Intervals(std::span<const RankComm> /*ranks*/) const {
    return {};
  }
};

}  // namespace neuroshard
