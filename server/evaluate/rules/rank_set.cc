#include "server/evaluate/rules/rank_set.h"

#include <algorithm>
#include <utility>

namespace neuroshard {

RankSet::RankSet(const std::vector<HostRanks>& hosts, std::vector<bool> has)
    : has_(std::move(has)) {
  for (std::size_t h = 0; h < hosts.size(); ++h) {
    int count = 0;
    for (int rank = hosts[h].first; rank < hosts[h].first + hosts[h].count; ++rank) {
      if (!contains(rank)) continue;
      ranks_.push_back(rank);
      ++count;
    }
    if (count > 0) hosts_.push_back(static_cast<int>(h));
    if (count == hosts[h].count) {
      whole_hosts_.push_back(static_cast<int>(h));
      if (whole_hosts_.size() == 1 || count < fewest_of_a_whole_host_) {
        fewest_of_a_whole_host_ = count;
      }
    }
    most_of_a_host_ = std::max(most_of_a_host_, count);
  }
}

}  // namespace neuroshard
