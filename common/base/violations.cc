#include "common/base/violations.h"

#include "absl/strings/cord.h"

namespace neuroshard {
namespace {

// One violation a line, field and description separated by a tab; both are made free of those two
// characters.
constexpr char kPayloadType[] = "neuroshard/violations";

std::string OneLine(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\t' || c == '\r') c = ' ';
  }
  return text;
}

}  // namespace

void Violations::Add(std::string field, std::string description) {
  ++count_;
  if (kept_.size() < kMaxKept) {
    kept_.push_back({OneLine(std::move(field)), OneLine(std::move(description))});
  }
}

Status Violations::ToStatus() const {
  if (empty()) return absl::OkStatus();
  std::string message;
  std::string payload;
  for (const Violation& violation : kept_) {
    if (!message.empty()) message += "; ";
    message += violation.field + ": " + violation.description;
    payload += violation.field + '\t' + violation.description + '\n';
  }
  if (count_ > kept_.size()) message += fmt::format("; and {} more", count_ - kept_.size());
  Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kPayloadType, absl::Cord(payload));
  return status;
}

std::vector<Violation> Violations::FromStatus(const Status& status) {
  std::vector<Violation> violations;
  const auto payload = status.GetPayload(kPayloadType);
  if (!payload.has_value()) return violations;
  const std::string text(*payload);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const std::size_t tab = text.find('\t', begin);
    if (end == std::string::npos || tab == std::string::npos || tab > end) break;
    violations.push_back({text.substr(begin, tab - begin), text.substr(tab + 1, end - tab - 1)});
    begin = end + 1;
  }
  return violations;
}

}  // namespace neuroshard
