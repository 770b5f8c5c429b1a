// How many random cases a property is tried on.
#pragma once

#include <absl/base/config.h>

namespace neuroshard::testing {

#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER)
inline constexpr bool kUnderSanitizers = true;
#else
inline constexpr bool kUnderSanitizers = false;
#endif

// `all`; under sanitizers an eighth of them. Those look for faults of memory and of threads, which
// a few cases pass through, and make them ten times as long; whether the property holds is for the
// builds without.
constexpr int Trials(int all) {
  if (!kUnderSanitizers) return all;
  return all < 8 ? 1 : all / 8;
}

// The fewest cases of a kind that have to come up among all trials, so that the property was tried
// on them. Under sanitizers a quarter of an eighth's share: that may miss what is rare.
constexpr int FewestCases(int all) { return kUnderSanitizers ? all / 32 : all; }

}  // namespace neuroshard::testing
