// Secrets of this process.
#pragma once

#include <string>
#include <string_view>

#include "common/base/status.h"

namespace neuroshard {

// 128 bits of the system's random numbers (getrandom), as 32 lower-case hexadecimal digits: nobody
// guesses one. INTERNAL when the system has none to give.
StatusOr<std::string> RandomToken();

// Whether the two are equal. The time it takes depends on their lengths alone, not on where they
// differ.
bool SameSecret(std::string_view a, std::string_view b);

}  // namespace neuroshard
