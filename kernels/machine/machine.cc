#include "kernels/machine/machine.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <utility>

#include "common/base/bytes.h"
#include "common/base/file_descriptor.h"
#include "common/domain/measurement.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

std::string_view Trim(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

std::optional<std::int64_t> ParseInteger(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

struct CgroupMemory {
  std::int64_t limit_bytes = kUnlimited;
  std::int64_t current_bytes = 0;
};

// Version 2 says "max" and version 1 a huge number for no limit. Inside a container its own cgroup
// is the root of the mount.
CgroupMemory ReadCgroupMemory() {
  const struct {
    const char* limit;
    const char* current;
  } kFiles[] = {{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
                {"/sys/fs/cgroup/memory/memory.limit_in_bytes",
                 "/sys/fs/cgroup/memory/memory.usage_in_bytes"}};
  for (const auto& files : kFiles) {
    if (const auto limit = ParseInteger(Trim(ReadText(files.limit)))) {
      return {*limit, ParseInteger(Trim(ReadText(files.current))).value_or(0)};
    }
  }
  return {};
}

bool IsIp(const sockaddr* address) {
  return address != nullptr && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
}

SocketAddress Copy(const sockaddr& address) {
  SocketAddress copy;
  copy.length = address.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&copy.storage, &address, copy.length);
  return copy;
}

using Interfaces = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

Interfaces AllInterfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) first = nullptr;
  return {first, &freeifaddrs};
}

StatusOr<SocketAddress> OfInterface(const std::string& name) {
  const Interfaces interfaces = AllInterfaces();
  for (const ifaddrs* one = interfaces.get(); one != nullptr; one = one->ifa_next) {
    if (name == one->ifa_name && IsIp(one->ifa_addr)) return Copy(*one->ifa_addr);
  }
  return Unavailable("there is no interface {} with an IP address", name);
}

StatusOr<SocketAddress> OfHost(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error != 0) {
    return Unavailable("{}: {}", host, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::string reason = "it has no address";
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (!IsIp(one->ai_addr)) continue;
    const FileDescriptor fd(socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const bool bound = fd.open() && bind(fd.get(), one->ai_addr, one->ai_addrlen) == 0;
    if (bound) return Copy(*one->ai_addr);
    reason = std::strerror(errno);
  }
  return Unavailable("{}: {}", host, reason);
}

}  // namespace

std::string_view ProcField(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const auto colon = line.find(':');
    if (colon != std::string_view::npos && Trim(line.substr(0, colon)) == key) {
      return Trim(line.substr(colon + 1));
    }
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return {};
}

std::string SteadyClockName() {
  const std::string boot(Trim(ReadText("/proc/sys/kernel/random/boot_id")));
  return boot.empty() ? boot : boot + " " + ReadText("/proc/self/timens_offsets");
}

std::int64_t ParseSizeWithSuffix(std::string_view text) {
  text = Trim(text);
  std::int64_t unit = 1;
  if (text.ends_with('K')) unit = kKiB;
  if (text.ends_with('M')) unit = kMiB;
  if (text.ends_with('G')) unit = kGiB;
  const auto number = ParseInteger(text);
  return number && *number >= 0 && *number < kUnlimited / unit ? *number * unit : 0;
}

std::string CpuModelName() {
  const std::string text = ReadText("/proc/cpuinfo");
  const std::string_view name = ProcField(text, "model name");
  return name.empty() ? "unknown CPU" : std::string(name);
}

std::int64_t LastLevelCacheBytes() {
  std::int64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    largest =
        std::max(largest, ParseSizeWithSuffix(ReadText("/sys/devices/system/cpu/cpu0/cache/index" +
                                                       std::to_string(index) + "/size")));
  }
  return largest > 0 ? largest : 32 * kMiB;
}

std::int64_t MachineMemoryBytes() {
  const std::int64_t physical =
      std::int64_t{sysconf(_SC_PHYS_PAGES)} * std::int64_t{sysconf(_SC_PAGE_SIZE)};
  return std::min(physical, ReadCgroupMemory().limit_bytes);
}

std::int64_t AvailableMemoryBytes() {
  const CgroupMemory cgroup = ReadCgroupMemory();
  const std::string text = ReadText("/proc/meminfo");
  // "MemAvailable:   23456789 kB"
  const auto available = ParseInteger(ProcField(text, "MemAvailable"));
  return std::min(available ? *available * kKiB : MachineMemoryBytes(),
                  std::max(std::int64_t{0}, cgroup.limit_bytes - cgroup.current_bytes));
}

std::string TransparentHugePages() {
  const std::string text = ReadText("/sys/kernel/mm/transparent_hugepage/enabled");
  const auto begin = text.find('['), end = text.find(']');  // "always [madvise] never"
  if (begin == std::string::npos || end == std::string::npos || end < begin) return "";
  return text.substr(begin + 1, end - begin - 1);
}

std::vector<int> UsableCpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

Status PinThisThread(int cpu) {
  if (cpu < 0 || cpu >= CPU_SETSIZE) {
    return InvalidArgument("cpu: must be in [0, {}), got {}", CPU_SETSIZE, cpu);
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) {
    return InvalidArgument("cpu: this process may not use CPU {}: {}", cpu, std::strerror(errno));
  }
  return absl::OkStatus();
}

LocalAddress PlaceOf(const SocketAddress& address) {
  sockaddr_in6 all{};
  std::memset(&all, 0xff, sizeof all);
  all.sin6_family = AF_INET6;
  LocalAddress place{address,
                     *IpNetwork::Around(address.get(), reinterpret_cast<const sockaddr&>(all)), ""};
  const IpNetwork ipv4_loopback = *IpNetwork::Parse("127.0.0.0/8");
  const bool loopback = ipv4_loopback.Contains(address.get());
  const Interfaces interfaces = AllInterfaces();
  for (const ifaddrs* one = interfaces.get(); one != nullptr; one = one->ifa_next) {
    if (!IsIp(one->ifa_addr) || one->ifa_netmask == nullptr) continue;
    const bool here =
        loopback ? ipv4_loopback.Contains(*one->ifa_addr) : place.network.Contains(*one->ifa_addr);
    if (!here) continue;
    place.interface = one->ifa_name;
    const auto network = IpNetwork::Around(*one->ifa_addr, *one->ifa_netmask);
    if (network.ok()) place.network = *network;
    break;
  }
  if (loopback) place.network = ipv4_loopback;
  return place;
}

std::map<std::string, std::string> NetworkProperties(const LocalAddress& local) {
  const std::string with_port = ToText(local.address);  // "10.0.0.1:0" or "[fd00::1]:0"
  std::string address = with_port.substr(0, with_port.rfind(':'));
  if (address.starts_with('[')) address = address.substr(1, address.size() - 2);
  std::map<std::string, std::string> properties = {
      {std::string(kAddressProperty), std::move(address)},
      {std::string(kNetworkProperty), local.network.ToText()}};
  if (!local.interface.empty()) properties[std::string(kInterfaceProperty)] = local.interface;
  return properties;
}

StatusOr<LocalAddress> FindLocalAddress(const std::string& host, const std::string& interface) {
  NS_ASSIGN_OR_RETURN(const SocketAddress address,
                      interface.empty() ? OfHost(host) : OfInterface(interface));
  return PlaceOf(address);
}

}  // namespace neuroshard
