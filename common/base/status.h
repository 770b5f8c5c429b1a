// Status values across module borders: absl::Status and absl::StatusOr, with constructors that
// format.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace neuroshard {

using absl::Status;
using absl::StatusOr;

// InvalidArgument("{} is wrong", what): a status of that code with a formatted message.
#define NS_FORMATTED_STATUS(Code)                                                 \
  template <typename... Args>                                                     \
  [[nodiscard]] Status Code(fmt::format_string<Args...> format, Args&&... args) { \
    return absl::Code##Error(fmt::format(format, std::forward<Args>(args)...));   \
  }
NS_FORMATTED_STATUS(Aborted)
NS_FORMATTED_STATUS(AlreadyExists)
NS_FORMATTED_STATUS(Cancelled)
NS_FORMATTED_STATUS(DataLoss)
NS_FORMATTED_STATUS(DeadlineExceeded)
NS_FORMATTED_STATUS(FailedPrecondition)
NS_FORMATTED_STATUS(Internal)
NS_FORMATTED_STATUS(InvalidArgument)
NS_FORMATTED_STATUS(NotFound)
NS_FORMATTED_STATUS(PermissionDenied)
NS_FORMATTED_STATUS(ResourceExhausted)
NS_FORMATTED_STATUS(Unavailable)
#undef NS_FORMATTED_STATUS

// absl's message() is not a std::string_view in Debian's build; this is.
[[nodiscard]] inline std::string Message(const Status& status) {
  return std::string(status.message().data(), status.message().size());
}

// The status's code and message, without its payloads, with "context: " in front. OK stays OK.
[[nodiscard]] inline Status Annotate(const Status& status, const std::string& context) {
  if (status.ok()) return status;
  return Status(status.code(), context + ": " + Message(status));
}

// The status with the payloads of another one, besides its own. OK stays OK.
[[nodiscard]] inline Status WithPayloadsOf(const Status& other, Status status) {
  other.ForEachPayload([&](auto type, const auto& payload) {
    if (!status.GetPayload(type).has_value()) status.SetPayload(type, payload);
  });
  return status;
}

}  // namespace neuroshard

#define NS_CONCAT_INNER(a, b) a##b
#define NS_CONCAT(a, b) NS_CONCAT_INNER(a, b)

#define NS_RETURN_IF_ERROR(expression)                                      \
  do {                                                                      \
    if (::neuroshard::Status ns_status_ = (expression); !ns_status_.ok()) { \
      return ns_status_;                                                    \
    }                                                                       \
  } while (false)

#define NS_ASSIGN_OR_RETURN_IMPL(result, target, expression) \
  auto result = (expression);                                \
  if (!result.ok()) return std::move(result).status();       \
  target = *std::move(result)

// NS_ASSIGN_OR_RETURN(auto x, F()): x = F()'s value, or return F()'s status.
#define NS_ASSIGN_OR_RETURN(target, expression) \
  NS_ASSIGN_OR_RETURN_IMPL(NS_CONCAT(ns_result_, __LINE__), target, expression)
