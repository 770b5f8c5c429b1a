// Version, commit and type of this binary; fixed when CMake configured the build.
#pragma once

#include <string>

namespace neuroshard {

std::string BuildVersion();  // "0.1.0"
// "a8fe7431c02d", "-dirty" behind it when files differed, or "unknown" (a build from an archive).
std::string BuildGitCommit();
// CMake's build type: "Release"; "None" for builds that state their own flags (presets of
// developers).
std::string BuildType();
// The text of --version: "0.1.0 (a8fe7431c02d, Release)".
std::string BuildText();

}  // namespace neuroshard
