#include "common/codec/topology_codec.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "common/codec/field_check.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kMaxHosts = 65536;
constexpr std::int64_t kMaxDevicesPerHost = 1024;
constexpr std::int64_t kMaxDeviceBytes = std::int64_t{1} << 50;
constexpr double kMinBandwidth = 1e6;
constexpr double kMaxBandwidth = 1e18;
// Below every device's memory; TorchRec's numbers, which are bytes per ms, all are.
constexpr double kSuspiciousMemoryBandwidth = 4e9;

std::int64_t HostCount(const v1::HostGroup& group) { return group.has_count() ? group.count() : 1; }

// The memory of each device of one host of the group; empty, and violations, when it is not legal.
std::vector<std::int64_t> DecodeDeviceMemory(const v1::HostGroup& group, const FieldCheck& check) {
  if (!check.InRange("num_devices", group.num_devices(), 1, kMaxDevicesPerHost)) return {};
  if (group.device_memory_bytes_size() == 0) {
    if (!check.InRange("memory_bytes", group.memory_bytes(), 1, kMaxDeviceBytes)) return {};
    return std::vector<std::int64_t>(static_cast<std::size_t>(group.num_devices()),
                                     group.memory_bytes());
  }
  if (group.device_memory_bytes_size() != group.num_devices()) {
    check.Fail("device_memory_bytes",
               fmt::format("must have num_devices = {} entries, got {}", group.num_devices(),
                           group.device_memory_bytes_size()));
    return {};
  }
  bool ok = true;
  for (int i = 0; i < group.device_memory_bytes_size(); ++i) {
    ok &= check.InRange(fmt::format("device_memory_bytes[{}]", i), group.device_memory_bytes(i), 1,
                        kMaxDeviceBytes);
  }
  if (!ok) return {};
  return {group.device_memory_bytes().begin(), group.device_memory_bytes().end()};
}

Bandwidths DecodeBandwidths(const v1::Bandwidths& message, Violations& violations) {
  const FieldCheck check("topology.bandwidths", violations);
  Bandwidths bandwidths;
  if (message.has_device_memory_bytes_per_s()) {
    bandwidths.device_memory_bytes_per_s = message.device_memory_bytes_per_s();
  }
  if (message.has_intra_host_bytes_per_s()) {
    bandwidths.intra_host_bytes_per_s = message.intra_host_bytes_per_s();
  }
  if (message.has_inter_host_bytes_per_s()) {
    bandwidths.inter_host_bytes_per_s = message.inter_host_bytes_per_s();
  }
  check.InRange("device_memory_bytes_per_s", bandwidths.device_memory_bytes_per_s, kMinBandwidth,
                kMaxBandwidth);
  check.InRange("intra_host_bytes_per_s", bandwidths.intra_host_bytes_per_s, kMinBandwidth,
                kMaxBandwidth);
  check.InRange("inter_host_bytes_per_s", bandwidths.inter_host_bytes_per_s, kMinBandwidth,
                kMaxBandwidth);
  return bandwidths;
}

}  // namespace

std::int64_t CountDevices(const v1::Topology& message) {
  constexpr std::int64_t kSaturated = std::numeric_limits<std::int64_t>::max() / 2;
  std::int64_t devices = 0;
  for (const v1::HostGroup& group : message.hosts()) {
    // Both factors are below 2^31.
    if (HostCount(group) <= 0 || group.num_devices() <= 0) continue;
    devices = std::min(kSaturated, devices + HostCount(group) * group.num_devices());
  }
  return devices;
}

Topology DecodeTopology(const v1::Topology& message, Violations& violations) {
  Topology topology;
  if (message.hosts_size() == 0) {
    violations.Add("topology.hosts", "must have at least one entry, got none");
  }
  int host = 0;
  for (int i = 0; i < message.hosts_size(); ++i) {
    const FieldCheck check(fmt::format("topology.hosts[{}]", i), violations);
    const bool count_ok = check.InRange("count", HostCount(message.hosts(i)), 1, kMaxHosts);
    const std::vector<std::int64_t> memory = DecodeDeviceMemory(message.hosts(i), check);
    // A group without legal devices is a violation already, and must not cost a step a host.
    if (!count_ok || memory.empty()) continue;
    for (std::int64_t copy = 0; copy < HostCount(message.hosts(i)); ++copy, ++host) {
      for (const std::int64_t bytes : memory) topology.devices.push_back({host, bytes});
    }
  }
  topology.bandwidths = DecodeBandwidths(message.bandwidths(), violations);
  if (!message.compute_device().empty()) {
    topology.compute_device =
        FieldCheck("topology", violations)
            .WordOf("compute_device", message.compute_device(), ComputeDevice::kCuda);
  }
  return topology;
}

std::vector<std::string> BandwidthWarnings(const Bandwidths& bandwidths) {
  if (bandwidths.device_memory_bytes_per_s >= kSuspiciousMemoryBandwidth) return {};
  return {
      fmt::format("topology.bandwidths.device_memory_bytes_per_s is {:.3g}, less than any device "
                  "has; the unit is bytes per second, not TorchRec's bytes per millisecond",
                  bandwidths.device_memory_bytes_per_s)};
}

v1::Topology EncodeTopology(const Topology& topology) {
  v1::Topology message;
  std::vector<std::int64_t> last;
  for (auto device = topology.devices.begin(); device != topology.devices.end();) {
    std::vector<std::int64_t> memory;
    const int host = device->host;
    for (; device != topology.devices.end() && device->host == host; ++device) {
      memory.push_back(device->memory_bytes);
    }
    if (memory == last) {
      v1::HostGroup& group = *message.mutable_hosts(message.hosts_size() - 1);
      group.set_count(group.count() + 1);
      continue;
    }
    v1::HostGroup& group = *message.add_hosts();
    group.set_count(1);
    group.set_num_devices(static_cast<std::int32_t>(memory.size()));
    if (std::count(memory.begin(), memory.end(), memory.front()) ==
        static_cast<std::ptrdiff_t>(memory.size())) {
      group.set_memory_bytes(memory.front());
    } else {
      group.mutable_device_memory_bytes()->Add(memory.begin(), memory.end());
    }
    last = std::move(memory);
  }
  if (topology.compute_device) {
    message.set_compute_device(std::string(ToText(*topology.compute_device)));
  }
  if (topology.bandwidths != Bandwidths{}) {
    v1::Bandwidths& bandwidths = *message.mutable_bandwidths();
    bandwidths.set_device_memory_bytes_per_s(topology.bandwidths.device_memory_bytes_per_s);
    bandwidths.set_intra_host_bytes_per_s(topology.bandwidths.intra_host_bytes_per_s);
    bandwidths.set_inter_host_bytes_per_s(topology.bandwidths.inter_host_bytes_per_s);
  }
  return message;
}

}  // namespace neuroshard
