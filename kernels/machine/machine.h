// Facts about the host from the operating system, and an address of it that others can reach.
// Unknown values come back as documented, never as errors: they only label measurements and guard
// allocations.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ip_network.h"
#include "common/base/status.h"

namespace neuroshard {

// "model name" of /proc/cpuinfo; "unknown CPU" when there is none.
std::string CpuModelName();

// The size of the largest cache of the first core. 32 MiB when unknown.
std::int64_t LastLevelCacheBytes();

// The smaller of physical memory and the cgroup's limit.
std::int64_t MachineMemoryBytes();

// What can still be allocated without swapping: the kernel's MemAvailable, and no more than the
// cgroup's limit leaves.
std::int64_t AvailableMemoryBytes();

// Processes with the same one read the same CLOCK_MONOTONIC: the boot, and the offsets of the time
// namespace. Empty when unknown.
std::string SteadyClockName();

// The choice of transparent huge pages that is in force ("madvise"); empty when unknown.
std::string TransparentHugePages();

// The value of a "Key:   value" line of a /proc text; empty when it is missing.
std::string_view ProcField(std::string_view text, std::string_view key);

// "32M" -> 33554432, "512K", "64"; 0 when malformed.
std::int64_t ParseSizeWithSuffix(std::string_view text);

// The cores that this process may use, ascending.
std::vector<int> UsableCpus();

// Keeps the calling thread on one core. INVALID_ARGUMENT when the process may not use it.
Status PinThisThread(int cpu);

// Where the ranks of collectives listen, and what they connect to.
struct CollectiveOptions {
  // Address that this host's ranks listen on, while a group connects, and that the other hosts can
  // reach.
  std::string host = "127.0.0.1";
  std::string interface = "";  // "eth0": its address instead of `host`, when not empty
  // Peers outside of these are neither dialled nor accepted; empty: the network of that address.
  std::vector<IpNetwork> networks = {};
};

// An address of this host, without a port, and the network that it is in: that of its interface;
// all of 127.0.0.0/8 for an IPv4 loopback address; the address alone where the system names none.
struct LocalAddress {
  SocketAddress address;
  IpNetwork network;
  std::string interface;  // its name; empty where the system names none
};

// An address that this host is known to have, with its interface and network.
LocalAddress PlaceOf(const SocketAddress& address);

// Its interface, address and network as properties of records (common/domain/measurement.h).
std::map<std::string, std::string> NetworkProperties(const LocalAddress& local);

// That of the interface if its name is not empty, else the first of the host name's (or address's)
// that can be bound. UNAVAILABLE with the reason when there is none.
StatusOr<LocalAddress> FindLocalAddress(const std::string& host, const std::string& interface);

}  // namespace neuroshard
