// How texts refer to tables (table.proto, Table.module).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/domain/plan.h"
#include "common/domain/table.h"

namespace neuroshard {

// "module.name", in the root module the name: what identifies a table in a request.
std::string FullName(std::string_view module, std::string_view name);

// The tables of a request, or of a plan, by the texts that refer to them: a full name, or a name
// that one table alone has; a text that is both is the full name. Queries are O(1) and may run
// concurrently.
class TableNames {
 public:
  TableNames() = default;
  // Named: Table or TablePlan.
  template <typename Named>
  explicit TableNames(const std::vector<Named>& tables) {
    for (const Named& table : tables) Add(table.module, table.name);
  }

  // Indices count up from 0 in the order of calls.
  void Add(std::string_view module, std::string_view name);

  // The first table with this full name; -1: none.
  int Find(const std::string& full_name) const;
  // The tables with this name, ascending.
  const std::vector<int>& WithName(const std::string& name) const;

  // The table that `text` refers to; -1: none, or several.
  int Resolve(const std::string& text) const;
  // What is wrong with a text that refers to no table: that none or several have the name.
  std::string WhyUnresolved(const std::string& text) const;

  // The shortest text that refers to the table.
  const std::string& ReferenceTo(int table) const;
  template <typename Index>
  std::vector<std::string_view> ReferencesTo(const std::vector<Index>& tables) const {
    std::vector<std::string_view> texts;
    for (const Index table : tables) texts.push_back(ReferenceTo(static_cast<int>(table)));
    return texts;
  }

 private:
  std::vector<std::string> names_;
  std::vector<std::string> full_names_;
  absl::flat_hash_map<std::string, int> by_full_name_;
  absl::flat_hash_map<std::string, std::vector<int>> by_name_;
};

// The table that each entry of a plan stands for, as an index; -1: none. It is the one with the
// entry's full name; where there is none such, the only one with its name, if no other entry has
// that name. Full names of `tables` differ.
std::vector<int> TablesOf(const Plan& plan, const std::vector<Table>& tables);

// By table, the first entry of the plan that stands for it; null: none.
std::vector<const TablePlan*> EntriesOf(const Plan& plan, const std::vector<Table>& tables);

}  // namespace neuroshard
