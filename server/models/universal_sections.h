// Reading and writing the sections of universal_manifest.h.
#pragma once

#include <yaml-cpp/yaml.h>

#include "common/base/violations.h"
#include "server/models/manifest_section.h"
#include "server/models/universal_manifest.h"

namespace neuroshard {

// Faults go to `violations`, as in ManifestSection. May throw YAML::Exception.
UniversalComputeManifest ReadUniversalCompute(const YAML::Node& node, Violations& violations);
UniversalCommManifest ReadUniversalComm(const YAML::Node& node, Violations& violations);
TrainedOnManifest ReadTrainedOn(const YAML::Node& node, Violations& violations);

// "outputs" of a compute section, "total_ms" where it is absent.
std::vector<std::string> ReadOutputs(const ManifestSection& section);

// Key and value.
void EmitUniversalCompute(YAML::Emitter& out, const UniversalComputeManifest& compute);
void EmitUniversalComm(YAML::Emitter& out, const UniversalCommManifest& comm);
void EmitTrainedOn(YAML::Emitter& out, const TrainedOnManifest& trained_on);

}  // namespace neuroshard
