#include "common/devices/device_table.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "common/devices/fabric_fields.h"
#include "tests/support/faulty_fields.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::string_view kFabric = R"(format: neuroshard-fabric/1
name: links
intra_host: {latency_us: 5, bytes_per_s: 2e9}
inter_host: {latency_us: 12, bytes_per_s: 1e9}
)";

std::string Device(const std::string& name, const std::string& more = "") {
  return "- {name: " + name + ", product: P, reported_as: [R " + name +
         "], memory_gb: 80, memory_gb_per_s: 3350.5, source: S" + more + "}\n";
}

StatusOr<std::vector<PublishedDevice>> Parse(const std::string& devices) {
  const std::string_view fabrics[] = {kFabric};
  return ParseDeviceTable("format: neuroshard-devices/1\ndevices:\n" + devices, fabrics);
}

TEST(DeviceTableTest, FiguresAreDecimalAndLinksComeFromTheFabric) {
  const auto table = Parse(Device("a", ", fabric: links") + Device("b"));
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_EQ(table->size(), 2u);
  const PublishedDevice& a = table->front();
  EXPECT_EQ(a.memory_bytes, 80'000'000'000);
  EXPECT_DOUBLE_EQ(a.memory_bytes_per_s, 3350.5e9);
  EXPECT_EQ(a.fabric, (Fabric{"links", {5, 2e9}, {12, 1e9}}));
  EXPECT_FALSE((*table)[1].fabric.has_value());
}

TEST(DeviceTableTest, EveryFaultOfATableIsNamed) {
  EXPECT_THAT(
      FaultyFields(Parse(Device("a", ", fabric: lniks") + Device("a") +
                         "- {name: c, product: P, reported_as: [], memory_gb: -1, source: S}\n")
                       .status()),
      AllOf(Contains("devices[0].fabric"), Contains("devices[1].name"),
            Contains("devices[2].memory_gb"), Contains("devices[2].memory_gb_per_s")));
  const std::string_view bad[] = {"format: neuroshard-fabric/2\nname: f\n"};
  EXPECT_FALSE(ParseDeviceTable("format: neuroshard-devices/1\ndevices: []\n", bad).ok());
  EXPECT_FALSE(ParseDeviceTable("format: neuroshard-devices/2\ndevices: []\n", {}).ok());
}

// Figures that a wrong key or unit would put far away.
TEST(DeviceTableTest, TheShippedTableIsOfAcceleratorsWithTheirSources) {
  for (const PublishedDevice& device : PublishedDevices()) {
    EXPECT_GE(device.memory_bytes, 16e9) << device.name;
    EXPECT_LE(device.memory_bytes, 300e9) << device.name;
    EXPECT_GE(device.memory_bytes_per_s, 300e9) << device.name;
    EXPECT_LE(device.memory_bytes_per_s, 10e12) << device.name;
    EXPECT_THAT(device.source, HasSubstr("data")) << device.name;
    EXPECT_THAT(device.reported_as, Not(IsEmpty())) << device.name;
  }
  const PublishedDevice* h100 = FindDevice("h100-sxm");
  ASSERT_NE(h100, nullptr);
  EXPECT_EQ(h100->memory_bytes, 80'000'000'000);
  EXPECT_DOUBLE_EQ(h100->memory_bytes_per_s, 3.35e12);
  ASSERT_TRUE(h100->fabric.has_value());
  EXPECT_EQ(h100->fabric->name, "h100-nvlink4_ndr");
  EXPECT_EQ(FindDevice("NVIDIA H100 80GB HBM3"), h100);
  ASSERT_NE(FindDevice("mi300x"), nullptr);
  EXPECT_FALSE(FindDevice("mi300x")->fabric.has_value());
}

// What is compiled in is what the folder has: a build of yesterday's files fails here.
TEST(DeviceTableTest, TheBuildHasTheFilesOfToday) {
  const auto read = [](const std::filesystem::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  };
  const std::filesystem::path configs = std::filesystem::path(NEUROSHARD_SOURCE_DIR) / "configs";
  std::vector<std::string> fabrics;
  for (const auto& entry : std::filesystem::directory_iterator(configs / "fabrics")) {
    if (entry.path().extension() == ".yaml") fabrics.push_back(read(entry.path()));
  }
  const std::vector<std::string_view> views(fabrics.begin(), fabrics.end());
  const auto table = ParseDeviceTable(read(configs / "devices.yaml"), views);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(*table, PublishedDevices());
}

TEST(DeviceTableTest, AnUnknownNameGetsTheNearestAndAll) {
  EXPECT_EQ(FindDevice("h100-smx"), nullptr);
  EXPECT_EQ(FindDevice(""), nullptr);
  EXPECT_THAT(DescribeUnknownDevice("h100-smx"),
              AllOf(HasSubstr("\"h100-smx\""), HasSubstr("did you mean h100-sxm?"),
                    HasSubstr("v100-pcie-16gb"), HasSubstr("mi300x")));
  EXPECT_THAT(DescribeUnknownDevice("H100-SXM"), HasSubstr("did you mean h100-sxm?"));
  EXPECT_THAT(DescribeUnknownDevice("tpu"), Not(HasSubstr("did you mean")));
  EXPECT_THAT(DescribeUnknownDevice(""), Not(HasSubstr("did you mean")));
}

TEST(DeviceTableTest, AFamilyIsTheModelOfItThatIsMeantMostOften) {
  const std::vector<std::pair<std::string, std::string>> meant = {
      {"h100", "h100-sxm"},
      {"H100", "h100-sxm"},
      {"nvidia h100", "h100-sxm"},
      {"NVIDIA H100 80GB", "h100-sxm"},
      {"H100_SXM5", "h100-sxm"},
      {"NVIDIA-H100-PCIe-80GB", "h100-pcie"},
      {"h100 nvl", "h100-nvl"},
      {"a100", "a100-sxm-80gb"},
      {"A100-80GB", "a100-sxm-80gb"},
      {"a100 40gb pcie", "a100-pcie-40gb"},
      {"nvidia-a100-80gb", "a100-sxm-80gb"},
      {"v100", "v100-sxm-32gb"},
      {"Tesla V100", "v100-sxm-32gb"},
      {"h200", "h200-sxm"},
      {"NVIDIA B200 180GB", "b200"},
      {"NVIDIA L40S GPU", "l40s"},
      {"AMD MI300X 192GB", "mi300x"},
      {"mi300", "mi300x"},
      {"T4 16GB", "t4"}};
  for (const auto& [written, device] : meant) {
    EXPECT_THAT(DescribeUnknownDevice(written),
                HasSubstr("; did you mean " + device + "?; there are"));
  }
}

TEST(DeviceTableTest, WhatADriverReportsIsOneDevice) {
  EXPECT_TRUE(IsEachOf("NVIDIA H200", std::vector<std::string>{"h200-sxm"}));
  EXPECT_FALSE(IsEachOf("NVIDIA H200", std::vector<std::string>{"h200-sxm", "h100-sxm"}));
  EXPECT_FALSE(IsEachOf("AMD EPYC", std::vector<std::string>{"h200-sxm"}));
}

TEST(DeviceTableTest, AMeasurementsKindIsItsBackendsElseItsDevices) {
  EXPECT_EQ(ComputeDeviceOf({"", "neuroshard-cpu", ""}), ComputeDevice::kCpu);
  EXPECT_EQ(ComputeDeviceOf({"some card", "neuroshard-cuda", ""}), ComputeDevice::kCuda);
  EXPECT_EQ(ComputeDeviceOf({"", "fbgemm", "nccl"}), ComputeDevice::kCuda);
  EXPECT_EQ(ComputeDeviceOf({"Intel Xeon", "fbgemm", "torch-gloo"}), ComputeDevice::kCpu);
  EXPECT_EQ(ComputeDeviceOf({"NVIDIA GeForce RTX 2080 Ti", "", ""}), ComputeDevice::kCuda);
  for (const PublishedDevice& device : PublishedDevices()) {
    for (const std::string& name : device.reported_as) {
      EXPECT_EQ(ComputeDeviceOf({name, "", ""}), ComputeDevice::kCuda) << name;
    }
  }
  EXPECT_EQ(ComputeDeviceOf({}), std::nullopt);
}

TEST(DeviceTableTest, NamesOfATopologyComeOnceInTheOrderOfRanks) {
  Topology topology;
  topology.devices = {{0, 1, "b"}, {0, 1, "b"}, {1, 1}, {2, 1, "a"}, {3, 1, "b"}};
  EXPECT_THAT(DeviceNames(topology), ElementsAre("b", "a"));
}

}  // namespace
}  // namespace neuroshard
