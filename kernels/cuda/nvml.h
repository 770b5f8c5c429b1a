// Readings of NVIDIA's management library (NVML), for records, and to see whether a device was
// slowed down. The library is opened at run time and only read from; without it there are no
// readings.
#pragma once

#include <map>
#include <memory>
#include <string>

namespace neuroshard::cuda {

// NVML's readings of one device, through a library opened at run time.
class Nvml {
 public:
  // Null when there is no such library, or it does not know the device.
  static std::unique_ptr<Nvml> Open(const std::string& pci_bus_id);
  ~Nvml();
  Nvml(Nvml&&) = delete;

  // "nvml_sm_clock_mhz", "nvml_memory_clock_mhz", "nvml_temperature_celsius", "nvml_power_mw",
  // "nvml_throttle_reasons" (hexadecimal bits, or "none"), "nvml_driver": those that it knows.
  std::map<std::string, std::string> Read() const;

 private:
  struct Library;
  explicit Nvml(std::unique_ptr<Library> library, void* device);

  std::unique_ptr<Library> library_;
  void* device_;
};

// "none", or the bits in hexadecimal and those with a name in words: "0x44 (sw_power_cap
// hw_thermal_slowdown)". Bits 0 (idle) and 1 (clocks set by applications) are not throttling.
std::string DescribeThrottleReasons(unsigned long long bits);

}  // namespace neuroshard::cuda
