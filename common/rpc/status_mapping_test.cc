#include "common/rpc/status_mapping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/failure_reason.h"
#include "common/base/violations.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::IsOk;
using ::neuroshard::testing::StatusIs;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(StatusMappingTest, KeepsCodeAndMessageBothWays) {
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
  EXPECT_THAT(FromGrpc(grpc::Status::OK), IsOk());
  for (int code = 1; code <= 16; ++code) {
    const Status status(static_cast<absl::StatusCode>(code), "why not");
    EXPECT_EQ(ToGrpc(status).error_code(), code);
    EXPECT_EQ(FromGrpc(ToGrpc(status)), status);
  }
}

TEST(StatusMappingTest, ViolationsSurviveTheTrip) {
  Violations violations;
  violations.Add("tables[3].embedding_dim", "must be at least 1, got -4");
  violations.Add("topology.hosts", "must not be empty");
  const Status back = FromGrpc(ToGrpc(violations.ToStatus()));
  EXPECT_THAT(back, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("got -4; topology")));
  EXPECT_EQ(Violations::FromStatus(back), violations.kept());
}

TEST(StatusMappingTest, ReasonsTravelAsErrorInfoBesideTheViolations) {
  const Status status = WithReason(FailedPrecondition("too large"), FailureReason::kOutOfMemory);
  const grpc::Status mapped = ToGrpc(status);
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(mapped.error_details()));
  google::rpc::ErrorInfo info;
  ASSERT_EQ(details.details_size(), 1);
  ASSERT_TRUE(details.details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "OUT_OF_MEMORY");
  EXPECT_EQ(info.domain(), "neuroshard");
  EXPECT_EQ(FromGrpc(mapped), status);

  Violations violations;
  violations.Add("tables", "must not be empty");
  const Status both = WithReason(violations.ToStatus(), FailureReason::kConstraintsConflict);
  EXPECT_EQ(ReasonOf(FromGrpc(ToGrpc(both))), FailureReason::kConstraintsConflict);
  EXPECT_EQ(Violations::FromStatus(FromGrpc(ToGrpc(both))), violations.kept());
  EXPECT_EQ(ReasonOf(FromGrpc(ToGrpc(violations.ToStatus()))), FailureReason::kBadInput);
  EXPECT_EQ(ReasonOf(FromGrpc(ToGrpc(Internal("broken")))), std::nullopt);
}

TEST(StatusMappingTest, ReasonsOfOtherServersAreNotOurs) {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  info.set_reason("OUT_OF_MEMORY");
  info.set_domain("example.org");
  details.add_details()->PackFrom(info);
  info.set_reason("A_REASON_OF_TOMORROW");
  info.set_domain("neuroshard");
  details.add_details()->PackFrom(info);
  const Status status = FromGrpc(
      grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "no", details.SerializeAsString()));
  EXPECT_EQ(ReasonOf(status), std::nullopt);
}

TEST(StatusMappingTest, LongErrorsAreCutToWhatAClientAccepts) {
  Violations violations;
  for (int i = 0; i < 500; ++i) {
    violations.Add("tables[" + std::to_string(i) + "]." + std::string(900, 'f'),
                   std::string(3000, 'd'));
  }
  const grpc::Status mapped = ToGrpc(violations.ToStatus());
  EXPECT_LT(mapped.error_message().size() + mapped.error_details().size() * 4 / 3, 8000u);
  EXPECT_THAT(mapped.error_message(), EndsWith("..."));
  const auto back = Violations::FromStatus(FromGrpc(mapped));
  ASSERT_GT(back.size(), 2u);
  EXPECT_EQ(back.back().field, "...");
  EXPECT_EQ(back.back().description,
            "and at least " + std::to_string(Violations::kMaxKept - (back.size() - 1)) + " more");
}

TEST(StatusMappingTest, CutsBetweenUtf8Characters) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "\u20ac";  // three bytes, nine when percent-encoded
  const std::string message = ToGrpc(absl::InternalError(text)).error_message();
  EXPECT_EQ((message.size() - 3) % 3, 0u);
  EXPECT_LE((message.size() - 3) * 3 + 3, 1500u);
}

TEST(StatusMappingTest, ForeignDetailsAreNotTrusted) {
  const Status status =
      FromGrpc(grpc::Status(grpc::StatusCode::INTERNAL, "broken", "\xff\xff not a protobuf"));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, "broken"));
  EXPECT_THAT(Violations::FromStatus(status), SizeIs(0));
}

}  // namespace
}  // namespace neuroshard
