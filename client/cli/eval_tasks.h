// Results of eval-tasks: what follows from those of its tasks, and their text.
#pragma once

#include <string>

#include "client/cli/text_table.h"
#include "neuroshard/v1/answers.pb.h"

namespace neuroshard {

// Sets what is said of each strategy, from its tasks.
void Summarize(v1::TasksAnswer& answer);

// Strategies side by side. `cost_ratio` compares with the first strategy over the tasks that both
// solved.
std::string TasksAsTable(const v1::TasksAnswer& answer, const TextStyle& style);

}  // namespace neuroshard
