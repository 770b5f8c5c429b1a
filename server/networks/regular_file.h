// Reading and writing of whole files: bounded reads of regular files, and atomic writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace neuroshard {

// Reads a file. NOT_FOUND when there is none; INVALID_ARGUMENT when it is not a regular file
// (directories, pipes and devices are never opened, so nothing blocks) or is larger than
// `max_bytes`; UNAVAILABLE when reading fails. Errors name the path.
StatusOr<std::string> ReadRegularFile(const std::filesystem::path& path, std::int64_t max_bytes);

// Writes a temporary file beside `path`, syncs it, renames it and syncs the folder. After a failure
// (UNAVAILABLE, with the reason) or a crash at any point `path` is as it was, or complete; a
// failure removes the temporary file.
Status WriteFileAtomically(const std::filesystem::path& path, std::string_view bytes);

// Makes the names in a folder durable, as fsync makes a file's bytes.
Status SyncDirectory(const std::filesystem::path& directory);

}  // namespace neuroshard
