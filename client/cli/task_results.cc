#include "client/cli/task_results.h"

#include <algorithm>
#include <vector>

namespace neuroshard {
namespace {

// "-" when no task is solved by both.
std::string CostRatio(const v1::TasksOfStrategy& result, const v1::TasksOfStrategy& reference) {
  double cost_ms = 0;
  double reference_ms = 0;
  for (int i = 0; i < std::min(result.tasks_size(), reference.tasks_size()); ++i) {
    if (!result.tasks(i).solved() || !reference.tasks(i).solved()) continue;
    cost_ms += result.tasks(i).cost_ms();
    reference_ms += reference.tasks(i).cost_ms();
  }
  return reference_ms > 0 ? Cell(cost_ms / reference_ms) : "-";
}

}  // namespace

void Summarize(v1::TasksAnswer& answer) {
  for (v1::TasksOfStrategy& result : *answer.mutable_results()) {
    double cost_ms = 0;
    double sum_ms = 0;
    std::vector<double> search_ms;
    for (const v1::TaskAnswer& task : result.tasks()) {
      if (!task.solved()) continue;
      cost_ms += task.cost_ms();
      sum_ms += task.search_ms();
      search_ms.push_back(task.search_ms());
    }
    result.set_solved(static_cast<int>(search_ms.size()));
    if (search_ms.empty()) continue;
    std::sort(search_ms.begin(), search_ms.end());
    result.set_mean_cost_ms(cost_ms / result.solved());
    result.set_mean_search_ms(sum_ms / result.solved());
    result.set_p50_search_ms(search_ms[(search_ms.size() - 1) / 2]);
    result.set_max_search_ms(search_ms.back());
  }
}

std::string TasksAsTable(const v1::TasksAnswer& answer, const TextStyle& style) {
  using Result = v1::TasksOfStrategy;
  // Of a statistic over solved tasks.
  const auto known = [](double (Result::*value)() const) {
    return [value](const Result& of) { return of.solved() > 0 ? Cell((of.*value)()) : "-"; };
  };
  return TableOf<Result>()
      .Left("strategy", &Result::strategy)
      .Right("solved",
             [](const Result& of) { return fmt::format("{}/{}", of.solved(), of.tasks_size()); })
      .Right("mean_cost_ms", known(&Result::mean_cost_ms))
      .Right("cost_ratio", [&](const Result& of) { return CostRatio(of, answer.results(0)); })
      .Right("p50_search_ms", known(&Result::p50_search_ms))
      .Right("mean_search_ms", known(&Result::mean_search_ms), style.wide())
      .Right("max_search_ms", known(&Result::max_search_ms), style.wide())
      .ToString(answer.results(), style);
}

}  // namespace neuroshard
