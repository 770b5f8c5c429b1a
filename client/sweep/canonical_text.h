// The identity of a sweep's configuration.
#pragma once

#include <string>

#include "client/sweep/sweep_config.h"

namespace neuroshard {

// Every value that decides which samples there are and how they are measured, defaults included, in
// a fixed order. Two configs with the same canonical text (and the same tables) are the same sweep.
// Keys that came later appear only where they are not at their default: the text of a file that
// does not use them stays what it was, and a store that was begun with it goes on.
std::string CanonicalText(const SweepConfig& config);

}  // namespace neuroshard
