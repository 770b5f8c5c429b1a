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

// A version's number, as only std::to_string spells it; nothing where the name is none.
std::optional<int> VersionFromName(const std::string& name);

// Writes model.yaml, `files` (by the names that the manifest uses; exactly those), `texts` (other
// files by name) and the list of them (model_files.h) into a hidden folder beside `directory`, which
// then takes its place: a server that polls the repository never sees half a model, and nothing is
// left behind after a failure. `directory` ends in the manifest's NAME/VERSION; its parents are
// created. A version that is there is ALREADY_EXISTS unless it is empty, or exchanged in one step;
// where the file system cannot do that (NFS), it is moved away first, and a planner that polls just
// then does not see it. INVALID_ARGUMENT for a manifest or tensors that loading would refuse;
// UNAVAILABLE when the disk refuses.
Status WriteModelDirectory(const std::filesystem::path& directory, const ModelManifest& written,
                           const std::map<std::string, TensorFile>& files,
                           const std::map<std::string, std::string>& texts = {},
                           ExistingVersion existing = ExistingVersion::kRefuse);

}  // namespace neuroshard
