// drift.yaml beside a model.yaml: measurements made after the model, compared with it. Format
// neuroshard-drift/2 (README of this folder).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "server/cost/model_info.h"

namespace neuroshard {

inline constexpr std::string_view kDriftFormat = "neuroshard-drift";  // /1 or /2
inline constexpr std::string_view kDriftFileName = "drift.yaml";

// Returns the stages in the order of their names, or INVALID_ARGUMENT with every fault of the text,
// each with the path of its key.
StatusOr<std::vector<StageDrift>> ParseModelDrift(std::string_view yaml);

// Returns a text that ParseModelDrift reads back as equal values; INVALID_ARGUMENT for what it
// would refuse.
StatusOr<std::string> FormatModelDrift(const std::vector<StageDrift>& drift);

// Reads DIRECTORY/drift.yaml, nothing where there is no such file. Errors name it.
StatusOr<std::vector<StageDrift>> ReadModelDrift(const std::filesystem::path& directory);

// Replaces the file in one step.
Status WriteModelDrift(const std::filesystem::path& directory,
                       const std::vector<StageDrift>& drift);

}  // namespace neuroshard
