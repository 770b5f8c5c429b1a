#include "server/networks/fabric_file.h"

#include <cstdint>
#include <string>

#include "common/devices/fabric_fields.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kMaxFabricFileBytes = 1 << 16;

// Name and links, the keys that are the same in both places.
void DescribeLinks(ManifestFields& fields, Fabric& fabric) {
  fields.Name("name", &fabric.name);
  if (fields.reads()) return ReadFabricLinks(fields.reader(), &fabric);
  const auto describe = [&fields](const char* key, auto& link) {
    fields.FlowSection(key, [&link](ManifestFields& of_link) {
      of_link.Number("latency_us", &link.latency_us, {});
      of_link.Number("bytes_per_s", &link.bytes_per_s, {});
    });
  };
  describe("intra_host", fabric.intra_host);
  describe("inter_host", fabric.inter_host);
}

}  // namespace

StatusOr<Fabric> ParseFabric(std::string_view yaml) {
  return ParseFields<Fabric>(yaml, [](ManifestFields& fields, Fabric& fabric) {
    fields.Constant("format", kFabricFormat);
    DescribeLinks(fields, fabric);
  });
}

StatusOr<Fabric> ReadFabricFile(const std::filesystem::path& path) {
  return ParseFile(path, kMaxFabricFileBytes, ParseFabric);
}

void DescribeFabric(ManifestFields& fields, Fabric& fabric) {
  fields.Constant("kind", kFabricKind);
  DescribeLinks(fields, fabric);
}

}  // namespace neuroshard
