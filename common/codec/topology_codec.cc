#include "common/codec/topology_codec.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "common/codec/field_check.h"
#include "common/codec/message_fields.h"
#include "common/devices/device_table.h"

namespace neuroshard {

NS_FIELDS(Bandwidths, device_memory_bytes_per_s, intra_host_bytes_per_s, inter_host_bytes_per_s,
          host_to_device_bytes_per_s);
NS_SPARSE_FIELDS(Bandwidths, host_memory_bytes_per_s, ssd_bytes_per_s);
NS_FIELDS(Topology, compute_device);
NS_SPARSE_FIELDS(Topology, bandwidths, pod_size);

namespace {

constexpr std::int64_t kMaxHosts = 65536;
constexpr std::int64_t kMaxDevicesPerHost = 1024;
constexpr std::int64_t kMaxDeviceBytes = std::int64_t{1} << 50;
constexpr double kMinBandwidth = 1e6;
constexpr double kMaxBandwidth = 1e18;
constexpr double kMinComputeSpeed = 1e-3;
constexpr double kMaxComputeSpeed = 1e3;

// The fastest there is of each bandwidth that a request may state: HBM3e and NVLink 5 of a B200, a
// card of 800 Gb/s, NVLink-C2C of a GH200 to its host's memory, SSDs of PCIe 5. No device of
// configs/devices.yaml has more.
struct FastestBandwidth {
  const char* field;
  double bytes_per_s;
};
constexpr FastestBandwidth kFastest[] = {
    {"device_memory_bytes_per_s", 8e12},
    {"intra_host_bytes_per_s", 9e11},
    {"inter_host_bytes_per_s", 1e11},
    {"nic_bytes_per_s", 1e11},
    {"host_to_device_bytes_per_s", 9e11},
    {"host_memory_bytes_per_s", 1e12},
    {"ssd_bytes_per_s", 5e10},
};
// Links to come may be ten times as fast; what was written in another unit is off by a thousand.
constexpr double kMaxBandwidthRatio = 10;
constexpr double kOtherUnit = 1000;

// The fields of a host group with what the devices of a host share, and the most of one of them.
struct SharedFields {
  const FieldDescriptor* bytes;
  const FieldDescriptor* most;
};
const SharedFields& FieldsOf(const SharedMemory& memory) {
  static const auto fields = [] {
    ByTier<SharedFields> by_tier = {};
    const auto& group = *v1::HostGroup::descriptor();
    for (const SharedMemory& of : kSharedMemories) {
      by_tier[of.tier] = {group.FindFieldByName(std::string(of.field)),
                          group.FindFieldByName(std::string(of.most_field))};
    }
    return by_tier;
  }();
  return fields[memory.tier];
}

std::int64_t HostCount(const v1::HostGroup& group) { return group.has_count() ? group.count() : 1; }

// The device that the group names; null where it names none, and, with a violation, where there is
// none such.
const PublishedDevice* DecodeDevice(const v1::HostGroup& group, const FieldCheck& check) {
  if (group.device().empty()) return nullptr;
  const PublishedDevice* device = FindDevice(group.device());
  if (device == nullptr) check.Fail("device", DescribeUnknownDevice(group.device()));
  return device;
}

// The memory of each device of one host of the group; empty, and violations, when it is not legal.
std::vector<std::int64_t> DecodeDeviceMemory(const v1::HostGroup& group,
                                             const PublishedDevice* device,
                                             const FieldCheck& check) {
  if (!check.InRange("num_devices", group.num_devices(), 1, kMaxDevicesPerHost)) return {};
  if (group.device_memory_bytes_size() == 0) {
    std::int64_t bytes = group.memory_bytes();
    if (bytes == 0 && device != nullptr) bytes = device->memory_bytes;
    // A device that is not known is a fault already.
    if (bytes == 0 && !group.device().empty()) return {};
    if (!check.InRange("memory_bytes", bytes, 1, kMaxDeviceBytes)) return {};
    return std::vector<std::int64_t>(static_cast<std::size_t>(group.num_devices()), bytes);
  }
  if (group.device_memory_bytes_size() != group.num_devices()) {
    check.Fail("device_memory_bytes", "must have num_devices = {} entries, got {}",
               group.num_devices(), group.device_memory_bytes_size());
    return {};
  }
  if (!check.EachInRange("device_memory_bytes", group.device_memory_bytes(), std::int64_t{1},
                         kMaxDeviceBytes)) {
    return {};
  }
  return {group.device_memory_bytes().begin(), group.device_memory_bytes().end()};
}

// What the devices of a host share, and the most that one of them may have of it.
void CheckShared(const FieldCheck& check, const SharedMemory& of, std::int64_t bytes,
                 std::int64_t most) {
  check.InRange(of.field, bytes, 0, kMaxDeviceBytes);
  check.InRange(of.most_field, most, 0, kMaxDeviceBytes);
  if (most > 0 && bytes == 0) {
    check.Fail(of.most_field, "needs {}, got {} of none", of.field, most);
  }
}

FabricLink Slower(const FabricLink& a, const FabricLink& b) {
  return {std::max(a.latency_us, b.latency_us), std::min(a.bytes_per_s, b.bytes_per_s)};
}

// The slowest memory and links of the devices: whoever waits for all ranks waits for those. No
// fabric where one of the devices has none.
void TakePublishedFigures(const std::vector<std::string>& names, Topology& topology) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    const PublishedDevice& device = *FindDevice(names[i]);
    double& memory = topology.bandwidths.device_memory_bytes_per_s;
    memory = i == 0 ? device.memory_bytes_per_s : std::min(memory, device.memory_bytes_per_s);
    if (i == 0) {
      topology.fabric = device.fabric;
    } else if (!device.fabric || !topology.fabric) {
      topology.fabric.reset();
    } else if (topology.fabric->name != device.fabric->name) {
      topology.fabric = {fmt::format("{}+{}", topology.fabric->name, device.fabric->name),
                         Slower(topology.fabric->intra_host, device.fabric->intra_host),
                         Slower(topology.fabric->inter_host, device.fabric->inter_host)};
    }
  }
  if (!topology.fabric) return;
  topology.bandwidths.intra_host_bytes_per_s = topology.fabric->intra_host.bytes_per_s;
  topology.bandwidths.inter_host_bytes_per_s = topology.fabric->inter_host.bytes_per_s;
}

// A network card and the ranks that share it, as what one of them has.
void DecodeNetworkCard(const v1::Bandwidths& message, const FieldCheck& check, Topology& topology) {
  if (!message.has_nic_bytes_per_s() && !message.has_ranks_per_nic()) return;
  if (!message.has_nic_bytes_per_s()) {
    check.Fail("nic_bytes_per_s", "must be given where ranks_per_nic is");
    return;
  }
  if (message.has_inter_host_bytes_per_s()) {
    check.Fail(
        "nic_bytes_per_s",
        "must be absent where inter_host_bytes_per_s is given, which says the same of a rank");
  }
  if (!message.has_ranks_per_nic()) {
    check.Fail("ranks_per_nic",
               "must be given where nic_bytes_per_s is: how many ranks of a host share a card");
    return;
  }
  int most_ranks = 0;
  for (const HostRanks& host : topology.hosts()) most_ranks = std::max(most_ranks, host.count);
  if (most_ranks == 0) most_ranks = kMaxDevicesPerHost;  // hosts have faults of their own
  const bool card =
      check.InRange("nic_bytes_per_s", message.nic_bytes_per_s(), kMinBandwidth, kMaxBandwidth);
  const bool ranks =
      check.InRange("ranks_per_nic", std::int64_t{message.ranks_per_nic()}, 1, most_ranks);
  if (card && ranks) {
    topology.bandwidths.inter_host_bytes_per_s =
        message.nic_bytes_per_s() / message.ranks_per_nic();
  }
}

// What the request states wins over the figures of its devices.
void DecodeBandwidths(const v1::Bandwidths& message, const FieldCheck& check, Topology& topology) {
  Bandwidths& bandwidths = topology.bandwidths;
  bandwidths = TakeFields(message, check, AbsentWord::kDefault, bandwidths);
  DecodeNetworkCard(message, check, topology);
  const auto check_range = [&check](const char* name, double bytes_per_s) {
    check.InRange(name, bytes_per_s, kMinBandwidth, kMaxBandwidth);
  };
  ForEachField(bandwidths, check_range);
  ForEachMember(bandwidths, kSparseFields<Bandwidths>, check_range);
  if (!topology.fabric) return;
  topology.fabric->intra_host.bytes_per_s = bandwidths.intra_host_bytes_per_s;
  topology.fabric->inter_host.bytes_per_s = bandwidths.inter_host_bytes_per_s;
}

// Warns of stated bandwidths that look like another unit's.
std::vector<std::string> BandwidthWarnings(const v1::Bandwidths& message) {
  std::vector<std::string> warnings;
  for (const auto& [name, fastest] : kFastest) {
    const auto* field = v1::Bandwidths::descriptor()->FindFieldByName(name);
    if (!message.GetReflection()->HasField(message, field)) continue;
    const double stated = message.GetReflection()->GetDouble(message, field);
    const bool slow = stated * kOtherUnit <= fastest;
    if (!slow && stated <= kMaxBandwidthRatio * fastest) continue;
    warnings.push_back(fmt::format(
        "topology.bandwidths.{} is {:.3g}, {}; the unit is bytes per second, and that of "
        "TorchRec's Topology bytes per millisecond",
        name, stated,
        slow ? fmt::format("a thousandth of what the fastest have ({:.3g}) or less", fastest)
             : fmt::format("{:.0f} times what the fastest have ({:.3g})", stated / fastest,
                           fastest)));
  }
  return warnings;
}

// What makes hosts alike.
struct HostShape {
  Device device = {};  // without host and memory
  std::vector<std::int64_t> memory = {};
  TierBytes shared = {};

  bool operator==(const HostShape&) const = default;
};

v1::HostGroup EncodeHost(const HostShape& shape) {
  v1::HostGroup group;
  group.set_count(1);
  group.set_num_devices(static_cast<std::int32_t>(shape.memory.size()));
  if (std::ranges::count(shape.memory, shape.memory.front()) == std::ssize(shape.memory)) {
    group.set_memory_bytes(shape.memory.front());
  } else {
    group.mutable_device_memory_bytes()->Add(shape.memory.begin(), shape.memory.end());
  }
  group.set_device(shape.device.name);
  if (shape.device.compute_speed != 1) group.set_compute_speed(shape.device.compute_speed);
  for (const SharedMemory& of : kSharedMemories) {
    PutField(FieldsOf(of).bytes, shape.shared[of.tier], group);
    PutField(FieldsOf(of).most, shape.device.*of.most, group);
  }
  return group;
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
  const FieldCheck check("topology", violations);
  auto topology = TakeFields<Topology>(message, check);
  if (message.hosts_size() == 0) {
    violations.Add("topology.hosts", "must have at least one entry, got none");
  }
  int host = 0;
  ByTier<bool> any = {};
  for (int i = 0; i < message.hosts_size(); ++i) {
    const FieldCheck of_group = check.In("hosts", i);
    const bool count_ok = of_group.InRange("count", HostCount(message.hosts(i)), 1, kMaxHosts);
    const PublishedDevice* device = DecodeDevice(message.hosts(i), of_group);
    const std::vector<std::int64_t> memory = DecodeDeviceMemory(message.hosts(i), device, of_group);
    const v1::HostGroup& group = message.hosts(i);
    Device of_host = {.name = device == nullptr ? "" : device->name};
    TierBytes shared = {};
    for (const SharedMemory& of : kSharedMemories) {
      shared[of.tier] = TakeField<std::int64_t>(group, FieldsOf(of).bytes);
      of_host.*of.most = TakeField<std::int64_t>(group, FieldsOf(of).most);
      CheckShared(of_group, of, shared[of.tier], of_host.*of.most);
      any[of.tier] = any[of.tier] || shared[of.tier] > 0;
    }
    if (group.has_compute_speed()) of_host.compute_speed = group.compute_speed();
    of_group.InRange("compute_speed", of_host.compute_speed, kMinComputeSpeed, kMaxComputeSpeed);
    // A group without legal devices is a violation already, and must not cost a step a host.
    if (!count_ok || memory.empty()) continue;
    for (std::int64_t copy = 0; copy < HostCount(message.hosts(i)); ++copy, ++host) {
      of_host.host = host;
      for (const std::int64_t bytes : memory) {
        topology.devices.push_back(of_host);
        topology.devices.back().memory_bytes = bytes;
      }
      for (const SharedMemory& of : kSharedMemories) {
        (topology.*of.of_hosts).push_back(shared[of.tier]);
      }
    }
  }
  for (const SharedMemory& of : kSharedMemories) {
    if (!any[of.tier]) (topology.*of.of_hosts).clear();
  }
  if (message.has_pod_size()) {
    if (check.InRange("pod_size", std::int64_t{message.pod_size()}, 1, std::max(host, 1)) &&
        host % message.pod_size() != 0) {
      check.Fail("pod_size", "must divide the number of hosts, {}, got {}", host,
                 message.pod_size());
    }
  }
  TakePublishedFigures(DeviceNames(topology), topology);
  DecodeBandwidths(message.bandwidths(), check.In("bandwidths"), topology);
  return topology;
}

std::vector<std::string> TopologyWarnings(const v1::Topology& message, const Topology& topology) {
  std::vector<std::string> warnings = BandwidthWarnings(message.bandwidths());
  const std::vector<std::string> names = DeviceNames(topology);
  if (names.empty()) return warnings;
  const bool some_unnamed = std::ranges::any_of(
      topology.devices, [](const Device& device) { return device.name.empty(); });
  if (names.size() > 1 || some_unnamed) {
    const bool speeds = std::ranges::any_of(
        topology.devices, [](const Device& device) { return device.compute_speed != 1; });
    warnings.push_back(
        fmt::format("topology.hosts name {}{}: where prices rest on published figures, all devices "
                    "have the slowest memory and links of those named{}",
                    fmt::join(names, ", "), some_unnamed ? ", and some hosts no device" : "",
                    speeds ? "; compute_speed of a host is times that" : ""));
  }
  if (!topology.fabric && topology.num_ranks() > 1 &&
      !(message.bandwidths().has_intra_host_bytes_per_s() &&
        (message.bandwidths().has_inter_host_bytes_per_s() ||
         message.bandwidths().has_nic_bytes_per_s()))) {
    warnings.push_back(fmt::format(
        "the table of devices has no links of {}: what topology.bandwidths does not state of them "
        "is TorchRec's default, {:.3g} bytes/s on a host and {:.3g} between hosts",
        fmt::join(names, ", "), Bandwidths().intra_host_bytes_per_s,
        Bandwidths().inter_host_bytes_per_s));
  }
  return warnings;
}

v1::Topology EncodeTopology(const Topology& topology) {
  auto message = MessageOf<v1::Topology>(topology);
  HostShape last;
  for (auto device = topology.devices.begin(); device != topology.devices.end();) {
    const std::size_t host = static_cast<std::size_t>(device->host);
    // The devices of a host are alike but for their memory.
    HostShape shape = {.device = *device};
    shape.device.host = 0;
    shape.device.memory_bytes = 0;
    for (const SharedMemory& of : kSharedMemories) {
      const std::vector<std::int64_t>& of_hosts = topology.*of.of_hosts;
      if (!of_hosts.empty()) shape.shared[of.tier] = of_hosts[host];
    }
    for (; device != topology.devices.end() && device->host == static_cast<int>(host); ++device) {
      shape.memory.push_back(device->memory_bytes);
    }
    if (shape == last) {
      v1::HostGroup& group = *message.mutable_hosts(message.hosts_size() - 1);
      group.set_count(group.count() + 1);
      continue;
    }
    *message.add_hosts() = EncodeHost(shape);
    last = std::move(shape);
  }
  return message;
}

}  // namespace neuroshard
