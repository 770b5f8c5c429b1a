#include "common/codec/request_faults.h"

#include <cstddef>

#include "common/base/failure_reason.h"

namespace neuroshard {

Status RequestFaults::ToStatus() const {
  if (over_limits.empty()) return violations.ToStatus();
  if (violations.empty()) {
    const Status listed = over_limits.ToStatus();
    return WithReason(WithPayloadsOf(listed, absl::ResourceExhaustedError(listed.message())),
                      FailureReason::kOverLimit);
  }
  Violations all = over_limits;
  for (const Violation& violation : violations.kept()) {
    all.Add(violation.field, violation.description);
  }
  // Beyond those kept, so that they are counted and no more.
  for (std::size_t i = violations.kept().size(); i < violations.count(); ++i) all.Add("", "");
  return all.ToStatus();
}

void RequestFaults::Add(const Status& status, const std::string& prefix) {
  Violations& kind = absl::IsResourceExhausted(status) ? over_limits : violations;
  for (const Violation& violation : Violations::FromStatus(status)) {
    kind.Add(prefix + violation.field, violation.description);
  }
}

}  // namespace neuroshard
