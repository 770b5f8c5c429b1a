#include "common/base/build_info.h"

namespace neuroshard {

std::string BuildVersion() { return NEUROSHARD_VERSION; }
std::string BuildGitCommit() { return NEUROSHARD_GIT_COMMIT; }
std::string BuildType() { return NEUROSHARD_BUILD_TYPE; }
std::string BuildText() {
  return BuildVersion() + " (" + BuildGitCommit() + ", " + BuildType() + ")";
}

}  // namespace neuroshard
