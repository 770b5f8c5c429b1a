// The links of a fabric as YAML files have them (configs/fabrics, cost models).
#pragma once

#include <string_view>

#include "common/domain/topology.h"
#include "common/text/config_reader.h"

namespace neuroshard {

inline constexpr std::string_view kFabricFormat = "neuroshard-fabric/1";

// Reads both links; the name is the caller's. Faults go to the reader's list.
void ReadFabricLinks(ConfigReader& reader, Fabric* fabric);

}  // namespace neuroshard
