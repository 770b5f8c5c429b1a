// What this binary was built from; fixed when CMake configured the build.
#pragma once

#include <string>

namespace neuroshard {

std::string BuildVersion();  // "0.1.0"
std::string
BuildGitCommit();  // "a8fe7431c02d", "-dirty" behind it when files differed, or "unknown"

}  // namespace neuroshard
