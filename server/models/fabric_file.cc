#include "server/models/fabric_file.h"

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <string>

#include "common/base/printable_text.h"
#include "common/base/violations.h"
#include "server/models/fabric_section.h"
#include "server/models/manifest_section.h"
#include "server/models/regular_file.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kMaxFabricFileBytes = 1 << 16;
constexpr std::string_view kFabricFormat = "neuroshard-fabric/1";

}  // namespace

StatusOr<Fabric> ParseFabric(std::string_view yaml) {
  if (!IsUtf8(yaml)) return InvalidArgument("not valid YAML: the text is not UTF-8");
  Violations violations;
  Fabric fabric;
  try {
    const ManifestSection root(YAML::Load(std::string(yaml)), "",
                               {"format", "name", "intra_host", "inter_host"}, violations);
    if (!root.valid()) return violations.ToStatus();
    root.Constant("format", kFabricFormat);
    fabric = ReadFabric(root, violations);
  } catch (const YAML::Exception& error) {
    return InvalidArgument("not valid YAML: {}", error.what());
  }
  NS_RETURN_IF_ERROR(violations.ToStatus());
  return fabric;
}

StatusOr<Fabric> ReadFabricFile(const std::filesystem::path& path) {
  NS_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path, kMaxFabricFileBytes));
  StatusOr<Fabric> fabric = ParseFabric(text);
  if (!fabric.ok()) return Annotate(fabric.status(), path.string());
  return fabric;
}

}  // namespace neuroshard
