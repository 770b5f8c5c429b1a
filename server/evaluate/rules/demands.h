// The demands of a request one by one, so that one can be dropped and the rest kept; and smallest
// lists of them that still have a property.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/domain/plan_request.h"
#include "server/evaluate/rules/type_set.h"

namespace neuroshard {

// A request's demands as a list. One demand is one field of one rule, one group, one limit, the
// sharding types that tables without a rule on types may use, the migration budget, the types of
// which alone tables may change place, the columns that the trainer's kernels take, or the memory of
// all ranks. Under TorchRec's column rule the
// minimal widths belong to that demand: they say which blocks it means.
class Demands {
 public:
  // `tables`, ascending: only the demands that concern one of them. The request must outlive this.
  Demands(const PlanRequest& request, TypeSet default_types, std::vector<int> tables);
  // All of the request's tables.
  Demands(const PlanRequest& request, TypeSet default_types);
  Demands(const Demands&) = delete;

  std::size_t size() const { return demands_.size(); }

  // Where a demand is ("constraints.tables[2].ranks"), and what it demands ("ranks 0, 1").
  std::string Path(std::size_t demand) const;
  std::string Text(std::size_t demand) const;

  // The request's tables() with `kept` (ascending) for their only demands; everything else is
  // allowed: all sharding types, any memory, no migration. Rules and groups that demand nothing are
  // not there, so their numbers are others; a group may be left with one table.
  PlanRequest With(const std::vector<std::size_t>& kept) const;

  // The tables that the demands concern, as indices into the request's.
  const std::vector<int>& tables() const { return tables_; }

 private:
  // A demand beside the fields of rules: where it is, what it demands, and how a request with
  // tables() comes to have it.
  struct RequestDemand {
    std::string path;
    std::function<std::string()> text;
    std::function<void(PlanRequest&)> keep;
  };
  struct Demand {
    std::size_t index = 0;                  // of the rule, or in request_demands_
    std::optional<std::size_t> field = {};  // of the rule: position in a list of them
  };

  void ListRules();
  void ListRequestDemands();
  void ListTypes();
  void AddRequestDemand(std::string path, std::function<std::string()> text,
                        std::function<void(PlanRequest&)> keep);
  std::vector<int> Renumbered(const std::vector<int>& tables) const;
  std::string Names(const std::vector<int>& tables) const;  // in the request's numbers
  // Some memories are for tables whose rules list a kernel there, or that are there: where that
  // demand on kernels is not kept, the table may have any kernel, so that a request with fewer
  // demands forbids less.
  void KeepListed(const std::vector<std::size_t>& kept, PlanRequest& request) const;
  // Least widths decide the one block width of unpooled tables and of TorchRec's column rule, and
  // are not demands of their own there: a plan without them may be harder to find.
  bool WidthsAreDemands() const;
  void KeepColumnRule(Constraints& to) const;
  std::vector<int> TooWideTables() const;                // of tables_, in the request's numbers
  Migration& KeepMigration(PlanRequest& request) const;  // with the plan in place alone

  const PlanRequest& request_;
  const TypeSet default_types_;
  const std::vector<int> tables_;
  std::vector<int> untyped_tables_;  // without a rule on types, in the request's numbers
  std::vector<Demand> demands_;
  std::vector<RequestDemand> request_demands_;
};

// A minimal part of 0 .. count - 1, ascending, of which `shows` is true: without any one of its
// members it is not. `shows` must be true of all together, and may depend on the list in any way.
// Leaves out halves first, so that it asks about 2 m log(count) times for m members.
std::vector<std::size_t> MinimalSet(
    std::size_t count, const std::function<bool(const std::vector<std::size_t>&)>& shows);

}  // namespace neuroshard
