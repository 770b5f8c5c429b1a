// "analytic" says of every shard what TorchRec's own estimator says (testdata/make_torchrec_costs.py).
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "common/domain/vocabulary.h"
#include "server/cost/analytic/analytic_cost_model.h"
#include "server/cost/shard_features.h"

namespace neuroshard {
namespace {

constexpr float kFloatTolerance = 3e-7F;  // relative; the model's costs are floats

using Row = std::map<std::string, std::string>;

std::vector<std::string> Split(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream stream(line);
  for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
  return cells;
}

std::vector<Row> ReadRows() {
  std::ifstream file(std::string(NEUROSHARD_SOURCE_DIR) +
                     "/server/cost/analytic/testdata/torchrec_costs.csv");
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> head = Split(line);
  std::vector<Row> rows;
  while (std::getline(file, line)) {
    const std::vector<std::string> cells = Split(line);
    Row& row = rows.emplace_back();
    for (std::size_t i = 0; i < head.size() && i < cells.size(); ++i) row[head[i]] = cells[i];
  }
  return rows;
}

void ExpectCost(float actual, const std::string& expected_text, const char* stage) {
  const float expected = std::stof(expected_text);
  EXPECT_NEAR(actual, expected, kFloatTolerance * expected) << stage;
}

TEST(TorchRecCostsTest, EveryShardCostsWhatTorchRecSays) {
  const std::vector<Row> rows = ReadRows();
  ASSERT_EQ(rows.size(), 770U);
  const auto model = MakeAnalyticCostModel();
  for (const Row& row : rows) {
    const auto number = [&row](const char* key) { return std::stoll(row.at(key)); };
    PricingConditions conditions;
    conditions.num_ranks = static_cast<int>(number("ranks"));
    conditions.ranks_per_host = static_cast<int>(number("ranks_per_host"));
    conditions.global_batch_size = number("samples") * number("ranks");
    Table table;
    table.num_embeddings = number("rows");
    table.embedding_dim = number("columns");
    table.features.resize(static_cast<std::size_t>(number("features")), "f");
    table.pooling_factor = std::stod(row.at("pooling")) * static_cast<double>(number("features"));
    table.weight_dtype = FromText<DataType>(row.at("dtype")).value();
    table.weighted = number("weighted") != 0;
    ShardLayout layout;
    layout.type = FromText<ShardingType>(row.at("type")).value();
    layout.kernel = FromText<ComputeKernel>(row.at("kernel")).value();
    layout.row_shards = CutsRows(layout.type) ? static_cast<int>(number("parts")) : 1;
    const std::vector<ShardFeatures> shard = {
        FeaturesOf(table, layout, number("shard_rows"), number("shard_columns"))};

    std::vector<float> phi(2);
    std::vector<CommLoad> loads(1);
    model->Bind(conditions)->Represent(shard, phi, loads);

    SCOPED_TRACE(::testing::PrintToString(row));
    ExpectCost(phi[0], row.at("forward_compute_ms"), "forward compute");
    ExpectCost(phi[1], row.at("backward_compute_ms"), "backward compute");
    ExpectCost(loads[0].forward, row.at("forward_comm_ms"), "forward communication");
    ExpectCost(loads[0].backward, row.at("backward_comm_ms"), "backward communication");
  }
}

}  // namespace
}  // namespace neuroshard
