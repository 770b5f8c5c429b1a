#include "common/devices/device_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <set>
#include <utility>

#include "common/base/printable_text.h"
#include "common/base/similar_word.h"
#include "common/devices/fabric_fields.h"
#include "common/domain/backend_names.h"
#include "common/text/config_reader.h"

namespace neuroshard {

// configs/devices.yaml and configs/fabrics/*.yaml; CMake writes their definitions.
extern const std::string_view kDevicesText;
extern const std::span<const std::string_view> kFabricTexts;

namespace {

constexpr std::string_view kDevicesFormat = "neuroshard-devices/1";

bool ContainsAny(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(
      words, [text](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

void RequireFormat(ConfigReader& reader, std::string_view expected) {
  std::string format;
  reader.Read("format", &format);
  if (format != expected) {
    reader.AddViolation("format", "must be {}, got {}", expected, Quoted(format));
  }
}

StatusOr<std::map<std::string, Fabric>> ParseFabrics(std::span<const std::string_view> texts) {
  std::map<std::string, Fabric> fabrics;
  for (const std::string_view text : texts) {
    NS_ASSIGN_OR_RETURN(ConfigReader reader, ConfigReader::FromText(std::string(text), "fabric"));
    RequireFormat(reader, kFabricFormat);
    Fabric fabric;
    reader.Require({"name"});
    reader.Read("name", &fabric.name);
    ReadFabricLinks(reader, &fabric);
    NS_RETURN_IF_ERROR(reader.Finish());
    fabrics[fabric.name] = fabric;
  }
  return fabrics;
}

PublishedDevice ReadDevice(ConfigReader& reader, const std::map<std::string, Fabric>& fabrics) {
  PublishedDevice device;
  reader.Require({"name", "product", "reported_as", "memory_gb", "memory_gb_per_s", "source"});
  reader.Read("name", &device.name);
  reader.Read("product", &device.product);
  reader.Read("reported_as", &device.reported_as);
  reader.Read("source", &device.source);
  double gigabytes = 0;
  reader.Read("memory_gb", &gigabytes, {1, 1e6});
  device.memory_bytes = std::llround(gigabytes * 1e9);
  reader.Read("memory_gb_per_s", &device.memory_bytes_per_s, {1, 1e6});
  device.memory_bytes_per_s *= 1e9;
  std::string fabric;
  reader.Read("fabric", &fabric);
  if (const auto found = fabrics.find(fabric); found != fabrics.end()) {
    device.fabric = found->second;
  } else if (!fabric.empty()) {
    reader.AddViolation("fabric", "there is no fabric {}", Quoted(fabric));
  }
  return device;
}

// The device that is meant; empty: none is near. Of longer names ("NVIDIA H100 80GB PCIe") the one
// whose family is in the name, with most of its other parts, and of several the usual one.
std::string SimilarDevice(std::string_view name, std::span<const std::string_view> devices) {
  std::string similar = SimilarWord(name, devices);
  if (!similar.empty()) return similar;
  std::string given = "-";
  for (const char c : name) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool part = upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    given += !part ? '-' : upper ? static_cast<char>(c + 32) : c;
  }
  given += '-';
  std::ptrdiff_t most = 0;
  for (const std::string_view device : devices) {
    std::ptrdiff_t common = 0;
    std::string_view family;
    for (std::size_t begin = 0; begin <= device.size();) {
      const std::size_t end = std::min(device.find('-', begin), device.size());
      const std::string_view part = device.substr(begin, end - begin);
      const bool is_given = given.find(fmt::format("-{}-", part)) != std::string::npos;
      if (begin == 0 && !is_given) break;
      if (begin == 0) family = part;
      common += is_given ? 1 : 0;
      begin = end + 1;
    }
    const std::string usual = SimilarWord(family, devices);
    if (common == 0 || common < most || (common == most && device != usual)) continue;
    most = common;
    similar = common == 1 ? usual : device;
  }
  return similar;
}

}  // namespace

StatusOr<std::vector<PublishedDevice>> ParseDeviceTable(std::string_view devices,
                                                        std::span<const std::string_view> fabrics) {
  NS_ASSIGN_OR_RETURN(const auto known_fabrics, ParseFabrics(fabrics));
  NS_ASSIGN_OR_RETURN(ConfigReader reader, ConfigReader::FromText(std::string(devices), ""));
  RequireFormat(reader, kDevicesFormat);
  std::vector<PublishedDevice> table;
  std::set<std::string> names;
  for (ConfigReader& section : reader.Sections("devices")) {
    PublishedDevice device = ReadDevice(section, known_fabrics);
    std::vector<std::string> own = device.reported_as;
    own.push_back(device.name);
    for (const std::string& name : own) {
      if (!names.insert(name).second) {
        section.AddViolation("name", "{} is used twice", Quoted(name));
      }
    }
    table.push_back(std::move(device));
  }
  NS_RETURN_IF_ERROR(reader.Finish());
  return table;
}

const std::vector<PublishedDevice>& PublishedDevices() {
  static const std::vector<PublishedDevice> table = [] {
    auto parsed = ParseDeviceTable(kDevicesText, kFabricTexts);
    if (!parsed.ok()) {  // a test reads the same text
      std::fprintf(stderr, "configs/devices.yaml: %s\n", Message(parsed.status()).c_str());
      std::abort();
    }
    return *std::move(parsed);
  }();
  return table;
}

const PublishedDevice* FindDevice(std::string_view name) {
  for (const PublishedDevice& device : PublishedDevices()) {
    if (device.name == name ||
        std::ranges::find(device.reported_as, name) != device.reported_as.end()) {
      return &device;
    }
  }
  return nullptr;
}

bool IsEachOf(std::string_view reported, std::span<const std::string> names) {
  const PublishedDevice* device = FindDevice(reported);
  return device != nullptr && std::ranges::all_of(names, [device](const std::string& name) {
           return name == device->name;
         });
}

std::optional<ComputeDevice> ComputeDeviceOf(const MeasuredWith& with) {
  const std::string backend = BackendNameToday(with.backend);
  if (backend == kNeuroshardCpu) return ComputeDevice::kCpu;
  if (backend == kNeuroshardCuda || with.collective_backend.find(kNccl) != std::string::npos ||
      FindDevice(with.device) != nullptr) {
    return ComputeDevice::kCuda;
  }
  if (ContainsAny(with.device, {"NVIDIA", "Tesla", "Instinct", "Radeon", "GeForce", "RTX"})) {
    return ComputeDevice::kCuda;
  }
  if (ContainsAny(with.device, {"EPYC", "Xeon", "Ryzen", "CPU", "Neoverse"})) {
    return ComputeDevice::kCpu;
  }
  return std::nullopt;
}

std::string DescribeUnknownDevice(std::string_view name) {
  std::vector<std::string_view> names;
  for (const PublishedDevice& device : PublishedDevices()) names.push_back(device.name);
  const std::string similar = SimilarDevice(name, names);
  return fmt::format("{} is no device of the planner's table{}; there are {}", Quoted(name),
                     similar.empty() ? "" : fmt::format("; did you mean {}?", similar),
                     fmt::join(names, ", "));
}

std::vector<std::string> DeviceNames(const Topology& topology) {
  std::vector<std::string> names;
  for (const Device& device : topology.devices) {
    if (device.name.empty() || (!names.empty() && names.back() == device.name)) continue;
    if (std::ranges::find(names, device.name) == names.end()) {
      names.push_back(device.name);
    }
  }
  return names;
}

}  // namespace neuroshard
