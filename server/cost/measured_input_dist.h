// The distribution of ids as workers measured it: a time that is linear in bytes, for each number
// of ranks.
#pragma once

#include <optional>
#include <vector>

namespace neuroshard {

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

}  // namespace neuroshard
