#include "server/planner/price_basis.h"

#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "common/devices/device_table.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

PlanRequest BasisRequest(const std::string& device = "") {
  PlanRequest request;
  request.tables.resize(1);
  request.topology.devices = {{0, 1 << 30, device}, {1, 1 << 30, device}};
  return request;
}

CostModelInfo MeasuredModel(const std::string& device, const std::string& backend) {
  CostModelInfo info;
  info.name = "m";
  info.version = 1;
  info.kind = "universal";
  info.measured_with = {device, backend, ""};
  info.details["provenance.measured_to"] = "2026-11-22T04:33:09Z";
  return info;
}

CostModelInfo Formulas() {
  CostModelInfo info;
  info.name = "analytic";
  info.kind = kAnalyticKind;
  return info;
}

PriceBasis BasisOfModel(const PlanRequest& request, const CostModelInfo& model,
                        const std::string& why_not_measured = "", const Plan& plan = {}) {
  return PriceBasisOf(request, model, GapsOf(request, model, plan), why_not_measured);
}

TEST(PriceBasisTest, SaysWhatWasMeasuredAndUntilWhen) {
  CostModelInfo info = MeasuredModel("NVIDIA H200", "neuroshard-cuda");
  info.measured_with.collective_backend = "nccl";
  const PriceBasis basis = BasisOfModel(BasisRequest("h200-sxm"), info);
  EXPECT_EQ(basis.kind, BasisKind::kMeasured);
  EXPECT_EQ(basis.measured_until, "2026-11-22");
  EXPECT_THAT(basis.differences, IsEmpty());
  EXPECT_EQ(basis.text,
            "prices rest on measurements with neuroshard-cuda kernels and nccl collectives on "
            "NVIDIA H200, until 2026-11-22");
  info.details.clear();
  info.measured_with = {};
  EXPECT_THAT(
      BasisOfModel(BasisRequest(), info).text,
      AllOf(HasSubstr("a device that the model does not state"), HasSubstr("when is not stated")));
}

TEST(PriceBasisTest, SaysHowCollectivesFollowedEachOtherWhereTheyPrice) {
  CostModelInfo info = MeasuredModel("NVIDIA H200", "neuroshard-cuda");
  info.measured_with.collective_cadence = "barrier";
  const PriceBasis alone = BasisOfModel(BasisRequest("h200-sxm"), info);
  EXPECT_EQ(alone.collective_cadence, "barrier");
  EXPECT_THAT(alone.text, Not(HasSubstr("back to back")));
  info.measured_with.collective_cadence = "back_to_back";
  const PriceBasis in_rows = BasisOfModel(BasisRequest("h200-sxm"), info);
  EXPECT_EQ(in_rows.collective_cadence, "back_to_back");
  EXPECT_THAT(in_rows.text, HasSubstr(", collectives issued back to back"));

  PlanRequest of_one_rank = BasisRequest("h200-sxm");
  of_one_rank.topology.devices.pop_back();
  EXPECT_EQ(BasisOfModel(of_one_rank, info).collective_cadence, "");
  EXPECT_EQ(BasisOfModel(BasisRequest(), Formulas()).collective_cadence, "");
}

TEST(PriceBasisTest, SaysInWhatTheRequestDiffers) {
  CostModelInfo info = MeasuredModel("AMD EPYC", "neuroshard-cpu");
  info.coverage.global_batch_size = 512;
  info.coverage.optimizer = "adam";
  info.coverage.ranges.max_hosts = 1;
  const PriceBasis basis = BasisOfModel(BasisRequest("h100-sxm"), info);
  EXPECT_THAT(
      basis.differences,
      ElementsAre("the request is for h100-sxm",
                  "not measured at the request's global batch size, optimizer, number of hosts"));
  EXPECT_THAT(basis.text, AllOf(HasSubstr("on AMD EPYC (a CPU), until 2026-11-22; the request is "
                                          "for h100-sxm; not measured at")));
}

TEST(PriceBasisTest, FormulasBesideMeasurementsMakeItMixed) {
  const CostModelInfo info = MeasuredModel("AMD EPYC", "neuroshard-cpu");
  PlanRequest request = BasisRequest();
  request.topology.compute_device = ComputeDevice::kCpu;
  Plan plan;
  plan.tables.resize(1);
  EXPECT_EQ(BasisOfModel(request, info, "", plan).kind, BasisKind::kMeasured);
  plan.tables[0].compute_kernel = ComputeKernel::kFusedUvmCaching;
  const PriceBasis basis = BasisOfModel(request, info, "", plan);
  EXPECT_EQ(basis.kind, BasisKind::kMixed);
  EXPECT_THAT(basis.differences, ElementsAre(HasSubstr("rows in host memory were not measured")));
  EXPECT_THAT(basis.text,
              AllOf(HasSubstr("until 2026-11-22, and on formulas for what was not "
                              "measured (compute); rows in host memory were not measured:")));
  request.tables[0].kind = TableKind::kEmbedding;
  EXPECT_EQ(BasisOfModel(request, info).kind, BasisKind::kMixed);
  EXPECT_EQ(BasisOfModel(request, Formulas(), "", plan).kind, BasisKind::kPublished);
}

// The kinds of a basis by stage, and that of all.
std::vector<std::pair<CostStage, BasisKind>> KindsOf(const PriceBasis& basis) {
  std::vector<std::pair<CostStage, BasisKind>> kinds;
  for (const StagePriceBasis& of : basis.stages) kinds.emplace_back(of.stage, of.kind);
  return kinds;
}

TEST(PriceBasisTest, EveryStageSaysWhatItRestsOn) {
  constexpr auto kMeasured = BasisKind::kMeasured;
  constexpr auto kPublished = BasisKind::kPublished;
  constexpr auto kMixed = BasisKind::kMixed;
  const auto kinds = [](BasisKind compute, BasisKind forward, BasisKind backward) {
    return ElementsAre(Pair(CostStage::kCompute, compute), Pair(CostStage::kForwardComm, forward),
                       Pair(CostStage::kBackwardComm, backward));
  };
  CostModelInfo info = MeasuredModel("NVIDIA H200", "neuroshard-cuda");
  PlanRequest request = BasisRequest("h200-sxm");
  Plan plan;
  plan.tables.resize(1);
  EXPECT_THAT(KindsOf(BasisOfModel(request, info, "", plan)),
              kinds(kMeasured, kMeasured, kMeasured));
  plan.tables[0].compute_kernel = ComputeKernel::kFusedUvm;
  EXPECT_THAT(KindsOf(BasisOfModel(request, info, "", plan)), kinds(kMixed, kMeasured, kMeasured));
  request.quantized_comms.backward_dtype = DataType::kFp16;
  EXPECT_THAT(KindsOf(BasisOfModel(request, info, "", plan)), kinds(kMixed, kMeasured, kMixed));
  EXPECT_THAT(BasisOfModel(request, info, "", plan).text,
              HasSubstr("on formulas for what was not measured (compute, backward_comm)"));
  request.quantized_comms = {};
  plan.tables[0].compute_kernel = ComputeKernel::kFused;
  plan.tables[0].sharding_type = ShardingType::kGridShard;
  EXPECT_THAT(KindsOf(BasisOfModel(request, info, "", plan)), kinds(kMeasured, kMixed, kMixed));
  info.coverage.comm_fabric = "h100-nvlink4_ndr";
  EXPECT_THAT(KindsOf(BasisOfModel(request, info, "", plan)),
              kinds(kMeasured, kPublished, kPublished));
  EXPECT_THAT(KindsOf(BasisOfModel(request, Formulas(), "", plan)),
              kinds(kPublished, kPublished, kPublished));

  // A formula for the distribution of ids mixes what is measured otherwise.
  info.coverage.comm_fabric.clear();
  plan.tables[0].sharding_type = ShardingType::kTableWise;
  request.pipeline_type = PipelineType::kTrainSparseDist;
  PriceBasis basis = BasisOfModel(request, info, "", plan);
  EXPECT_EQ(basis.kind, kMixed);
  EXPECT_THAT(KindsOf(basis), Contains(Pair(CostStage::kInputDist, kPublished)));
  info.properties.measured_input_dist = MeasuredInputDist{{{2, 0.5, 1, 1, 1}}, 2};
  basis = BasisOfModel(request, info, "", plan);
  EXPECT_EQ(basis.kind, kMeasured);
  EXPECT_THAT(KindsOf(basis), Contains(Pair(CostStage::kInputDist, kMeasured)));

  request.topology.devices.pop_back();
  EXPECT_THAT(KindsOf(BasisOfModel(request, info, "", plan)),
              ElementsAre(Pair(CostStage::kCompute, kMeasured)));
}

TEST(PriceBasisTest, ACpusComputeWithTheLinksOfGpusIsSaidInTheSameLine) {
  CostModelInfo info = MeasuredModel("AMD EPYC", "neuroshard-cpu");
  info.coverage.comm_fabric = "h100-nvlink4_ndr";
  const PriceBasis basis = BasisOfModel(BasisRequest(), info);
  EXPECT_EQ(basis.kind, BasisKind::kMixed);
  EXPECT_THAT(basis.text, AllOf(HasSubstr("the fabric h100-nvlink4_ndr"),
                                HasSubstr("a CPU's compute with the links of GPUs")));
  // The kernels' names say less than the device's.
  info.measured_with = {"Intel Xeon", "fbgemm", ""};
  EXPECT_THAT(BasisOfModel(BasisRequest(), info).text, HasSubstr("a CPU's compute"));
  info.measured_with = {"NVIDIA H100 80GB HBM3", "fbgemm", ""};
  EXPECT_THAT(BasisOfModel(BasisRequest("h100-sxm"), info).text, Not(HasSubstr("CPU")));
  // One rank does not communicate.
  PlanRequest alone = BasisRequest();
  alone.topology.devices.pop_back();
  EXPECT_EQ(BasisOfModel(alone, info).kind, BasisKind::kMeasured);
}

TEST(PriceBasisTest, FormulasSayWhoseFiguresTheyTake) {
  PlanRequest request = BasisRequest();
  EXPECT_THAT(BasisOfModel(request, Formulas()).text,
              AllOf(HasSubstr("TorchRec's formulas with their default bandwidths of a V100-class"),
                    HasSubstr("nothing was measured"), HasSubstr("says nothing of its devices")));
  request.topology.bandwidths.intra_host_bytes_per_s = 4e11;
  EXPECT_THAT(BasisOfModel(request, Formulas()).text, HasSubstr("the request's bandwidths"));
  request = BasisRequest("h100-sxm");
  const PublishedDevice& h100 = *FindDevice("h100-sxm");
  request.topology.fabric = h100.fabric;
  request.topology.bandwidths = {h100.memory_bytes_per_s, h100.fabric->intra_host.bytes_per_s,
                                 h100.fabric->inter_host.bytes_per_s};
  const PriceBasis basis = BasisOfModel(request, Formulas(), "no model was measured on it");
  EXPECT_EQ(basis.kind, BasisKind::kPublished);
  EXPECT_EQ(basis.text,
            "prices rest on published figures of h100-sxm (3350 GB/s of memory, 360 GB/s on a "
            "host, 48 GB/s of each rank between hosts: h100-nvlink4_ndr) in TorchRec's formulas; "
            "nothing was "
            "measured: costs compare plans but do not forecast times; no model was measured "
            "on it");
  request.topology.bandwidths.device_memory_bytes_per_s = 1e12;
  EXPECT_THAT(
      BasisOfModel(request, Formulas()).text,
      HasSubstr("prices rest on the request's figures for h100-sxm (1000 GB/s of memory, 360 GB/s "
                "on a host, 48 GB/s of each rank between hosts: h100-nvlink4_ndr)"));
}

TEST(PriceBasisTest, FormulasSayAtWhatSpeedSsdsAreRead) {
  const PlanRequest request = BasisRequest();
  Plan plan;
  plan.tables.resize(1);
  EXPECT_THAT(BasisOfModel(request, Formulas(), "", plan).text, Not(HasSubstr("SSD")));
  plan.tables[0].compute_kernel = ComputeKernel::kKeyValue;
  EXPECT_THAT(BasisOfModel(request, Formulas(), "", plan).differences,
              Contains(HasSubstr("rows on SSD (key_value) are all read from the SSDs, as TorchRec "
                                 "has it, at 0.105 GB/s")));
}

// Two hosts of a device each; who has rates prices the ids of its ranks by them.
TEST(PriceBasisTest, EveryKindOfDevicesWithoutRatesOfItsOwnIsNamed) {
  PlanRequest request = BasisRequest();
  request.topology.devices[0].name = "h100-sxm";
  request.topology.devices[1].name = "a100-sxm-80gb";
  CostModelInfo own = MeasuredModel("NVIDIA H100 80GB HBM3", "neuroshard-cuda");
  own.properties.measured_input_dist = MeasuredInputDist{{{2, 0.5, 1, 1, 1}}, 2};
  CostModelInfo other = MeasuredModel("NVIDIA A100-SXM4-80GB", "neuroshard-cuda");
  const auto basis = [&] {
    const std::vector<DeviceModel> devices = {{"h100-sxm", 1, ComputeInfo(own)},
                                              {"a100-sxm-80gb", 1, ComputeInfo(other)}};
    return PriceBasisOf(request, own, GapsOf(request, own), "", WithGaps(devices, request, {}));
  };
  const auto differences = [&] { return basis().differences; };
  const auto of_ids = [](const std::string& device) {
    return Contains(HasSubstr(device + ": the distribution of ids is a formula over published "
                                       "figures of"));
  };
  EXPECT_THAT(differences(), Not(Contains(HasSubstr("the distribution of ids"))));
  request.pipeline_type = PipelineType::kNone;
  EXPECT_THAT(differences(), AllOf(of_ids("a100-sxm-80gb"), Not(of_ids("h100-sxm"))));
  std::swap(own.properties.measured_input_dist, other.properties.measured_input_dist);
  EXPECT_THAT(differences(), AllOf(of_ids("h100-sxm"), Not(of_ids("a100-sxm-80gb"))));
  own.properties.measured_input_dist = other.properties.measured_input_dist;
  EXPECT_THAT(differences(), Not(Contains(HasSubstr("the distribution of ids"))));
  own.properties.measured_input_dist->max_hosts = 1;
  EXPECT_THAT(differences(), of_ids("h100-sxm")) << "more hosts than were measured";

  EXPECT_THAT(KindsOf(basis()), AllOf(Contains(Pair(CostStage::kCompute, BasisKind::kMeasured)),
                                      Contains(Pair(CostStage::kInputDist, BasisKind::kMixed))));
  other = Formulas();
  EXPECT_THAT(KindsOf(basis()), Contains(Pair(CostStage::kCompute, BasisKind::kMixed)));
  EXPECT_EQ(basis().devices[0].kind, BasisKind::kMeasured);
  EXPECT_EQ(basis().devices[1].kind, BasisKind::kPublished);
}

TEST(PriceBasisTest, ComputeIsSaidByDeviceAndWhatIsOfThePlanOnce) {
  PlanRequest request = BasisRequest();
  request.topology.devices[0].name = "h100-sxm";
  request.topology.devices[1].name = "a100-sxm-80gb";
  request.tables[0].name = "t";
  request.tables[0].hot_row_blocks = true;
  request.global_batch_size = 64;
  Plan plan;
  plan.tables.resize(1);
  plan.tables[0].name = "t";
  plan.tables[0].sharding_type = ShardingType::kRowWise;
  plan.tables[0].compute_kernel = ComputeKernel::kFusedUvm;
  CostModelInfo own = MeasuredModel("NVIDIA H100 80GB HBM3", "neuroshard-cuda");
  own.coverage.global_batch_size = 512;
  own.coverage.measured_types = {ShardingType::kRowWise};
  const std::vector<DeviceModel> devices = WithGaps(
      {{"h100-sxm", 1, ComputeInfo(own)}, {"a100-sxm-80gb", 1, ComputeInfo(own)}}, request, plan);
  const std::string batch = "not measured at the request's global batch size";
  EXPECT_THAT(PriceBasisOf(request, own, GapsOf(request, own, plan), "", devices).differences,
              ElementsAre("the request is for h100-sxm and a100-sxm-80gb", batch,
                          HasSubstr("row blocks of 1 table are priced as the hottest"),
                          "compute of h100-sxm: " + batch,
                          HasSubstr("compute of h100-sxm: rows in host memory were not measured"),
                          "compute of a100-sxm-80gb: that is not a100-sxm-80gb",
                          "compute of a100-sxm-80gb: " + batch,
                          HasSubstr("compute of a100-sxm-80gb: rows in host memory")));
}

TEST(PriceBasisTest, PredictionsSayItToo) {
  CostModelInfo info = MeasuredModel("AMD EPYC", "neuroshard-cpu");
  info.coverage.global_batch_size = 512;
  info.coverage.comm_fabric = "h100-nvlink4_ndr";
  ComputeSample set;
  set.shards.resize(1);
  set.batch_size = 64;
  const PriceBasis basis = PriceBasisOf(info, GapsOf(std::vector{set}, info));
  EXPECT_EQ(basis.kind, BasisKind::kMeasured);
  EXPECT_THAT(KindsOf(basis), ElementsAre(Pair(CostStage::kCompute, BasisKind::kMeasured)));
  EXPECT_THAT(basis.differences, ElementsAre("not measured at the request's global batch size"));
  set.shards[0].compute_kernel = ComputeKernel::kFusedUvm;
  EXPECT_THAT(KindsOf(PriceBasisOf(info, GapsOf(std::vector{set}, info))),
              ElementsAre(Pair(CostStage::kCompute, BasisKind::kMixed)));
}

// The rule by which a model was taken: what it was measured on, and what the request says.
TEST(PriceBasisTest, SaysWhereTheRequestIsForOtherDevicesOrSaysNothingOfThem) {
  const CostModelInfo cpu = MeasuredModel("AMD EPYC", "neuroshard-cpu");
  const CostModelInfo gpu = MeasuredModel("NVIDIA H100 80GB HBM3", "neuroshard-cuda");
  PlanRequest request = BasisRequest();
  const auto differences = [&](const CostModelInfo& model) {
    return BasisOfModel(request, model).differences;
  };
  EXPECT_THAT(differences(cpu), ElementsAre(HasSubstr("says nothing of its devices")));
  EXPECT_THAT(differences(gpu), ElementsAre(HasSubstr("says nothing of its devices")));
  request.topology.compute_device = ComputeDevice::kCuda;
  EXPECT_THAT(differences(cpu), ElementsAre("the request is for cuda devices"));
  EXPECT_THAT(differences(gpu), ElementsAre(HasSubstr("names no device")));
  request.topology.compute_device = ComputeDevice::kCpu;
  EXPECT_THAT(differences(cpu), IsEmpty());
  EXPECT_THAT(differences(gpu), ElementsAre("the request is for cpu devices"));
  request.topology.compute_device.reset();
  request.cost_model.name = "m";
  EXPECT_THAT(differences(cpu), IsEmpty());
  request = BasisRequest("h100-sxm");
  EXPECT_THAT(differences(cpu), ElementsAre("the request is for h100-sxm"));
  EXPECT_THAT(differences(gpu), IsEmpty());
}

}  // namespace
}  // namespace neuroshard
