#include "common/base/failure_reason.h"

#include <array>
#include <string>
#include <utility>

#include "absl/strings/cord.h"

namespace neuroshard {
namespace {

constexpr char kReasonPayload[] = "neuroshard/reason";

constexpr std::array<std::pair<FailureReason, std::string_view>, 10> kTexts = {{
    {FailureReason::kBadInput, "BAD_INPUT"},
    {FailureReason::kOutOfMemory, "OUT_OF_MEMORY"},
    {FailureReason::kConstraintsConflict, "CONSTRAINTS_CONFLICT"},
    {FailureReason::kNoPlanFound, "NO_PLAN_FOUND"},
    {FailureReason::kNoModel, "NO_MODEL"},
    {FailureReason::kModelUnfit, "MODEL_UNFIT"},
    {FailureReason::kOverLimit, "OVER_LIMIT"},
    {FailureReason::kOverloaded, "OVERLOADED"},
    {FailureReason::kOverQuota, "OVER_QUOTA"},
    {FailureReason::kDraining, "DRAINING"},
}};

}  // namespace

std::string_view ReasonText(FailureReason reason) {
  for (const auto& [value, text] : kTexts) {
    if (value == reason) return text;
  }
  return "";
}

std::optional<FailureReason> ReasonFromText(std::string_view text) {
  for (const auto& [value, known] : kTexts) {
    if (known == text) return value;
  }
  return std::nullopt;
}

Status WithReason(Status status, FailureReason reason) {
  if (status.ok() || status.GetPayload(kReasonPayload).has_value()) return status;
  status.SetPayload(kReasonPayload, absl::Cord(std::string(ReasonText(reason))));
  return status;
}

std::optional<FailureReason> ReasonOf(const Status& status) {
  const auto payload = status.GetPayload(kReasonPayload);
  if (payload.has_value()) return ReasonFromText(std::string(*payload));
  return absl::IsInvalidArgument(status) ? std::optional(FailureReason::kBadInput) : std::nullopt;
}

}  // namespace neuroshard
