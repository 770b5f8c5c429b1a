// Hash of a sweep: equal for the same sweep.
#pragma once

#include <string>
#include <string_view>

#include "client/sweep/sweep_config.h"

namespace neuroshard {

// Every value that decides which samples there are and how they are measured, defaults included, in
// a fixed order. Two configs with the same canonical text (and the same tables) are the same sweep.
// Keys that came later appear only where they are not at their default: the text of a file that
// does not use them stays what it was, and a store that was begun with it goes on.
std::string CanonicalText(const SweepConfig& config);

// SHA-256 in hex of everything the samples are made from and measured with: the canonical config
// and the text of the table CSV (empty for a communication sweep). Comments and the order of keys
// do not count.
std::string SweepHash(const SweepConfig& config, std::string_view tables_csv);

}  // namespace neuroshard
