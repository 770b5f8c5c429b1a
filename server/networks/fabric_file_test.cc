#include "server/networks/fabric_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/violations.h"
#include "server/networks/model_manifest.h"
#include "server/networks/testing/model_fixture.h"

namespace neuroshard {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TEST(FabricFileTest, EveryFileOfConfigsIsAFabricOfItsName) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(NEUROSHARD_SOURCE_DIR "/configs/fabrics")) {
    if (entry.path().extension() != ".yaml") continue;
    const auto fabric = ReadFabricFile(entry.path());
    ASSERT_TRUE(fabric.ok()) << fabric.status();
    EXPECT_EQ(fabric->name, entry.path().stem());
    ++files;
  }
  EXPECT_GE(files, 13);
}

TEST(FabricFileTest, EveryFaultIsNamed) {
  const auto fabric = ParseFabric(
      "format: neuroshard-fabric/2\nname: a b\nintra_host: {latency_us: -1, bytes_per_s: 0}\n"
      "inter_host: {latency_us: .nan, gbps: 4}\ncolour: red\n");
  std::vector<std::string> fields;
  for (const Violation& fault : Violations::FromStatus(fabric.status())) {
    fields.push_back(fault.field);
  }
  EXPECT_THAT(fields, UnorderedElementsAre("format", "name", "intra_host.latency_us",
                                           "intra_host.bytes_per_s", "inter_host.latency_us",
                                           "inter_host.bytes_per_s", "inter_host.gbps", "colour"));
  EXPECT_FALSE(ParseFabric("[1").ok());
  EXPECT_THAT(ReadFabricFile("/does/not/exist.yaml").status().ToString(),
              HasSubstr("/does/not/exist.yaml"));
}

TEST(FabricManifestTest, GoesWithNetworksOfOtherKindsAndReadsBackEqual) {
  ModelManifest manifest = MakeModelFixture({.device_counts = {}}).manifest;
  manifest.fabric = Fabric{"h100-nvlink4_ndr", {5, 3.6e11}, {12.25, 4.8e10}};
  const auto text = FormatModelManifest(manifest);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("kind: fabric"));
  EXPECT_EQ(*ParseModelManifest(*text), manifest);

  const auto twice = ParseModelManifest(
      *text + "forward_comm: {file: f, kind: device_count_mlp, num_devices: 2, layers: [4, 2]}\n");
  EXPECT_THAT(Violations::FromStatus(twice.status()),
              Contains(Field(&Violation::description, "does not go with comm.kind fabric")));
}

}  // namespace
}  // namespace neuroshard
