// Small cost models for tests: the real format and the real shapes, made-up numbers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/networks/model_manifest.h"
#include "server/networks/safetensors.h"

namespace neuroshard {

struct ModelFixtureOptions {
  std::string name = "fixture";
  int version = 1;
  std::vector<int> device_counts = {2, 4};
  std::uint64_t seed = 1;
  std::vector<std::int64_t> table_hidden = {16, 8};  // phi's widths after the features
  std::vector<std::int64_t> head_hidden = {8};
  std::vector<std::int64_t> comm_hidden = {16, 8};
  std::vector<std::string> outputs = {"total_ms"};
};

struct ModelFixture {
  ModelManifest manifest;
  std::map<std::string, TensorFile> files;
};

// Makes a model, deterministic in the options. Weights are at least 0, so that costs grow with dim,
// pooling factor, rows and the number of tables; they are of the order of a millisecond.
ModelFixture MakeModelFixture(const ModelFixtureOptions& options);

// Writes the model below `root` and returns ROOT/NAME/VERSION. Errors of WriteModelDirectory.
StatusOr<std::filesystem::path> WriteModelFixture(const std::filesystem::path& root,
                                                  const ModelFixtureOptions& options = {});

}  // namespace neuroshard
