#include "server/evaluate/rules/type_obstacle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "server/evaluate/rules/compiled_rules.h"
#include "server/evaluate/rules/demands.h"
#include "server/evaluate/rules/minimal_set.h"

namespace neuroshard {
namespace {

// The table and those that share its ranks or hosts, ascending.
std::vector<int> Company(const Constraints& constraints, int table) {
  std::vector<int> company = {table};
  for (std::size_t seen = 0; seen != company.size();) {
    seen = company.size();
    for (const TableGroup& group : constraints.colocate) {
      const bool joins = std::any_of(group.tables.begin(), group.tables.end(), [&](int t) {
        return std::binary_search(company.begin(), company.end(), t);
      });
      if (!joins) continue;
      std::vector<int> joined;
      std::set_union(company.begin(), company.end(), group.tables.begin(), group.tables.end(),
                     std::back_inserter(joined));
      company = std::move(joined);
    }
  }
  return company;
}

}  // namespace

std::string TypeObstacle(const PlanRequest& request, TypeSet default_types, int table,
                         ShardingType type) {
  const std::vector<int> company = Company(request.constraints, table);
  const Demands demands(request, default_types, company);
  const int position =
      static_cast<int>(std::lower_bound(company.begin(), company.end(), table) - company.begin());
  const auto keeps_out = [&](const std::vector<std::size_t>& kept) {
    const CompiledRules rules(demands.With(kept), TypeSet::All());
    return !rules.of(position).types.contains(type);
  };
  std::vector<std::size_t> all(demands.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  if (!keeps_out(all)) return "";
  std::string obstacle;
  for (const std::size_t demand : MinimalSet(demands.size(), keeps_out)) {
    if (!obstacle.empty()) obstacle += "; ";
    obstacle += fmt::format("{} ({})", demands.Path(demand), demands.Says(demand));
  }
  return obstacle.empty() ? "the topology has too few ranks for it" : obstacle;
}

}  // namespace neuroshard
