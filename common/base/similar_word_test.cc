#include "common/base/similar_word.h"

#include <gtest/gtest.h>

#include <vector>

namespace neuroshard {
namespace {

TEST(SimilarWordTest, IsTheNearestThatIsNearEnough) {
  const std::vector<std::string_view> words = {"plan", "evaluate", "eval-tasks", "sweep", "models"};
  EXPECT_EQ(SimilarWord("plna", words), "plan");
  EXPECT_EQ(SimilarWord("pln", words), "plan");
  EXPECT_EQ(SimilarWord("evalaute", words), "evaluate");
  EXPECT_EQ(SimilarWord("eval_task", words), "eval-tasks");
  EXPECT_EQ(SimilarWord("model", words), "models");
  EXPECT_EQ(SimilarWord("diff", words), "");
  EXPECT_EQ(SimilarWord("", words), "");
  EXPECT_EQ(SimilarWord(std::string(1'000'000, 'p'), words), "");
  EXPECT_EQ(SimilarWord("plan", {}), "");
}

}  // namespace
}  // namespace neuroshard
