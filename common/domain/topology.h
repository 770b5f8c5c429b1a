// The devices a plan is made for.
#pragma once

#include <cstdint>
#include <vector>

namespace neuroshard {

struct Device {
  int host = 0;
  std::int64_t memory_bytes = 0;

  bool operator==(const Device&) const = default;
};

// Ranks are positions in `devices`, host by host.
struct Topology {
  std::vector<Device> devices;

  int num_ranks() const { return static_cast<int>(devices.size()); }
  // Ranks per host when all hosts have the same number, otherwise 0.
  int ranks_per_host() const;

  bool operator==(const Topology&) const = default;
};

}  // namespace neuroshard
