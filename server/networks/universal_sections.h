// Reading and writing the sections of universal_manifest.h.
#pragma once

#include <yaml-cpp/yaml.h>

#include "common/text/config_reader.h"
#include "server/networks/universal_manifest.h"

namespace neuroshard {

// Faults go to the section's list.
UniversalComputeManifest ReadUniversalCompute(ConfigReader section);
UniversalCommManifest ReadUniversalComm(ConfigReader section);
TrainedOnManifest ReadTrainedOn(ConfigReader section);

// Key and value.
void EmitUniversalCompute(YAML::Emitter& out, const UniversalComputeManifest& compute);
void EmitUniversalComm(YAML::Emitter& out, const UniversalCommManifest& comm);
void EmitTrainedOn(YAML::Emitter& out, const TrainedOnManifest& trained_on);

}  // namespace neuroshard
