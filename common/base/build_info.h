// Version and commit of this binary; fixed when CMake configured the build.
#pragma once

#include <string>

namespace neuroshard {

std::string BuildVersion();  // "0.1.0"
// "a8fe7431c02d", "-dirty" behind it when files differed, or "unknown" (a build from an archive).
std::string BuildGitCommit();
// For --version: "0.1.0 (a8fe7431c02d)".
std::string BuildText();

}  // namespace neuroshard
