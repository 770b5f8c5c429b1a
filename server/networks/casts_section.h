// Reading and writing section casts of model.yaml.
#pragma once

#include <yaml-cpp/yaml.h>

#include "common/text/config_reader.h"
#include "server/cost/measured_casts.h"

namespace neuroshard {

// Faults go to the section's list.
MeasuredCasts ReadCasts(ConfigReader section);

// Key and value.
void EmitCasts(YAML::Emitter& out, const MeasuredCasts& casts);

}  // namespace neuroshard
