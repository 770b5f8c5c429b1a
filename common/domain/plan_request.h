// A request for a plan after decoding: every value is in range and every name is known, so nobody
// behind the codec checks again.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/domain/table.h"
#include "common/domain/topology.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {

struct MemoryModel {
  MemoryRule rule = MemoryRule::kFull;
  double reserve_fraction = 0.0;
  std::int64_t reserve_bytes = 0;

  bool operator==(const MemoryModel&) const = default;
};

struct CostModelRef {
  std::string name;  // empty: the server's default
  int version = 0;   // 0: the newest

  bool operator==(const CostModelRef&) const = default;
};

// NeuroShard's names in brackets.
struct SearchOptions {
  std::string strategy = "neuroshard";
  int beam_width = 3;       // [k]
  int num_candidates = 10;  // [n]
  int max_length = 10;
  int search_steps = 11;
  std::optional<std::chrono::milliseconds> time_budget;
  std::uint64_t seed = 0;

  bool operator==(const SearchOptions&) const = default;
};

struct PlanRequest {
  std::string request_id;
  std::vector<Table> tables;
  Topology topology;
  std::int64_t global_batch_size = 65536;
  Optimizer optimizer = Optimizer::kSgd;
  MemoryModel memory;
  CostModelRef cost_model;
  SearchOptions search;
  std::vector<std::string> warnings;  // what decoding had to assume

  bool operator==(const PlanRequest&) const = default;
};

}  // namespace neuroshard
