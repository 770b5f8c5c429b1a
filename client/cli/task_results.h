// Results of eval-tasks, and their text and JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/cli/text_table.h"

namespace neuroshard {

// The plan of one task by one strategy, or why there is none. Costs and times in ms.
struct TaskResult {
  int task = 0;  // position in the task file, from 0
  // Absent: no plan; `error` then says why.
  std::optional<double> cost_ms;
  int splits = 0;
  double search_ms = 0;  // inside the server
  std::string error;
};

// All tasks by one strategy, in the order of the task file.
struct StrategyResult {
  std::string strategy;
  std::vector<TaskResult> tasks;
};

// {"results": [{"strategy", "solved", "mean_cost_ms", "mean_search_ms", "p50_search_ms",
//               "max_search_ms",
//               "tasks": [{"task", "solved", "cost_ms", "splits", "search_ms"}]}]}
// "solved" counts tasks in a strategy and is a bool in a task. Statistics are over solved tasks and
// null when there are none, as are the numbers of an unsolved task, which has an "error" instead.
// p50 is the lower median.
std::string TaskResultsAsJson(const std::vector<StrategyResult>& results);

// Strategies side by side. `cost_ratio` compares with the first strategy over the tasks that both
// solved.
std::string TaskResultsAsTable(const std::vector<StrategyResult>& results, const TextStyle& style);

}  // namespace neuroshard
