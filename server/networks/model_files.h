// files.sha256 of a model's directory: bytes and SHA-256 of each of its files, so that a copy that
// is not whole yet is told from one that is, whatever comes last. Format in the README of this
// folder.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace neuroshard {

inline constexpr std::string_view kFileListName = "files.sha256";

// Lists the files that `directory` has now, but for drift.yaml, which comes later, and what a
// repository passes over; replaces an earlier list in one step.
Status WriteFileList(const std::filesystem::path& directory);

// The digest of the version: SHA-256 of the list's lines. Where there is no list, which is a fault
// if it is `required`, the same of the files that are there. INVALID_ARGUMENT unless the list is
// whole, names model.yaml, and every file that it names has those bytes.
StatusOr<std::string> CheckModelFiles(const std::filesystem::path& directory, bool required);

// Whether repositories take no notice of a file or folder of such a name: ".x", "x.tmp", "x~".
bool IsPassedOver(const std::string& name);

}  // namespace neuroshard
