// Overfull ranks: those that cannot take what tables want of them at the least.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "server/evaluate/rules/compiled_rules.h"
#include "server/search/conflict/least_demand.h"

namespace neuroshard {

struct OverfullRanks {
  std::vector<int> tables;  // that want too much, in no order
  std::int64_t wanted = 0;
  std::int64_t room = 0;
};

// Each table needs want(its least demand) in all, spread over its allowed ranks in any way;
// room[rank] is what there is (below 0 is 0). Tables that are on each rank
// (LeastDemand::on_each_rank) are not asked for what they want: taken[rank] is what all of them
// take there. Wants and rooms are at most 2^61. nullopt: there is enough, or there are too many
// ranks and sets of ranks to tell quickly.
std::optional<OverfullRanks> FindOverfullRanks(
    const CompiledRules& rules, const std::vector<LeastDemand>& least,
    std::vector<std::int64_t> room, const std::vector<std::int64_t>& taken,
    const std::function<std::int64_t(const LeastDemand&)>& want);

}  // namespace neuroshard
