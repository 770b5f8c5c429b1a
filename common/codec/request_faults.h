// Faults of a request: fields that no server takes, and limits of this one.
#pragma once

#include <string>

#include "common/base/status.h"
#include "common/base/violations.h"

namespace neuroshard {

// The faults of one request, in two lists.
struct RequestFaults {
  Violations over_limits;  // another server might take it
  Violations violations;   // no server does

  // OK when there are none; RESOURCE_EXHAUSTED when the request is over limits and nothing else is
  // wrong with it; else INVALID_ARGUMENT. Lists both kinds, limits first, and carries them for
  // Violations::FromStatus.
  Status ToStatus() const;

  // Those that such a status carries, `prefix` in front of their fields.
  void Add(const Status& status, const std::string& prefix);
};

}  // namespace neuroshard
