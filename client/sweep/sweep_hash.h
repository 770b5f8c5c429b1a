// Hash of a sweep: equal for the same sweep.
#pragma once

#include <string>
#include <string_view>

#include "client/sweep/sweep_config.h"

namespace neuroshard {

// SHA-256 in hex of everything the samples are made from and measured with: the canonical config
// and the text of the table CSV (empty for a communication sweep). Comments and the order of keys
// do not count.
std::string SweepHash(const SweepConfig& config, std::string_view tables_csv);

}  // namespace neuroshard
