#include "server/models/fabric_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "common/base/printable_text.h"

namespace neuroshard {
namespace {

constexpr std::size_t kMaxFabricName = 128;

FabricLink ReadLink(const ManifestSection& owner, const std::string& key, Violations& violations) {
  FabricLink link;
  const YAML::Node* node = owner.Require(key);
  if (node == nullptr) return link;
  const ManifestSection section(*node, owner.Path(key), {"latency_us", "bytes_per_s"}, violations);
  if (!section.valid()) return link;
  link.latency_us = section.RequiredNumber("latency_us", 0, 1e6);
  link.bytes_per_s = section.RequiredNumber("bytes_per_s", 1, 1e15);
  return link;
}

void EmitLink(YAML::Emitter& out, const std::string& key, const FabricLink& link) {
  out << YAML::Key << key << YAML::Value << YAML::Flow << YAML::BeginMap;
  // As the shortest text that reads back the same.
  out << YAML::Key << "latency_us" << YAML::Value << fmt::format("{}", link.latency_us);
  out << YAML::Key << "bytes_per_s" << YAML::Value << fmt::format("{}", link.bytes_per_s);
  out << YAML::EndMap;
}

}  // namespace

Fabric ReadFabric(const ManifestSection& section, Violations& violations) {
  Fabric fabric;
  fabric.name = section.RequiredText("name");
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
  };
  if (fabric.name.size() > kMaxFabricName ||
      !std::all_of(fabric.name.begin(), fabric.name.end(), allowed)) {
    section.Fault("name", fmt::format("must be 1 to {} letters, digits, '.', '_' or '-', got {}",
                                      kMaxFabricName, Quoted(fabric.name)));
  }
  fabric.intra_host = ReadLink(section, "intra_host", violations);
  fabric.inter_host = ReadLink(section, "inter_host", violations);
  return fabric;
}

Fabric ReadFabricSection(const YAML::Node& node, Violations& violations) {
  const ManifestSection section(node, "comm", {"kind", "name", "intra_host", "inter_host"},
                                violations);
  if (!section.valid()) return {};
  section.Constant("kind", kFabricKind);
  return ReadFabric(section, violations);
}

void EmitFabricSection(YAML::Emitter& out, const Fabric& fabric) {
  out << YAML::Key << "comm" << YAML::Value << YAML::BeginMap;
  out << YAML::Key << "kind" << YAML::Value << std::string(kFabricKind);
  out << YAML::Key << "name" << YAML::Value << fabric.name;
  EmitLink(out, "intra_host", fabric.intra_host);
  EmitLink(out, "inter_host", fabric.inter_host);
  out << YAML::EndMap;
}

}  // namespace neuroshard
