#include "common/domain/vocabulary.h"

#include <gtest/gtest.h>

namespace neuroshard {
namespace {

TEST(VocabularyTest, TextRoundTrips) {
  for (const auto& word : kWords<Optimizer>) {
    EXPECT_EQ(FromText<Optimizer>(ToText(word.value)), word.value);
  }
  EXPECT_EQ(FromText<DataType>("fp4"), std::nullopt);
  EXPECT_EQ(NotAWord<PoolingMode>("men"),
            "must be one of sum, mean, none, got \"men\"; did you mean mean?");
  EXPECT_EQ(NotAWord<PoolingMode>("x"), "must be one of sum, mean, none, got \"x\"");
}

}  // namespace
}  // namespace neuroshard
