#include "client/cli/cost_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/text_table.h"
#include "common/base/bytes.h"
#include "common/codec/plan_codec.h"

namespace neuroshard {
namespace {

// What is said of the distribution of ids.
struct InputDistText {
  explicit InputDistText(const v1::PlanCost& cost) {
    for (const RankCost& rank : DecodePlanCost(cost).ranks) {
      any = any || rank.input_dist_ms.has_value();
      hidden = hidden || (rank.input_dist_ms.value_or(0) > 0 && rank.input_dist_hidden);
    }
  }

  bool any = false;     // it is priced
  bool hidden = false;  // and no part of the total
};

}  // namespace

std::string IntervalText(const v1::CostInterval& interval) {
  return fmt::format("{:.3f}..{:.3f}", interval.low_ms(), interval.high_ms());
}

std::string CostTable(const v1::PlanCost& cost, const TextStyle& style) {
  const bool wide = style.detail == Detail::kWide;
  // Shown only where some rank has one.
  const bool intervals = std::any_of(cost.ranks().begin(), cost.ranks().end(),
                                     [](const auto& rank) { return rank.has_total_interval(); });
  const InputDistText input_dist(cost);
  std::vector<TextTable::Column> columns = {{"rank"}};
  const char* const input_dist_title = wide ? "input_dist_ms" : "ids_ms";
  if (input_dist.any) columns.push_back({input_dist_title});
  columns.push_back({"compute_ms"});
  for (const char* title : wide ? std::vector{"forward_comm_ms", "backward_comm_ms", "total_ms"}
                                : std::vector{"comm_ms", "total_ms"}) {
    columns.push_back({title});
  }
  if (intervals) columns.push_back({fmt::format("{:.0f}% within", 100 * cost.interval_coverage())});
  if (wide) columns.push_back({"dims"});
  columns.push_back({"memory"});
  if (wide) columns.push_back({"of"});
  columns.push_back({"used"});
  columns.push_back({"", TextTable::Align::kLeft});
  TextTable table(std::move(columns));

  const auto costliest =
      std::max_element(cost.ranks().begin(), cost.ranks().end(),
                       [](const auto& a, const auto& b) { return a.total_ms() < b.total_ms(); });
  bool over_memory = false;
  for (auto rank = cost.ranks().begin(); rank != cost.ranks().end(); ++rank) {
    const v1::MemoryUse& memory = rank->memory();
    const double share = memory.capacity_bytes() > 0
                             ? static_cast<double>(memory.total_bytes()) /
                                   static_cast<double>(memory.capacity_bytes())
                             : 0;
    const bool is_costliest = rank == costliest && cost.ranks_size() > 1;
    const bool is_over = memory.capacity_bytes() > 0 && share > 1;
    over_memory = over_memory || is_over;
    std::vector<std::string> cells = {fmt::format("{}", rank->rank())};
    if (input_dist.any) {
      cells.push_back(rank->has_input_dist_ms() ? fmt::format("{:.3f}", rank->input_dist_ms())
                                                : "-");
    }
    cells.push_back(fmt::format("{:.3f}", rank->compute_ms()));
    if (wide) {
      cells.push_back(fmt::format("{:.3f}", rank->forward_comm_ms()));
      cells.push_back(fmt::format("{:.3f}", rank->backward_comm_ms()));
    } else {
      cells.push_back(fmt::format("{:.3f}", rank->forward_comm_ms() + rank->backward_comm_ms()));
    }
    cells.push_back(fmt::format("{:.3f}", rank->total_ms()));
    if (intervals) {
      cells.push_back(rank->has_total_interval() ? IntervalText(rank->total_interval()) : "-");
    }
    if (wide) cells.push_back(fmt::format("{}", rank->dim_sum()));
    cells.push_back(FormatBytes(memory.total_bytes()));
    if (wide) cells.push_back(FormatBytes(memory.capacity_bytes()));
    cells.push_back(fmt::format("{:.1f}%", share * 100));
    cells.push_back(fmt::format("{}{}", is_costliest ? "*" : "", is_over ? "!" : ""));
    table.AddRow(std::move(cells), is_over        ? TextTable::Mark::kRed
                                   : is_costliest ? TextTable::Mark::kBold
                                                  : TextTable::Mark::kNone);
  }
  std::string text = table.ToString(style);
  if (cost.ranks_size() > 1) text += "* the costliest rank";
  if (over_memory) text += cost.ranks_size() > 1 ? "; ! over its memory" : "! over its memory";
  if (!text.ends_with('\n')) text += '\n';
  if (!input_dist.hidden) return text;
  return text +
         Lines(fmt::format("{} runs beside the batch before (pipeline_type) and is not part of "
                           "total_ms\n",
                           input_dist_title),
               style);
}

std::string CostText(const v1::PlanCost& cost) {
  std::string text = fmt::format("cost {:.3f} ms", cost.embedding_cost_ms());
  if (cost.has_interval()) {
    text += fmt::format(", {:.0f}% within {}", 100 * cost.interval_coverage(),
                        IntervalText(cost.interval()));
  }
  if (cost.has_mean_of_max_ms()) {
    text += fmt::format(", {:.3f} ms on average over the batches", cost.mean_of_max_ms());
    if (cost.embedding_cost_ms() > 0) {
      text +=
          fmt::format(" ({:+.1f}%)", 100 * (cost.mean_of_max_ms() / cost.embedding_cost_ms() - 1));
    }
  }
  return text;
}

}  // namespace neuroshard
