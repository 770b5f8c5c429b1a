#include "server/search/refine/solution/migration_terms.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "common/domain/tables_in_place.h"

namespace neuroshard {

MigrationTerms::MigrationTerms(const PlanRequest& request, const CompiledRules& rules,
                               std::span<const Unit> in_place)
    : request_(request),
      rules_(rules),
      budget_bytes_(
          request.migration->budget_bytes.value_or(std::numeric_limits<std::int64_t>::max())),
      held_(request.tables.size()) {
  for (const TablePlan* const table : TablesInPlace(request)) {
    is_in_place_.push_back(table != nullptr);
  }
  for (const Unit& unit : in_place) {
    std::vector<Held>& of_table = held_[static_cast<std::size_t>(unit.table)];
    const std::int64_t offset =
        of_table.empty() ? 0 : of_table.back().col_offset + of_table.back().unit.cols;
    of_table.push_back({unit, offset});
  }
}

double MigrationTerms::PriceMs(std::int64_t moved_bytes) const {
  return request_.migration->price_ms_per_gib * static_cast<double>(moved_bytes) / (1 << 30);
}

const MigrationTerms::Held* MigrationTerms::HeldBy(const Unit& unit) const {
  for (const Held& held : held_[static_cast<std::size_t>(unit.table)]) {
    if (held.unit.spread() == unit.spread() && held.unit.place == unit.place) return &held;
  }
  return nullptr;
}

std::int64_t MigrationTerms::MovedBytes(const Unit& unit) const {
  if (!is_in_place_[static_cast<std::size_t>(unit.table)]) return 0;
  const Table& table = request_.tables[static_cast<std::size_t>(unit.table)];
  const auto tier = [&](const Unit& of) { return rules_.residency(of.residency).tier(); };
  std::int64_t cols = unit.cols;
  if (const Held* const held = HeldBy(unit); held != nullptr && tier(held->unit) == tier(unit)) {
    if (unit.spread() == Spread::kRank) {
      cols -= std::min(cols, held->unit.cols);
    } else if (held->unit.type == unit.type && held->unit.cols == unit.cols) {
      cols = 0;
    }
  }
  const std::int64_t copies = unit.spread() == Spread::kCopies ? rules_.num_ranks() : 1;
  return copies * table.num_embeddings * cols * ElementBytes(table.weight_dtype);
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
      const std::int64_t wider = std::max<std::int64_t>(0, unit->cols - held->unit.cols);
      staying.emplace_back(std::max<std::int64_t>(0, held->col_offset - wider), unit);
    }
  }
  std::stable_sort(staying.begin(), staying.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
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
