#include "common/domain/rank_networks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace neuroshard {
namespace {

bool Same(const RankNetwork& a, const RankNetwork& b) {
  return (!a.network.empty() && a.network == b.network) ||
         (!a.interface.empty() && a.interface == b.interface);
}

}  // namespace

std::string RankNetwork::ToText() const {
  return interface + (interface.empty() || network.empty() ? "" : " ") + network;
}

RankNetwork NetworkOf(const MeasurementEnvironment& environment) {
  return {environment.property(kInterfaceProperty), environment.property(kNetworkProperty)};
}

std::vector<std::set<RankNetwork>> GroupNetworks(const std::set<RankNetwork>& networks) {
  std::vector<std::set<RankNetwork>> groups;
  for (const RankNetwork& network : networks) {
    if (!network.stated()) continue;
    // It may join groups that were apart before it came.
    std::set<RankNetwork> joined = {network};
    std::erase_if(groups, [&](const std::set<RankNetwork>& group) {
      for (const RankNetwork& member : group) {
        if (!Same(member, network)) continue;
        joined.insert(group.begin(), group.end());
        return true;
      }
      return false;
    });
    groups.push_back(std::move(joined));
  }
  return groups;
}

std::string DifferentNetworks(std::span<const MeasurementEnvironment> ranks) {
  std::set<RankNetwork> networks;
  for (const MeasurementEnvironment& rank : ranks) networks.insert(NetworkOf(rank));
  const auto groups = GroupNetworks(networks);
  if (groups.size() < 2) return "";
  std::vector<std::string> parts;
  for (const std::set<RankNetwork>& group : groups) {
    std::vector<std::size_t> members;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (group.contains(NetworkOf(ranks[rank]))) members.push_back(rank);
    }
    parts.push_back(fmt::format("{} over {}", fmt::join(members, ", "), group.begin()->ToText()));
  }
  return fmt::format("the ranks of the group use different networks: {}", fmt::join(parts, "; "));
}

std::string DifferentNetworks(std::span<const CommMeasurement> ranks) {
  return DifferentNetworks(Mapped(ranks, &CommMeasurement::environment));
}

}  // namespace neuroshard
