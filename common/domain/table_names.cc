#include "common/domain/table_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "common/base/positions.h"
#include "common/base/printable_text.h"

namespace neuroshard {

std::string FullName(std::string_view module, std::string_view name) {
  return module.empty() ? std::string(name) : fmt::format("{}.{}", module, name);
}

void TableNames::Add(std::string_view module, std::string_view name) {
  const int index = static_cast<int>(names_.size());
  names_.emplace_back(name);
  full_names_.push_back(FullName(module, name));
  by_full_name_.emplace(full_names_.back(), index);
  by_name_[names_.back()].push_back(index);
}

int TableNames::Find(const std::string& full_name) const {
  const auto found = by_full_name_.find(full_name);
  return found == by_full_name_.end() ? -1 : found->second;
}

const std::vector<int>& TableNames::WithName(const std::string& name) const {
  static const std::vector<int> kNone;
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? kNone : found->second;
}

int TableNames::Resolve(const std::string& text) const {
  if (const int index = Find(text); index >= 0) return index;
  const std::vector<int>& tables = WithName(text);
  return tables.size() == 1 ? tables.front() : -1;
}

std::string TableNames::WhyUnresolved(const std::string& text) const {
  const std::vector<int>& tables = WithName(text);
  if (tables.empty()) return fmt::format("names no table of the request, got {}", Quoted(text));
  constexpr std::size_t kListed = 5;
  std::string list;
  for (std::size_t i = 0; i < tables.size() && i < kListed; ++i) {
    list += fmt::format("{}{}", i == 0 ? "" : ", ", Quoted(At(full_names_, tables[i])));
  }
  return fmt::format("names several tables of the request ({}{}), got {}", list,
                     tables.size() > kListed ? ", ..." : "", Quoted(text));
}

const std::string& TableNames::ReferenceTo(int table) const {
  const std::string& name = At(names_, table);
  return Resolve(name) == table ? name : At(full_names_, table);
}

std::vector<int> TablesOf(const Plan& plan, const std::vector<Table>& tables) {
  // Most plans have the tables of the request in their order.
  if (std::equal(plan.tables.begin(), plan.tables.end(), tables.begin(), tables.end(),
                 [](const TablePlan& entry, const Table& table) {
                   return entry.name == table.name && entry.module == table.module;
                 })) {
    return Positions<int>(tables.size());
  }
  const TableNames names(tables);
  const TableNames entries(plan.tables);
  std::vector<int> table_of;
  table_of.reserve(plan.tables.size());
  for (const TablePlan& entry : plan.tables) {
    int table = names.Find(FullName(entry.module, entry.name));
    const std::vector<int>& same_name = names.WithName(entry.name);
    if (table < 0 && same_name.size() == 1 && entries.WithName(entry.name).size() == 1) {
      table = same_name.front();
    }
    table_of.push_back(table);
  }
  return table_of;
}

std::vector<const TablePlan*> EntriesOf(const Plan& plan, const std::vector<Table>& tables) {
  std::vector<const TablePlan*> entries(tables.size());
  const std::vector<int> table_of = TablesOf(plan, tables);
  for (std::size_t e = 0; e < table_of.size(); ++e) {
    if (table_of[e] < 0) continue;
    const TablePlan*& entry = At(entries, table_of[e]);
    if (entry == nullptr) entry = &plan.tables[e];
  }
  return entries;
}

}  // namespace neuroshard
