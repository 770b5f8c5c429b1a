// Pinning of threads to cores.
#pragma once

#include <vector>

#include "common/base/status.h"

namespace neuroshard {

// The cores that this process may use, ascending.
std::vector<int> UsableCpus();

// Keeps the calling thread on one core. INVALID_ARGUMENT when the process may not use it.
Status PinThisThread(int cpu);

}  // namespace neuroshard
