#include "client/cli/task_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "client/cli/text_table.h"

namespace neuroshard {
namespace {

struct Statistics {
  int solved = 0;
  double mean_cost_ms = 0;
  double mean_search_ms = 0;
  double p50_search_ms = 0;
  double max_search_ms = 0;
};

Statistics Summarize(const StrategyResult& result) {
  Statistics statistics;
  std::vector<double> search_ms;
  for (const TaskResult& task : result.tasks) {
    if (!task.cost_ms) continue;
    statistics.mean_cost_ms += *task.cost_ms;
    statistics.mean_search_ms += task.search_ms;
    search_ms.push_back(task.search_ms);
  }
  statistics.solved = static_cast<int>(search_ms.size());
  if (search_ms.empty()) return statistics;
  statistics.mean_cost_ms /= statistics.solved;
  statistics.mean_search_ms /= statistics.solved;
  std::sort(search_ms.begin(), search_ms.end());
  statistics.p50_search_ms = search_ms[(search_ms.size() - 1) / 2];
  statistics.max_search_ms = search_ms.back();
  return statistics;
}

nlohmann::ordered_json TaskAsJson(const TaskResult& task) {
  nlohmann::ordered_json json = {{"task", task.task}, {"solved", task.cost_ms.has_value()}};
  if (task.cost_ms) {
    json["cost_ms"] = *task.cost_ms;
    json["splits"] = task.splits;
    json["search_ms"] = task.search_ms;
  } else {
    json["cost_ms"] = nullptr;
    json["splits"] = nullptr;
    json["search_ms"] = nullptr;
    json["error"] = task.error;
  }
  return json;
}

// "-" when no task is solved by both.
std::string CostRatio(const StrategyResult& result, const StrategyResult& reference) {
  double cost_ms = 0;
  double reference_ms = 0;
  for (std::size_t i = 0; i < std::min(result.tasks.size(), reference.tasks.size()); ++i) {
    if (!result.tasks[i].cost_ms || !reference.tasks[i].cost_ms) continue;
    cost_ms += *result.tasks[i].cost_ms;
    reference_ms += *reference.tasks[i].cost_ms;
  }
  return reference_ms > 0 ? fmt::format("{:.3f}", cost_ms / reference_ms) : "-";
}

}  // namespace

std::string TaskResultsAsJson(const std::vector<StrategyResult>& results) {
  auto list = nlohmann::ordered_json::array();
  for (const StrategyResult& result : results) {
    const Statistics statistics = Summarize(result);
    nlohmann::ordered_json json = {{"strategy", result.strategy}, {"solved", statistics.solved}};
    const auto add = [&](const char* name, double value) {
      json[name] =
          statistics.solved > 0 ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
    };
    add("mean_cost_ms", statistics.mean_cost_ms);
    add("mean_search_ms", statistics.mean_search_ms);
    add("p50_search_ms", statistics.p50_search_ms);
    add("max_search_ms", statistics.max_search_ms);
    json["tasks"] = nlohmann::ordered_json::array();
    for (const TaskResult& task : result.tasks) json["tasks"].push_back(TaskAsJson(task));
    list.push_back(json);
  }
  return nlohmann::ordered_json{{"results", list}}.dump(2) + '\n';
}

std::string TaskResultsAsTable(const std::vector<StrategyResult>& results, const TextStyle& style) {
  const bool wide = style.detail == Detail::kWide;
  std::vector<TextTable::Column> columns = {{"strategy", TextTable::Align::kLeft},
                                            {"solved"},
                                            {"mean_cost_ms"},
                                            {"cost_ratio"},
                                            {"p50_search_ms"}};
  if (wide) columns.insert(columns.end(), {{"mean_search_ms"}, {"max_search_ms"}});
  TextTable table(std::move(columns));
  for (const StrategyResult& result : results) {
    const Statistics statistics = Summarize(result);
    const auto shown = [&](double value) {
      return statistics.solved > 0 ? fmt::format("{:.3f}", value) : std::string("-");
    };
    std::vector<std::string> cells = {
        result.strategy, fmt::format("{}/{}", statistics.solved, result.tasks.size()),
        shown(statistics.mean_cost_ms), CostRatio(result, results.front()),
        shown(statistics.p50_search_ms)};
    if (wide) {
      cells.push_back(shown(statistics.mean_search_ms));
      cells.push_back(shown(statistics.max_search_ms));
    }
    table.AddRow(std::move(cells));
  }
  return table.ToString(style);
}

}  // namespace neuroshard
