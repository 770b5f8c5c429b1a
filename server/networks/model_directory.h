// Publishing a model: ROOT/NAME/VERSION appears complete or not at all.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "common/base/status.h"
#include "server/networks/model_manifest.h"
#include "server/networks/safetensors.h"

namespace neuroshard {

enum class ExistingVersion { kRefuse, kReplace };

// Returns the version of a name that std::to_string would spell, else nullopt.
std::optional<int> VersionFromName(const std::string& name);

// Writes model.yaml, `files` (exactly those of the manifest, by its names), `texts` (other files by
// name) and the list of all (model_files.h) into a hidden folder beside `directory`, which then
// takes its place: a server that polls the repository never sees half a model, and a failure leaves
// nothing behind. `directory` ends in the manifest's NAME/VERSION; its parents are created.
//
// A version that is there is ALREADY_EXISTS unless it is empty, or is exchanged in one step. Where
// the file system cannot exchange (NFS), the old one is moved away first, and a planner that polls
// just then sees neither. INVALID_ARGUMENT for a manifest or tensors that loading would refuse;
// UNAVAILABLE when the disk refuses.
Status WriteModelDirectory(const std::filesystem::path& directory, const ModelManifest& written,
                           const std::map<std::string, TensorFile>& files,
                           const std::map<std::string, std::string>& texts = {},
                           ExistingVersion existing = ExistingVersion::kRefuse);

}  // namespace neuroshard
