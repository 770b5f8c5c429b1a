// "analytic" and the memory rule "torchrec" say of every shard what TorchRec's own estimators say
// (testdata/make_torchrec_costs.py).
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "common/domain/expected_lookups.h"
#include "common/domain/memory_use.h"
#include "common/domain/vocabulary.h"
#include "server/cost/analytic/analytic_cost_model.h"
#include "server/cost/shard_features.h"

namespace neuroshard {
namespace {

constexpr double kFloatTolerance = 3e-7;  // relative; the model's costs are floats
constexpr double kFetchedRows = 250;      // in make_torchrec_costs.py
constexpr std::size_t kGoldenRows = 3234;

using Row = std::map<std::string, std::string>;

// TorchRec's classes; none is TorchRec's word for no state at all.
const std::map<std::string, Optimizer> kOptimizers = {
    {"", Optimizer::kSgd},
    {"SGD", Optimizer::kSgd},
    {"Adagrad", Optimizer::kAdagrad},
    {"RowWiseAdagrad", Optimizer::kRowwiseAdagrad},
    {"Adam", Optimizer::kAdam},
    {"PartialRowWiseAdam", Optimizer::kPartialRowwiseAdam},
    {"LAMB", Optimizer::kLamb},
    {"LarsSGD", Optimizer::kLarsSgd}};

std::vector<std::string> Split(const std::string& line, char separator = ',') {
  std::vector<std::string> cells;
  std::istringstream stream(line);
  for (std::string cell; std::getline(stream, cell, separator);) cells.push_back(cell);
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

// The table and the conditions of a row, as a request says them.
PlanRequest RequestOf(const Row& row) {
  const auto number = [&row](const char* key) { return std::stoll(row.at(key)); };
  PlanRequest request;
  const std::int64_t ranks = number("ranks");
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    request.topology.devices.push_back({.host = static_cast<int>(rank / number("ranks_per_host"))});
  }
  request.topology.pod_size = static_cast<int>(number("pod_size"));
  request.global_batch_size = number("samples") * ranks;
  request.pipeline_type = FromText<PipelineType>(row.at("pipeline")).value();
  request.optimizer = kOptimizers.at(row.at("optimizer"));
  request.quantized_comms = {FromText<DataType>(row.at("forward_comm_dtype")),
                             FromText<DataType>(row.at("backward_comm_dtype"))};
  request.memory.rule = MemoryRule::kTorchRec;

  Table& table = request.tables.emplace_back();
  table.kind = FromText<TableKind>(row.at("kind")).value();
  table.num_embeddings = number("rows");
  table.embedding_dim = number("columns");
  table.reuse_histogram = DefaultReuseHistogram();
  table.weight_dtype = FromText<DataType>(row.at("dtype")).value();
  table.output_dtype = FromText<DataType>(row.at("output_dtype"));
  table.weighted = number("weighted") != 0;
  if (!row.at("max_l1_mib").empty()) table.max_l1_cache_bytes = number("max_l1_mib") << 20;
  for (const std::string& cell : Split(row.at("num_poolings"), ';')) {
    table.num_poolings.push_back(std::stod(cell));
  }
  for (const std::string& cell : Split(row.at("batch_sizes"), ';')) {
    table.feature_batch_sizes.push_back(std::stoll(cell) * ranks);
  }
  table.pooling_factor = 0;
  for (const std::string& cell : Split(row.at("pooling"), ';')) {
    const std::size_t feature = table.features.size();
    table.features.emplace_back("f");
    table.pooling_factors.push_back(std::stod(cell));
    double bags = table.num_poolings.empty() ? 1 : table.num_poolings[feature];
    if (!table.feature_batch_sizes.empty()) {
      bags *= static_cast<double>(table.feature_batch_sizes[feature]) /
              static_cast<double>(request.global_batch_size);
    }
    table.pooling_factor += table.pooling_factors.back() * bags;
  }
  return request;
}

ShardLayout LayoutOf(const Row& row) {
  ShardLayout layout;
  layout.type = FromText<ShardingType>(row.at("type")).value();
  layout.kernel = FromText<ComputeKernel>(row.at("kernel")).value();
  layout.row_shards = CutsRows(layout.type) ? std::stoi(row.at("parts")) : 1;
  layout.cache_load_factor = std::stod(row.at("load_factor"));
  return layout;
}

void ExpectCost(double actual, double expected, const char* stage) {
  EXPECT_NEAR(actual, expected, kFloatTolerance * expected) << stage;
}

TEST(TorchRecCostsTest, EveryShardCostsWhatTorchRecSays) {
  const std::vector<Row> rows = ReadRows();
  ASSERT_EQ(rows.size(), kGoldenRows);
  const auto model = MakeAnalyticCostModel();
  for (const Row& row : rows) {
    SCOPED_TRACE(::testing::PrintToString(row));
    const PlanRequest request = RequestOf(row);
    const Table& table = request.tables[0];
    PricingConditions conditions = ConditionsOf(request);
    // TorchRec's totals have no distribution of ids.
    if (conditions.pipeline_type == PipelineType::kNone) conditions.pipeline_type.reset();
    const std::vector<ShardFeatures> shard = {FeaturesOf(table, LayoutOf(row),
                                                         std::stoll(row.at("shard_rows")),
                                                         std::stoll(row.at("shard_columns")))};

    std::vector<float> phi(2);
    std::vector<CommLoad> loads(1);
    model->Bind(conditions)->Represent(shard, phi, loads);

    const auto ms = [&row](const char* key) { return std::stod(row.at(key)); };
    // What TorchRec takes to fetch kFetchedRows, we take for the rows that we expect to fetch.
    const CacheHits hits =
        ExpectedCacheHits(table.reuse_histogram, table.num_embeddings,
                          table.pooling_factor * static_cast<double>(request.global_batch_size),
                          shard[0].layout.cache_load_factor);
    const double prefetch_ms = ms("prefetch_ms") * hits.missed_rows() / kFetchedRows;
    ExpectCost(phi[0], ms("forward_compute_ms") + prefetch_ms, "forward compute");
    ExpectCost(phi[1], ms("backward_compute_ms"), "backward compute");
    ExpectCost(loads[0].forward, ms("forward_comm_ms"), "forward communication");
    ExpectCost(loads[0].backward, ms("backward_comm_ms"), "backward communication");
  }
}

TEST(TorchRecCostsTest, EveryShardTakesTheBytesThatTorchRecSays) {
  for (const Row& row : ReadRows()) {
    const PlanRequest request = RequestOf(row);
    const MemoryUse use =
        ShardMemory(request, request.tables[0], LayoutOf(row), std::stoll(row.at("shard_rows")),
                    std::stoll(row.at("shard_columns")));
    EXPECT_EQ(use.total_bytes(), std::stoll(row.at("device_bytes")))
        << ::testing::PrintToString(row);
    EXPECT_EQ(use.by_tier()[MemoryTier::kHost], std::stoll(row.at("host_bytes")))
        << ::testing::PrintToString(row);
    EXPECT_EQ(use.by_tier()[MemoryTier::kSsd], std::stoll(row.at("ssd_bytes")))
        << ::testing::PrintToString(row);
  }
}

}  // namespace
}  // namespace neuroshard
