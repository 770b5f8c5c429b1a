// A fabric's published figures: in a file of its own (configs/fabrics, format neuroshard-fabric/1)
// and as section comm, kind fabric, of a manifest.
#pragma once

#include <filesystem>
#include <string_view>

#include "common/base/status.h"
#include "common/domain/fabric.h"
#include "server/networks/manifest_fields.h"

namespace neuroshard {

inline constexpr std::string_view kFabricKind = "fabric";

// Every fault of the text, each with its key, as the Violations of an INVALID_ARGUMENT.
StatusOr<Fabric> ParseFabric(std::string_view yaml);

// The same of a file; errors name it.
StatusOr<Fabric> ReadFabricFile(const std::filesystem::path& path);

// The section of a manifest.
void DescribeFabric(ManifestFields& fields, Fabric& fabric);

}  // namespace neuroshard
