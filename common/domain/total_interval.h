// Intervals of a sum of stages and of a maximum over ranks, from those of the stages. The README of
// server/evaluate has the reasons.
#pragma once

#include <optional>
#include <span>

#include "common/domain/plan_cost.h"

namespace neuroshard {

// Of compute + backward communication + forward communication, and the distribution of ids where
// that is part of the total. What crosses links errs together (one fabric): the distances to the
// bounds of the two directions and of the ids add up. Compute errs independently of them: distances
// add as squares. None unless the first three are there; ids without an interval, which a formula
// has priced, count as they are.
std::optional<CostInterval> TotalInterval(const RankCost& rank);

// Of the maximum over ranks of total_ms(), from their intervals.total at `coverage` in (0, 1). Low:
// if all ranks err together, the largest low. High: if each errs for itself, the value that all
// ranks stay below with probability (1 + coverage) / 2, taking each to be normal above its cost;
// that is at least the largest high. None where a rank has none.
std::optional<CostInterval> EmbeddingCostInterval(std::span<const RankCost> ranks, double coverage);

}  // namespace neuroshard
