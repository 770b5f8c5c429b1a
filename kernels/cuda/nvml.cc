#include "kernels/cuda/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>

namespace neuroshard::cuda {

// The functions of NVML's stable C interface that are used; they return 0 for success.
struct Nvml::Library {
  using Handle = void*;
  void* file = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*handle_by_pci_bus_id)(const char*, Handle*) = nullptr;
  int (*clock)(Handle, int type, unsigned* mhz) = nullptr;
  int (*temperature)(Handle, int sensor, unsigned* celsius) = nullptr;
  int (*power)(Handle, unsigned* milliwatts) = nullptr;
  int (*throttle_reasons)(Handle, unsigned long long*) = nullptr;
  int (*driver)(char*, unsigned length) = nullptr;

  template <typename Function>
  void Find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(file, name));
  }
};

std::unique_ptr<Nvml> Nvml::Open(const std::string& pci_bus_id) {
  auto library = std::make_unique<Library>();
  library->file = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library->file == nullptr) return nullptr;
  library->Find("nvmlInit_v2", &library->init);
  library->Find("nvmlShutdown", &library->shutdown);
  library->Find("nvmlDeviceGetHandleByPciBusId_v2", &library->handle_by_pci_bus_id);
  library->Find("nvmlDeviceGetClockInfo", &library->clock);
  library->Find("nvmlDeviceGetTemperature", &library->temperature);
  library->Find("nvmlDeviceGetPowerUsage", &library->power);
  library->Find("nvmlDeviceGetCurrentClocksEventReasons", &library->throttle_reasons);
  if (library->throttle_reasons == nullptr) {  // its name before driver 535
    library->Find("nvmlDeviceGetCurrentClocksThrottleReasons", &library->throttle_reasons);
  }
  library->Find("nvmlSystemGetDriverVersion", &library->driver);
  void* device = nullptr;
  if (library->init == nullptr || library->shutdown == nullptr || library->init() != 0) {
    dlclose(library->file);
    return nullptr;
  }
  std::unique_ptr<Nvml> nvml(new Nvml(std::move(library), nullptr));
  if (nvml->library_->handle_by_pci_bus_id == nullptr ||
      nvml->library_->handle_by_pci_bus_id(pci_bus_id.c_str(), &device) != 0) {
    return nullptr;
  }
  nvml->device_ = device;
  return nvml;
}

Nvml::Nvml(std::unique_ptr<Library> library, void* device)
    : library_(std::move(library)), device_(device) {}

Nvml::~Nvml() {
  (void)library_->shutdown();
  dlclose(library_->file);
}

std::map<std::string, std::string> Nvml::Read() const {
  constexpr int kSmClock = 1, kMemoryClock = 2, kGpuSensor = 0;
  std::map<std::string, std::string> values;
  // Whether there is such a function and it succeeds.
  const auto read = [](auto* function, auto... arguments) {
    return function != nullptr && function(arguments...) == 0;
  };
  unsigned value = 0;
  if (read(library_->clock, device_, kSmClock, &value)) {
    values["nvml_sm_clock_mhz"] = std::to_string(value);
  }
  if (read(library_->clock, device_, kMemoryClock, &value)) {
    values["nvml_memory_clock_mhz"] = std::to_string(value);
  }
  if (read(library_->temperature, device_, kGpuSensor, &value)) {
    values["nvml_temperature_celsius"] = std::to_string(value);
  }
  if (read(library_->power, device_, &value)) values["nvml_power_mw"] = std::to_string(value);
  unsigned long long reasons = 0;
  if (read(library_->throttle_reasons, device_, &reasons)) {
    values["nvml_throttle_reasons"] = DescribeThrottleReasons(reasons);
  }
  char driver[96] = {};
  if (read(library_->driver, &driver[0], static_cast<unsigned>(sizeof driver))) {
    values["nvml_driver"] = driver;
  }
  return values;
}

std::string DescribeThrottleReasons(unsigned long long bits) {
  constexpr std::pair<unsigned long long, const char*> kNames[] = {
      {0x04, "sw_power_cap"},        {0x08, "hw_slowdown"},         {0x10, "sync_boost"},
      {0x20, "sw_thermal_slowdown"}, {0x40, "hw_thermal_slowdown"}, {0x80, "hw_power_brake"},
      {0x100, "display_clock"}};
  bits &= ~0x3ULL;
  if (bits == 0) return "none";
  std::string words;
  for (const auto& [bit, name] : kNames) {
    if ((bits & bit) != 0) words += (words.empty() ? "" : " ") + std::string(name);
  }
  return fmt::format("{:#x} ({})", bits, words);
}

}  // namespace neuroshard::cuda
