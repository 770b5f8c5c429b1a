// For tests: runs the kernels with one instruction set.
#pragma once

#include <cstdint>

#include "hwy/targets.h"

namespace neuroshard {

// While it lives, the kernels use `target`, one of SupportedInstructionSets(); afterwards the best
// one again.
class ChosenInstructionSet {
 public:
  explicit ChosenInstructionSet(std::int64_t target) { Choose(target); }
  ~ChosenInstructionSet() { Choose(0); }
  ChosenInstructionSet(const ChosenInstructionSet&) = delete;
  ChosenInstructionSet& operator=(const ChosenInstructionSet&) = delete;

 private:
  static void Choose(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

}  // namespace neuroshard
