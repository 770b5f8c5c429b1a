// Why a call failed, in one word, so that programs need not read the message. proto/README.md says
// what each means for a caller.
#pragma once

#include <optional>
#include <string_view>

#include "common/base/status.h"

namespace neuroshard {

enum class FailureReason {
  kBadInput,
  kOutOfMemory,
  kConstraintsConflict,
  kNoPlanFound,
  kNoModel,
  kModelUnfit,
  kOverLimit,
  kOverloaded,
  kOverQuota,
  kDraining
};

// As in google.rpc.ErrorInfo.reason, "OUT_OF_MEMORY".
std::string_view ReasonText(FailureReason reason);
std::optional<FailureReason> ReasonFromText(std::string_view text);

// `status` with a reason, which it keeps where it has one; OK stays OK.
[[nodiscard]] Status WithReason(Status status, FailureReason reason);

// What WithReason gave it; kBadInput for any other INVALID_ARGUMENT.
std::optional<FailureReason> ReasonOf(const Status& status);

}  // namespace neuroshard
