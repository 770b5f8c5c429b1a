// The distribution of ids as workers measured it: a time linear in bytes, for each number of ranks.
#pragma once

#include <optional>
#include <vector>

namespace neuroshard {

// What a rank receives for the shards that it holds of all ranks, itself among them, in bytes. How
// much of that is exchanged is the same share of all, so one rate has both.
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

// At one number of ranks; nothing is negative.
struct InputDistRates {
  int num_ranks = 0;
  double fixed_ms = 0;  // of a batch, whatever it has
  double whole_ns_per_byte = 0;
  double cut_ns_per_byte = 0;
  double lengths_ns_per_byte = 0;

  // Of the bytes alone.
  double Ms(const InputDistBytes& bytes) const {
    constexpr double kNsPerMs = 1e6;
    return (whole_ns_per_byte * bytes.whole + cut_ns_per_byte * bytes.cut +
            lengths_ns_per_byte * bytes.lengths) /
           kNsPerMs;
  }
  bool operator==(const InputDistRates&) const = default;
};

// A plain value, at least one rate in ascending order of ranks.
struct MeasuredInputDist {
  std::vector<InputDistRates> rates;
  int max_hosts = 1;  // that the ranks measured were on

  // Linear in ln(ranks) between those measured. None outside of them, or on more hosts: what the
  // links between hosts take is not known then.
  std::optional<InputDistRates> At(int num_ranks, int num_hosts) const;

  bool operator==(const MeasuredInputDist&) const = default;
};

}  // namespace neuroshard
