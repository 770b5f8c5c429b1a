#include "client/cli/plan_report_text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <utility>
#include <vector>

#include "client/cli/text_table.h"
#include "common/base/bytes.h"
#include "common/codec/plan_codec.h"
#include "common/devices/device_table.h"
#include "common/domain/backend_names.h"
#include "common/domain/plan_report.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {
namespace {

// By reason, the types that are not possible for it.
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

// By kernel, with names where they are few; empty where there are none.
std::string CountsOf(std::initializer_list<ComputeKernel> kernels, const v1::Plan& plan) {
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> parts;
  for (const ComputeKernel kernel : kernels) {
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

}  // namespace

std::string BatchText(std::int64_t global_batch_size, int num_ranks) {
  if (global_batch_size == 0) return "";
  return fmt::format(", batch {} ({:.10g} a rank)", global_batch_size,
                     static_cast<double>(global_batch_size) / std::max(num_ranks, 1));
}

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
  const std::string in_host_memory = CountsOf(
      {ComputeKernel::kFusedUvmCaching, ComputeKernel::kFusedUvm, ComputeKernel::kOffload}, plan);
  if (!in_host_memory.empty()) line += "; in host memory: " + in_host_memory;
  const std::string on_ssd = CountsOf({ComputeKernel::kKeyValue}, plan);
  if (!on_ssd.empty()) line += "; on SSD: " + on_ssd;
  return line + '\n';
}

std::string HostMemoryLines(const v1::PlanCost& cost) {
  std::string lines;
  for (const v1::HostMemoryUse& host : cost.host_memory()) {
    lines += fmt::format("host {}: {} of {} host memory\n", host.host(),
                         FormatBytes(host.total_bytes()), FormatBytes(host.capacity_bytes()));
  }
  for (const v1::HostMemoryUse& host : cost.ssd()) {
    lines += fmt::format("host {}: {} of {} SSD\n", host.host(), FormatBytes(host.total_bytes()),
                         FormatBytes(host.capacity_bytes()));
  }
  return lines;
}

std::string MeasuredWithLine(const MeasuredWith& with) {
  return with == MeasuredWith() ? "" : fmt::format("measured with {}\n", MeasuredWithText(with));
}

std::string BasisLine(const v1::PriceBasis& basis, const v1::MeasuredWith& measured_with) {
  if (!basis.text().empty()) return basis.text() + '\n';
  return MeasuredWithLine(DecodeMeasuredWith(measured_with));
}

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

std::string AnalyticLine(double cost_ms, const v1::MeasuredWith& measured_with) {
  if (ComputeDeviceOf(DecodeMeasuredWith(measured_with)) == ComputeDevice::kCpu) return "";
  return fmt::format("TorchRec's formulas (analytic) {:.3f} ms\n", cost_ms);
}

std::string MigrationLine(const v1::MigrationReport& report) {
  constexpr std::size_t kNamed = 5;
  if (report.moved_bytes() == 0) return "migration: nothing moves\n";
  std::vector<const v1::MovedTable*> tables;
  for (const v1::MovedTable& table : report.tables()) tables.push_back(&table);
  std::stable_sort(
      tables.begin(), tables.end(),
      [](const v1::MovedTable* a, const v1::MovedTable* b) { return a->bytes() > b->bytes(); });
  std::string line =
      fmt::format("migration: {} in {} table{} move", FormatBytes(report.moved_bytes()),
                  tables.size(), tables.size() == 1 ? "" : "s");
  for (std::size_t i = 0; i < std::min(kNamed, tables.size()); ++i) {
    line += fmt::format("{}{} {}", i == 0 ? ": " : ", ", tables[i]->table(),
                        FormatBytes(tables[i]->bytes()));
  }
  return line + (tables.size() > kNamed ? ", ...\n" : "\n");
}

std::string ExplanationTable(
    const google::protobuf::RepeatedPtrField<v1::TableExplanation>& explanations, int num_tables,
    double plan_cost_ms, const TextStyle& style) {
  constexpr auto kLeft = TextTable::Align::kLeft;
  TextTable table({{"table", kLeft},
                   {"type", kLeft},
                   {"alternative", kLeft},
                   {"shards"},
                   {"plan_ms"},
                   {"change"}});
  const ImpossibleTypes common = ImpossibleForAll(explanations);
  std::string impossible;
  for (const v1::TableExplanation& explanation : explanations) {
    std::string name = explanation.table();
    std::string type = explanation.sharding_type();
    const auto add_row = [&](std::string alternative, std::string shards, std::string cost,
                             std::string change) {
      table.AddRow({name, type, std::move(alternative), std::move(shards), std::move(cost),
                    std::move(change)});
      name.clear();  // once a table
      type.clear();
    };
    for (const v1::TableAlternative& other : explanation.alternatives()) {
      if (!other.has_embedding_cost_ms()) continue;
      const double change =
          plan_cost_ms > 0 ? 100 * (other.embedding_cost_ms() / plan_cost_ms - 1) : 0;
      add_row(other.sharding_type(), fmt::format("{}", other.num_shards()),
              fmt::format("{:.3f}", other.embedding_cost_ms()), fmt::format("{:+.1f}%", change));
    }
    for (const auto& [reason, types] : ImpossibleFor(explanation)) {
      const auto left = common.find(reason);
      if (left == common.end() || left->second != types) {
        impossible += fmt::format("not for {}: {} ({})\n", explanation.table(),
                                  fmt::join(types, ", "), reason);
      }
    }
    if (!name.empty()) add_row("-", "", "", "");
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
  return table.ToString(style) + Lines(impossible, style);
}

}  // namespace neuroshard
