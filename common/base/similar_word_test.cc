#include "common/base/similar_word.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace neuroshard {
namespace {

struct Synonym {
  std::string_view written;
  std::string_view meant;
  std::string_view difference;
};

constexpr Synonym kSynonyms[] = {
#include "proto/synonyms.inc"
};

TEST(SimilarWordTest, IsTheNearestThatIsNearEnough) {
  const std::vector<std::string_view> words = {"plan", "evaluate", "eval-tasks", "sweep", "models"};
  EXPECT_EQ(SimilarWord("plna", words), "plan");
  EXPECT_EQ(SimilarWord("pln", words), "plan");
  EXPECT_EQ(SimilarWord("PLNA", words), "plan");
  EXPECT_EQ(SimilarWord("evalaute", words), "evaluate");
  EXPECT_EQ(SimilarWord("eval_task", words), "eval-tasks");
  EXPECT_EQ(SimilarWord("model", words), "models");
  EXPECT_EQ(SimilarWord("diff", words), "");
  EXPECT_EQ(SimilarWord("", words), "");
  EXPECT_EQ(SimilarWord("...", words), "");
  EXPECT_EQ(SimilarWord(std::string(1'000'000, 'p'), words), "");
  EXPECT_EQ(SimilarWord("plan", {}), "");
}

TEST(SimilarWordTest, CaseAndSignsDoNotCount) {
  const std::vector<std::string_view> words = {"table_wise", "column_wise", "fp16"};
  for (const char* text : {"COLUMN_WISE", "column-wise", "ColumnWise", "columnwise",
                           "ShardingType.COLUMN_WISE", " column wise "}) {
    EXPECT_EQ(SimilarWord(text, words), "column_wise") << text;
  }
  EXPECT_EQ(SimilarWord("DataType.FP16", words), "fp16");
  EXPECT_EQ(SimilarWord("torch.float16", words), "fp16");
}

TEST(SimilarWordTest, APartStandsForTheWordThatItBeginsOrEnds) {
  const std::vector<std::string_view> words = {"max_tables_per_rank", "seed", "refine_steps",
                                               "time_budget_ms"};
  EXPECT_EQ(SimilarWord("steps", words), "refine_steps");
  EXPECT_EQ(SimilarWord("refine", words), "refine_steps");
  EXPECT_EQ(SimilarWord("time_budget", words), "time_budget_ms");
  EXPECT_EQ(SimilarWord("tables", words), "");  // one part of four
  EXPECT_EQ(SimilarWord("budget", words), "");
}

TEST(SimilarWordTest, SynonymsMeanWhatIsPossibleWhereTheyStand) {
  const std::vector<std::string_view> fields = {"tables", "device", "global_batch_size"};
  EXPECT_EQ(SimilarWord("gpu", fields), "device");
  EXPECT_EQ(SimilarWord("gpu", std::vector<std::string_view>{"cuda", "cpu"}), "cuda");
  EXPECT_EQ(DidYouMean("batch_size", fields),
            "; did you mean global_batch_size (of all ranks together)?");
  EXPECT_EQ(DidYouMean("embedding_tables", fields), "; did you mean tables?");
  EXPECT_EQ(DidYouMean("strategy", std::vector<std::string_view>{"tables", "search"}),
            "; did you mean search (search.strategy)?");
}

TEST(SimilarWordTest, EverySynonymIsUsedAndNoneIsAWordItself) {
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for (const Synonym& synonym : kSynonyms) {
    EXPECT_TRUE(seen.emplace(synonym.written, synonym.meant).second) << synonym.written;
    const std::string_view words[] = {synonym.meant};
    EXPECT_EQ(SimilarWord(synonym.written, words), synonym.meant);
    EXPECT_NE(synonym.written, synonym.meant);
  }
}

}  // namespace
}  // namespace neuroshard
