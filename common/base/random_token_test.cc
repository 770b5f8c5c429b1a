#include "common/base/random_token.h"

#include <gtest/gtest.h>

#include <set>

namespace neuroshard {
namespace {

TEST(RandomTokenTest, TokensAre32DigitsAndNeverTheSame) {
  std::set<std::string> tokens;
  for (int i = 0; i < 1000; ++i) {
    const std::string token = RandomToken().value();
    EXPECT_EQ(token.size(), 32U);
    EXPECT_EQ(token.find_first_not_of("0123456789abcdef"), std::string::npos);
    EXPECT_TRUE(tokens.insert(token).second);
  }
}

TEST(RandomTokenTest, SameSecretIsEquality) {
  EXPECT_TRUE(SameSecret("", ""));
  EXPECT_TRUE(SameSecret("abc", "abc"));
  EXPECT_FALSE(SameSecret("abc", "abd"));
  EXPECT_FALSE(SameSecret("abc", "ab"));
  EXPECT_FALSE(SameSecret("", "a"));
}

}  // namespace
}  // namespace neuroshard
