// The check that a trained model is good enough to plan with.
#pragma once

#include <string>

#include "server/pretrain/report/training_outcome.h"

namespace neuroshard {

// Why the model is of no use: its compute orders held-out samples worse than `min_compute_tau`
// (Kendall tau) by more than its standard error, at most sqrt(2 (1 - tau^2) / n) of n samples
// (Kendall, Rank Correlation Methods), or says the same of all of them. Empty: it is of use. Fewer
// than 10 held-out samples say nothing. Communication is only reported: its noise may forbid any
// order.
std::string UnusableReason(const TrainingOutcome& outcome, double min_compute_tau);

}  // namespace neuroshard
