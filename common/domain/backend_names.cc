#include "common/domain/backend_names.h"

namespace neuroshard {

std::string BackendNameToday(std::string_view name) {
  if (name == "cpu") return std::string(kNeuroshardCpu);
  if (name == "cuda") return std::string(kNeuroshardCuda);
  if (name == "gloo") return std::string(kNeuroshardTcp);
  return std::string(name);
}

void UseBackendNamesOfToday(MeasurementEnvironment& environment) {
  environment.backend = BackendNameToday(environment.backend);
  const auto found = environment.properties.find(std::string(kCollectiveBackendProperty));
  if (found != environment.properties.end()) found->second = BackendNameToday(found->second);
}

std::string CollectiveBackendOf(const MeasurementEnvironment& environment) {
  const auto found = environment.properties.find(std::string(kCollectiveBackendProperty));
  return found == environment.properties.end() ? "" : found->second;
}

}  // namespace neuroshard
