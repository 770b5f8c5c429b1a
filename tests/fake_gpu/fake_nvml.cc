// A fake libnvidia-ml.so.1 that knows the devices of the fake runtime (bus ids fa4e:NN:00.0).
// FAKE_NVML_FAIL=NAME: the call of that name fails, if there is one.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kSuccess = 0, kInvalidArgument = 2, kNotFound = 6, kUnknown = 999;

bool Fails(const char* call) {
  const char* const name = std::getenv("FAKE_NVML_FAIL");
  return name != nullptr && std::strcmp(name, call) == 0;
}

int Say(const char* call, unsigned* value, unsigned reading) {
  if (Fails(call)) return kUnknown;
  *value = reading;
  return kSuccess;
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return Fails("nvmlInit_v2") ? kUnknown : kSuccess; }

int nvmlShutdown() { return kSuccess; }

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** handle) {
  unsigned device = 0;
  if (Fails("nvmlDeviceGetHandleByPciBusId_v2")) return kUnknown;
  if (std::sscanf(bus, "fa4e:%x:00.0", &device) != 1) return kNotFound;
  *handle = reinterpret_cast<void*>(std::uintptr_t{device} + 1);
  return kSuccess;
}

int nvmlDeviceGetClockInfo(void*, int type, unsigned* mhz) {
  if (type != 1 && type != 2) return kInvalidArgument;
  return Say("nvmlDeviceGetClockInfo", mhz, type == 1 ? 1980 : 2619);
}

int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) {
  return Say("nvmlDeviceGetTemperature", celsius, 41);
}

int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  return Say("nvmlDeviceGetPowerUsage", milliwatts, 350'000);
}

// By its name before driver 535.
int nvmlDeviceGetCurrentClocksThrottleReasons(void* handle, unsigned long long* reasons) {
  if (Fails("nvmlDeviceGetCurrentClocksThrottleReasons")) return kUnknown;
  *reasons = handle == reinterpret_cast<void*>(std::uintptr_t{1}) ? 0 : 0x4;
  return kSuccess;
}

int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  if (Fails("nvmlSystemGetDriverVersion")) return kUnknown;
  std::snprintf(text, length, "530.30.02");
  return kSuccess;
}

}  // extern "C"
