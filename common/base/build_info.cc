#include "common/base/build_info.h"

namespace neuroshard {

std::string BuildVersion() { return NEUROSHARD_VERSION; }
std::string BuildGitCommit() { return NEUROSHARD_GIT_COMMIT; }
std::string BuildText() { return BuildVersion() + " (" + BuildGitCommit() + ")"; }

}  // namespace neuroshard
