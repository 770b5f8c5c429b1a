#include "common/observe/logger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::IsOk;
using ::neuroshard::testing::StatusIs;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(LoggerTest, WritesOneLineOfKeysAndValues) {
  std::ostringstream out;
  const auto logger = Logger::ToStream(&out);
  logger->Info("model_loaded", {{"model", "cpu"}, {"version", 3}, {"tau", 0.5}});
  EXPECT_THAT(out.str(), MatchesRegex("[0-9-]+T[0-9:.]+Z info model_loaded model=cpu version=3 "
                                      "tau=0.5\n"));
}

TEST(LoggerTest, QuotesAndBoundsValuesThatAreNotOneWord) {
  std::ostringstream out;
  const auto logger = Logger::ToStream(&out);
  logger->Warn("odd", {{"text", "a \"b\"\nc\x01"}, {"empty", ""}, {"braces", "{}"}});
  EXPECT_THAT(out.str(), EndsWith("text=\"a \\\"b\\\"\\nc\\x01\" empty=\"\" braces={}\n"));

  out.str("");
  logger->Error("long", {{"text", std::string(1'000'000, 'x')}});
  EXPECT_LT(out.str().size(), 2200u);
  EXPECT_THAT(out.str(), EndsWith("...\"\n"));
}

TEST(LoggerTest, RefusesUnknownLevels) {
  EXPECT_THAT(Logger::Create({"loud"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("got \"loud\"")));
  EXPECT_THAT(Logger::Create({"off"}), IsOk());

  NS_ASSERT_OK_AND_ASSIGN(ConfigReader reader, ConfigReader::FromText("log_level: loud", "f"));
  LogOptions options;
  ReadLogOptions(reader, &options);
  EXPECT_THAT(reader.Finish(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("log_level: must be one of")));
}

TEST(RequestIdTest, IsSixteenDigitsAndDiffers) {
  const std::string id = MakeRequestId();
  EXPECT_THAT(id, MatchesRegex("[0-9a-f]+"));
  EXPECT_EQ(id.size(), 16u);
  EXPECT_NE(id, MakeRequestId());
}

}  // namespace
}  // namespace neuroshard
