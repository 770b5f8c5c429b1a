// Feasibility before optimisation: a placement that fits into memory, whatever it costs.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/domain/plan_request.h"
#include "server/search/placement/placement.h"

namespace neuroshard {

enum class Cutting {
  kWholeTables,  // every table on one rank
  kColumns,  // tables may be cut at multiples of kColumnAlignment columns, into one piece a rank at
             // most
  kColumnsNotRows  // the same, of a strategy that cuts no rows where the request allows it
};

// For what finds no place for `pieces`: tables stay whole where all of them are.
inline Cutting CuttingOf(const PlanRequest& request, const std::vector<Piece>& pieces) {
  return pieces.size() == request.tables.size() || request.has_unpooled_tables()
             ? Cutting::kWholeTables
             : Cutting::kColumns;
}

// What a plan of the others might have, for "no plan can exist"; empty of kColumns.
constexpr const char* WithoutCuts(Cutting cutting) {
  switch (cutting) {
    case Cutting::kWholeTables:
      return " without cutting columns (strategy neuroshard does)";
    case Cutting::kColumnsNotRows:
      return " without cutting rows (strategy refine does)";
    case Cutting::kColumns:
      break;
  }
  return "";
}

// Tries, in this order: bounds that exclude any plan; best-fit decreasing of whole tables, making
// room by moves and swaps; with kColumns, cutting what does not fit, largest tables first and then
// widest granules first; an exhaustive search of bounded effort; whole tables again, by
// FindFeasible. Deterministic; tens of milliseconds, about a second where all of it is needed.
// `stop` cuts the last of these.
//
// FAILED_PRECONDITION "no plan can exist: ..." when that is proven (names the tables or the bytes
// that lack; "no plan can exist without ..." when other cuts might help), "no plan was found: ..."
// when the effort ran out.
StatusOr<Placement> FindPacking(const PlanRequest& request, Cutting cutting,
                                const StopSignal& stop = NeverStop());

}  // namespace neuroshard
