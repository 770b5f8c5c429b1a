#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "client/cli/testing/command_line_fixture.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kNoReuse[] = "[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]";

// A planner that prices a set at its columns, and is sure of a tenth of that.
class PredictCommandTest : public testing::CommandLineTest {
 protected:
  PredictCommandTest() {
    planner_.predict = [this](const v1::PredictComputeRequest& request,
                              v1::PredictComputeResponse* response) {
      asked_ = request;
      for (const v1::ComputeSet& set : request.sets()) {
        double columns = 0;
        for (const v1::MeasuredShard& shard : set.shards())
          columns += static_cast<double>(shard.cols());
        v1::ComputePrediction& prediction = *response->add_predictions();
        prediction.set_total_ms(columns);
        prediction.set_forward_ms(columns / 4);
        prediction.set_backward_ms(columns * 3 / 4);
        prediction.mutable_total_interval()->set_low_ms(columns * 0.9);
        prediction.mutable_total_interval()->set_high_ms(columns * 1.1);
      }
      response->mutable_cost_model()->set_name("cpu");
      response->mutable_cost_model()->set_version(2);
      response->set_interval_coverage(0.9);
      response->add_warnings("made up");
      return grpc::Status::OK;
    };
  }

  int Predict(const std::string& file, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"predict", "compute", file, "--planner",
                                          planner_.address()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  }

  // Share of ids that occur once, of each set's first shard.
  std::vector<double> FirstBins() const {
    std::vector<double> bins;
    for (const v1::ComputeSet& set : asked_.sets())
      bins.push_back(set.shards(0).reuse_histogram(0));
    return bins;
  }

  v1::PredictComputeRequest asked_;
};

TEST_F(PredictCommandTest, PricesEachTableOfARequestAlone) {
  ASSERT_EQ(Predict(request_), 0) << err_;
  EXPECT_EQ(out_,
            "set  batch_size  optimizer  total_ms      90% within  tables\n"
            "  0          64  sgd           8.000    7.200..8.800  a\n"
            "  1          64  sgd          16.000  14.400..17.600  b\n"
            "model cpu version 2\n"
            "warning: made up\n");
  EXPECT_THAT(err_, IsEmpty());
  EXPECT_EQ(asked_.sets(1).shards(0).rows(), 50);
  ASSERT_EQ(Run({"predict", "compute", request_, "--planner", planner_.address(), "--wide"}), 0);
  EXPECT_THAT(out_, HasSubstr("forward_ms  backward_ms  total_ms"));
}

// Which one that is depends on the devices of the request.
TEST_F(PredictCommandTest, AsksTheModelThatPricesPlansOfTheRequest) {
  planner_.evaluation.mutable_cost_model()->set_name("h100");
  planner_.evaluation.mutable_cost_model()->set_version(3);
  ASSERT_EQ(Predict(request_), 0) << err_;
  EXPECT_EQ(asked_.cost_model().name(), "h100");
  EXPECT_EQ(asked_.cost_model().version(), 3);
  ASSERT_EQ(planner_.requests().size(), 1U);
  EXPECT_GT(planner_.requests()[0].topology().hosts_size(), 0);
  ASSERT_EQ(Predict(request_, {"--model", "cpu/2"}), 0) << err_;
  EXPECT_EQ(asked_.cost_model().name(), "cpu");
  EXPECT_EQ(planner_.requests().size(), 1U) << "nobody is asked what is known";
}

TEST_F(PredictCommandTest, PricesThemTogetherAtOtherConditionsAndSaysWhich) {
  // A Zipf exponent is about the batch size asked for, not the request's; no topology is needed.
  const std::string tables = Write(
      "tables.yaml",
      "tables: [{name: a, num_embeddings: 100, embedding_dim: 8, zipf_exponent: 1}, {name: b, "
      "num_embeddings: 9, embedding_dim: 4, zipf_exponent: 0}]\ncost_model: {name: gpu}\n");
  ASSERT_EQ(Predict(tables, {"--together", "--batch-size", "16,4096", "--optimizer", "adagrad",
                             "--model", "cpu/2", "--format", "json"}),
            0)
      << err_;
  EXPECT_EQ(asked_.cost_model().name(), "cpu");
  EXPECT_EQ(asked_.cost_model().version(), 2);
  ASSERT_EQ(asked_.sets_size(), 2);
  EXPECT_GT(FirstBins()[0], FirstBins()[1]) << "more ids repeat more often";
  const auto json = nlohmann::json::parse(out_);
  const auto& second = json["predictions"][1];
  EXPECT_EQ(second["tables"], (nlohmann::json{"a", "b"}));
  EXPECT_EQ(second["batch_size"], 4096);
  EXPECT_EQ(second["optimizer"], "adagrad");
  EXPECT_EQ(second["total_ms"], 12.0);
  EXPECT_EQ(second["total_interval"]["high_ms"], 12 * 1.1);
  EXPECT_EQ(json["cost_model"]["version"], 2);
  EXPECT_EQ(json["interval_coverage"], 0.9);
  EXPECT_THAT(err_, AllOf(HasSubstr("warning: made up"), HasSubstr("pooling_factor is missing")));
}

TEST_F(PredictCommandTest, UnpooledTablesAreAskedAsSuchAndWhatIsLeftOutIsSaid) {
  const std::string tables = Write("tables.yaml", R"(
tables:
- {name: a, kind: embedding, num_embeddings: 100, embedding_dim: 8, zipf_exponent: 1, output_dtype: fp16,
   features: [f], pooling_factors: [3], pooling_factor: 1, feature_batch_sizes: [32]}
topology: {hosts: [{num_devices: 2, memory_bytes: 100000, host_memory_bytes: 1000000, ssd_bytes: 1000000}]}
global_batch_size: 96
)");
  ASSERT_EQ(Predict(tables), 0) << err_;
  EXPECT_EQ(asked_.sets(0).shards(0).pooling_mode(), "none");
  EXPECT_THAT(err_, AllOf(HasSubstr("warning: host memory is left out"),
                          HasSubstr("warning: SSDs are left out"),
                          HasSubstr("warning: output_dtype is left out"),
                          HasSubstr("warning: num_poolings and feature_batch_sizes are left out")));
  // 32 of 96 are 10.67 of 32: 3 ids for each of 11 samples are 33 of 32 samples.
  ASSERT_EQ(Predict(tables, {"--batch-size", "192,32,96"}), 0) << err_;
  ASSERT_EQ(asked_.sets_size(), 3);
  EXPECT_DOUBLE_EQ(asked_.sets(0).shards(0).pooling_factor(), 1);
  EXPECT_DOUBLE_EQ(asked_.sets(1).shards(0).pooling_factor(), 33.0 / 32);
  EXPECT_DOUBLE_EQ(asked_.sets(2).shards(0).pooling_factor(), 1);
}

TEST_F(PredictCommandTest, PricesSetsAsTheyAre) {
  const std::string shard =
      fmt::format("{{rows: 10, cols: 4, pooling_factor: 1, reuse_histogram: {}}}", kNoReuse);
  const std::string sets =
      Write("sets.yaml", fmt::format("cost_model: {{name: cpu, version: 1}}\nsets:\n- {{shards: "
                                     "[{0}, {0}, {0}], batch_size: 128}}\n- {{shards: [{0}]}}\n",
                                     shard));
  ASSERT_EQ(Predict(sets), 0) << err_;
  EXPECT_EQ(asked_.cost_model().version(), 1);
  EXPECT_THAT(out_,
              AllOf(HasSubstr("(no name), (no name) and 1"), HasSubstr("128"), HasSubstr("65536")));
  ASSERT_EQ(Predict(sets, {"--batch-size", "32"}), 0) << err_;
  EXPECT_EQ(asked_.sets(0).batch_size(), 32);
  EXPECT_EQ(asked_.sets(1).batch_size(), 32);
  EXPECT_EQ(Predict(sets, {"--together"}), 1);
  EXPECT_THAT(err_, HasSubstr("lists its sets"));
}

TEST_F(PredictCommandTest, FaultsAreAllNamedBeforeAnyoneIsAsked) {
  EXPECT_EQ(Predict("/no.yaml"), 1);
  EXPECT_THAT(err_, HasSubstr("/no.yaml"));
  EXPECT_EQ(Predict(Write("sets.yaml", "sets: [{shards: [{rows: 0, cols: 9}]}, {batch_size: -1}]")),
            1);
  EXPECT_THAT(err_, AllOf(HasSubstr("sets[0].shards[0].rows"), HasSubstr("sets[1].shards"),
                          HasSubstr("sets[1].batch_size")));
  EXPECT_EQ(Predict(Write("tables.yaml", "tables: [{name: a, embedding_dim: .nan}]\n")), 1);
  EXPECT_THAT(err_, AllOf(HasSubstr("tables[0].embedding_dim"), Not(HasSubstr("topology"))));
  EXPECT_EQ(planner_.calls(), 0);
  EXPECT_EQ(Run({"predict", "compute", request_, "--planner", "127.0.0.1:1", "--timeout-s", "1"}),
            1);
  EXPECT_THAT(err_, HasSubstr("127.0.0.1:1"));
}

}  // namespace
}  // namespace neuroshard
