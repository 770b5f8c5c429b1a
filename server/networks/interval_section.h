// Intervals in a manifest: the keys "interval" and "intervals" of a network's section.
#pragma once

#include <yaml-cpp/yaml.h>

#include <map>
#include <optional>
#include <string>

#include "common/text/config_reader.h"
#include "server/networks/universal_manifest.h"

namespace neuroshard {

// Nothing where `owner` has no "interval". Faults go to the reader's list.
std::optional<IntervalManifest> ReadInterval(ConfigReader& owner);

// "intervals": by CollectiveName; empty where there is no such key. Each as above.
std::map<std::string, IntervalManifest> ReadIntervals(ConfigReader& owner);

// Key and value; nothing of nothing.
void EmitInterval(YAML::Emitter& out, const std::optional<IntervalManifest>& interval);
void EmitIntervals(YAML::Emitter& out, const std::map<std::string, IntervalManifest>& intervals);

}  // namespace neuroshard
