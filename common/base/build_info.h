// Version and commit of this binary, as they were when CMake configured the build.
#pragma once

#include <string>

namespace neuroshard {

std::string BuildVersion();  // "0.1.0"
// "a8fe7431c02d", "-dirty" behind it when files differed, or "unknown".
std::string BuildGitCommit();
std::string BuildText();  // "0.1.0 (a8fe7431c02d)", as --version says it

}  // namespace neuroshard
