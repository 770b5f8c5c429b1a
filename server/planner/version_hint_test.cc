#include "server/planner/version_hint.h"

#include <gmock/gmock.h>

#include "server/planner/price_basis.h"
#include "tests/support/fake_cost_model.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using testing::FakeCostModel;
using ::testing::HasSubstr;
using ::testing::Optional;

class VersionHintTest : public ::testing::Test {
 protected:
  VersionHintTest() {
    request_.tables.resize(1);
    request_.topology.devices = {{0, 1 << 30, ""}, {0, 1 << 30, ""}};
    plan_.tables.resize(1);
    plan_.tables[0].compute_kernel = ComputeKernel::kFusedUvm;
    own_ = Version(4, {});
    request_.cost_model = {"m", 4};
  }

  static CostModelInfo Version(int version, std::vector<std::string> kernels) {
    CostModelInfo info = FakeCostModel::Named("m");
    info.version = version;
    info.coverage.ranges = {1, 65536, {"fp32"}, {"sgd"}, 1, 8, 1};
    info.coverage.ranges.compute_kernels = std::move(kernels);
    return info;
  }

  std::optional<std::string> Hint(const std::vector<CostModelInfo>& versions) {
    return VersionHint(request_, plan_, own_,
                       PriceBasisOf(request_, own_, GapsOf(request_, own_, plan_)),
                       [&](const std::string& name) {
                         EXPECT_EQ(name, "m");
                         std::vector<std::shared_ptr<const CostModel>> models;
                         for (const CostModelInfo& info : versions) {
                           models.push_back(std::make_shared<const FakeCostModel>(info));
                         }
                         return models;
                       });
  }

  PlanRequest request_;
  Plan plan_;
  CostModelInfo own_;
};

TEST_F(VersionHintTest, NamesTheNewestOfThoseThatMeasuredMost) {
  const CostModelInfo older = Version(6, {"fused", "fused_uvm"});
  const CostModelInfo newer = Version(7, {"fused", "fused_uvm"});
  const CostModelInfo newest = Version(8, {});
  EXPECT_THAT(
      Hint({own_, older, newer, newest}),
      Optional(AllOf(HasSubstr("names version 4 of cost model m"), HasSubstr("version 7 was"),
                     HasSubstr("nearer to it: compute is measured there and mixed here"),
                     HasSubstr("not so there: rows in host memory were not measured"))));
  EXPECT_THAT(Hint({older, own_}), Optional(HasSubstr("version 6 was")));
}

// What is not stated is no difference, and no measurement either.
TEST_F(VersionHintTest, AVersionThatDoesNotSayWhatItMeasuredIsNotNearer) {
  plan_.tables[0].compute_kernel = ComputeKernel::kFused;
  request_.topology.devices[1].host = 1;
  CostModelInfo silent = Version(1, {});
  silent.coverage.ranges.max_hosts = 0;
  EXPECT_EQ(Hint({silent, own_}), std::nullopt);
  CostModelInfo wider = Version(5, {});
  wider.coverage.ranges.max_hosts = 2;
  EXPECT_THAT(
      Hint({silent, own_, wider}),
      Optional(HasSubstr("version 5 was measured nearer to it: not so there: not measured at "
                         "the request's number of hosts")));
}

// Whoever names no version can do nothing about it: it was the operator's choice.
TEST_F(VersionHintTest, SaysNothingWhereTheRequestNamesNoVersion) {
  const CostModelInfo nearer = Version(7, {"fused", "fused_uvm"});
  ASSERT_NE(Hint({own_, nearer}), std::nullopt);
  for (const CostModelRef& ref : {CostModelRef(), CostModelRef{"m", 0}}) {
    request_.cost_model = ref;
    EXPECT_EQ(Hint({own_, nearer}), std::nullopt);
  }
}

TEST_F(VersionHintTest, AFabricsPublishedFiguresAreNotNearerThanMeasurements) {
  CostModelInfo by_fabric = Version(9, {"fused", "fused_uvm"});
  by_fabric.coverage.comm_fabric = "h100-nvlink4_ndr";
  EXPECT_EQ(Hint({own_, by_fabric}), std::nullopt);
}

TEST_F(VersionHintTest, SaysNothingWhereNoVersionKnowsMore) {
  EXPECT_EQ(Hint({own_, Version(8, {})}), std::nullopt);
  CostModelInfo unusable = Version(7, {"fused", "fused_uvm"});
  unusable.unusable_reason = "compute.kendall_tau";
  EXPECT_EQ(Hint({own_, unusable}), std::nullopt);
  plan_.tables[0].compute_kernel = ComputeKernel::kFused;
  EXPECT_EQ(Hint({own_, Version(7, {"fused", "fused_uvm"})}), std::nullopt);
}

}  // namespace
}  // namespace neuroshard
