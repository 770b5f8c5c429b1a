#include "client/cli/what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "client/cli/groups_by_class.h"
#include "client/cli/input_file.h"
#include "client/cli/plan_report.h"
#include "client/cli/what_if_row.h"
#include "common/base/bytes.h"
#include "common/base/in_file.h"
#include "common/base/violations.h"
#include "common/codec/field_check.h"
#include "common/codec/field_limits.h"
#include "common/codec/message_text.h"
#include "common/codec/request_codec.h"
#include "common/codec/text_file.h"
#include "common/codec/topology_codec.h"

namespace neuroshard {
namespace {

// And rows. Where groups by class are tried, searches are up to three times as many, and up to 16
// more a topology.
constexpr int kMaxTopologies = 1000;
constexpr double kMaxPrice = 1e9;
// Decoding takes memory for each.
constexpr std::int64_t kMaxDevices = std::int64_t{1} << 20;
constexpr std::int32_t kMaxSyncInterval = 1'000'000;
constexpr int kMaxTopologiesOfOne = 32;  // each plan is priced on each
constexpr double kNotLegal = std::numeric_limits<double>::infinity();

// The rows that the topology is, which has no fault itself. Those of its groups go to `check`.
std::vector<PlannedRow> RowsOf(const v1::WhatIfTopology& message, const FieldCheck& check) {
  if (!message.has_two_dimensional()) return {{&message}};
  std::vector<PlannedRow> rows;
  for (Groups& groups : AskedGroups(message, check)) rows.push_back({&message, std::move(groups)});
  return rows;
}

// Topology by topology. CheckWhatIf has found no fault.
std::vector<PlannedRow> PreparedRows(const v1::ShardPlanRequest& request,
                                     const v1::WhatIf& what_if) {
  std::vector<PlannedRow> rows;
  Violations none;
  for (const v1::WhatIfTopology& topology : what_if.topologies()) {
    for (PlannedRow& row : RowsOf(topology, FieldCheck("", none))) {
      PrepareRow(request, row);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

// Rows that the topology is; 0 where it has a fault.
std::size_t CheckTopology(const v1::WhatIfTopology& topology, const std::string& path,
                          Violations& violations) {
  const FieldCheck check(path, violations);
  check.IsNonEmptyText("name", topology.name(), kMaxNameBytes);
  Violations inside;
  const std::int64_t devices = CountDevices(topology.topology());
  if (devices > kMaxDevices) {
    inside.Add("topology", "has {} devices, at most {} are possible", devices, kMaxDevices);
  }
  if (devices <= kMaxDevices) DecodeTopology(topology.topology(), inside);
  const std::size_t rows = inside.empty() ? RowsOf(topology, check).size() : 0;
  if (topology.two_dimensional().has_sync_interval_batches()) {
    check.InRange("two_dimensional.sync_interval_batches",
                  std::int64_t{topology.two_dimensional().sync_interval_batches()}, 1,
                  kMaxSyncInterval);
  }
  DecodeCostModelRef(topology.cost_model(), inside);
  for (const Violation& violation : inside.kept())
    check.Fail(violation.field, violation.description);
  if (topology.has_global_batch_size() && topology.has_batch_size_per_device()) {
    check.Fail("batch_size_per_device", "must not be given beside global_batch_size");
  }
  if (topology.has_global_batch_size()) {
    check.InRange("global_batch_size", topology.global_batch_size(), 1, kMaxBatch);
  }
  if (topology.has_batch_size_per_device()) {
    check.InRange("batch_size_per_device", topology.batch_size_per_device(), 1,
                  kMaxBatch / std::clamp<std::int64_t>(devices, 1, kMaxBatch));
  }
  if (topology.has_price_per_device_hour()) {
    check.InRange("price_per_device_hour", topology.price_per_device_hour(), 0.0, kMaxPrice);
  }
  return rows;
}

// Adds what keeps these topologies from having one plan, without a call.
void CheckOnePlan(const v1::WhatIf& what_if, Violations& violations) {
  if (!what_if.one_plan()) return;
  if (what_if.topologies_size() > kMaxTopologiesOfOne) {
    violations.Add("topologies", "must have at most {} entries with one_plan, got {}",
                   kMaxTopologiesOfOne, what_if.topologies_size());
  }
  for (int i = 0; i < what_if.topologies_size(); ++i) {
    const v1::WhatIfTopology& topology = what_if.topologies(i);
    const std::string path = fmt::format("topologies[{}]", i);
    if (topology.has_two_dimensional()) {
      violations.Add(path + ".two_dimensional", "must not be given beside one_plan");
    }
    const std::int64_t devices = CountDevices(topology.topology());
    const std::int64_t first = CountDevices(what_if.topologies(0).topology());
    if (devices != first) {
      violations.Add(path + ".topology",
                     "has {} devices, topologies[0] has {}: one plan is for equally many", devices,
                     first);
    }
  }
}

Status CheckWhatIf(const v1::WhatIf& what_if) {
  Violations violations;
  const FieldCheck check("", violations);
  if (what_if.topologies_size() == 0 || what_if.topologies_size() > kMaxTopologies) {
    check.Fail("topologies", "must have 1 to {} entries, got {}", kMaxTopologies,
               what_if.topologies_size());
    return violations.ToStatus();
  }
  std::map<std::string, int> first_of;
  std::size_t rows = 0;
  for (int i = 0; i < what_if.topologies_size(); ++i) {
    const v1::WhatIfTopology& topology = what_if.topologies(i);
    const std::string path = fmt::format("topologies[{}]", i);
    rows += CheckTopology(topology, path, violations);
    const auto [first, is_new] = first_of.try_emplace(topology.name(), i);
    if (!is_new && !topology.name().empty()) {
      violations.Add(path + ".name", "must differ from topologies[{}].name, {} is both",
                     first->second, Quoted(topology.name()));
    }
  }
  if (rows > kMaxTopologies) {
    check.Fail("topologies", "are {} rows with the sizes of groups, at most {} are possible", rows,
               kMaxTopologies);
  }
  CheckOnePlan(what_if, violations);
  return violations.ToStatus();
}

// As fast and as cheap as `row`, and better in one of the two.
bool Beats(const v1::WhatIfRow& other, const v1::WhatIfRow& row) {
  const double speed = other.samples_per_second() - row.samples_per_second();
  const double saved = row.price_per_million_samples() - other.price_per_million_samples();
  return speed >= 0 && saved >= 0 && (speed > 0 || saved > 0);
}

// Marks the first of the topology's rows that has the most samples a second, and gives it its plan.
// Where groups by class are faster, their row is the answer. `planned`: of one topology.
std::optional<v1::WhatIfRow> MarkFastest(const PlannerClient& planner,
                                         const v1::ShardPlanRequest& request,
                                         std::span<PlannedRow> planned) {
  PlannedRow* fastest = nullptr;
  for (PlannedRow& each : planned) {
    if (!each.groups || !each.failure.ok()) continue;
    const double speed = each.row.samples_per_second();
    if (fastest == nullptr || speed > fastest->row.samples_per_second()) fastest = &each;
  }
  if (fastest == nullptr) return std::nullopt;
  auto by_class = FastestByClass(planner, request, planned, fastest->row);
  if (by_class) return by_class;
  fastest->row.mutable_two_dimensional()->set_fastest(true);
  *fastest->row.mutable_two_dimensional()->mutable_plan() = fastest->answer.plan();
  return std::nullopt;
}

// What a plan costs on a topology, or why it has no price there.
struct Priced {
  double cost_ms = kNotLegal;
  Status status;
};

Priced PriceOn(const PlannerClient& planner, const PlannedRow& on, const v1::Plan& plan) {
  const auto answer = planner.EvaluatePlan(on.request, plan);
  if (!answer.ok()) return {kNotLegal, answer.status()};
  if (!answer->legal() || !answer->has_cost()) return {};
  return {answer->cost().embedding_cost_ms(), {}};
}

// A plan, and the row whose topology it was made for.
struct Candidate {
  int row = 0;
  v1::Plan plan;
};

// How many times the own plan's cost a cost is; 1 where both are 0.
double Ratio(double cost_ms, double own_ms) {
  if (own_ms > 0) return cost_ms / own_ms;
  return cost_ms > 0 ? kNotLegal : 1;
}

// First the topologies' own plans. Then, for each topology with a device that has more memory than
// the smallest device of all, a plan for no more than that: own plans fill what they have, which
// fits nowhere else.
StatusOr<std::vector<Candidate>> Candidates(const PlannerClient& planner,
                                            std::span<const PlannedRow> planned) {
  std::vector<Candidate> candidates;
  std::int64_t least_bytes = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> most_bytes;
  for (const PlannedRow& own : planned) {
    Violations none;  // the planner has planned for it
    const Topology topology = DecodeTopology(own.request.topology(), none);
    const auto [least, most] = std::ranges::minmax(topology.devices, {}, &Device::memory_bytes);
    least_bytes = std::min(least_bytes, least.memory_bytes);
    most_bytes.push_back(most.memory_bytes);
    candidates.push_back({static_cast<int>(candidates.size()), own.answer.plan()});
  }
  std::vector<int> larger;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    if (most_bytes[i] > least_bytes) larger.push_back(static_cast<int>(i));
  }
  std::vector<StatusOr<v1::ShardPlanResponse>> answers(larger.size());
  RunSideBySide(larger.size(), [&](std::size_t i) {
    v1::ShardPlanRequest request = planned[static_cast<std::size_t>(larger[i])].request;
    for (v1::HostGroup& hosts : *request.mutable_topology()->mutable_hosts()) {
      hosts.clear_device_memory_bytes();
      hosts.set_memory_bytes(least_bytes);
    }
    answers[i] = planner.ShardPlan(request);
  });
  for (std::size_t i = 0; i < larger.size(); ++i) {
    if (absl::IsUnavailable(answers[i].status())) return answers[i].status();
    if (answers[i].ok()) candidates.push_back({larger[i], answers[i]->plan()});
  }
  return candidates;
}

// One plan for several topologies, for jobs that run on whichever is free.
//
// Prices on all topologies each one's own plan and, where devices have more memory than those of
// another, a plan for the least memory of all: up to n plans and 2 n^2 prices of n topologies. Sets
// answer.one_plan to the plan whose worst ratio to the own plans is least, and what it costs in
// each row. planned[i] is of answer.rows[i]. UNAVAILABLE is an error; what else goes wrong with own
// plans is said in the answer. Where there is none for the least memory, own plans are the choice.
Status AddOnePlan(const PlannerClient& planner, std::span<const PlannedRow> planned,
                  v1::WhatIfAnswer& answer) {
  v1::OnePlan& one = *answer.mutable_one_plan();
  auto& rows = *answer.mutable_rows();
  const auto failed =
      std::ranges::find_if(rows, [](const v1::WhatIfRow& row) { return !row.failure().empty(); });
  if (failed != rows.end()) {
    one.set_failure(fmt::format("{} has no plan", failed->name()));
    return absl::OkStatus();
  }
  NS_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates, Candidates(planner, planned));
  const std::size_t count = planned.size();
  std::vector<Priced> priced(candidates.size() * count);  // [candidate][topology]
  RunSideBySide(priced.size(), [&](std::size_t i) {
    const std::size_t a = i / count, b = i % count;
    priced[i] = a == b ? Priced{rows[static_cast<int>(a)].embedding_cost_ms(), {}}
                       : PriceOn(planner, planned[b], candidates[a].plan);
  });
  double least = kNotLegal;
  std::size_t best = 0;
  Status unpriced;
  for (std::size_t a = 0; a < candidates.size(); ++a) {
    double worst = 0;
    for (std::size_t b = 0; b < count; ++b) {
      const Priced& here = priced[a * count + b];
      if (absl::IsUnavailable(here.status)) return here.status;
      unpriced.Update(here.status);
      worst = std::max(worst, Ratio(here.cost_ms, priced[b * count + b].cost_ms));
    }
    if (worst >= least) continue;
    least = worst;
    best = a;
  }
  if (least == kNotLegal) {
    one.set_failure("no plan that was made for one of the topologies is legal for all others");
    if (!unpriced.ok()) one.mutable_failure()->append("; " + Message(unpriced));
    return absl::OkStatus();
  }
  one.set_made_for(rows[candidates[best].row].name());
  one.set_worst_ratio(least);
  *one.mutable_plan() = candidates[best].plan;
  for (std::size_t b = 0; b < count; ++b) {
    rows[static_cast<int>(b)].set_one_plan_cost_ms(priced[best * count + b].cost_ms);
  }
  return absl::OkStatus();
}

std::string SamplesText(double samples_per_second) {
  if (samples_per_second >= 1e6) return fmt::format("{:.2f} M", samples_per_second / 1e6);
  if (samples_per_second >= 1e3) return fmt::format("{:.1f} k", samples_per_second / 1e3);
  return fmt::format("{:.1f}", samples_per_second);
}

std::string GapText(const v1::WhatIfRow& row) {
  if (!row.lower_bound().has_gap_percent()) return "-";
  return fmt::format("{}{:.1f}%", row.lower_bound().kind() == "certified" ? "" : "~",
                     row.lower_bound().gap_percent());
}

std::string MemoryText(const v1::MemoryUse& memory, Detail detail) {
  if (memory.capacity_bytes() == 0) return "-";
  return detail == Detail::kShort ? fmt::format("{:.0f}%", 100 * UsedShare(memory))
                                  : fmt::format("{} of {}", FormatBytes(memory.total_bytes()),
                                                FormatBytes(memory.capacity_bytes()));
}

}  // namespace

StatusOr<v1::WhatIf> ReadWhatIfFile(const std::string& path) {
  NS_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  v1::WhatIf what_if;
  const Status read = ReadMessageText(text, TextFormatOf(path, text), &what_if);
  if (const Status other = OtherDocument(text, DocumentKind::kWhatIf); !read.ok() && !other.ok()) {
    return InFile(path, other);
  }
  const Status values = CheckWhatIf(what_if);
  NS_RETURN_IF_ERROR(InFile(path, read.ok() ? values : FaultsOfTextAndValues(read, values)));
  return what_if;
}

StatusOr<v1::WhatIfAnswer> AskWhatIf(const PlannerClient& planner,
                                     const v1::ShardPlanRequest& request,
                                     const v1::WhatIf& what_if) {
  std::vector<PlannedRow> planned = PreparedRows(request, what_if);
  RunSideBySide(planned.size(), [&](std::size_t i) { PlanRow(planner, planned[i]); });
  for (const PlannedRow& each : planned) {
    if (absl::IsUnavailable(each.failure)) return each.failure;
  }
  const Status& first = planned.front().failure;
  const bool alike = std::ranges::all_of(planned, [&](const PlannedRow& each) {
    return !each.failure.ok() && Message(each.failure) == Message(first);
  });
  if (alike) return first;
  v1::WhatIfAnswer answer;
  for (auto begin = planned.begin(); begin != planned.end();) {
    const auto end = std::find_if(begin, planned.end(), [&](const PlannedRow& each) {
      return each.topology != begin->topology;
    });
    auto by_class = MarkFastest(planner, request, {begin, end});
    for (; begin != end; ++begin) *answer.add_rows() = std::move(begin->row);
    if (by_class) *answer.add_rows() = *std::move(by_class);
  }
  MarkPareto(answer);
  if (what_if.one_plan()) NS_RETURN_IF_ERROR(AddOnePlan(planner, planned, answer));
  return answer;
}

void MarkPareto(v1::WhatIfAnswer& answer) {
  for (v1::WhatIfRow& row : *answer.mutable_rows()) {
    if (!row.has_price_per_million_samples()) continue;
    row.set_pareto(std::ranges::none_of(answer.rows(), [&](const v1::WhatIfRow& other) {
      return other.has_price_per_million_samples() && Beats(other, row);
    }));
  }
}

std::string WhatIfAsTable(const v1::WhatIfAnswer& answer, const TextStyle& style) {
  using Row = v1::WhatIfRow;
  const auto& rows = answer.rows();
  const bool prices = std::ranges::any_of(rows, &Row::has_price_per_million_samples);
  const bool groups = std::ranges::any_of(rows, &Row::has_two_dimensional);
  const auto is_planned = [](const Row& row) { return row.failure().empty(); };
  // Other rows have one group, which averages nothing.
  const auto is_synced = [is_planned](const Row& row) {
    const v1::TwoDimensionalRow& of = row.two_dimensional();
    return is_planned(row) && (of.replicas() > 1 || of.submodule_configs_size() > 0);
  };
  TableOf<Row> table;
  table.Left("topology", &Row::name)
      .Right("devices", &Row::devices)
      .Right("batch", &Row::global_batch_size, style.wide())
      .Where(is_planned)
      .Right("cost_ms", &Row::embedding_cost_ms)
      .Right("one_plan", IfGiven(&Row::has_one_plan_cost_ms, &Row::one_plan_cost_ms),
             answer.has_one_plan())
      .Where(is_synced)
      .Right(
          "sync", [](const Row& row) { return FormatBytes(row.two_dimensional().sync_bytes()); },
          groups && style.wide())
      .Right("sync_ms", SyncMsABatch, groups)
      .Where(is_planned)
      .Right("samples/s", [](const Row& row) { return SamplesText(row.samples_per_second()); })
      .Right("max_memory",
             [&](const Row& row) { return MemoryText(row.fullest_memory(), style.detail); })
      .Right("over_bound", GapText)
      .Where(nullptr)
      .Left("basis",
            [](const Row& row) {
              return row.failure().empty() ? row.price_basis().kind() : "no plan";
            })
      .Where(&Row::has_price_per_million_samples)
      .Right(
          "price/M_samples",
          [](const Row& row) { return fmt::format("{:.4g}", row.price_per_million_samples()); },
          prices)
      .Where(nullptr)
      .Left(
          "", [](const Row& row) { return row.pareto() ? "*" : ""; }, prices)
      .Marked([](const Row& row) {
        return row.pareto() ? TextTable::Mark::kBold : TextTable::Mark::kNone;
      });
  TableNotes notes;
  for (const Row& row : rows) notes.Add(row.name(), row.failure());
  for (const Row& row : rows) {
    if (row.two_dimensional().fastest()) notes.Add(row.name(), "fastest groups of this topology");
  }
  for (const Row& row : rows) notes.Add(row.name(), row.price_basis().text());
  for (const Row& row : rows) {
    for (const std::string& warning : row.warnings()) notes.Add(row.name(), "warning: " + warning);
  }
  std::string text =
      "max_memory is that of the fullest rank; over_bound is how far the plan is above the least "
      "that any plan can cost (~: above an even spread, which a plan may be below); basis is what "
      "prices rest on: what one model priced does not compare with what another did, --model "
      "analytic prices all alike\n";
  if (prices) {
    text +=
        "price/M_samples is what a million samples cost, in the currency of price_per_device_hour; "
        "*: every topology here that is faster costs more a sample, and every one that costs less "
        "is slower\n";
  }
  if (groups) {
    text +=
        "sync_ms is what averaging weights and optimizer state over groups adds to each batch: "
        "rings at the links' published or stated rates, not measured\n";
  }
  if (const v1::OnePlan& one = answer.one_plan(); !one.failure().empty()) {
    text += fmt::format("there is no one plan for all: {}\n", one.failure());
  } else if (answer.has_one_plan()) {
    text += fmt::format(
        "one_plan is what the plan made for {} costs, which is at most {:.3f} times what each "
        "topology's own costs: the one to take where any of them may run the job (--format json "
        "has it)\n",
        one.made_for(), one.worst_ratio());
  }
  text += "samples/s are those of the embeddings alone, without dense layers\n";
  return table.ToString(rows, style) + Lines(text, style) + notes.ToString(style);
}

}  // namespace neuroshard
