// Rates that workers and trainers measured of what models of compute and of collectives leave out:
// casts of exchanged vectors, the distribution of ids, and the steps of a trainer.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "common/domain/vocabulary.h"

namespace neuroshard {

// Rates of the casts of one rank's exchange, to one type or back: one for the values that caches
// hold, another for the rest, so the time is convex in the values.
struct CastRates {
  double ns_per_value = 0;  // per value, before sending or after receiving
  double cached_values = 0;
  double ns_per_value_beyond = 0;  // at least ns_per_value

  // Time of all casts of a rank in one exchange, of values sent and received.
  double Ms(double values) const {
    constexpr double kNsPerMs = 1e6;
    const double cached = std::min(values, cached_values);
    return (cached * ns_per_value + (values - cached) * ns_per_value_beyond) / kNsPerMs;
  }
  bool operator==(const CastRates&) const = default;
};

// Rates by the type on the wire, of fp32 vectors; none: not measured.
struct MeasuredCasts {
  std::optional<CastRates> fp16 = {};
  std::optional<CastRates> bf16 = {};

  std::optional<CastRates> Of(DataType wire_dtype) const {
    if (wire_dtype == DataType::kFp16) return fp16;
    return wire_dtype == DataType::kBf16 ? bf16 : std::nullopt;
  }
  bool operator==(const MeasuredCasts&) const = default;
};

// Bytes that a rank receives from all ranks, itself included, for its shards. The same share of all
// is exchanged, so one rate covers both parts.
struct InputDistBytes {
  double whole = 0;    // ids and weights of whole rows: put in order, exchanged, put in order
  double cut = 0;      // those of cut rows: bucketized, exchanged, put in order
  double lengths = 0;  // of bags

  InputDistBytes& operator+=(const InputDistBytes& other) {
    whole += other.whole;
    cut += other.cut;
    lengths += other.lengths;
    return *this;
  }
};

// Rates at one number of ranks, none negative.
struct InputDistRates {
  int num_ranks = 0;
  double fixed_ms = 0;  // of a batch, whatever it has
  double whole_ns_per_byte = 0;
  double cut_ns_per_byte = 0;
  double lengths_ns_per_byte = 0;

  // Time of the bytes, without fixed_ms.
  double Ms(const InputDistBytes& bytes) const {
    constexpr double kNsPerMs = 1e6;
    return (whole_ns_per_byte * bytes.whole + cut_ns_per_byte * bytes.cut +
            lengths_ns_per_byte * bytes.lengths) /
           kNsPerMs;
  }
  bool operator==(const InputDistRates&) const = default;
};

// Rates by number of ranks, ascending; at least one.
struct MeasuredInputDist {
  std::vector<InputDistRates> rates;
  int max_hosts = 1;  // hosts that the measured ranks were on

  // Returns rates that are linear in ln(ranks) between measured numbers. None outside of them, or
  // on more hosts, since the links between hosts were not measured then.
  std::optional<InputDistRates> At(int num_ranks, int num_hosts) const;

  bool operator==(const MeasuredInputDist&) const = default;
};

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
