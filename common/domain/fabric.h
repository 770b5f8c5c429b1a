// A fabric: the links between the ranks of a cluster by published figures. Nothing here was
// measured.
#pragma once

#include <string>

namespace neuroshard {

// One rank's connection, in each direction at the same time.
struct FabricLink {
  double latency_us = 0;   // of one step of a collective, >= 0
  double bytes_per_s = 0;  // that a collective gets out of it, > 0

  bool operator==(const FabricLink&) const = default;
};

// The two links of every rank of a cluster.
struct Fabric {
  std::string name;
  FabricLink intra_host;  // to the other ranks of the host, e.g. NVLink
  FabricLink inter_host;  // to ranks of other hosts: the rank's own network adapter

  bool operator==(const Fabric&) const = default;
};

}  // namespace neuroshard
