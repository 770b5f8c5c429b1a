// Matchers for Status and StatusOr.
#pragma once

#include <gmock/gmock.h>

#include <string>
#include <type_traits>
#include <utility>

#include "common/base/status.h"

namespace neuroshard::testing {

inline const Status& StatusOf(const Status& status) { return status; }
template <typename T>
const Status& StatusOf(const StatusOr<T>& result) {
  return result.status();
}

MATCHER(IsOk, negation ? "is an error" : "is OK") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

// StatusIs(absl::StatusCode::kNotFound, HasSubstr("no such file"))
MATCHER_P2(StatusIs, code, message_matcher,
           "has code " + absl::StatusCodeToString(code) + " and a message that " +
               ::testing::DescribeMatcher<std::string>(message_matcher, negation)) {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code &&
         ::testing::ExplainMatchResult(message_matcher, Message(StatusOf(arg)), result_listener);
}

MATCHER_P(StatusIs, code, "has code " + absl::StatusCodeToString(code)) {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code;
}

}  // namespace neuroshard::testing

// Stops the test when the expression is an error; otherwise binds its value.
#define NS_ASSERT_OK_AND_ASSIGN(target, expression) \
  NS_ASSERT_OK_AND_ASSIGN_IMPL(NS_CONCAT(ns_test_result_, __LINE__), target, expression)
#define NS_ASSERT_OK_AND_ASSIGN_IMPL(result, target, expression) \
  auto result = (expression);                                    \
  ASSERT_TRUE(result.ok()) << result.status().ToString();        \
  target = *std::move(result)
