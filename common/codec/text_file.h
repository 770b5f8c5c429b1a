// Reading and writing whole text files.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace neuroshard {

// "-" is standard input. NOT_FOUND, PERMISSION_DENIED or FAILED_PRECONDITION (a directory, an I/O
// error) naming the file; RESOURCE_EXHAUSTED when it is larger than `max_bytes`.
StatusOr<std::string> ReadTextFile(const std::string& path,
                                   std::size_t max_bytes = std::size_t{256} << 20);

// Readers see the old content or the new, never a part: written beside `path`, synced, renamed over
// it. Nothing is left behind on failure.
Status WriteTextFile(const std::string& path, std::string_view content);

// Whether WriteTextFile could write `path` now, for whoever has long work to do first. Nothing is
// left behind, and what is there stays.
Status CheckTextFileWritable(const std::string& path);

}  // namespace neuroshard
