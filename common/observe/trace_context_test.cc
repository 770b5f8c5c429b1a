#include "common/observe/trace_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace neuroshard {
namespace {

using ::testing::MatchesRegex;

// The example of the specification.
constexpr char kGood[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(TraceContextTest, IsReadAndWritten) {
  const auto trace = ParseTraceparent(kGood);
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(trace->trace_id, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(trace->parent_id, "b7ad6b7169203331");
  EXPECT_EQ(trace->flags, "01");
  EXPECT_EQ(ToText(*trace), kGood);
}

TEST(TraceContextTest, OneByteThatIsWrongMakesItNone) {
  // Every byte replaced by ones that cannot stand there, every length.
  const std::string good = kGood;
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const char bad : {'G', 'F', ' ', '\n', '\0', '\xff'}) {
      std::string text = good;
      text[i] = bad;
      EXPECT_FALSE(ParseTraceparent(text).has_value()) << text;
    }
    EXPECT_FALSE(ParseTraceparent(good.substr(0, i)).has_value()) << i;
  }
  for (const std::string& text : {good + "-", good + "x", "ff" + good.substr(2),
                                  "00-00000000000000000000000000000000" + good.substr(35),
                                  good.substr(0, 36) + "0000000000000000" + good.substr(52)}) {
    EXPECT_FALSE(ParseTraceparent(text).has_value()) << text;
  }
}

TEST(TraceContextTest, LaterVersionsMayHaveMore) {
  const std::string later = "01" + std::string(kGood).substr(2);
  EXPECT_EQ(ParseTraceparent(later + "-what-comes"), ParseTraceparent(kGood));
  EXPECT_FALSE(ParseTraceparent(later + "what-comes").has_value());
}

TEST(TraceContextTest, StepsShareTheTrace) {
  const TraceContext begin = NewTrace();
  const TraceContext next = NextStep(begin);
  EXPECT_EQ(ParseTraceparent(ToText(begin)), begin);
  EXPECT_EQ(next.trace_id, begin.trace_id);
  EXPECT_NE(next.parent_id, begin.parent_id);
  EXPECT_NE(NewTrace().trace_id, begin.trace_id);
}

TEST(RequestIdTest, IsWhatAHeaderCanCarry) {
  for (const std::string& good :
       {std::string("a"), std::string("job/7:{x}"), std::string(128, '~')})
    EXPECT_TRUE(IsRequestId(good)) << good;
  for (const std::string& bad :
       {std::string(), std::string(129, 'a'), std::string("a b"), std::string("a\nb"),
        std::string("\xc3\xa4"), std::string(1, '\0')})
    EXPECT_FALSE(IsRequestId(bad)) << bad;
}

TEST(RequestIdTest, AnyIdHasAFormForAHeader) {
  EXPECT_EQ(RequestIdHeader("job/7%"), "job/7%");
  EXPECT_EQ(RequestIdHeader("a b\n%"), "a%20b%0A%25");
  EXPECT_EQ(RequestIdHeader("\xc3\xa4"), "%C3%A4");
  for (const std::string& odd : {std::string(1'000'000, 'x'), std::string(500, '\0')}) {
    EXPECT_TRUE(IsRequestId(RequestIdHeader(odd)));
  }
}

TEST(RequestIdTest, IsSixteenDigitsAndDiffers) {
  const std::string id = MakeRequestId();
  EXPECT_THAT(id, MatchesRegex("[0-9a-f]+"));
  EXPECT_EQ(id.size(), 16u);
  EXPECT_NE(id, MakeRequestId());
}

}  // namespace
}  // namespace neuroshard
