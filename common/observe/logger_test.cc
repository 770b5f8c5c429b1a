#include "common/observe/logger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/base/printable_text.h"
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

TEST(LoggerTest, BeginsEveryLineWithItsContext) {
  std::ostringstream out;
  const Logger logger = Logger::ToStream(&out)->With({{"request_id", "a b"}});
  logger.With({{"rpc", "Plan"}}).Info("done", {{"n", 1}});
  EXPECT_THAT(out.str(), EndsWith(" info done request_id=\"a b\" rpc=Plan n=1\n"));
}

TEST(LoggerTest, WritesAuditsAtEveryLevelButOff) {
  for (const auto& [level, lines] : {std::pair("error", 1), std::pair("off", 0)}) {
    ::testing::internal::CaptureStderr();
    NS_ASSERT_OK_AND_ASSIGN(const auto logger, Logger::Create({.level = level}));
    logger->Warn("odd");
    logger->Audit("leased", {{"device", 0}});
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), lines) << said;
    if (lines == 1) {
      EXPECT_THAT(said, EndsWith("info leased device=0 audit=true\n"));
    }
  }
}

TEST(JsonLogTest, IsOneObjectWithNumbersAndBooleansAsSuch) {
  std::ostringstream out;
  Logger::ToStream(&out, LogFormat::kJson)
      ->With({{"request_id", "7"}})
      .Warn("odd", {{"n", 3},
                    {"x", 0.5},
                    {"yes", true},
                    {"nan", std::numeric_limits<double>::quiet_NaN()},
                    {"status", NotFound("no \"it\"")}});
  const auto line = nlohmann::json::parse(out.str());
  EXPECT_THAT(line["time"].get<std::string>(), MatchesRegex("[0-9-]+T[0-9:.]+Z"));
  EXPECT_EQ(line["level"], "warning");
  EXPECT_EQ(line["event"], "odd");
  EXPECT_EQ(line["request_id"], "7");
  EXPECT_EQ(line["n"], 3);
  EXPECT_EQ(line["x"], 0.5);
  EXPECT_EQ(line["yes"], true);
  EXPECT_EQ(line["nan"], "nan");
  EXPECT_EQ(line["status"], "NOT_FOUND: no \"it\"");
}

// Whatever bytes a caller sends: each line is one JSON object, whose string is the text but for
// bytes that are no UTF-8.
TEST(JsonLogTest, IsJsonWhateverAValueContains) {
  std::ostringstream out;
  const auto logger = Logger::ToStream(&out, LogFormat::kJson);
  std::mt19937 random(7);
  const std::vector<std::string> parts = {"\"",
                                          "\\",
                                          "\n",
                                          "\r",
                                          "{}",
                                          "%v",
                                          "\xc3\xa4",
                                          "\xe2\x80\xa8",
                                          "\xf0\x9f\x98\x80",
                                          "\xff",
                                          "\xc3",
                                          "\xed\xa0\x80",
                                          std::string(1, '\0'),
                                          "\x7f",
                                          "a",
                                          "\x1b[31m"};
  for (int i = 0; i < 3000; ++i) {
    std::string value;
    const std::size_t length = random() % (i % 100 == 0 ? 3000 : 12);
    for (std::size_t k = 0; k < length; ++k) value += parts[random() % parts.size()];
    out.str("");
    logger->With({{"request_id", value}}).Info("event", {{"value", value}});
    const std::string line = out.str();
    ASSERT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
    ASSERT_TRUE(std::all_of(line.begin(), line.end() - 1, [](char c) { return c >= ' '; })) << line;
    ASSERT_LT(line.size(), 30'000u);
    const auto read = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(read.is_object()) << line;
    if (IsUtf8(value) && value.size() <= 2000) {
      ASSERT_EQ(read["value"], value);
      ASSERT_EQ(read["request_id"], value);
    }
  }
}

}  // namespace
}  // namespace neuroshard
