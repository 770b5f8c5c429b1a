// The predicted or measured cost of a plan, rank by rank; ms for one iteration over a global batch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/domain/memory_use.h"

namespace neuroshard {

// An interval that holds the median of a measurement with the probability
// PlanCost::interval_coverage.
struct CostInterval {
  double low_ms = 0;
  double high_ms = 0;

  bool operator==(const CostInterval&) const = default;
};

// The intervals of a rank's costs; none where the model has none.
struct RankIntervals {
  std::optional<CostInterval> compute;
  std::optional<CostInterval> forward_compute;
  std::optional<CostInterval> backward_compute;
  std::optional<CostInterval> forward_comm;
  std::optional<CostInterval> backward_comm;
  std::optional<CostInterval> total;
  std::optional<CostInterval> input_dist = {};

  bool operator==(const RankIntervals&) const = default;
};

// The stages of one rank, in ms, and its memory.
struct RankCost {
  double compute_ms = 0;
  std::optional<double> forward_compute_ms;  // when the model tells the two apart
  std::optional<double> backward_compute_ms;
  double forward_comm_ms = 0;
  double backward_comm_ms = 0;
  double start_offset_ms = 0;  // all but forward comm, minus the minimum over ranks
  std::int64_t dim_sum = 0;
  MemoryUse memory;
  std::int64_t capacity_bytes = 0;
  RankIntervals intervals;
  std::optional<double> input_dist_ms = {};  // distribution of ids; none: not priced
  bool input_dist_hidden = true;             // beside the batch before, so not part of the total

  double total_ms() const {
    const double exposed_ms = input_dist_hidden ? 0 : input_dist_ms.value_or(0);
    return compute_ms + backward_comm_ms + forward_comm_ms + exposed_ms;
  }
  bool operator==(const RankCost&) const = default;
};

// Bytes of tables in a host's memory, or on its SSDs.
struct HostMemoryUse {
  int host = 0;
  std::int64_t total_bytes = 0;
  std::int64_t capacity_bytes = 0;

  bool operator==(const HostMemoryUse&) const = default;
};

// Whose work the measurements timed that a prediction was learned from, and on what
// (backend_names.h): what a prediction forecasts. Empty: not stated, or nothing was measured.
struct MeasuredWith {
  std::string device;
  std::string backend;
  std::string collective_backend;
  std::string collective_cadence = {};  // a word of Cadence; empty: no collectives were measured

  bool operator==(const MeasuredWith&) const = default;
};

// What every rank pays for an exchange of a plan, however few bytes it has.
struct ExchangeCost {
  std::string module;
  ShardingType sharding_type = ShardingType::kTableWise;
  double time_ms = 0;

  bool operator==(const ExchangeCost&) const = default;
};

// The cost of a plan: its most expensive rank, and every rank.
struct PlanCost {
  double embedding_cost_ms = 0;  // max over ranks of total_ms
  std::vector<RankCost> ranks;
  double interval_coverage = 0;          // of all intervals here; 0: there are none
  std::optional<CostInterval> interval;  // of the embedding cost
  MeasuredWith measured_with;            // in a planner's answer
  // Use of each memory that the ranks of a host share, by host where it holds tables.
  ByTier<std::vector<HostMemoryUse>> shared = {};
  // Mean embedding cost over the request's sampled batches; none: it has none.
  std::optional<double> mean_of_max_ms = {};
  // By module and sharding type, in the order of tables; none where the model does not price them.
  std::vector<ExchangeCost> exchanges = {};

  bool operator==(const PlanCost&) const = default;
};

// Intervals of a sum of stages and of a maximum over ranks, from those of the stages. The README of
// server/evaluate has the reasons.

// The interval of compute + backward communication + forward communication, and the distribution of
// ids where that is part of the total. What crosses links errs together (one fabric): the distances
// to the bounds of the two directions and of the ids add up. Compute errs independently of them:
// distances add as squares. None unless the first three are there; ids without an interval, which a
// formula has priced, count as they are.
std::optional<CostInterval> TotalInterval(const RankCost& rank);

// The interval of the maximum over ranks of total_ms(), from their intervals.total at `coverage` in
// (0, 1). Low: if all ranks err together, the largest low. High: if each errs for itself, the value
// that all ranks stay below with probability (1 + coverage) / 2, taking each to be normal above its
// cost; that is at least the largest high. None where a rank has none.
std::optional<CostInterval> EmbeddingCostInterval(std::span<const RankCost> ranks, double coverage);

}  // namespace neuroshard
