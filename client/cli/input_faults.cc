#include "client/cli/input_faults.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "common/base/violations.h"

namespace neuroshard {
namespace {

// Whether `inner` is `outer` or inside it: "tables[3]" and "tables[3].name".
bool IsWithin(std::string_view inner, std::string_view outer) {
  if (!inner.starts_with(outer)) return false;
  return inner.size() == outer.size() || inner[outer.size()] == '.' || inner[outer.size()] == '[';
}

// "reuse_histogram" of "reuse_histogram[3]"; of other fields nothing.
std::string_view ListOf(std::string_view field) {
  return field.ends_with(']') ? field.substr(0, field.rfind('[')) : std::string_view();
}

// Whether a fault of the text at `unread` makes what is said of `field` worthless.
bool Obscures(std::string_view unread, std::string_view field) {
  if (unread == "(document)" || IsWithin(field, unread) || IsWithin(unread, field)) return true;
  return !ListOf(unread).empty() && ListOf(unread) == ListOf(field);
}

}  // namespace

Status FaultsOfTextAndValues(const Status& text_faults, const Status& value_faults) {
  const std::vector<Violation> unread = Violations::FromStatus(text_faults);
  if (unread.empty()) return text_faults;
  Violations all;
  for (const Violation& violation : unread) all.Add(violation.field, violation.description);
  for (const Violation& violation : Violations::FromStatus(value_faults)) {
    const bool obscured = std::any_of(unread.begin(), unread.end(), [&](const Violation& fault) {
      return Obscures(fault.field, violation.field);
    });
    if (!obscured) all.Add(violation.field, violation.description);
  }
  return all.ToStatus();
}

}  // namespace neuroshard
