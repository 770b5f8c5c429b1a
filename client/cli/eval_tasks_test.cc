#include "client/cli/eval_tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

#include "common/codec/message_text.h"

namespace neuroshard {
namespace {

struct Solved {
  double cost_ms;
  int splits;
  double search_ms;
};

// A task without a plan has a reason in place of one.
void Add(const std::string& strategy, const std::vector<std::variant<Solved, const char*>>& tasks,
         v1::TasksAnswer& answer) {
  v1::TasksOfStrategy& result = *answer.add_results();
  result.set_strategy(strategy);
  for (const auto& of : tasks) {
    v1::TaskAnswer& task = *result.add_tasks();
    task.set_task(result.tasks_size() - 1);
    const auto* solved = std::get_if<Solved>(&of);
    task.set_solved(solved != nullptr);
    if (solved == nullptr) {
      task.set_error(std::get<const char*>(of));
      continue;
    }
    task.set_cost_ms(solved->cost_ms);
    task.set_splits(solved->splits);
    task.set_search_ms(solved->search_ms);
  }
}

v1::TasksAnswer SomeResults() {
  v1::TasksAnswer answer;
  Add("neuroshard", {Solved{10.0, 2, 4.0}, Solved{20.0, 0, 8.0}, Solved{60.0, 1, 6.0}}, answer);
  Add("random", {Solved{20.0, 0, 1.0}, "no plan fits", Solved{75.0, 0, 2.0}}, answer);
  Add("broken", {"x", "x", "x"}, answer);
  Summarize(answer);
  return answer;
}

// The shape is binding: scripts outside the project read it (design, section 11).
TEST(TaskResultsTest, JsonGolden) {
  EXPECT_EQ(nlohmann::json::parse(MessageToJson(SomeResults())),
            nlohmann::json::parse(R"({"results": [
    {"strategy": "neuroshard", "solved": 3, "mean_cost_ms": 30.0, "mean_search_ms": 6.0, "p50_search_ms": 6.0, "max_search_ms": 8.0,
     "tasks": [{"task": 0, "solved": true, "cost_ms": 10.0, "splits": 2, "search_ms": 4.0},
               {"task": 1, "solved": true, "cost_ms": 20.0, "splits": 0, "search_ms": 8.0},
               {"task": 2, "solved": true, "cost_ms": 60.0, "splits": 1, "search_ms": 6.0}]},
    {"strategy": "random", "solved": 2, "mean_cost_ms": 47.5, "mean_search_ms": 1.5, "p50_search_ms": 1.0, "max_search_ms": 2.0,
     "tasks": [{"task": 0, "solved": true, "cost_ms": 20.0, "splits": 0, "search_ms": 1.0},
               {"task": 1, "solved": false, "cost_ms": null, "splits": null, "search_ms": null, "error": "no plan fits"},
               {"task": 2, "solved": true, "cost_ms": 75.0, "splits": 0, "search_ms": 2.0}]},
    {"strategy": "broken", "solved": 0, "mean_cost_ms": null, "mean_search_ms": null, "p50_search_ms": null, "max_search_ms": null,
     "tasks": [{"task": 0, "solved": false, "cost_ms": null, "splits": null, "search_ms": null, "error": "x"},
               {"task": 1, "solved": false, "cost_ms": null, "splits": null, "search_ms": null, "error": "x"},
               {"task": 2, "solved": false, "cost_ms": null, "splits": null, "search_ms": null, "error": "x"}]}]})"));
}

TEST(TaskResultsTest, TableGolden) {
  EXPECT_EQ(TasksAsTable(SomeResults(), {}),
            "strategy    solved  mean_cost_ms  cost_ratio  p50_search_ms\n"
            "neuroshard     3/3        30.000       1.000          6.000\n"
            "random         2/3        47.500       1.357          1.000\n"
            "broken         0/3             -           -              -\n");
  EXPECT_THAT(TasksAsTable(SomeResults(), {.detail = Detail::kWide}),
              ::testing::HasSubstr("p50_search_ms  mean_search_ms  max_search_ms\n"));
}

}  // namespace
}  // namespace neuroshard
