// Small universal cost models for tests: the real format and shapes, made-up numbers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/networks/testing/model_fixture.h"

namespace neuroshard {

struct UniversalFixtureOptions {
  std::string name = "universal";
  int version = 1;
  std::uint64_t seed = 1;
  std::vector<std::string> outputs = {"forward_ms", "backward_ms"};
  std::int64_t cache_bytes = 32 << 20;
  std::vector<std::int64_t> table_hidden = {12, 6};  // phi's widths after the features
  std::int64_t head_width = 5;
  std::vector<std::int64_t> comm_hidden = {6, 5};
  int members = 3;
  bool has_comm = true;
  bool has_intervals = true;
  // Intervals of collectives, besides the one for all others.
  std::map<std::string, IntervalManifest> intervals = {
      {"all_to_all_forward", {0.9, 2, {1}, {0.1}}},
      {"all_reduce", {0.9, 3, {1}, {0.1}, {2, 8}, {3, 4}}}};
  int max_hosts = 2;
  std::vector<std::string> collectives = {"all_to_all_forward", "all_to_all_backward",
                                          "reduce_scatter", "all_gather", "all_reduce"};
};

// Makes a model, deterministic in the options. Weights have both signs where the format allows;
// costs are of the order of a millisecond; members differ by about a tenth.
ModelFixture MakeUniversalFixture(const UniversalFixtureOptions& options);

// Writes the model below `root` and returns ROOT/NAME/VERSION.
StatusOr<std::filesystem::path> WriteUniversalFixture(const std::filesystem::path& root,
                                                      const UniversalFixtureOptions& options = {});

}  // namespace neuroshard
