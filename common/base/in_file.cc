#include "common/base/in_file.h"

#include "absl/strings/cord.h"
#include "common/base/violations.h"

namespace neuroshard {

Status InFile(const std::string& path, const Status& status) {
  Status named = Annotate(status, path);
  Violations violations;
  for (const Violation& violation : Violations::FromStatus(status)) {
    violations.Add(path + ": " + violation.field, violation.description);
  }
  violations.ToStatus().ForEachPayload([&named](absl::string_view type, const absl::Cord& payload) {
    named.SetPayload(type, payload);
  });
  return named;
}

}  // namespace neuroshard
