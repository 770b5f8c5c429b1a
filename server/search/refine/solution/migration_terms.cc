#include "server/search/refine/solution/migration_terms.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/domain/held_shards.h"
#include "server/evaluate/lay_out.h"

namespace neuroshard {

MigrationTerms::MigrationTerms(const PlanRequest& request, const CompiledRules& rules)
    : request_(request),
      rules_(rules),
      budget_bytes_(request.migration->budget_bytes
                        ? static_cast<double>(*request.migration->budget_bytes)
                        : std::numeric_limits<double>::infinity()),
      previous_(request),
      held_(request.tables.size()) {
  const std::vector<const TablePlan*> in_place = TablesInPlace(request);
  for (std::size_t t = 0; t < in_place.size(); ++t) {
    if (!previous_.Has(static_cast<int>(t))) continue;
    std::vector<Held>& held = held_[t];
    for (const Shard& shard : in_place[t]->shards) {
      const Table& table = request.tables[t];
      if (!IsInside(shard, table.num_embeddings, table.embedding_dim)) continue;
      held.push_back({shard.rank, shard.rows, shard.cols, shard.col_offset});
    }
    std::ranges::stable_sort(held, {}, &Held::rank);
    std::size_t count = 0;
    for (const Held& of : held) {
      if (count > 0 && held[count - 1].rank == of.rank) {
        held[count - 1].cols += of.cols;
      } else {
        held[count++] = of;
      }
    }
    held.resize(count);
  }
}

double MigrationTerms::PriceMs(double moved_bytes) const {
  return request_.migration->price_ms_per_gib * moved_bytes / (1 << 30);
}

const MigrationTerms::Held* MigrationTerms::HeldBy(const Unit& unit) const {
  int rank = unit.place;
  if (unit.spread() == Spread::kOneHost) {
    rank = rules_.hosts()[static_cast<std::size_t>(unit.place)].first;
  } else if (unit.spread() != Spread::kRank) {
    return nullptr;
  }
  const std::vector<Held>& held = held_[static_cast<std::size_t>(unit.table)];
  const auto found = std::lower_bound(held.begin(), held.end(), rank,
                                      [](const Held& of, int at) { return of.rank < at; });
  return found != held.end() && found->rank == rank ? &*found : nullptr;
}

ComputeKernel MigrationTerms::KernelOf(const Unit& unit) const {
  return LayoutIn(rules_.residency(unit.residency), unit.type, 1).kernel;
}

double MigrationTerms::MovedBytes(const Unit& unit, std::span<const int> places) const {
  if (!previous_.Has(unit.table)) return 0;
  const bool changes_memory = ChangesMemory(previous_.kernel(unit.table), KernelOf(unit));
  if (unit.spread() == Spread::kRank) {
    const Table& table = request_.tables[static_cast<std::size_t>(unit.table)];
    const Held* const held = changes_memory ? nullptr : HeldBy(unit);
    double cells = static_cast<double>(table.num_embeddings) * static_cast<double>(unit.cols);
    if (held != nullptr) {
      cells -=
          static_cast<double>(held->rows) * static_cast<double>(std::min(unit.cols, held->cols));
    }
    return cells * ElementBytes(table.weight_dtype);
  }
  const auto [entry, added] =
      moved_by_many_.try_emplace({unit.table, unit.type, unit.cols, changes_memory,
                                  std::vector<int>(places.begin(), places.end())},
                                 0.0);
  if (added) entry->second = MovedByMany(unit, places);
  return entry->second;
}

double MigrationTerms::MovedByMany(const Unit& unit, std::span<const int> places) const {
  const Table& table = request_.tables[static_cast<std::size_t>(unit.table)];
  const Held* const held = HeldBy(unit);
  const std::int64_t offset = held == nullptr ? 0 : held->col_offset;
  const Block columns = {std::min(offset, table.embedding_dim - unit.cols), unit.cols};
  double bytes = 0;
  for (const Shard& shard : LayOut(table, unit.type, {&columns, 1}, places, rules_.hosts(),
                                   rules_.row_cut(unit.table))) {
    bytes += static_cast<double>(previous_.MovedBytes(unit.table, KernelOf(unit), shard));
  }
  return bytes;
}

std::vector<const Unit*> MigrationTerms::Ordered(std::span<const Unit* const> units) const {
  std::vector<const Unit*> others;
  std::vector<std::pair<std::int64_t, const Unit*>> staying;  // with their first columns
  const Unit* ragged = nullptr;
  for (const Unit* const unit : units) {
    const Held* const held = HeldBy(*unit);
    if (unit->cols % kColumnAlignment != 0) {
      ragged = unit;
    } else if (held == nullptr) {
      others.push_back(unit);
    } else {
      // A wider one is to have all of what is there, and what comes before.
      const std::int64_t wider = std::max<std::int64_t>(0, unit->cols - held->cols);
      staying.emplace_back(std::max<std::int64_t>(0, held->col_offset - wider), unit);
    }
  }
  std::ranges::stable_sort(staying, {}, &decltype(staying)::value_type::first);
  std::vector<const Unit*> ordered;
  std::int64_t offset = 0;
  auto other = others.begin();
  for (const auto& [first, unit] : staying) {
    while (offset < first && other != others.end()) {
      offset += (*other)->cols;
      ordered.push_back(*other++);
    }
    offset += unit->cols;
    ordered.push_back(unit);
  }
  ordered.insert(ordered.end(), other, others.end());
  if (ragged != nullptr) ordered.push_back(ragged);
  return ordered;
}

}  // namespace neuroshard
