#include "common/codec/wire_check.h"

#include <gmock/gmock.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>

#include "neuroshard/v1/planner.pb.h"
#include "tests/support/faulty_fields.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const WireLimits kLimits = {.counted_type = "neuroshard.v1.Table",
                            .max_counted = 3,
                            .counted_option = "limits.max_tables",
                            .max_values = 50};

template <typename Message>
StatusOr<WireSize> Check(const std::string& bytes, const WireLimits& limits = kLimits) {
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()), 7);
  return CheckOnTheWire(stream, *Message::descriptor(), limits);
}

v1::ShardPlanRequest Request(int tables) {
  v1::ShardPlanRequest request;
  request.set_request_id("r");
  for (int i = 0; i < tables; ++i) request.add_tables()->set_name("t");
  return request;
}

TEST(WireCheckTest, CountsMessagesAndStringsAtAllDepths) {
  const v1::ShardPlanRequest request = Request(3);
  const WireSize size = Check<v1::ShardPlanRequest>(request.SerializeAsString()).value();
  EXPECT_EQ(size.values, 1 + 3 + 3);
  EXPECT_EQ(size.bytes, static_cast<std::int64_t>(request.ByteSizeLong()));
  EXPECT_GT(size.ParsedBytes(), size.bytes);
}

TEST(WireCheckTest, TooManyTablesAreNamedWithTheirPath) {
  EXPECT_THAT(Check<v1::ShardPlanRequest>(Request(4).SerializeAsString()).status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("more than 3"), HasSubstr("limits.max_tables"))));
  v1::EvaluatePlanRequest evaluate;
  *evaluate.mutable_request() = Request(4);
  EXPECT_THAT(FaultyFields(Check<v1::EvaluatePlanRequest>(evaluate.SerializeAsString()).status()),
              ElementsAre("request.tables"));
}

TEST(WireCheckTest, AnythingElseIsCountedTogether) {
  v1::ShardPlanRequest request = Request(1);
  for (int i = 0; i < 50; ++i) request.mutable_tables(0)->set_name("t");
  EXPECT_TRUE(Check<v1::ShardPlanRequest>(request.SerializeAsString()).ok());
  for (int i = 0; i < 50; ++i) request.mutable_constraints()->add_tables()->add_tables("t");
  EXPECT_THAT(
      Check<v1::ShardPlanRequest>(request.SerializeAsString()).status(),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("limits.max_request_values")));
  // Fields that nobody knows are kept, too.
  std::string unknown;
  for (int i = 0; i < 60; ++i) unknown += std::string("\xfa\x7f\x00", 3);
  EXPECT_THAT(Check<v1::ShardPlanRequest>(unknown).status(),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(WireCheckTest, WhatIsNoMessageIsInvalid) {
  const std::string good = Request(2).SerializeAsString();
  for (std::size_t cut = 1; cut < good.size(); ++cut) {
    const std::string bytes = good.substr(0, cut);
    EXPECT_EQ(Check<v1::ShardPlanRequest>(bytes).ok(),
              v1::ShardPlanRequest().ParseFromString(bytes))
        << cut;
  }
  for (const std::string& bytes : {std::string("\x0a\xff\xff\xff\xff\x0f"), std::string(20, '\xff'),
                                   std::string("\x0b\x0b\x0b"), std::string("\x12\x02\x0a\x05")}) {
    ASSERT_FALSE(v1::ShardPlanRequest().ParseFromString(bytes));
    EXPECT_THAT(Check<v1::ShardPlanRequest>(bytes).status(),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

}  // namespace
}  // namespace neuroshard
