// For tests: a violation by its field and a part of its description.
#pragma once

#include <gmock/gmock.h>

#include <string>

#include "common/base/violations.h"

namespace neuroshard {

inline auto ViolationIs(const std::string& field, const std::string& description) {
  using ::testing::Field;
  return ::testing::AllOf(
      Field("field", &Violation::field, field),
      Field("description", &Violation::description, ::testing::HasSubstr(description)));
}

}  // namespace neuroshard
