// Reading and writing the sections of model.yaml whose parts are rates: input_dist and casts.
#pragma once

#include <yaml-cpp/yaml.h>

#include "common/text/config_reader.h"
#include "server/models/universal_manifest.h"

namespace neuroshard {

// Faults go to the section's list.
InputDistManifest ReadInputDist(ConfigReader section);

// Key and value.
void EmitInputDist(YAML::Emitter& out, const InputDistManifest& input_dist);

// As those above.
MeasuredCasts ReadCasts(ConfigReader section);
void EmitCasts(YAML::Emitter& out, const MeasuredCasts& casts);

}  // namespace neuroshard
