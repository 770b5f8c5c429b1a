#include "common/domain/vocabulary.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

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

// Traits are found by position.
TEST(VocabularyTest, EveryKernelHasItsTraits) {
  ASSERT_EQ(kKernelTraits.size(), kWords<ComputeKernel>.size());
  for (const auto& word : kWords<ComputeKernel>) {
    EXPECT_EQ(TraitsOf(word.value).kernel, word.value) << word.text;
  }
  EXPECT_EQ(TierOf(ComputeKernel::kDense), MemoryTier::kDevice);
  EXPECT_EQ(TierOf(ComputeKernel::kOffload), MemoryTier::kHost);
  EXPECT_EQ(TierOf(ComputeKernel::kKeyValue), MemoryTier::kSsd);
  for (const ComputeKernel kernel :
       {ComputeKernel::kDynamicHybrid, ComputeKernel::kDynamicCaching}) {
    EXPECT_EQ(TierOf(kernel), MemoryTier::kHost);
    EXPECT_TRUE(HasCache(kernel) && IsDynamic(kernel) && !IsMeasurable(kernel));
  }
  EXPECT_FALSE(IsDynamic(ComputeKernel::kFusedUvmCaching));
}

TEST(VocabularyTest, AMemoryHasItsOwnValue) {
  for (std::size_t i = 0; i < kWords<MemoryTier>.size(); ++i) {
    const MemoryTier tier = kWords<MemoryTier>[i].value;
    TierBytes bytes = {};
    bytes[tier] = 1;
    EXPECT_EQ(bytes.values[i], 1) << "loops go from the fastest to the slowest";
  }
}

// The end of NotAWord's message for each spelling: ", got "float32"; did you mean fp32?".
template <typename E>
void ExpectMeant(const std::vector<std::pair<std::string, std::string>>& meant) {
  for (const auto& [written, word] : meant) {
    const std::string message = NotAWord<E>(written);
    const std::string end = ", got \"" + written + "\"; did you mean " + word + "?";
    EXPECT_TRUE(message.ends_with(end)) << message;
  }
}

TEST(VocabularyTest, WordsOfOtherProjectsAreTranslated) {
  ExpectMeant<DataType>({{"float32", "fp32"},
                         {"torch.float32", "fp32"},
                         {"FP32", "fp32"},
                         {"float", "fp32"},
                         {"half", "fp16"},
                         {"DataType.FP16", "fp16"},
                         {"bfloat16", "bf16"},
                         {"uint8", "int8"},
                         {"torch.quint4x2", "int4"},
                         {"quint2x4", "int2"},
                         {"float8_e4m3fn", "fp8"},
                         {"fp23", "fp32"}});
  ExpectMeant<ShardingType>({{"colum_wise", "column_wise"},
                             {"columnwise", "column_wise"},
                             {"cw", "column_wise"},
                             {"TABLE_WISE", "table_wise"},
                             {"rowwise", "row_wise"},
                             {"twrw", "table_row_wise"},
                             {"tablewise_columnwise", "table_column_wise"},
                             {"grid", "grid_shard"},
                             {"dp", "data_parallel"},
                             {"data-paralel", "data_parallel"},
                             {"ShardingType.ROW_WISE", "row_wise"}});
  ExpectMeant<ComputeKernel>({{"uvm", "fused_uvm"},
                              {"uvm_caching", "fused_uvm_caching"},
                              {"FUSED", "fused"},
                              {"batched_fused", "fused"},
                              {"EmbeddingComputeKernel.KEY_VALUE", "key_value"},
                              {"fusd", "fused"},
                              {"ssd", "key_value"}});
  ExpectMeant<Optimizer>({{"exact_sgd", "sgd"},
                          {"EXACT_ROWWISE_ADAGRAD", "rowwise_adagrad"},
                          {"row_wise_adagrad", "rowwise_adagrad"},
                          {"Adam", "adam"},
                          {"rowise_adagrad", "rowwise_adagrad"},
                          {"adamw", "adam"},
                          {"PARTIAL_ROW_WISE_ADAM", "partial_rowwise_adam"},
                          {"lars", "lars_sgd"}});
  ExpectMeant<PoolingMode>({{"average", "mean"}, {"SUM", "sum"}, {"PoolingType.MEAN", "mean"}});
  ExpectMeant<TableKind>({{"EmbeddingBagCollection", "embedding_bag"}, {"unpooled", "embedding"}});
  ExpectMeant<ComputeDevice>({{"gpu", "cuda"}, {"CUDA", "cuda"}, {"cdua", "cuda"}});
  ExpectMeant<PipelineType>(
      {{"TRAIN_SPARSE_DIST", "train_sparse_dist"}, {"sparse_dist", "train_sparse_dist"}});
  ExpectMeant<MemoryRule>({{"TorchRec", "torchrec"}, {"weights", "weights_only"}});
}

TEST(VocabularyTest, TextsOfSeveralValuesAreInTheirOrder) {
  const std::vector<DataType> values = {DataType::kBf16, DataType::kFp32};
  EXPECT_EQ(ToTexts(values), (std::vector<std::string_view>{"bf16", "fp32"}));
}

}  // namespace
}  // namespace neuroshard
