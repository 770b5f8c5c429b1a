// Topology <-> its message.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/violations.h"
#include "common/domain/topology.h"
#include "neuroshard/v1/topology.pb.h"

namespace neuroshard {

// Devices that the message asks for, groups with nonsensical counts left out; saturates instead of
// overflowing.
std::int64_t CountDevices(const v1::Topology& message);

// The caller has bounded CountDevices. Field paths start with "topology.". Figures of named devices
// that the message does not state are those of common/devices.
Topology DecodeTopology(const v1::Topology& message, Violations& violations);

// A line where a bandwidth is in the wrong unit by all appearances, where devices differ whose
// figures the request leaves to the table, and where the table has none of their links.
// `topology` is what DecodeTopology made of `message`.
std::vector<std::string> TopologyWarnings(const v1::Topology& message, const Topology& topology);

// Runs of hosts that are alike become one group.
v1::Topology EncodeTopology(const Topology& topology);

}  // namespace neuroshard
