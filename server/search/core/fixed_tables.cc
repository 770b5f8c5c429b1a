#include "server/search/core/fixed_tables.h"

#include <charconv>
#include <cstddef>
#include <string>

#include "common/base/positions.h"
#include "common/domain/held_shards.h"
#include "server/evaluate/check_plan.h"

namespace neuroshard {
namespace {

constexpr std::string_view kTable = "plan.tables[";
// Each takes away the tables that CheckPlan lists; it lists some hundred at a time.
constexpr int kRounds = 50;

double WeightBytes(const Table& table) {
  return static_cast<double>(table.num_embeddings) * static_cast<double>(table.embedding_dim) *
         static_cast<double>(ElementBytes(table.weight_dtype));
}

// Positions in the plan of the tables that break a rule by themselves.
std::vector<std::size_t> FaultyTables(const PlanRequest& request, const Plan& plan) {
  std::vector<std::size_t> faulty;
  for (const Violation& violation : CheckPlan(request, plan)) {
    if (!violation.field.starts_with(kTable)) continue;
    std::size_t position = 0;
    const char* const begin = violation.field.data() + kTable.size();
    std::from_chars(begin, violation.field.data() + violation.field.size(), position);
    faulty.push_back(position);
  }
  SortUnique(faulty);
  return faulty;
}

double MostCopies(const CompiledRules& rules, std::size_t table) {
  const bool copied = rules.of(static_cast<int>(table)).types.contains(ShardingType::kDataParallel);
  return copied ? rules.num_ranks() : 1;
}

bool MustStay(const CompiledRules& rules, std::size_t table) {
  return rules.of(static_cast<int>(table)).kept != nullptr;
}

}  // namespace

std::vector<const TablePlan*> TablesThatCanStay(const PlanRequest& request,
                                                const CompiledRules& rules) {
  std::vector<const TablePlan*> stay = TablesInPlace(request);
  for (std::size_t t = 0; t < stay.size(); ++t) {
    if (stay[t] == nullptr) continue;
    if (!rules.of(static_cast<int>(t)).types.contains(stay[t]->sharding_type) ||
        TierOf(stay[t]->compute_kernel) > rules.slowest_tier()) {
      stay[t] = nullptr;
    }
  }
  for (int round = 0; round < kRounds; ++round) {
    Plan plan;
    plan.world_size = request.topology.num_ranks();
    plan.local_world_size = request.topology.ranks_per_host();
    std::vector<std::size_t> table_of;
    for (std::size_t t = 0; t < stay.size(); ++t) {
      if (stay[t] == nullptr) continue;
      plan.tables.push_back(*stay[t]);
      table_of.push_back(t);
    }
    const std::vector<std::size_t> faulty = FaultyTables(request, plan);
    if (faulty.empty()) break;
    for (const std::size_t position : faulty) stay[table_of[position]] = nullptr;
  }
  return stay;
}

double BytesOf(const PlanRequest& request, const CompiledRules& rules,
               const std::vector<const TablePlan*>& stay, const std::vector<double>& paid) {
  double bytes = 0;
  for (std::size_t t = 0; t < stay.size(); ++t) {
    if (stay[t] != nullptr && !MustStay(rules, t)) {
      bytes += WeightBytes(request.tables[t]) * MostCopies(rules, t) - paid[t];
    }
  }
  return bytes;
}

FixedTables FixAllBut(const PlanRequest& request, const CompiledRules& rules,
                      const std::vector<const TablePlan*>& stay, const std::vector<double>& paid,
                      double bytes) {
  FixedTables fixed{stay};
  const auto lookups_a_byte = [&](std::size_t t) {
    const Table& table = request.tables[t];
    return table.pooling_factor / static_cast<double>(table.num_embeddings);
  };
  for (const std::size_t t : PositionsDescending(stay.size(), lookups_a_byte)) {
    if (stay[t] == nullptr || MustStay(rules, t)) continue;
    const double moved = WeightBytes(request.tables[t]) - paid[t];
    if (moved > bytes) continue;
    bytes -= moved;
    fixed[t] = nullptr;
  }
  return fixed;
}

}  // namespace neuroshard
