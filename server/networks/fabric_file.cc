#include "server/networks/fabric_file.h"

#include <cstdint>
#include <string>

#include "common/devices/fabric_fields.h"
#include "server/networks/manifest_fields.h"
#include "server/networks/regular_file.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kMaxFabricFileBytes = 1 << 16;

// Name and links, the keys that are the same in both places.
Fabric ReadFabric(ConfigReader& section) {
  Fabric fabric;
  fabric.name = ReadName(section, "name");
  ReadFabricLinks(section, &fabric);
  return fabric;
}

void EmitLink(YAML::Emitter& out, const std::string& key, const FabricLink& link) {
  out << YAML::Key << key << YAML::Value << YAML::Flow << YAML::BeginMap;
  EmitScalar(out, "latency_us", link.latency_us);
  EmitScalar(out, "bytes_per_s", link.bytes_per_s);
  out << YAML::EndMap;
}

}  // namespace

StatusOr<Fabric> ParseFabric(std::string_view yaml) {
  NS_ASSIGN_OR_RETURN(ConfigReader root, ConfigReader::FromText(std::string(yaml), ""));
  RequireConstant(root, "format", kFabricFormat);
  Fabric fabric = ReadFabric(root);
  NS_RETURN_IF_ERROR(root.Finish());
  return fabric;
}

StatusOr<Fabric> ReadFabricFile(const std::filesystem::path& path) {
  NS_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path, kMaxFabricFileBytes));
  StatusOr<Fabric> fabric = ParseFabric(text);
  if (!fabric.ok()) return Annotate(fabric.status(), path.string());
  return fabric;
}

Fabric ReadFabricSection(ConfigReader section) {
  RequireConstant(section, "kind", kFabricKind);
  return ReadFabric(section);
}

void EmitFabricSection(YAML::Emitter& out, const Fabric& fabric) {
  out << YAML::Key << "comm" << YAML::Value << YAML::BeginMap;
  EmitScalar(out, "kind", kFabricKind);
  EmitScalar(out, "name", fabric.name);
  EmitLink(out, "intra_host", fabric.intra_host);
  EmitLink(out, "inter_host", fabric.inter_host);
  out << YAML::EndMap;
}

}  // namespace neuroshard
