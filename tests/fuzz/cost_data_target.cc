// The text formats of NeuroShard's released cost data.
#include <sstream>

#include "server/pretrain/data/cost_data_import.h"
#include "tests/fuzz/fuzz_target.h"

namespace neuroshard::fuzz {
namespace {

void ReadCostData(std::string_view input) {
  const auto tables = ParseTableConfigs(std::string(input));
  if (tables.ok()) {
    for (const MeasuredShard& shard : *tables) Promise(shard.rows >= 1, "a table has rows");
  }
  std::istringstream lines{std::string(input)};
  for (std::string line; std::getline(lines, line);) {
    if (const auto compute = ParseComputeCostLine(line, 1000)) {
      for (const std::int64_t id : compute->table_ids) {
        Promise(id >= 0 && id < 1000, "ids are positions in the table file");
      }
      Promise(compute->cost_ms >= 0, "costs are not negative");
    }
    if (const auto comm = ParseCommCostLine(line)) {
      Promise(comm->dim_sums.size() == comm->backward_ms.size(), "four lists of one length");
    }
  }
}

std::vector<std::string> CostDataSeeds() {
  std::string table = R"([{"row": 100, "dim": 16, "pooling_factor": 2.5)";
  for (int bin = 0; bin < 17; ++bin) table += ", \"bin_" + std::to_string(bin) + "\": 0.05";
  return {table + "}]", "17,4031,5 1.93\n1 0.5\n", "task: [1, 2] | cost: 3.5\n",
          "64,32 0,1.5 0.3,0.4 0.5,0.6\n"};
}

}  // namespace

FuzzTarget CostDataTarget() { return {"cost_data", ReadCostData, CostDataSeeds}; }

}  // namespace neuroshard::fuzz
