// Published figures of devices that a request may name: configs/devices.yaml and configs/fabrics,
// compiled in. So every replica of a build resolves a name alike, also in processes that read no
// configuration (clients, tests), and no file has to be found at run time. Whoever has other
// figures states them in the request, which wins.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/domain/plan_cost.h"
#include "common/domain/topology.h"

namespace neuroshard {

// A device as its vendor describes it; nothing here was measured.
struct PublishedDevice {
  std::string name;  // for requests, e.g. "h100-sxm"
  std::string product;
  std::vector<std::string> reported_as;  // by drivers, and so by cost models measured on it
  std::int64_t memory_bytes = 0;
  double memory_bytes_per_s = 0;
  std::optional<Fabric> fabric;  // none: no links are published in the form of configs/fabrics
  std::string source;            // of the memory's figures

  bool operator==(const PublishedDevice&) const = default;
};

// `devices` in the format of configs/devices.yaml, `fabrics` each in that of configs/fabrics.
// INVALID_ARGUMENT with all faults: unknown and missing keys, figures out of range, names that are
// used twice, a fabric that is not there.
StatusOr<std::vector<PublishedDevice>> ParseDeviceTable(std::string_view devices,
                                                        std::span<const std::string_view> fabrics);

// The table of this build, in its order. Thread-safe; parsed once.
const std::vector<PublishedDevice>& PublishedDevices();

// The device of this name, ours or the one that drivers report; null: there is none.
const PublishedDevice* FindDevice(std::string_view name);

// Whether what drivers call `reported` is each of the devices of these names.
bool IsEachOf(std::string_view reported, std::span<const std::string> names);

// What the devices are that a model was measured on: by the backend where it runs on one kind alone,
// else by the device's name; none: neither tells.
std::optional<ComputeDevice> ComputeDeviceOf(const MeasuredWith& with);

// Why there is none, with the name that is nearest and all names, for an error.
std::string DescribeUnknownDevice(std::string_view name);

// The names of a topology's devices, each once, in the order of ranks; ranks without one have none.
std::vector<std::string> DeviceNames(const Topology& topology);

}  // namespace neuroshard
