#include "common/devices/fabric_fields.h"

namespace neuroshard {
namespace {

FabricLink ReadLink(ConfigReader& owner, std::string_view key) {
  FabricLink link;
  owner.Require({key});
  if (auto section = owner.SectionIfGiven(key)) {
    section->Require({"latency_us", "bytes_per_s"});
    section->Read("latency_us", &link.latency_us, {0, 1e6});
    section->Read("bytes_per_s", &link.bytes_per_s, {1, 1e15});
  }
  return link;
}

}  // namespace

void ReadFabricLinks(ConfigReader& reader, Fabric* fabric) {
  fabric->intra_host = ReadLink(reader, "intra_host");
  fabric->inter_host = ReadLink(reader, "inter_host");
}

}  // namespace neuroshard
