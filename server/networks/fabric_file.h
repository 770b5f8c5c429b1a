// Published figures of a fabric, in a file of its own (configs/fabrics, format neuroshard-fabric/1)
// or in section comm, kind fabric, of a manifest.
#pragma once

#include <filesystem>
#include <string_view>

#include "common/base/status.h"
#include "common/domain/topology.h"
#include "server/networks/manifest_fields.h"

namespace neuroshard {

inline constexpr std::string_view kFabricKind = "fabric";

// Returns INVALID_ARGUMENT with every fault of the text, each with its key, as Violations.
StatusOr<Fabric> ParseFabric(std::string_view yaml);

// Parses a file; errors name it.
StatusOr<Fabric> ReadFabricFile(const std::filesystem::path& path);

// Describes the section of a manifest.
void DescribeFabric(ManifestFields& fields, Fabric& fabric);

}  // namespace neuroshard
