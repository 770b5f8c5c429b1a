// What the steps of a trainer take, learned from steps that it recorded.
#pragma once

#include <vector>

namespace neuroshard {

// A time for each exchange, by what is exchanged.
struct ExchangeTimes {
  double whole_rows_ms = 0;  // all-to-all
  double cut_rows_ms = 0;    // reduce-scatter and all-gather
  double replicas_ms = 0;    // all-reduce

  bool operator==(const ExchangeTimes&) const = default;
};

// Rates at one number of ranks. A step takes `compute_scale` times what the lookups of a rank take
// alone, `comm_scale` times what its collectives take alone, and a fixed time for each exchange
// that it issues: TorchRec issues one for each module and sharding type, with its launches, its
// lookup kernel and its wait, however few bytes it has.
struct StepRates {
  int num_ranks = 0;
  double compute_scale = 1;
  double comm_scale = 1;
  ExchangeTimes exchange = {};  // both directions together
  double forward_share = 0.5;   // of `exchange`
  // The distribution of ids in the same way; it is part of a step where no pipeline hides it.
  double input_dist_scale = 1;
  ExchangeTimes input_dist = {};
  // The share of `input_dist` that a step still pays where a pipeline distributes ids beside the
  // batch before. 0 where that hides all of it; about 1 where the host does the work of the device,
  // too.
  double pipelined_share = 0;

  bool operator==(const StepRates&) const = default;
};

// Rates by number of ranks, ascending; at least one.
struct MeasuredSteps {
  std::vector<StepRates> rates;

  // Returns the rates of this number of ranks, or of the nearest one: what a trainer's code takes
  // depends little on it.
  const StepRates& At(int num_ranks) const;
  bool Covers(int num_ranks) const {
    return rates.front().num_ranks <= num_ranks && num_ranks <= rates.back().num_ranks;
  }

  bool operator==(const MeasuredSteps&) const = default;
};

}  // namespace neuroshard
