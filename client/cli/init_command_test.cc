#include "client/cli/init_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/testing/command_line_fixture.h"
#include "common/base/bytes.h"
#include "common/codec/message_text.h"
#include "common/codec/request_codec.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using testing::CommandLineTest;
using ::testing::HasSubstr;
using testing::IsOk;

StatusOr<PlanRequest> Decoded(const std::string& yaml) {
  v1::ShardPlanRequest message;
  NS_RETURN_IF_ERROR(ParseMessageText(yaml, TextFormat::kYaml, &message));
  return DecodePlanRequest(message, RequestLimits());
}

TEST(RequestTemplateTest, IsALegalRequestWithAndWithoutItsOptions) {
  const std::string yaml = RequestAsYaml({.num_hosts = 2, .devices_per_host = 4});
  const auto request = Decoded(yaml);
  ASSERT_THAT(request, IsOk());
  EXPECT_EQ(request->topology.devices.size(), 8u);
  EXPECT_EQ(request->tables.size(), 2u);

  // Without the # of lines that are a field, not a comment: "#name: value", or "#  name: value".
  std::string with_options;
  for (std::size_t i = 0; i < yaml.size(); ++i) {
    const bool at_line = i > 0 && yaml[i - 1] == '\n' && yaml[i] == '#';
    const bool is_prose = i + 1 < yaml.size() && yaml[i + 1] == ' ' && yaml[i + 2] != ' ';
    if (at_line && !is_prose) continue;
    with_options += yaml[i];
  }
  EXPECT_NE(with_options, yaml);
  const auto all = Decoded(with_options);
  ASSERT_THAT(all, IsOk());
  EXPECT_EQ(all->cost_model.name, "analytic");
  EXPECT_EQ(all->topology.bandwidths.inter_host_bytes_per_s, 25e9);
  EXPECT_FALSE(all->constraints.sharding_types.empty());
}

TEST(RequestTemplateTest, ADeviceBringsItsMemoryUnlessThatIsStated) {
  const auto named = Decoded(RequestAsYaml({.device = "h100-sxm"}));
  ASSERT_THAT(named, IsOk());
  EXPECT_EQ(named->topology.devices[0].name, "h100-sxm");
  EXPECT_GT(named->topology.devices[0].memory_bytes, 70 * kGiB);
  EXPECT_TRUE(named->topology.fabric.has_value());
  const auto less = Decoded(RequestAsYaml({.device = "h100-sxm", .memory_bytes = 40 * kGiB}));
  ASSERT_THAT(less, IsOk());
  EXPECT_EQ(less->topology.devices[0].memory_bytes, 40 * kGiB);
  EXPECT_EQ(Decoded(RequestAsYaml({}))->topology.devices[0].memory_bytes, 80 * kGiB);
}

TEST_F(CommandLineTest, InitRefusesADeviceThatNobodyKnows) {
  EXPECT_EQ(Run({"init", "--device", "h100-sxn"}), 2);
  EXPECT_THAT(err_, HasSubstr("did you mean h100-sxm?"));
  EXPECT_EQ(Run({"init", "--device", "h100-sxm"}), 0);
  EXPECT_THAT(out_, HasSubstr("num_devices: 8, device: h100-sxm}"));
}

TEST(RequestTemplateTest, TablesOfTorchRecAndOfACsvGetOurNames) {
  const auto torchrec = TablesAsYaml(
      R"([{"name": "t0", "num_embeddings": 100, "embedding_dim": 8, "feature_names": ["f0", "f,1"],
           "data_type": "DataType.FP16", "pooling": "PoolingType.MEAN", "init_fn": null,
           "weight_init_max": 0.5}])",
      64);
  ASSERT_THAT(torchrec, IsOk());
  const auto request = Decoded(RequestAsYaml({.tables = *torchrec}));
  ASSERT_THAT(request, IsOk());
  const Table& table = request->tables.at(0);
  EXPECT_EQ(table.name, "t0");
  EXPECT_EQ(table.features, (std::vector<std::string>{"f0", "f,1"}));
  EXPECT_EQ(table.weight_dtype, DataType::kFp16);
  EXPECT_EQ(table.pooling_mode, PoolingMode::kMean);

  std::string csv = "index,row,pooling_factor";
  for (int bin = 0; bin < 17; ++bin) csv += fmt::format(",bin_{}", bin);
  csv += "\n0,1000,2.5,1,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0\n";
  const auto of_csv = TablesAsYaml(csv, 32);
  ASSERT_THAT(of_csv, IsOk());
  const auto from_csv = Decoded(RequestAsYaml({.tables = *of_csv}));
  ASSERT_THAT(from_csv, IsOk());
  EXPECT_EQ(from_csv->tables[0].embedding_dim, 32);
  EXPECT_EQ(from_csv->tables[0].pooling_factor, 2.5);
}

TEST(RequestTemplateTest, FaultsOfTablesAreNamed) {
  EXPECT_THAT(Message(TablesAsYaml("- {name: a, num_embeding: 3}\n- 7\n", 8).status()),
              HasSubstr("tables[1]: must be a mapping"));
  EXPECT_THAT(Message(TablesAsYaml("- {name: a, num_embeding: 3}\n", 8).status()),
              HasSubstr("num_embeding: unknown field; did you mean num_embeddings?"));
  EXPECT_THAT(Message(TablesAsYaml("hello", 8).status()), HasSubstr("must be a CSV"));
  EXPECT_THAT(Message(TablesAsYaml("tables: []", 8).status()), HasSubstr("got a list"));
}

TEST_F(CommandLineTest, InitWritesARequestThatCanBePlanned) {
  const std::string file = (folder_ / "new.yaml").string();
  EXPECT_EQ(
      Run({"init", "--hosts", "2", "--devices", "4", "--memory-bytes", "16GB", "--tables",
           Write("tables.yaml", "tables: [{name: a, num_embeddings: 1_000}]\n"), "--out", file}),
      0)
      << err_;
  EXPECT_EQ(Run({"plan", file, "--planner", planner_.address()}), 0) << err_;
  const v1::ShardPlanRequest sent = planner_.requests().back();
  EXPECT_EQ(sent.topology().hosts(0).memory_bytes(), 16'000'000'000);
  EXPECT_EQ(sent.topology().hosts(0).count(), 2);
  EXPECT_EQ(sent.tables(0).embedding_dim(), 64);
  EXPECT_EQ(Run({"init", "--out", file}), 1);
  EXPECT_THAT(err_, HasSubstr("exists already"));
  EXPECT_EQ(Run({"init"}), 0);
  EXPECT_THAT(out_, AllOf(HasSubstr("memory_bytes: 80GiB"), HasSubstr("# A request for")));
  EXPECT_EQ(Run({"init", "--tables", plan_}), 1);
  EXPECT_THAT(err_, HasSubstr("plan.json"));
}

}  // namespace
}  // namespace neuroshard
