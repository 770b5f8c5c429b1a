#include "common/domain/backend_names.h"

#include <fmt/ranges.h>

#include <vector>

namespace neuroshard {

std::string BackendNameToday(std::string_view name) {
  if (name == "cpu") return std::string(kNeuroshardCpu);
  if (name == "cuda") return std::string(kNeuroshardCuda);
  if (name == "gloo") return std::string(kNeuroshardTcp);
  return std::string(name);
}

std::string MeasuredWithText(const MeasuredWith& with) {
  std::vector<std::string> parts;
  if (!with.backend.empty()) parts.push_back(with.backend + " kernels");
  if (!with.collective_backend.empty()) parts.push_back(with.collective_backend + " collectives");
  std::string text = fmt::format("{}", fmt::join(parts, " and "));
  if (with.device.empty()) return text;
  return text.empty() ? with.device : text + " on " + with.device;
}

void UseBackendNamesOfToday(MeasurementEnvironment& environment) {
  environment.backend = BackendNameToday(environment.backend);
  const auto found = environment.properties.find(std::string(kCollectiveBackendProperty));
  if (found != environment.properties.end()) found->second = BackendNameToday(found->second);
}

std::string CollectiveBackendOf(const MeasurementEnvironment& environment) {
  return environment.property(kCollectiveBackendProperty);
}

}  // namespace neuroshard
