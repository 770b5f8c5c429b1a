// Faults of a file's content, with the file's name.
#pragma once

#include <string>

#include "common/base/status.h"

namespace neuroshard {

// As Annotate(status, path); besides, what Violations::FromStatus finds in `status` it finds here
// too, each field with "path: " in front. OK stays OK.
Status InFile(const std::string& path, const Status& status);

}  // namespace neuroshard
