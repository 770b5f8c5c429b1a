#include "server/planner/migration_warnings.h"

#include <fmt/format.h>

#include <cstddef>

#include "common/base/printable_text.h"
#include "common/domain/table_names.h"
#include "server/evaluate/migration_report.h"

namespace neuroshard {
namespace {

constexpr std::size_t kMostNames = 3;

}  // namespace

std::vector<std::string> MigrationWarnings(const PlanRequest& request) {
  if (!request.migration.has_value() || request.migration->previous.tables.empty()) return {};
  std::vector<bool> before(request.tables.size());
  for (const int table : TablesOf(request.migration->previous, request.tables)) {
    if (table >= 0) before[static_cast<std::size_t>(table)] = true;
  }
  const TableNames table_names(request.tables);
  const PreviousPlacement previous(request);
  std::size_t named = 0;
  std::size_t others = 0;
  std::string names;
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    if (!before[t]) continue;
    ++named;
    if (previous.Has(static_cast<int>(t)) || ++others > kMostNames) continue;
    names += (names.empty() ? "" : ", ") + Quoted(table_names.ReferenceTo(static_cast<int>(t)));
  }
  if (named == 0) {
    return {"migration.previous has none of the request's tables: all of them count as new"};
  }
  if (others == 0) return {};
  return {
      fmt::format("migration.previous has {} table(s) in another size than the request: {}{}; "
                  "they count as new, which moves nothing",
                  others, names, others > kMostNames ? ", ..." : "")};
}

}  // namespace neuroshard
