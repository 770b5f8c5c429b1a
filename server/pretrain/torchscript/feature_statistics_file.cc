#include "server/pretrain/torchscript/feature_statistics_file.h"

#include <cmath>

#include "server/models/regular_file.h"

namespace neuroshard {
namespace {

using Json = nlohmann::json;

// Whatever it is, as floats; empty when it is no number and no list of numbers.
std::vector<float> StatedColumns(const Json& network, const char* key, std::int64_t columns) {
  const auto found = network.find(key);
  if (found == network.end()) return {};
  if (found->is_number()) {
    return std::vector<float>(static_cast<std::size_t>(columns), found->get<float>());
  }
  std::vector<float> values;
  for (const Json& value : *found) {
    if (!value.is_number()) return {};
    values.push_back(value.get<float>());
  }
  return values;
}

void CheckColumns(const std::string& field, const std::vector<float>& values, std::int64_t columns,
                  bool positive, Violations& violations) {
  if (static_cast<std::int64_t>(values.size()) != columns) {
    violations.Add(field, fmt::format("{} values, must be {} numbers", values.size(), columns));
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i]) && (!positive || values[i] > 0)) continue;
    violations.Add(field, fmt::format("value {} is {}, must be finite{}", i, values[i],
                                      positive ? " and above 0" : ""));
    return;
  }
}

}  // namespace

StatusOr<FeatureStatisticsFile> FeatureStatisticsFile::Read(const std::string& path) {
  FeatureStatisticsFile file;
  if (path.empty()) return file;
  constexpr std::int64_t kMaxBytes = 64 << 20;
  NS_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path, kMaxBytes));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return InvalidArgument("{}: not a JSON object", path);
  Violations violations;
  const auto add = [&](const std::string& key, const Json& network) {
    if (!network.is_object()) {
      violations.Add(fmt::format("{}: {}", path, key), "must be an object");
      return;
    }
    for (const auto& [name, value] : network.items()) {
      if (name == "feature_means" || name == "feature_stds") continue;
      violations.Add(fmt::format("{}: {}.{}", path, key, name), "unknown key");
    }
    file.networks_[key] = network;
  };
  for (const auto& [stage, value] : json.items()) {
    if (stage == "compute") {
      add(stage, value);
    } else if ((stage == "forward_comm" || stage == "backward_comm") && value.is_object()) {
      for (const auto& [devices, network] : value.items()) add(stage + "." + devices, network);
    } else {
      violations.Add(fmt::format("{}: {}", path, stage),
                     "must be compute, or forward_comm or backward_comm with an object in it for "
                     "each number of devices");
    }
  }
  NS_RETURN_IF_ERROR(violations.ToStatus());
  return file;
}

FeatureStatistics FeatureStatisticsFile::Of(const std::string& key, std::int64_t columns,
                                            const std::optional<FeatureStatistics>& of_module,
                                            Violations& violations) const {
  const auto found = networks_.find(key);
  FeatureStatistics statistics;
  if (found == networks_.end() && !of_module) {
    violations.Add("statistics",
                   fmt::format("none: neither {} in --statistics nor buffers feature_mean and "
                               "feature_std in the module",
                               key));
    return statistics;
  }
  if (found != networks_.end() && of_module) {
    violations.Add("statistics", "stated twice: in --statistics, and in the module's buffers");
    return statistics;
  }
  if (of_module) {
    statistics = *of_module;
  } else {
    statistics.mean = StatedColumns(found->second, "feature_means", columns);
    statistics.std = StatedColumns(found->second, "feature_stds", columns);
  }
  CheckColumns("feature_means", statistics.mean, columns, false, violations);
  CheckColumns("feature_stds", statistics.std, columns, true, violations);
  return statistics;
}

std::vector<std::string> FeatureStatisticsFile::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, network] : networks_) keys.push_back(key);
  return keys;
}

}  // namespace neuroshard
