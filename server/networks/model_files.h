// files.sha256 of a model's directory: size and SHA-256 of each of its files, which tell a complete
// copy from one in progress, in whatever order files arrive. The README of this folder has the
// format.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "common/base/status.h"

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

}  // namespace neuroshard
