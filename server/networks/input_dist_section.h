// Reading and writing section input_dist of model.yaml.
#pragma once

#include <yaml-cpp/yaml.h>

#include "common/text/config_reader.h"
#include "server/networks/universal_manifest.h"

namespace neuroshard {

// Faults go to the section's list.
InputDistManifest ReadInputDist(ConfigReader section);

// Key and value.
void EmitInputDist(YAML::Emitter& out, const InputDistManifest& input_dist);

}  // namespace neuroshard
