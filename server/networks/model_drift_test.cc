#include "server/networks/model_drift.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/faulty_fields.h"

namespace neuroshard {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::vector<StageDrift> SomeDrift() {
  return {{"backward_comm", 12, 0.1, 0.09, 1.0 / 3, "2026-11-20T10:00:00Z", "2026-11-21"},
          {"compute", 40, 1.25, 0.9, 1.5, "2026-11-20", "2026-11-21"}};
}

TEST(ModelDriftTest, ComesBackFromDiskAndNoFileIsNoDrift) {
  const fs::path directory = fs::path(::testing::TempDir()) / "model_drift";
  fs::remove_all(directory);
  fs::create_directories(directory);
  EXPECT_EQ(*ReadModelDrift(directory), std::vector<StageDrift>());
  ASSERT_TRUE(WriteModelDrift(directory, SomeDrift()).ok());
  const auto drift = ReadModelDrift(directory);
  ASSERT_TRUE(drift.ok()) << drift.status();
  EXPECT_EQ(*drift, SomeDrift());
  std::ofstream(directory / "drift.yaml") << "format: neuroshard-drift/3\nstages: {}\n";
  EXPECT_THAT(Message(ReadModelDrift(directory).status()), HasSubstr("drift.yaml"));
}

TEST(ModelDriftTest, NoPartOfWhatIsWrittenIsRead) {
  const std::string text = *FormatModelDrift(SomeDrift());
  for (std::size_t bytes = 0; bytes < text.size(); ++bytes) {
    EXPECT_FALSE(ParseModelDrift(text.substr(0, bytes)).ok()) << text.substr(0, bytes);
  }
}

// client/python/neuroshard/torchrec/step_drift.py reads and writes it line by line.
TEST(ModelDriftTest, EachFigureHasItsLine) {
  const StageDrift steps{"steps", 12, 1.5, 1e-9, 1.75, "2026-11-20T10:00:00Z", "2026-11-21"};
  EXPECT_EQ(*FormatModelDrift({steps}),
            "format: neuroshard-drift/2\nstages:\n  steps:\n    samples: 12\n"
            "    median_ratio: 1.5\n    p10: 1e-09\n    p90: 1.75\n"
            "    since: 2026-11-20T10:00:00Z\n    until: 2026-11-21\n...\n");
}

TEST(ModelDriftTest, EveryFaultHasItsPath) {
  const auto drift = ParseModelDrift(
      "format: neuroshard-drift/1\n"
      "stages:\n"
      "  compute: {samples: 0, median_ratio: .nan, p10: -1, p90: 1, since: a, until: b, x: 1}\n"
      "  forward_comm: {samples: 3, median_ratio: 1, p10: 1, p90: 1, since: a}\n"
      "  'a b': {}\n");
  const std::vector<std::string> fields = FaultyFields(drift.status());
  EXPECT_THAT(fields, UnorderedElementsAre("stages.compute.samples", "stages.compute.median_ratio",
                                           "stages.compute.p10", "stages.compute.x",
                                           "stages.forward_comm.until", "stages"));
  EXPECT_FALSE(ParseModelDrift("stages: [").ok());
  EXPECT_FALSE(FormatModelDrift({{"Compute!", 1, 1, 1, 1, "a", "b"}}).ok());
}

}  // namespace
}  // namespace neuroshard
