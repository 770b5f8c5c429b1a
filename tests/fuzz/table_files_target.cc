// NeuroShard's tables and tasks, as CSV and lists.
#include "common/codec/table_files.h"
#include "tests/fuzz/fuzz_target.h"

namespace neuroshard::fuzz {
namespace {

void ReadTableFiles(std::string_view input) {
  if (const auto tables = ParseTableCsv(input); tables.ok()) {
    for (std::size_t i = 0; i < tables->size(); ++i) {
      Promise((*tables)[i].name == "table_" + std::to_string(i), "tables are named by their index");
      Promise((*tables)[i].num_embeddings >= 1, "a table has rows");
    }
    BenchmarkTask task;
    for (std::size_t i = 0; i < tables->size(); ++i) {
      task.push_back({static_cast<std::int64_t>(i / 2), 4});
    }
    Promise(TablesOfTask(*tables, task).ok(), "tables of a file can be drawn twice");
  }
  if (const auto tasks = ParseTaskFile(input); tasks.ok()) {
    Promise(!tasks->empty(), "a file without tasks is an error");
    for (const BenchmarkTask& task : *tasks) (void)TablesOfTask(std::vector<Table>(3), task);
  }
}

std::vector<std::string> TableSeeds() {
  std::vector<std::string> seeds;
  for (const char* path :
       {"configs/workloads/dlrm_2021_tables856.csv", "configs/workloads/tasks_4gpu_maxdim16.txt"}) {
    for (const std::string& text : SeedsFrom(path, "")) {
      seeds.push_back(text.substr(0, text.find('\n', 2000) + 1));
    }
  }
  return seeds;
}

}  // namespace

FuzzTarget TableFilesTarget() { return {"table_files", ReadTableFiles, TableSeeds}; }

}  // namespace neuroshard::fuzz
