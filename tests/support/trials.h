// How many random cases a property is tried on.
#pragma once

#include <absl/base/config.h>

namespace neuroshard::testing {

// `all`; under sanitizers a quarter of them. Those look for faults of memory and of threads, which
// a few cases pass through, and make them ten times as long; whether the property holds is for the
// builds without.
constexpr int Trials(int all) {
#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER)
  return all < 4 ? 1 : all / 4;
#else
  return all;
#endif
}

}  // namespace neuroshard::testing
