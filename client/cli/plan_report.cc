#include "client/cli/plan_report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "client/cli/plan_comparison.h"
#include "client/cli/plan_output.h"
#include "common/base/bytes.h"
#include "common/codec/plan_codec.h"
#include "common/devices/device_table.h"
#include "common/domain/backend_names.h"
#include "common/domain/plan_report.h"
#include "common/domain/topology.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {
namespace {

// The types that are not possible, by the reason.
using ImpossibleTypes = std::map<std::string, std::vector<std::string>>;

ImpossibleTypes ImpossibleFor(const v1::TableExplanation& explanation) {
  ImpossibleTypes types;
  for (const v1::TableAlternative& other : explanation.alternatives()) {
    if (!other.has_embedding_cost_ms()) types[other.reason()].push_back(other.sharding_type());
  }
  return types;
}

// What several tables have in common is said once.
ImpossibleTypes ImpossibleForAll(
    const google::protobuf::RepeatedPtrField<v1::TableExplanation>& explanations) {
  if (explanations.size() < 2) return {};
  ImpossibleTypes common = ImpossibleFor(explanations[0]);
  for (const v1::TableExplanation& explanation : explanations) {
    const ImpossibleTypes own = ImpossibleFor(explanation);
    std::erase_if(common, [&](const auto& entry) {
      const auto found = own.find(entry.first);
      return found == own.end() || found->second != entry.second;
    });
  }
  return common;
}

// The tables of each kernel of a memory, with names where they are few; empty where there are none.
std::string CountsOf(MemoryTier tier, const v1::Plan& plan) {
  constexpr std::size_t kNamed = 3;
  // fused_uvm_caching, which most of them have, is named first.
  auto all = kKernelTraits;
  std::ranges::stable_sort(
      all, {}, [](const auto& of) { return of.kernel != ComputeKernel::kFusedUvmCaching; });
  std::vector<std::string> parts;
  for (const KernelTraits& traits : all) {
    const ComputeKernel kernel = traits.kernel;
    if (traits.tier != tier) continue;
    std::vector<std::string_view> names;
    for (const v1::TablePlan& table : plan.tables()) {
      if (table.compute_kernel() == ToText(kernel)) names.push_back(table.name());
    }
    if (names.empty()) continue;
    parts.push_back(fmt::format("{} {}", names.size(), ToText(kernel)));
    if (names.size() <= kNamed) parts.back() += fmt::format(" ({})", fmt::join(names, ", "));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

constexpr int kNamedRules = 3;

std::string LimitLine(const v1::CostLimit& limit) {
  std::string line = "what holds the bound: ";
  if (limit.table().empty()) {
    line += "all tables together";
  } else {
    line += fmt::format("a shard of {} costs {:.3f} ms at least", limit.table(), limit.shard_ms());
    if (limit.every_rank_tables() > 0) {
      line += fmt::format(", beside {:.3f} ms on every rank ({} tables)", limit.every_rank_ms(),
                          limit.every_rank_tables());
    }
    if (limit.has_rank()) line += fmt::format("; on rank {}", limit.rank());
  }
  if (limit.rules().empty()) return line + "; it cannot be cut further\n";
  line += "\nwithout ";
  for (int i = 0; i < limit.rules_size(); ++i) {
    const v1::CostLimitRule& rule = limit.rules(i);
    if (i == kNamedRules) {
      line += fmt::format(" and {} more", limit.rules_size() - i);
      break;
    }
    line += fmt::format("{}{} ({})", i > 0 ? " and " : "", rule.path(), rule.text());
  }
  line += fmt::format(" the bound is {:.3f} ms", limit.bound_without_ms());
  if (limit.has_cost_without_ms()) {
    line += fmt::format(", and a plan costs {:.3f} ms", limit.cost_without_ms());
  }
  return line + '\n';
}

// ", batch 65536 (4096 a rank)"; empty where the planner does not say it.
std::string BatchText(std::int64_t global_batch_size, int num_ranks) {
  if (global_batch_size == 0) return "";
  return fmt::format(", batch {} ({:.10g} a rank)", global_batch_size,
                     static_cast<double>(global_batch_size) / std::max(num_ranks, 1));
}

// "sharding: 10 table_wise, 2 column_wise (5 shards)\n": tables of each type, and their shards
// where those are more. Where tables are in host memory or on SSD, by kernel behind it, with
// names where they are few: "; in host memory: 12 fused_uvm_caching, 2 fused_uvm (a, b)".
std::string ShardingLine(const v1::Plan& plan) {
  struct Count {
    int tables = 0;
    int shards = 0;
  };
  std::map<std::string, Count> counts;
  for (const v1::TablePlan& table : plan.tables()) {
    Count& count = counts[table.sharding_type()];
    ++count.tables;
    count.shards += table.shards_size();
  }
  std::vector<std::string> parts;
  for (const auto& word : kWords<ShardingType>) {
    const auto found = counts.find(std::string(word.text));
    if (found == counts.end()) continue;
    const auto [tables, shards] = found->second;
    parts.push_back(shards > tables ? fmt::format("{} {} ({} shards)", tables, word.text, shards)
                                    : fmt::format("{} {}", tables, word.text));
  }
  std::string line = fmt::format("sharding: {}", fmt::join(parts, ", "));
  for (const SharedMemory& memory : kSharedMemories) {
    const std::string there = CountsOf(memory.tier, plan);
    if (!there.empty()) line += fmt::format("; {}: {}", memory.place, there);
  }
  return line + '\n';
}

// "host 0: 1.5 GiB of 4 GiB host memory\n" for every host whose memory holds tables, and so for SSDs.
std::string HostMemoryLines(const v1::PlanCost& cost) {
  std::string lines;
  const PlanCost decoded = DecodePlanCost(cost);
  for (const SharedMemory& memory : kSharedMemories) {
    for (const HostMemoryUse& use : decoded.shared[memory.tier]) {
      lines += fmt::format("host {}: {} of {} {}\n", use.host, FormatBytes(use.total_bytes),
                           FormatBytes(use.capacity_bytes), memory.amount);
    }
  }
  return lines;
}

// "exchanges: 3.200 ms on every rank (ebc table_wise 1.600, ebc row_wise 1.600)\n"; empty where they
// are not priced.
std::string ExchangesLine(const v1::PlanCost& cost) {
  if (cost.exchanges().empty()) return "";
  double total_ms = 0;
  std::vector<std::string> parts;
  for (const v1::ExchangeCost& exchange : cost.exchanges()) {
    total_ms += exchange.time_ms();
    parts.push_back(fmt::format("{}{}{} {:.3f}", exchange.module(),
                                exchange.module().empty() ? "" : " ", exchange.sharding_type(),
                                exchange.time_ms()));
  }
  return fmt::format("exchanges: {:.3f} ms on every rank ({})\n", total_ms, fmt::join(parts, ", "));
}

// The bound, its kind, and how much more the plan costs; with the line's end. kWide: also what it
// bounds.
std::string BoundLine(const v1::LowerBound& bound, Detail detail) {
  // A reference bounds nothing, and is not called a bound.
  const bool certified = bound.kind() == ToText(BoundKind::kCertified);
  std::string line =
      fmt::format("{} {:.3f} ms", certified ? "lower bound" : "even spread", bound.cost_ms());
  if (!bound.objective().empty()) line += " on average over the batches";
  if (bound.has_gap_percent()) {
    line += bound.gap_percent() >= 0
                ? fmt::format(", the plan costs {:.1f}% more", bound.gap_percent())
                : fmt::format(", the plan costs {:.1f}% less", -bound.gap_percent());
  }
  // README.md explains the two kinds.
  line += detail == Detail::kShort ? (certified ? " (certified)\n" : " (no bound)\n")
                                   : fmt::format(" ({}: {})\n", bound.kind(), bound.scope());
  return bound.has_limit() ? line + LimitLine(bound.limit()) : line;
}

// What the plan costs by the formulas, where another model priced it. Empty where that was measured
// on CPUs: unless a request says otherwise, the formulas are of a GPU's bandwidths.
std::string AnalyticLine(double cost_ms, const v1::MeasuredWith& measured_with) {
  if (ComputeDeviceOf(DecodeMeasuredWith(measured_with)) == ComputeDevice::kCpu) return "";
  return fmt::format("TorchRec's formulas (analytic) {:.3f} ms\n", cost_ms);
}

// "goal max_memory: 83.1% at 2.605, 74.0% at 2.628, 70.2% at 2.657 ms\n": without it, with half
// of the tolerance of the cost, with all of it.
std::string TradeLine(const v1::GoalTrade& trade) {
  const auto measure = FromText<PlanMeasure>(trade.measure());
  std::vector<std::string> points;
  for (const v1::TradePoint& point : trade.points()) {
    const std::string value =
        measure == PlanMeasure::kMaxMemory ? fmt::format("{:.1f}%", 100 * point.value())
        : measure == PlanMeasure::kMovedBytes || measure == PlanMeasure::kMaxStash
            ? FormatBytes(static_cast<std::int64_t>(point.value()))
            : fmt::format("{:.10g}", point.value());
    points.push_back(fmt::format("{} at {:.3f}", value, point.cost_ms()));
  }
  return fmt::format("goal {}: {} ms\n", trade.measure(), fmt::join(points, ", "));
}

// What is in host memory while dense layers run, with the first names: all are in other formats.
std::string StashLine(const v1::StashReport& report) {
  constexpr int kNamed = 5;
  const auto& tables = report.tables();
  const std::vector<std::string> named(tables.begin(),
                                       tables.begin() + std::min(kNamed, tables.size()));
  return fmt::format("stash: {}, at most {} of a rank; the fullest keeps {} instead of {}{}{}{}\n",
                     Counted(tables.size(), "table"), FormatBytes(report.max_stashed_bytes()),
                     FormatBytes(report.peak_bytes()), FormatBytes(report.peak_bytes_without()),
                     named.empty() ? "" : ": ", fmt::join(named, ", "),
                     tables.size() > kNamed ? ", ..." : "");
}

// How many bytes move, and of which tables: the ones that move most are named.
std::string MigrationLine(const v1::MigrationReport& report) {
  constexpr std::size_t kNamed = 5;
  if (report.moved_bytes() == 0) return "migration: nothing moves\n";
  std::vector<const v1::MovedTable*> tables;
  for (const v1::MovedTable& table : report.tables()) tables.push_back(&table);
  std::ranges::stable_sort(tables, std::greater{}, &v1::MovedTable::bytes);
  std::string line = fmt::format("migration: {} in {} move", FormatBytes(report.moved_bytes()),
                                 Counted(tables.size(), "table"));
  for (std::size_t i = 0; i < std::min(kNamed, tables.size()); ++i) {
    line += fmt::format("{}{} {}", i == 0 ? ": " : ", ", tables[i]->table(),
                        FormatBytes(tables[i]->bytes()));
  }
  return line + (tables.size() > kNamed ? ", ...\n" : "\n");
}

// A line for every alternative of every table; below those that are not possible, by table and
// reason, once what is not possible for all tables, and how many of the plan's `num_tables` are not
// explained. Changes are against `plan_cost_ms`.
std::string ExplanationTable(
    const google::protobuf::RepeatedPtrField<v1::TableExplanation>& explanations, int num_tables,
    double plan_cost_ms, const TextStyle& style) {
  using Alternative = v1::TableAlternative;
  struct Row {
    std::string table;  // once a table, like its type
    std::string type;
    const Alternative* other;  // null: none is possible
  };
  std::vector<Row> rows;
  const ImpossibleTypes common = ImpossibleForAll(explanations);
  std::string impossible;
  bool prices_exchanges = false;
  for (const v1::TableExplanation& explanation : explanations) {
    const std::size_t first = rows.size();
    for (const Alternative& other : explanation.alternatives()) {
      if (other.has_embedding_cost_ms()) rows.push_back({"", "", &other});
      prices_exchanges = prices_exchanges || other.has_more_exchanges_ms();
    }
    if (rows.size() == first) rows.push_back({"", "", nullptr});
    rows[first].table = explanation.table();
    rows[first].type = explanation.sharding_type();
    for (const auto& [reason, types] : ImpossibleFor(explanation)) {
      const auto left = common.find(reason);
      if (left == common.end() || left->second != types) {
        impossible += fmt::format("not for {}: {} ({})\n", explanation.table(),
                                  fmt::join(types, ", "), reason);
      }
    }
  }
  for (const auto& [reason, types] : common) {
    impossible +=
        fmt::format("for none of these tables: {} ({})\n", fmt::join(types, ", "), reason);
  }
  if (const int left = num_tables - explanations.size(); left > 0) {
    impossible += fmt::format(
        "{} of {} tables are explained: the largest, and those on the costliest ranks\n",
        explanations.size(), num_tables);
  }
  const auto shown = [](const auto& cell) {
    return [=](const Row& row) { return row.other == nullptr ? "" : cell(*row.other); };
  };
  return TableOf<Row>()
             .Left("table", &Row::table)
             .Left("type", &Row::type)
             .Left("alternative",
                   [](const Row& row) {
                     return row.other == nullptr ? "-" : row.other->sharding_type();
                   })
             .Right("shards", shown([](const Alternative& of) { return Cell(of.num_shards()); }))
             .Right("plan_ms",
                    shown([](const Alternative& of) { return Cell(of.embedding_cost_ms()); }))
             .Right("more_exchanges_ms",
                    shown([](const Alternative& of) { return Cell(of.more_exchanges_ms()); }),
                    prices_exchanges)
             .Right("change", shown([&](const Alternative& of) {
                      const double ratio =
                          plan_cost_ms > 0 ? of.embedding_cost_ms() / plan_cost_ms : 1;
                      return fmt::format("{:+.1f}%", 100 * (ratio - 1));
                    }))
             .ToString(rows, style) +
         Lines(impossible, style);
}

// Whether the distribution of ids is priced somewhere, and no part of the total.
bool HasHiddenInputDist(const v1::PlanCost& cost) {
  const std::vector<RankCost> ranks = DecodePlanCost(cost).ranks;
  return std::ranges::any_of(ranks, [](const RankCost& rank) {
    return rank.input_dist_ms.value_or(0) > 0 && rank.input_dist_hidden;
  });
}

// One line a rank: distribution of ids where it is priced (ids_ms, kWide: input_dist_ms), compute,
// communication (kWide: forward and backward), total (and its interval, where a rank has one),
// memory used of capacity. The costliest rank and those over their memory are marked, and a line
// below says so; another one where the total leaves the distribution of ids out.
std::string CostTable(const v1::PlanCost& cost, const TextStyle& style) {
  using Rank = v1::RankCost;
  const auto& ranks = cost.ranks();
  const auto is_over = [](const Rank& rank) { return UsedShare(rank.memory()) > 1; };
  const Rank* costliest = nullptr;
  if (ranks.size() > 1) {
    costliest = &*std::ranges::max_element(ranks, {}, &Rank::total_ms);
  }
  const char* const input_dist = style.wide() ? "input_dist_ms" : "ids_ms";
  TableOf<Rank> table;
  table.Right("rank", &Rank::rank)
      .Right(input_dist, IfGiven(&Rank::has_input_dist_ms, &Rank::input_dist_ms),
             std::ranges::any_of(ranks, &Rank::has_input_dist_ms))
      .Right("compute_ms", &Rank::compute_ms)
      .Right("forward_comm_ms", &Rank::forward_comm_ms, style.wide())
      .Right("backward_comm_ms", &Rank::backward_comm_ms, style.wide())
      .Right(
          "comm_ms",
          [](const Rank& rank) { return rank.forward_comm_ms() + rank.backward_comm_ms(); },
          !style.wide())
      .Right("total_ms", &Rank::total_ms)
      .Right(
          fmt::format("{:.0f}% within", 100 * cost.interval_coverage()),
          [](const Rank& rank) {
            return rank.has_total_interval() ? IntervalText(rank.total_interval()) : "-";
          },
          std::ranges::any_of(ranks, &Rank::has_total_interval))
      .Right("dims", &Rank::dim_sum, style.wide())
      .Right("memory", [](const Rank& rank) { return FormatBytes(rank.memory().total_bytes()); })
      .Right(
          "of", [](const Rank& rank) { return FormatBytes(rank.memory().capacity_bytes()); },
          style.wide())
      .Right(
          "used",
          [](const Rank& rank) { return fmt::format("{:.1f}%", UsedShare(rank.memory()) * 100); })
      .Left("",
            [&](const Rank& rank) {
              return fmt::format("{}{}", &rank == costliest ? "*" : "", is_over(rank) ? "!" : "");
            })
      .Marked([&](const Rank& rank) {
        return is_over(rank)        ? TextTable::Mark::kRed
               : &rank == costliest ? TextTable::Mark::kBold
                                    : TextTable::Mark::kNone;
      });
  std::vector<std::string> signs;
  if (costliest != nullptr) signs.push_back("* the costliest rank");
  if (std::ranges::any_of(ranks, is_over)) signs.push_back("! over its memory");
  std::string text = table.ToString(ranks, style);
  if (!signs.empty()) text += fmt::format("{}\n", fmt::join(signs, "; "));
  if (!HasHiddenInputDist(cost)) return text;
  return text +
         Lines(fmt::format("{} runs beside the batch before (pipeline_type) and is not part of "
                           "total_ms\n",
                           input_dist),
               style);
}

// "cost 7.500 ms", and ", 90% within 7.100..8.000" where the model has intervals, and
// ", 9.000 ms on average over the batches (+20.0%)" where the request has a sample of them; scripts
// read the first part up to its comma.
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

// What answers about a plan have in common; `text` begins it and stands below the table of ranks.
template <typename Response>
std::string ReportOf(const Response& response, std::string text, int num_tables,
                     const TextStyle& style) {
  const v1::PlanCost& cost = response.cost();
  text += ExchangesLine(cost) + HostMemoryLines(cost);
  if (response.has_lower_bound()) text += BoundLine(response.lower_bound(), style.detail);
  if (response.has_analytic_cost_ms()) {
    text += AnalyticLine(response.analytic_cost_ms(), cost.measured_with());
  }
  if (response.has_stash()) text += StashLine(response.stash());
  if (response.has_migration()) text += MigrationLine(response.migration());
  text = Lines(BasisLine(response.price_basis(), cost.measured_with()), style) +
         (response.has_cost() ? CostTable(cost, style) : "") + Lines(text, style);
  if (response.explanations().empty()) return text;
  return text +
         ExplanationTable(response.explanations(), num_tables, cost.embedding_cost_ms(), style);
}

}  // namespace

std::string IntervalText(const v1::CostInterval& interval) {
  return fmt::format("{:.3f}..{:.3f}", interval.low_ms(), interval.high_ms());
}

double UsedShare(const v1::MemoryUse& memory) {
  if (memory.capacity_bytes() <= 0) return 0;
  return static_cast<double>(memory.total_bytes()) / static_cast<double>(memory.capacity_bytes());
}

std::string MeasuredWithLine(const MeasuredWith& with) {
  return with == MeasuredWith() ? "" : fmt::format("measured with {}\n", MeasuredWithText(with));
}

std::string BasisLine(const v1::PriceBasis& basis, const v1::MeasuredWith& measured_with) {
  if (!basis.text().empty()) return basis.text() + '\n';
  return MeasuredWithLine(DecodeMeasuredWith(measured_with));
}

std::string PlanAsTable(const v1::ShardPlanResponse& response, const TextStyle& style) {
  const std::string text =
      fmt::format("{}, {}, strategy {}, search {:.1f} ms{}, model {} version {}, {} on {}{}\n",
                  CostText(response.cost()), Counted(response.search().splits(), "column split"),
                  response.search().strategy(), response.search().search_ms(),
                  response.search().time_limit_reached() ? " (cut by its time limit)" : "",
                  response.cost_model().name(), response.cost_model().version(),
                  Counted(response.plan().tables_size(), "table"),
                  Counted(response.plan().world_size(), "rank"),
                  BatchText(response.global_batch_size(), response.plan().world_size()));
  std::string trades;
  for (const v1::GoalTrade& trade : response.trades()) trades += TradeLine(trade);
  const int num_tables = response.plan().tables_size();
  const std::string id =
      response.request_id().empty() ? "" : "request id " + response.request_id() + '\n';
  return ReportOf(response, text + ShardingLine(response.plan()) + trades, num_tables, style) +
         ComparisonText(response) + WarningLines(response.warnings(), style) + id;
}

std::string EvaluationAsTable(const v1::EvaluatePlanResponse& response, int num_tables,
                              const TextStyle& style) {
  std::string text;
  if (response.has_cost()) {
    text = fmt::format("{}, model {} version {}{}\n", CostText(response.cost()),
                       response.cost_model().name(), response.cost_model().version(),
                       BatchText(response.global_batch_size(), response.cost().ranks_size()));
  }
  text = ReportOf(response, std::move(text), num_tables, style) +
         WarningLines(response.warnings(), style);
  if (response.legal()) return text + "legal\n";
  text += fmt::format("illegal: breaks {}\n", Counted(response.violations_size(), "rule"));
  for (const v1::PlanViolation& violation : response.violations()) {
    text += Lines(fmt::format("  {}: {}\n", violation.field(), violation.description()), style);
  }
  return text;
}

}  // namespace neuroshard
