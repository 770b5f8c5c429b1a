// Publication of a trained cost model in a model repository.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "common/base/status.h"
#include "server/networks/model_directory.h"
#include "server/pretrain/data/record_selection.h"
#include "server/pretrain/data/training_config.h"
#include "server/pretrain/report/training_report.h"

namespace neuroshard {

// Place of a model: ROOT/NAME/VERSION.
struct ModelLocation {
  std::filesystem::path directory;
  std::string name;
  int version = 0;
};

// Checks a path before training, so that a typing error does not cost the training time.
// INVALID_ARGUMENT unless it ends in a usable NAME and a positive VERSION without leading zeros;
// ALREADY_EXISTS when the version is there and must not be replaced; UNAVAILABLE where nothing can
// be written.
StatusOr<ModelLocation> LocateModel(const std::string& path, ExistingVersion existing);

// Returns the manifest's `provenance`: who measured what, with which code, and how it was learned.
std::map<std::string, std::string> DescribeProvenance(const SelectedRecords& records,
                                                      const TrainingConfig& config,
                                                      const std::string& store_file_name,
                                                      std::int64_t trained_at_unix_ms);

// Publishes model.yaml, one safetensors file per network, REPORT.md and its CSV files. Errors of
// WriteModelDirectory.
Status PublishModel(const TrainingOutcome& outcome, const ModelLocation& location,
                    const std::map<std::string, std::string>& provenance, ExistingVersion existing);

}  // namespace neuroshard
