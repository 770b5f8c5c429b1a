// Small random changes of an input, for replays without a fuzzer's engine.
#pragma once

#include <string>
#include <vector>

#include "common/base/random.h"

namespace neuroshard::fuzz {

// One of `seeds` with one to eight changes: bytes and bits, digits, cuts, repetitions, words that
// parsers trip over, and pieces of other seeds. A function of its arguments alone.
std::string Mutated(const std::vector<std::string>& seeds, Random& random);

}  // namespace neuroshard::fuzz
