#include "server/pretrain/data/training_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace neuroshard {
namespace {

StatusOr<TrainingConfig> ReadFile(const std::string& path) {
  NS_ASSIGN_OR_RETURN(ConfigReader reader, ConfigReader::FromFile(path));
  return ReadTrainingConfig(std::move(reader));
}

StatusOr<TrainingConfig> ParseText(const std::string& text, const std::string& source = "test") {
  NS_ASSIGN_OR_RETURN(ConfigReader reader, ConfigReader::FromText(text, source));
  return ReadTrainingConfig(std::move(reader));
}

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TrainingConfigTest, TheShippedFileStatesTheDefaults) {
  const auto config = ReadFile(std::string(NEUROSHARD_SOURCE_DIR) + "/configs/pretrain.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(*config, PresetConfig(TrainingPreset::kUniversal));
}

TEST(TrainingConfigTest, TheShippedModelsFileIsReadAndStatesItsCache) {
  const auto config = ReadFile(std::string(NEUROSHARD_SOURCE_DIR) + "/configs/pretrain_cpu.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->preset, TrainingPreset::kUniversal);
  EXPECT_GT(config->cache_bytes, 0);
  EXPECT_TRUE(config->learning_curve);
}

TEST(TrainingConfigTest, TheFileOfTheH100IsReadAndStatesItsCache) {
  const auto config = ReadFile(std::string(NEUROSHARD_SOURCE_DIR) + "/configs/pretrain_h100.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->preset, TrainingPreset::kUniversal);
  EXPECT_EQ(config->cache_bytes, 50 << 20);
}

TEST(TrainingConfigTest, TheShippedModelsSecondFileIsRead) {
  const auto config =
      ReadFile(std::string(NEUROSHARD_SOURCE_DIR) + "/configs/pretrain_cpu_comm.yaml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->comm_optimization.max_epochs, 800);
}

TEST(TrainingConfigTest, NeuroshardIsThePapersTraining) {
  const auto config = ParseText("preset: neuroshard\nseed: 7\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->optimization.loss, TrainingLoss::kMse);
  EXPECT_EQ(config->optimization.batch_samples, 512);
  EXPECT_EQ(config->optimization.learning_rate, 1e-3);
  EXPECT_EQ(config->optimization.max_epochs, 1000);
  EXPECT_EQ(config->optimization.learning_rate_decay, 1);
  EXPECT_FALSE(config->optimization.scale_targets);
  EXPECT_FALSE(config->optimization.permute_ranks);
  EXPECT_TRUE(config->transforms.empty());
  EXPECT_EQ(config->compute_outputs, ComputeOutputs::kTotal);
  EXPECT_EQ(config->table_hidden, (std::vector<int>{128, 32}));
  EXPECT_EQ(config->head_hidden, (std::vector<int>{64}));
  EXPECT_EQ(config->optimization.seed, 7u);
}

TEST(TrainingConfigTest, OverridesAreRead) {
  const auto config = ParseText(
      "preset: per_count\nloss: mse\nmax_epochs: 9\ncomm: {max_epochs: 7}\ntransforms: {row: none, "
      "pooling_factor: log1p}\n"
      "records: {batch_size: 512, optimizer: adagrad, compute_kernel: fused_uvm, "
      "weighted: false}\ntable_hidden: [64, 16]\ncost_of_series: least\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->transforms.at("pooling_factor"), "log1p");
  EXPECT_FALSE(config->transforms.contains("row"));
  EXPECT_EQ(config->optimization.max_epochs, 9);
  EXPECT_EQ(config->comm_optimization.max_epochs, 7);
  EXPECT_EQ(config->comm_optimization.loss, TrainingLoss::kMse);
  EXPECT_EQ(config->records.batch_size, 512);
  EXPECT_EQ(config->records.optimizer, "adagrad");
  EXPECT_EQ(config->records.compute_kernel, "fused_uvm");
  EXPECT_EQ(config->records.weighted, false);
  EXPECT_FALSE(config->records.weight_dtype.has_value());
  EXPECT_EQ(config->table_hidden, (std::vector<int>{64, 16}));
  EXPECT_EQ(DescribeTrainingConfig(*config).at("records.optimizer"), "adagrad");
  EXPECT_EQ(config->cost_of_series, SeriesCost::kLeast);
  EXPECT_EQ(DescribeTrainingConfig(*config).at("cost_of_series"), "least");
}

TEST(TrainingConfigTest, AllFaultsAreReportedAtOnce) {
  const auto config = ParseText(
      "los: mse\nloss: huber\nlearning_rate: -1\nmax_epochs: 0\nhead_hidden: []\n"
      "transforms: {rows: log1p, dim: sqrt}\nrecords: {optimizer: lion}\n",
      "bad.yaml");
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(config.status()),
              AllOf(HasSubstr("bad.yaml"), HasSubstr("los:"), HasSubstr("huber"),
                    HasSubstr("learning_rate"), HasSubstr("max_epochs"), HasSubstr("head_hidden"),
                    HasSubstr("transforms.rows"), HasSubstr("sqrt"), HasSubstr("lion")));
}

TEST(TrainingConfigTest, UniversalNetworksHaveTheirOwnLossAndHead) {
  const auto config = ParseText("loss: mse\nhead_hidden: [8, 8]\n");
  EXPECT_THAT(Message(config.status()), AllOf(HasSubstr("log_ratio"), HasSubstr("head_hidden")));
  EXPECT_FALSE(ParseText("preset: neuroshard\nloss: log_ratio\n").ok());
  EXPECT_FALSE(ParseText("preset: neuroshard\nlearning_curve: true\n").ok());
}

}  // namespace
}  // namespace neuroshard
