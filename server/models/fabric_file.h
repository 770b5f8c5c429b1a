// Fabrics in files (configs/fabrics): format neuroshard-fabric/1.
#pragma once

#include <filesystem>
#include <string_view>

#include "common/base/status.h"
#include "server/cost/fabric/fabric.h"

namespace neuroshard {

// Every fault of the text, each with its key, as the Violations of an INVALID_ARGUMENT.
StatusOr<Fabric> ParseFabric(std::string_view yaml);

// The same of a file; errors name it.
StatusOr<Fabric> ReadFabricFile(const std::filesystem::path& path);

}  // namespace neuroshard
