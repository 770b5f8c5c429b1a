#include "common/base/in_file.h"

#include "common/base/violations.h"

namespace neuroshard {

Status InFile(const std::string& path, const Status& status) {
  Status named = Annotate(status, path);
  Violations violations;
  for (const Violation& violation : Violations::FromStatus(status)) {
    violations.Add(path + ": " + violation.field, violation.description);
  }
  CopyPayloads(violations.ToStatus(), named);
  return named;
}

}  // namespace neuroshard
