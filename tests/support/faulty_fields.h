// The fields that a status finds fault with.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/violations.h"

namespace neuroshard {

// In the order of the violations; empty where there are none.
inline std::vector<std::string> FaultyFields(const Status& status) {
  std::vector<std::string> fields;
  for (const Violation& violation : Violations::FromStatus(status)) {
    fields.push_back(violation.field);
  }
  return fields;
}

}  // namespace neuroshard
