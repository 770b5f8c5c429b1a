#include "worker/measure/build_info.h"

namespace neuroshard {

std::string BuildVersion() { return NEUROSHARD_VERSION; }
std::string BuildGitCommit() { return NEUROSHARD_GIT_COMMIT; }

}  // namespace neuroshard
