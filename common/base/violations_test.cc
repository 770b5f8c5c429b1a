#include "common/base/violations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/in_file.h"

namespace neuroshard {
namespace {

TEST(ViolationsTest, NoneIsOk) { EXPECT_TRUE(Violations().ToStatus().ok()); }

TEST(ViolationsTest, StatusListsAllAndCarriesThem) {
  Violations violations;
  violations.Add("tables[3].embedding_dim", "must be at least 1, got -4");
  violations.Add("topology", "has\nno\tdevices");

  const Status status = violations.ToStatus();

  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status),
            "tables[3].embedding_dim: must be at least 1, got -4; topology: has no devices");
  EXPECT_THAT(
      Violations::FromStatus(status),
      testing::ElementsAre(Violation{"tables[3].embedding_dim", "must be at least 1, got -4"},
                           Violation{"topology", "has no devices"}));
}

TEST(ViolationsTest, CountsWhatItDoesNotKeep) {
  Violations violations;
  for (std::size_t i = 0; i < Violations::kMaxKept + 7; ++i) violations.Add("x", "bad");

  EXPECT_EQ(violations.kept().size(), Violations::kMaxKept);
  EXPECT_THAT(Message(violations.ToStatus()), testing::HasSubstr("and 7 more"));
}

TEST(ViolationsTest, OfAFileNameItOnceInTheMessageAndInEachField) {
  Violations violations;
  violations.Add("a", "bad");
  violations.Add("b", "worse");
  const Status status = InFile("x.yaml", violations.ToStatus());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status), "x.yaml: a: bad; b: worse");
  EXPECT_THAT(Violations::FromStatus(status),
              testing::ElementsAre(Violation{"x.yaml: a", "bad"}, Violation{"x.yaml: b", "worse"}));
  EXPECT_EQ(InFile("x.yaml", Internal("broken")), Internal("x.yaml: broken"));
  EXPECT_TRUE(InFile("x.yaml", absl::OkStatus()).ok());
}

TEST(ViolationsTest, OtherStatusesHaveNone) {
  EXPECT_THAT(Violations::FromStatus(Internal("broken")), testing::IsEmpty());
}

}  // namespace
}  // namespace neuroshard
