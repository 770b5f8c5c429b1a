// Means and standard deviations of the inputs of imported networks.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/base/violations.h"
#include "server/pretrain/torchscript/scripted_network.h"

namespace neuroshard {

// {"compute": {"feature_means": [...], "feature_stds": [...]}, "forward_comm": {"4": {...}},
// "backward_comm": {"4": {...}}}; a number instead of a list is that of every column.
class FeatureStatisticsFile {
 public:
  // An empty path: nothing stated. Errors name the file.
  static StatusOr<FeatureStatisticsFile> Read(const std::string& path);

  // Of the network `key` ("compute", "forward_comm.4"), from here or from the module's buffers;
  // `violations` get what is missing, stated in both places, or not usable for so many columns.
  FeatureStatistics Of(const std::string& key, std::int64_t columns,
                       const std::optional<FeatureStatistics>& of_module,
                       Violations& violations) const;

  std::vector<std::string> keys() const;

 private:
  std::map<std::string, nlohmann::json> networks_;
};

}  // namespace neuroshard
