// The networks over which ranks of collectives met.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "common/domain/measurement.h"

namespace neuroshard {

// Two are the same where the networks are, or where the interfaces have the same name: hosts of one
// fabric may be in networks of their own that are routed.
struct RankNetwork {
  std::string interface;  // "eth0"
  std::string network;    // "10.0.0.0/24"

  bool stated() const { return !interface.empty() || !network.empty(); }
  std::string ToText() const;  // "eth0 10.0.0.0/24"

  auto operator<=>(const RankNetwork&) const = default;
};

// The network that the record's properties name. Most ranks of NCCL state none, nor do old records.
RankNetwork NetworkOf(const MeasurementEnvironment& environment);

// The given ones in groups of the same, as far as stated.
std::vector<std::set<RankNetwork>> GroupNetworks(const std::set<RankNetwork>& networks);

// "the ranks of the group use different networks: 0, 1 over eth0 10.0.0.0/24; 2 over ...", of the
// environments of a group's ranks in their order; empty where they use one, or do not say.
std::string DifferentNetworks(std::span<const MeasurementEnvironment> ranks);
std::string DifferentNetworks(std::span<const CommMeasurement> ranks);

}  // namespace neuroshard
