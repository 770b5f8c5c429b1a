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

// The caller has bounded CountDevices. Field paths start with "topology."
Topology DecodeTopology(const v1::Topology& message, Violations& violations);

// A line for the operator where a bandwidth is in the wrong unit by all appearances.
std::vector<std::string> BandwidthWarnings(const Bandwidths& bandwidths);

// Runs of hosts that are alike become one group.
v1::Topology EncodeTopology(const Topology& topology);

}  // namespace neuroshard
