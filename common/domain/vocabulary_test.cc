#include "common/domain/vocabulary.h"

#include <gtest/gtest.h>

namespace neuroshard {
namespace {

TEST(VocabularyTest, TextRoundTrips) {
  for (const auto& word : kWords<Optimizer>) {
    EXPECT_EQ(FromText<Optimizer>(ToText(word.value)), word.value);
  }
  EXPECT_EQ(FromText<DataType>("fp8"), std::nullopt);
  EXPECT_EQ(AllWords<PoolingMode>(), "sum, mean");
}

}  // namespace
}  // namespace neuroshard
