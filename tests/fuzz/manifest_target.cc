// The YAML of a model repository, of fabrics and of devices.
#include <array>

#include "common/devices/device_table.h"
#include "server/networks/fabric_file.h"
#include "server/networks/model_drift.h"
#include "server/networks/model_manifest.h"
#include "server/networks/network_tensors.h"
#include "server/networks/testing/model_fixture.h"
#include "server/networks/testing/universal_fixture.h"
#include "tests/fuzz/fuzz_target.h"

namespace neuroshard::fuzz {
namespace {

void ReadManifest(std::string_view input) {
  if (const auto manifest = ParseModelManifest(input); manifest.ok()) {
    const auto text = FormatModelManifest(*manifest);
    Promise(text.ok(), "a manifest that is read can be written");
    const auto again = ParseModelManifest(*text);
    Promise(again.ok() && *again == *manifest, "FormatModelManifest keeps every value");
    for (const NetworkManifest* network : manifest->networks()) (void)NetworkTensors(*network);
  }
  if (const auto drift = ParseModelDrift(input); drift.ok()) {
    const auto text = FormatModelDrift(*drift);
    Promise(text.ok(), "drift that is read can be written");
    const auto again = ParseModelDrift(*text);
    Promise(again.ok() && *again == *drift, "FormatModelDrift keeps every value");
  }
  (void)ParseFabric(input);
  const std::array<std::string_view, 1> fabrics = {input};
  (void)ParseDeviceTable(input, fabrics);
}

std::vector<std::string> ManifestSeeds() {
  std::vector<std::string> seeds = SeedsFrom("configs/models", ".yaml");
  seeds.push_back(*FormatModelManifest(MakeModelFixture({}).manifest));
  seeds.push_back(*FormatModelManifest(MakeUniversalFixture({}).manifest));
  StageDrift drift;
  drift.stage = "compute";
  if (const auto text = FormatModelDrift({drift}); text.ok()) seeds.push_back(*text);
  seeds = Joined(std::move(seeds), SeedsFrom("configs/fabrics", ".yaml"));
  return Joined(std::move(seeds), SeedsFrom("configs/devices.yaml", ""));
}

}  // namespace

FuzzTarget ManifestTarget() { return {"manifest", ReadManifest, ManifestSeeds}; }

}  // namespace neuroshard::fuzz
