// The directory ROOT/NAME/VERSION of a model. Publishing makes it appear complete or not at all.
// files.sha256 has size and SHA-256 of each of its files, which tell a complete copy from one in
// progress, in whatever order files arrive. The README of this folder has the format.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "server/networks/model_manifest.h"
#include "server/networks/safetensors.h"

namespace neuroshard {

inline constexpr std::string_view kFileListName = "files.sha256";

// Lists the files of `directory`, except drift.yaml, which comes later, and files that a repository
// skips; replaces an earlier list in one step.
Status WriteFileList(const std::filesystem::path& directory);

// Returns the digest of the version: SHA-256 of the lines of its list. Without a list, which is a
// fault if it is `required`, the digest is of the files that are there. INVALID_ARGUMENT unless the
// list is complete and names model.yaml, and every file in it has the listed bytes.
StatusOr<std::string> CheckModelFiles(const std::filesystem::path& directory, bool required);

// Returns whether repositories skip a file or folder of this name: ".x", "x.tmp", "x~".
bool IsPassedOver(const std::string& name);

enum class ExistingVersion { kRefuse, kReplace };

// Returns the version of a name that std::to_string would spell, else nullopt.
std::optional<int> VersionFromName(const std::string& name);

// Writes model.yaml, `files` (exactly those of the manifest, by its names), `texts` (other files by
// name) and the list of all (files.sha256) into a hidden folder beside `directory`, which then
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
