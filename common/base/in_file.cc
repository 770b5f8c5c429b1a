#include "common/base/in_file.h"

#include "common/base/violations.h"

namespace neuroshard {

Status InFile(const std::string& path, const Status& status) {
  Violations violations;
  for (const Violation& violation : Violations::FromStatus(status)) {
    violations.Add(path + ": " + violation.field, violation.description);
  }
  return WithPayloadsOf(violations.ToStatus(), Annotate(status, path));
}

}  // namespace neuroshard
