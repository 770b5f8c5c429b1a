// Placements that fit into memory, whatever they cost.
#pragma once

#include <vector>

#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/domain/plan_request.h"
#include "server/search/placement/placement.h"

namespace neuroshard {

enum class Cutting {
  kWholeTables,  // every table on one rank
  kColumns  // tables may be cut at multiples of kColumnAlignment columns, into one piece a rank at
            // most
};

// Returns the cutting for tables that find no place among `pieces`: whole tables where all pieces
// are.
inline Cutting CuttingOf(const PlanRequest& request, const std::vector<Piece>& pieces) {
  return pieces.size() == request.tables.size() || request.has_unpooled_tables()
             ? Cutting::kWholeTables
             : Cutting::kColumns;
}

// Returns the scope of "no plan can exist" for a cutting; other cuts may have a plan.
constexpr const char* PlansOf(Cutting cutting) {
  switch (cutting) {
    case Cutting::kWholeTables:
      return " that keeps tables whole (strategy refine cuts rows and columns)";
    case Cutting::kColumns:
      return " that cuts columns alone (strategy refine cuts rows, too)";
  }
  return "";
}

// Returns a placement. It tries, in this order: bounds that exclude any plan; best-fit decreasing,
// largest tables first and then widest granules first, with kColumns cutting what does not fit;
// with kColumns an exhaustive search of bounded effort; whole tables by FindFeasible.
// Deterministic; tens of milliseconds, about a second where all of it is needed. `stop` cuts the
// last of these.
//
// FAILED_PRECONDITION: OUT_OF_MEMORY, "no plan can exist: ...", where the weights and their
// optimizer state alone exceed the memory of all devices; else NO_PLAN_FOUND, "no plan can exist
// that ..." where that is proven of such cuts (both name the tables or the bytes that lack), or "no
// plan was found: ..." when the effort ran out.
StatusOr<Placement> FindPacking(const PlanRequest& request, Cutting cutting,
                                const StopSignal& stop = NeverStop());

}  // namespace neuroshard
