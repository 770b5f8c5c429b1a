// A fabric in a manifest (section comm, kind fabric) and in a file of its own (configs/fabrics).
#pragma once

#include <yaml-cpp/yaml.h>

#include <string_view>

#include "common/base/violations.h"
#include "server/cost/fabric/fabric.h"
#include "server/models/manifest_section.h"

namespace neuroshard {

inline constexpr std::string_view kFabricKind = "fabric";

// Name and links, the keys that are the same in both places.
Fabric ReadFabric(const ManifestSection& section, Violations& violations);

// `node` is the section. Faults of both go to `violations`, as in ManifestSection. May throw
// YAML::Exception.
Fabric ReadFabricSection(const YAML::Node& node, Violations& violations);

// Key and value.
void EmitFabricSection(YAML::Emitter& out, const Fabric& fabric);

}  // namespace neuroshard
