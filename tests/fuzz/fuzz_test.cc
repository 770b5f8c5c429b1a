// Every fuzz target over its seeds, over what fuzzers found before, and over inputs that are a
// little wrong.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <ostream>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/mutation.h"

namespace neuroshard::fuzz {

// For GoogleTest: the names of tests.
void PrintTo(const FuzzTarget& target, std::ostream* out) { *out << target.name; }

namespace {

class FuzzTest : public ::testing::TestWithParam<FuzzTarget> {};

TEST_P(FuzzTest, TakesItsSeeds) {
  for (const std::string& seed : GetParam().seeds()) GetParam().run(seed);
}

TEST_P(FuzzTest, TakesWhatWasFound) {
  const std::string folder = "tests/fuzz/findings/" + std::string(GetParam().name);
  if (!std::filesystem::exists(std::filesystem::path(NEUROSHARD_SOURCE_DIR) / folder)) return;
  for (const std::string& finding : SeedsFrom(folder, "")) GetParam().run(finding);
}

TEST_P(FuzzTest, TakesWhatIsALittleWrong) {
  const char* const stated = std::getenv("NEUROSHARD_FUZZ_INPUTS");
  const int inputs = stated == nullptr ? 500 : std::atoi(stated);
  const std::vector<std::string> seeds = GetParam().seeds();
  Random random(1);
  for (int i = 0; i < inputs; ++i) GetParam().run(Mutated(seeds, random));
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzTest, ::testing::ValuesIn(AllFuzzTargets()),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace neuroshard::fuzz
