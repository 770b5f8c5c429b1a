#include "server/evaluate/rules/type_obstacle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "common/base/positions.h"
#include "server/evaluate/rules/compiled_rules.h"
#include "server/evaluate/rules/demands.h"

namespace neuroshard {
namespace {

// The table, those that share its ranks or hosts and the unpooled tables that decide the width of
// its column blocks, ascending.
std::vector<int> Company(const PlanRequest& request, int table) {
  const Constraints& constraints = request.constraints;
  std::vector<int> company = {table};
  const Table& of = request.tables[static_cast<std::size_t>(table)];
  if (of.kind == TableKind::kEmbedding) {
    company.clear();
    for (std::size_t t = 0; t < request.tables.size(); ++t) {
      const Table& other = request.tables[t];
      if (other.kind == of.kind && other.module == of.module &&
          other.embedding_dim == of.embedding_dim) {
        company.push_back(static_cast<int>(t));
      }
    }
  }
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
  if (!IsTypeOf(request.tables[static_cast<std::size_t>(table)].kind, type)) {
    return "TorchRec runs no unpooled table so (kind)";
  }
  const std::vector<int> company = Company(request, table);
  const Demands demands(request, default_types, company);
  const int position =
      static_cast<int>(std::lower_bound(company.begin(), company.end(), table) - company.begin());
  const auto keeps_out = [&](const std::vector<std::size_t>& kept) {
    const CompiledRules rules(demands.With(kept), TypeSet::All());
    return !rules.of(position).types.contains(type);
  };
  if (!keeps_out(Positions(demands.size()))) return "";
  std::string obstacle;
  for (const std::size_t demand : MinimalSet(demands.size(), keeps_out)) {
    if (!obstacle.empty()) obstacle += "; ";
    obstacle += fmt::format("{} ({})", demands.Path(demand), demands.Says(demand));
  }
  return obstacle.empty() ? "the topology has too few ranks for it" : obstacle;
}

}  // namespace neuroshard
