// The devices of a plan and the links between them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/domain/vocabulary.h"

namespace neuroshard {

// The device of a rank: its host, its memory and what it is.
struct Device {
  int host = 0;
  std::int64_t memory_bytes = 0;
  std::string name = {};  // PublishedDevice::name (common/devices); empty: not stated
  std::int64_t max_host_memory_bytes = 0;  // that its tables may take; 0: no limit of its own
  double compute_speed = 1;        // > 0: its compute takes 1 / compute_speed of the cost model's
  std::int64_t max_ssd_bytes = 0;  // that its tables may take; 0: no limit of its own

  bool operator==(const Device&) const = default;
};

// Bandwidths for the `analytic` cost model; measured costs do not use them. The defaults are
// TorchRec's (planner/constants.py): a V100-class host.
struct Bandwidths {
  double device_memory_bytes_per_s = 897.0 * (1 << 30);
  double intra_host_bytes_per_s = 600.0 * (1 << 30);
  double inter_host_bytes_per_s = 12.5 * (1 << 30);
  double host_to_device_bytes_per_s = 32.0 * (1 << 30);
  double host_memory_bytes_per_s = 51.0 * (1 << 30);
  double ssd_bytes_per_s = 100.0 * (1 << 20);  // that one device reads from, and writes to

  bool operator==(const Bandwidths&) const = default;
};

// One rank's connection, in each direction at the same time.
struct FabricLink {
  double latency_us = 0;   // of one step of a collective, >= 0
  double bytes_per_s = 0;  // that a collective gets out of it, > 0

  bool operator==(const FabricLink&) const = default;
};

// The two links of every rank of a cluster, by published figures: nothing here was measured.
struct Fabric {
  std::string name;
  FabricLink intra_host;  // to the other ranks of the host, e.g. NVLink
  FabricLink inter_host;  // to ranks of other hosts: the rank's own network adapter

  bool operator==(const Fabric&) const = default;
};

// The ranks of one host: [first, first + count).
struct HostRanks {
  int first = 0;
  int count = 0;

  bool operator==(const HostRanks&) const = default;
};

// Ranks are positions in `devices`, host by host.
struct Topology {
  std::vector<Device> devices;
  Bandwidths bandwidths = {};
  // The links of the devices that are named, for communication that was not measured; none: no
  // device is named, or there are no figures of its links. Its bandwidths are those of
  // `bandwidths`.
  std::optional<Fabric> fabric = {};
  std::optional<ComputeDevice> compute_device = {};  // the trainer's; none: not stated
  // Memory of each host, shared by its devices, for tables that are not in device memory. Empty:
  // there is none on any host.
  std::vector<std::int64_t> host_memory_bytes = {};
  int pod_size = 1;  // hosts of an NVLink domain, consecutive; divides their number
  // Bytes of each host's SSDs, shared by its devices, for tables on SSD. Empty: there are none on
  // any host.
  std::vector<std::int64_t> ssd_bytes = {};

  int num_ranks() const { return static_cast<int>(devices.size()); }
  // Ranks per host when all hosts have the same number, otherwise 0.
  int ranks_per_host() const;
  // In the order of ranks.
  std::vector<HostRanks> hosts() const;

  bool operator==(const Topology&) const = default;
};

// A memory that the devices of a host share: where a topology states it, and its names.
struct SharedMemory {
  MemoryTier tier;
  std::vector<std::int64_t> Topology::*of_hosts;
  std::int64_t Device::*most;   // that a device's tables may take; 0: no limit of its own
  std::string_view name;        // "the memory of host 3"
  std::string_view amount;      // "3 GiB of host memory"
  std::string_view place;       // "rows are in host memory"
  std::string_view field;       // of requests
  std::string_view most_field;  // likewise
};
inline constexpr std::array kSharedMemories = {
    SharedMemory{MemoryTier::kHost, &Topology::host_memory_bytes, &Device::max_host_memory_bytes,
                 "memory", "host memory", "in host memory", "host_memory_bytes",
                 "max_host_memory_bytes_per_device"},
    SharedMemory{MemoryTier::kSsd, &Topology::ssd_bytes, &Device::max_ssd_bytes, "SSDs", "SSD",
                 "on SSD", "ssd_bytes", "max_ssd_bytes_per_device"}};
static_assert(kSharedMemories.size() + 1 == kWords<MemoryTier>.size());
// Returns the entry of a memory that is not a device's own.
constexpr const SharedMemory& SharedMemoryOf(MemoryTier tier) {
  return *std::ranges::find(kSharedMemories, tier, &SharedMemory::tier);
}

}  // namespace neuroshard
