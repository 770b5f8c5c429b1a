#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <utility>

#include "server/search/conflict/proof_parts.h"

namespace neuroshard {

std::optional<OverfullRanks> FindOverfullRanks(
    const CompiledRules& rules, const std::vector<LeastDemand>& least,
    std::vector<std::int64_t> room, const std::vector<std::int64_t>& taken,
    const std::function<std::int64_t(const LeastDemand&)>& want) {
  OverfullRanks found;
  std::unordered_map<const RankSet*, std::size_t> class_of;
  std::vector<std::vector<int>> classes;  // tables with one set of ranks
  std::vector<Supplier> suppliers;        // a class each
  for (std::size_t t = 0; t < least.size(); ++t) {
    const int table = static_cast<int>(t);
    if (!least[t].on_each_rank.empty()) {
      found.tables.push_back(table);
      continue;
    }
    const std::int64_t wanted = want(least[t]);
    if (wanted == 0) continue;
    const RankSet* ranks = rules.of(table).ranks.get();
    const auto [at, is_new] = class_of.emplace(ranks, classes.size());
    if (is_new) {
      classes.emplace_back();
      suppliers.push_back({0, &ranks->ranks()});
    }
    classes[at->second].push_back(table);
    std::int64_t& supply = suppliers[at->second].supply;
    supply = CappedSum(supply, wanted);
  }
  for (std::size_t r = 0; r < room.size(); ++r) {
    room[r] = std::max<std::int64_t>(0, room[r]);
    if (taken[r] > room[r]) {
      found.wanted = taken[r];
      found.room = room[r];
      return found;
    }
    room[r] -= taken[r];
  }
  if (classes.size() * room.size() > kMaxFlowEdges) return std::nullopt;
  const auto stuck = FindOverfull(suppliers, room, kMaxFlow);
  if (!stuck.has_value()) return std::nullopt;
  std::vector<bool> reached(room.size());
  for (const std::size_t c : *stuck) {
    found.wanted = CappedSum(found.wanted, suppliers[c].supply);
    found.tables.insert(found.tables.end(), classes[c].begin(), classes[c].end());
    for (const int rank : *suppliers[c].sinks) reached[static_cast<std::size_t>(rank)] = true;
  }
  for (std::size_t r = 0; r < room.size(); ++r) {
    if (reached[r]) found.room = CappedSum(found.room, room[r]);
  }
  return found;
}

}  // namespace neuroshard
