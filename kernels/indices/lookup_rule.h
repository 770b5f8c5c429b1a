// A batch's ids as a function of their position: every id, offset and weight is made without the
// others, so a GPU's threads make a batch in its own memory, and host and device make the same one
// to the bit.
//
// A position has a key, a key falls into a run of ranks that share one frequency, and a rank is a
// row in random order. What the keys are decides what is met: with keys that are a permutation of
// the positions, every rank occurs exactly as often as it has keys (reuse histograms); with keys
// drawn one by one, every position is independent of the others (Zipf).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/indices/counter_random.h"

namespace neuroshard {

// A bijection of [0, size): rounds of adding a key, multiplying and folding the upper half onto the
// lower one, each of them a bijection of the next power of two, walked along its cycles until it
// lands inside (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002; fewer than two
// steps on average). Not cryptographic: six rounds are as many as it takes for pairs of values to
// be independent over the seeds, also in small ranges, where the tests can see it.
class RandomPermutation {
 public:
  RandomPermutation() = default;  // of one thing
  // size in [1, 2^62].
  RandomPermutation(std::int64_t size, std::uint64_t seed);

  // Where `index` of [0, size) goes.
  NS_DEVICE_CODE std::int64_t operator()(std::int64_t index) const {
    auto value = static_cast<std::uint64_t>(index);
    do {
      value = Scatter(value);
    } while (value >= size_);
    return static_cast<std::int64_t>(value);
  }

  // Where each of `indices` goes, in place; on a CPU quicker than one by one.
  void Apply(std::span<std::int64_t> indices) const;

 private:
  static constexpr int kRounds = 6;

  NS_DEVICE_CODE std::uint64_t Scatter(std::uint64_t value) const {
    for (int round = 0; round < kRounds; round += 2) {  // odd factors, those of SplitMix
      value = (value + keys_[round]) * 0xbf58476d1ce4e5b9U & mask_;
      value ^= value >> fold_bits_;
      value = (value + keys_[round + 1]) * 0x94d049bb133111ebU & mask_;
      value ^= value >> fold_bits_;
    }
    return value;
  }

  std::uint64_t size_ = 1;
  std::uint64_t mask_ = 0;
  std::uint64_t keys_[kRounds] = {};
  int fold_bits_ = 1;
};

// Ranks from `first_rank` on, up to the next run's first, own `keys_per_rank` (at least 1) keys
// each, the first of them `first_key`.
struct RankRun {
  std::int64_t first_key = 0;
  std::int64_t first_rank = 0;
  std::int64_t keys_per_rank = 1;

  bool operator==(const RankRun&) const = default;
};

// Choice of keys: a permutation of the positions (exact counts), or independent draws.
enum class KeyChoice : std::int32_t { kPermuted, kDrawn };

// The ids, offsets and weights of a batch by their positions. Made by the planners of
// lookup_generator.h.
struct LookupRule {
  std::int64_t batch_size = 1;
  std::int64_t lookups = 0;
  KeyChoice key_choice = KeyChoice::kPermuted;
  RandomPermutation key_order;    // kPermuted: of the positions
  std::uint64_t draw_seed = 0;    // kDrawn
  std::int64_t num_keys = 1;      // kDrawn: of all runs
  const RankRun* runs = nullptr;  // in the memory of who calls; ascending, the first key is 0
  std::int32_t num_runs = 0;
  RandomPermutation row_order;  // of the table's rows, by rank
  std::uint64_t length_seed = 0;
  std::uint64_t weight_seed = 0;

  // The id at a position in [0, lookups).
  NS_DEVICE_CODE std::int64_t Id(std::int64_t position) const {
    return row_order(
        Rank(key_choice == KeyChoice::kPermuted ? key_order(position) : DrawnKey(position)));
  }

  // The steps of Id.
  NS_DEVICE_CODE std::int64_t DrawnKey(std::int64_t position) const {
    const std::uint64_t bits = SplitMix(draw_seed + static_cast<std::uint64_t>(position));
    return static_cast<std::int64_t>(Scale(bits, static_cast<std::uint64_t>(num_keys)));
  }
  NS_DEVICE_CODE std::int64_t Rank(std::int64_t key) const {
    // The last run that begins at or before the key. Nothing branches on the key, which no
    // processor would foresee, and which differs within a warp.
    const RankRun* run = runs;
    for (std::int32_t left = num_runs; left > 1;) {
      const std::int32_t half = left / 2;
      run += run[half].first_key <= key ? half : 0;
      left -= half;
    }
    return run->first_rank + (key - run->first_key) / run->keys_per_rank;
  }

  // Uniform in [0.5, 1.5).
  NS_DEVICE_CODE float Weight(std::int64_t position) const {
    const std::uint64_t bits = SplitMix(weight_seed + static_cast<std::uint64_t>(position));
    return 0.5F + static_cast<float>(bits >> 41) * 0x1.0p-23F;  // exact
  }

  // Where the ids of `sample` begin; of batch_size: where the last one's end. Samples have
  // lookups / batch_size ids rounded down; the others, one a sample, go to one random sample of
  // each of as many stretches of (almost) equal length.
  NS_DEVICE_CODE std::int64_t Offset(std::int64_t sample) const {
    const std::int64_t offset = sample * (lookups / batch_size), longer = lookups % batch_size;
    if (longer == 0) return offset;
    // The stretch that holds the sample: all before it lie before the sample.
    const std::int64_t stretch = ((sample + 1) * longer - 1) / batch_size;
    const std::int64_t begin = stretch * batch_size / longer;
    const std::int64_t end = (stretch + 1) * batch_size / longer;
    const std::uint64_t bits = SplitMix(length_seed + static_cast<std::uint64_t>(stretch));
    const std::int64_t longer_one =
        begin + static_cast<std::int64_t>(Scale(bits, static_cast<std::uint64_t>(end - begin)));
    return offset + stretch + (longer_one < sample ? 1 : 0);
  }

  // Ids of the longest sample.
  std::int64_t LongestBag() const { return (lookups + batch_size - 1) / batch_size; }
};

}  // namespace neuroshard
