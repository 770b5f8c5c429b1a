#include "client/cli/plan_diff.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "client/cli/text_table.h"
#include "common/base/bytes.h"
#include "common/domain/held_shards.h"
#include "common/domain/table_names.h"

namespace neuroshard {
namespace {

using Json = nlohmann::ordered_json;

// Files may say anything.
constexpr double kMostBytes = 0x1.0p60;

// A table of the size that a plan gives it.
Table TableOf(const TablePlan& plan) {
  Table table;
  table.name = plan.name;
  table.module = plan.module;
  for (const Shard& shard : plan.shards) {
    table.num_embeddings = std::max(table.num_embeddings, shard.row_offset + shard.rows);
    table.embedding_dim = std::max(table.embedding_dim, shard.col_offset + shard.cols);
  }
  return table;
}

TablePlaces PlacesOf(const TablePlan& plan) {
  TablePlaces places{plan.sharding_type,
                     static_cast<int>(plan.shards.size()),
                     {},
                     plan.compute_kernel,
                     plan.cache_load_factor};
  std::set<int> ranks;
  for (const Shard& shard : plan.shards) {
    if (shard.rows > 0) ranks.insert(shard.rank);
  }
  places.ranks.assign(ranks.begin(), ranks.end());
  return places;
}

// Cells of `after` on ranks that did not hold them in the same memory. Shards of one rank do not
// overlap in a plan, but are laid out as somebody likes (HeldShards takes legal ones).
double MovedCells(const TablePlan& before, const TablePlan& after) {
  std::map<int, std::vector<const Shard*>> held;
  for (const Shard& shard : before.shards) held[shard.rank].push_back(&shard);
  double moved = 0;
  for (const Shard& shard : after.shards) {
    double cells = Cells(shard);
    if (ChangesMemory(before.compute_kernel, after.compute_kernel)) {
      moved += cells;
      continue;
    }
    for (const Shard* old : held[shard.rank]) {
      if (const auto common = Overlap(shard, *old)) cells -= Cells(*common);
    }
    moved += std::max(cells, 0.0);
  }
  return moved;
}

std::int64_t BytesOf(double cells, std::int64_t element_bytes) {
  return std::llround(std::min(cells * static_cast<double>(element_bytes), kMostBytes));
}

std::string RanksText(const std::vector<int>& ranks) {
  constexpr std::size_t kShown = 4;
  if (ranks.size() <= kShown) return fmt::format("{}", fmt::join(ranks, ","));
  return fmt::format("{} ranks", ranks.size());
}

std::string ArrowText(const std::string& before, const std::string& after) {
  return before == after ? before : before + " -> " + after;
}

std::string PlacesText(const TablePlaces& places) {
  return places.shards > 1 ? fmt::format("{} x{}", ToText(places.sharding_type), places.shards)
                           : std::string(ToText(places.sharding_type));
}

// Otherwise kernels follow from the types.
bool KernelsMatter(const TableChange& change) {
  return TierOf(change.before.compute_kernel) != MemoryTier::kDevice ||
         TierOf(change.after.compute_kernel) != MemoryTier::kDevice ||
         (change.before.compute_kernel != change.after.compute_kernel &&
          change.before.sharding_type == change.after.sharding_type);
}

std::string KernelText(const TablePlaces& places) {
  const std::string_view kernel = ToText(places.compute_kernel);
  return places.cache_load_factor > 0 ? fmt::format("{} {:.4g}", kernel, places.cache_load_factor)
                                      : std::string(kernel);
}

const RankCost* RankOf(const PricedPlan& plan, std::size_t rank) {
  return plan.cost && rank < plan.cost->ranks.size() ? &plan.cost->ranks[rank] : nullptr;
}

std::size_t NumRanks(const DiffReport& report) {
  std::size_t ranks = 0;
  for (const PricedPlan* plan : {&report.before, &report.after}) {
    if (plan->cost) ranks = std::max(ranks, plan->cost->ranks.size());
  }
  return ranks;
}

bool HasInputDist(const PricedPlan& plan) {
  return plan.cost && std::any_of(plan.cost->ranks.begin(), plan.cost->ranks.end(),
                                  [](const RankCost& r) { return r.input_dist_ms.has_value(); });
}

std::string CostTableText(const DiffReport& report) {
  const bool input_dist = HasInputDist(report.before) || HasInputDist(report.after);
  std::vector<TextTable::Column> columns = {{"rank"}};
  if (input_dist) columns.push_back({"input_dist"});
  for (const char* title : {"compute_ms", "forward_comm", "backward_comm", "total_ms"}) {
    columns.push_back({title});
  }
  TextTable table(std::move(columns));
  for (std::size_t rank = 0; rank < NumRanks(report); ++rank) {
    const RankCost* before = RankOf(report.before, rank);
    const RankCost* after = RankOf(report.after, rank);
    const auto cell = [&](const auto& value_of) {
      return fmt::format("{} -> {}", before ? fmt::format("{:.3f}", value_of(*before)) : "-",
                         after ? fmt::format("{:.3f}", value_of(*after)) : "-");
    };
    std::vector<std::string> cells = {fmt::format("{}", rank)};
    if (input_dist) {
      const auto shown = [](const RankCost* cost) {
        return cost && cost->input_dist_ms ? fmt::format("{:.3f}", *cost->input_dist_ms) : "-";
      };
      cells.push_back(fmt::format("{} -> {}", shown(before), shown(after)));
    }
    cells.push_back(cell([](const RankCost& c) { return c.compute_ms; }));
    cells.push_back(cell([](const RankCost& c) { return c.forward_comm_ms; }));
    cells.push_back(cell([](const RankCost& c) { return c.backward_comm_ms; }));
    cells.push_back(cell([](const RankCost& c) { return c.total_ms(); }));
    table.AddRow(std::move(cells));
  }
  return table.ToString();
}

std::string CostLine(const DiffReport& report) {
  const auto text = [](const PricedPlan& plan) {
    return plan.cost ? fmt::format("{:.3f}", plan.cost->embedding_cost_ms) : std::string("?");
  };
  std::string line = fmt::format("cost {} -> {} ms", text(report.before), text(report.after));
  if (report.before.cost && report.after.cost && report.before.cost->embedding_cost_ms > 0) {
    const double change =
        100 * (report.after.cost->embedding_cost_ms / report.before.cost->embedding_cost_ms - 1);
    line += fmt::format(", {:.1f}% {}", std::abs(change), change > 0 ? "more" : "less");
  }
  return line + '\n';
}

Json PlanJson(const PricedPlan& plan, int tables) {
  return {{"file", plan.file},
          {"cost_ms", plan.cost ? Json(plan.cost->embedding_cost_ms) : Json()},
          {"tables", tables}};
}

Json PlacesJson(const TablePlaces& places, bool with_kernel) {
  Json json = {{"sharding_type", ToText(places.sharding_type)},
               {"shards", places.shards},
               {"ranks", places.ranks}};
  if (with_kernel) {
    json["compute_kernel"] = ToText(places.compute_kernel);
    if (places.cache_load_factor > 0) json["cache_load_factor"] = places.cache_load_factor;
  }
  return json;
}

Json RankJson(const RankCost* cost) {
  if (cost == nullptr) return nullptr;
  Json json = {{"compute_ms", cost->compute_ms},
               {"forward_comm_ms", cost->forward_comm_ms},
               {"backward_comm_ms", cost->backward_comm_ms},
               {"total_ms", cost->total_ms()}};
  if (cost->input_dist_ms) json["input_dist_ms"] = *cost->input_dist_ms;
  return json;
}

}  // namespace

StatusOr<PlanDiff> DiffPlans(const Plan& before, const Plan& after,
                             const std::vector<Table>& tables) {
  std::vector<Table> now;
  for (const TablePlan& plan : after.tables) now.push_back(TableOf(plan));
  const std::vector<int> now_of = TablesOf(before, now);
  const std::vector<int> described = TablesOf(after, tables);
  const TableNames names(after.tables);
  PlanDiff diff;
  diff.tables_before = static_cast<int>(before.tables.size());
  diff.tables_after = static_cast<int>(after.tables.size());
  std::vector<const TablePlan*> earlier(now.size());
  for (std::size_t t = 0; t < before.tables.size(); ++t) {
    if (now_of[t] < 0) {
      diff.only_before.push_back(FullName(before.tables[t].module, before.tables[t].name));
    } else {
      earlier[static_cast<std::size_t>(now_of[t])] = &before.tables[t];
    }
  }
  double weight_bytes = 0;
  double moved_bytes = 0;
  for (std::size_t t = 0; t < now.size(); ++t) {
    const TablePlan& plan = after.tables[t];
    const std::int64_t element_bytes =
        described[t] < 0
            ? 4
            : ElementBytes(tables[static_cast<std::size_t>(described[t])].weight_dtype);
    for (const Shard& shard : plan.shards) {
      weight_bytes += static_cast<double>(BytesOf(Cells(shard), element_bytes));
    }
    const std::string& name = names.ReferenceTo(static_cast<int>(t));
    if (earlier[t] == nullptr) {
      diff.only_after.push_back(name);
      continue;
    }
    const Table size = TableOf(*earlier[t]);
    TableChange change{name, PlacesOf(*earlier[t]), PlacesOf(plan)};
    change.resized =
        size.num_embeddings != now[t].num_embeddings || size.embedding_dim != now[t].embedding_dim;
    if (!change.resized) {
      change.moved_bytes = BytesOf(MovedCells(*earlier[t], plan), element_bytes);
    }
    moved_bytes += static_cast<double>(change.moved_bytes);
    if (change.resized || change.moved_bytes > 0 || change.before != change.after) {
      diff.changes.push_back(std::move(change));
    }
  }
  diff.moved_bytes = std::llround(std::min(moved_bytes, kMostBytes));
  diff.weight_bytes = std::llround(std::min(weight_bytes, kMostBytes));
  if (diff.only_after.size() == now.size()) {
    return InvalidArgument("the plans have no table in common: {} before, {} after",
                           diff.only_before.empty() ? "nothing" : diff.only_before.front(),
                           diff.only_after.empty() ? "nothing" : diff.only_after.front());
  }
  return diff;
}

std::string DiffAsText(const DiffReport& report, std::size_t max_tables) {
  const PlanDiff& diff = report.diff;
  std::string text = report.basis.empty() ? "" : report.basis + '\n';
  std::vector<const TableChange*> order;
  for (const TableChange& change : diff.changes) order.push_back(&change);
  std::stable_sort(order.begin(), order.end(), [](const TableChange* a, const TableChange* b) {
    return a->moved_bytes > b->moved_bytes;
  });
  constexpr auto kLeft = TextTable::Align::kLeft;
  const bool kernels = std::any_of(diff.changes.begin(), diff.changes.end(), KernelsMatter);
  std::vector<TextTable::Column> columns = {
      {"table", kLeft}, {"moved"}, {"type", kLeft}, {"ranks", kLeft}};
  if (kernels) columns.push_back({"kernel", kLeft});
  TextTable table(std::move(columns));
  for (std::size_t i = 0; i < std::min(max_tables, order.size()); ++i) {
    const TableChange& change = *order[i];
    std::vector<std::string> cells = {
        change.table, change.resized ? "new size" : FormatBytes(change.moved_bytes),
        ArrowText(PlacesText(change.before), PlacesText(change.after)),
        ArrowText(RanksText(change.before.ranks), RanksText(change.after.ranks))};
    if (kernels) cells.push_back(ArrowText(KernelText(change.before), KernelText(change.after)));
    table.AddRow(std::move(cells));
  }
  if (!order.empty()) text += table.ToString();
  if (order.size() > max_tables) {
    text +=
        fmt::format("... and {} more tables (--format json has all)\n", order.size() - max_tables);
  }
  for (const auto& [what, names] :
       {std::pair{"only before", &diff.only_before}, std::pair{"only after", &diff.only_after}}) {
    if (names->empty()) continue;
    const std::size_t shown = std::min(max_tables, names->size());
    text += fmt::format("{}: {}{}\n", what,
                        fmt::join(names->begin(), names->begin() + static_cast<long>(shown), ", "),
                        names->size() > shown ? ", ..." : "");
  }
  text +=
      fmt::format("{} of {} move{}, {} of {} tables change\n", FormatBytes(diff.moved_bytes),
                  FormatBytes(diff.weight_bytes),
                  report.weights_are_known ? "" : " (weights of 4 bytes; --request knows better)",
                  diff.changes.size(), diff.tables_after);
  if (NumRanks(report) > 0) text += CostTableText(report) + CostLine(report);
  for (const std::string& note : report.notes) text += "note: " + note + '\n';
  return text;
}

std::string DiffAsJson(const DiffReport& report) {
  const PlanDiff& diff = report.diff;
  Json tables = Json::array();
  for (const TableChange& change : diff.changes) {
    tables.push_back({{"table", change.table},
                      {"moved_bytes", change.moved_bytes},
                      {"resized", change.resized},
                      {"before", PlacesJson(change.before, KernelsMatter(change))},
                      {"after", PlacesJson(change.after, KernelsMatter(change))}});
  }
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < NumRanks(report); ++rank) {
    ranks.push_back({{"rank", rank},
                     {"before", RankJson(RankOf(report.before, rank))},
                     {"after", RankJson(RankOf(report.after, rank))}});
  }
  const Json document = {{"before", PlanJson(report.before, diff.tables_before)},
                         {"after", PlanJson(report.after, diff.tables_after)},
                         {"price_basis", report.basis},
                         {"moved_bytes", diff.moved_bytes},
                         {"weight_bytes", diff.weight_bytes},
                         {"weights_are_known", report.weights_are_known},
                         {"tables", std::move(tables)},
                         {"only_before", diff.only_before},
                         {"only_after", diff.only_after},
                         {"ranks", std::move(ranks)},
                         {"notes", report.notes}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace neuroshard
