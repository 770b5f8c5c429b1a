// The demands of a rule, each by itself.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "common/domain/constraints.h"

namespace neuroshard {

// One field of a TableRule: whether it is set, its text, and how to copy it alone.
struct RuleField {
  std::string_view name;                  // in TableRule
  bool (*is_set)(const TableRule&);       // whether the rule demands it
  std::string (*says)(const TableRule&);  // for a person: "only ranks 0, 1"
  void (*copy)(const TableRule& from, TableRule& to);
};

// All fields of TableRule but `tables`.
std::span<const RuleField> RuleFields();

}  // namespace neuroshard
