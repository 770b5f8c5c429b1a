// Lists of faults: all of one input, each with the path of its field ("tables[3].embedding_dim").
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"

namespace neuroshard {

// One fault: the path of its field and a description with the value and the rule.
struct Violation {
  std::string field;
  std::string description;

  bool operator==(const Violation&) const = default;
};

// A list of faults that keeps the first kMaxKept and counts all. Not for concurrent use.
class Violations {
 public:
  // An error that lists more helps nobody and may outgrow a message; the rest is counted.
  static constexpr std::size_t kMaxKept = 100;

  void Add(std::string field, std::string description);
  // With a description that is formatted.
  template <typename Arg, typename... Args>
  void Add(std::string field, fmt::format_string<Arg, Args...> format, Arg&& arg, Args&&... args) {
    Add(std::move(field), fmt::format(format, std::forward<Arg>(arg), std::forward<Args>(args)...));
  }

  bool empty() const { return count_ == 0; }
  std::size_t count() const { return count_; }
  const std::vector<Violation>& kept() const { return kept_; }

  // OK when empty; otherwise INVALID_ARGUMENT whose message lists all kept violations ("field:
  // description; ...") and which carries them for FromStatus.
  Status ToStatus() const;

  // The violations that ToStatus put into a status; empty when it has none.
  static std::vector<Violation> FromStatus(const Status& status);

 private:
  std::vector<Violation> kept_;
  std::size_t count_ = 0;
};

}  // namespace neuroshard
