// Publishing a model: ROOT/NAME/VERSION appears complete or not at all.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "common/base/status.h"
#include "server/networks/model_manifest.h"
#include "server/networks/safetensors.h"

namespace neuroshard {

// Writes model.yaml, `files` (by the names that the manifest uses; exactly those) and the list of
// them (model_files.h) into a hidden folder beside `directory` and renames it to `directory`, so
// that a server polling the repository never sees half a model. `directory` ends in the manifest's
// NAME/VERSION; its parents are created. ALREADY_EXISTS when it is there and not empty;
// INVALID_ARGUMENT for a manifest or tensors that loading would refuse; UNAVAILABLE when the disk
// refuses. Nothing is left behind after a failure.
Status WriteModelDirectory(const std::filesystem::path& directory, const ModelManifest& written,
                           const std::map<std::string, TensorFile>& files);

}  // namespace neuroshard
