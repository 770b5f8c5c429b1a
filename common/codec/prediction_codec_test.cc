#include "common/codec/prediction_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/faulty_fields.h"

namespace neuroshard {
namespace {

PredictionRequest TwoSets() {
  MeasuredShard shard;
  shard.table = "t";
  shard.rows = 100;
  shard.cols = 16;
  shard.pooling_factor = 2.5;
  shard.reuse_histogram[3] = 1;
  shard.weight_dtype = DataType::kBf16;
  PredictionRequest request{"r", {"m", 3}, {}};
  request.sets.resize(2);
  request.sets[0].shards = {shard, shard};
  request.sets[0].batch_size = 1 << 30;
  request.sets[1].shards = {shard};
  request.sets[1].batch_size = 512;
  request.sets[1].optimizer = Optimizer::kAdam;
  return request;
}

TEST(PredictionCodecTest, RequestsComeBack) {
  const auto request = DecodePredictionRequest(EncodePredictionRequest(TwoSets()), {});
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(*request, TwoSets());
}

TEST(PredictionCodecTest, WhatIsAbsentIsAPlansDefault) {
  v1::PredictComputeRequest message = EncodePredictionRequest(TwoSets());
  message.mutable_sets(1)->clear_batch_size();
  message.mutable_sets(1)->clear_optimizer();
  const auto request = DecodePredictionRequest(message, {});
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->sets[1].batch_size, 65536);
  EXPECT_EQ(request->sets[1].optimizer, Optimizer::kSgd);
}

TEST(PredictionCodecTest, EveryFaultHasItsPath) {
  v1::PredictComputeRequest message = EncodePredictionRequest(TwoSets());
  message.mutable_cost_model()->set_version(-1);
  message.mutable_sets(0)->mutable_shards(1)->set_rows(0);
  message.mutable_sets(0)->set_optimizer("lion");
  message.mutable_sets(1)->clear_shards();
  message.mutable_sets(1)->set_batch_size(0);
  const std::vector<std::string> fields =
      FaultyFields(DecodePredictionRequest(message, {}).status());
  EXPECT_THAT(fields, testing::UnorderedElementsAre("cost_model.version", "sets[0].shards[1].rows",
                                                    "sets[0].optimizer", "sets[1].shards",
                                                    "sets[1].batch_size"));
  EXPECT_THAT(Message(DecodePredictionRequest({}, {}).status()), testing::HasSubstr("sets"));
}

TEST(PredictionCodecTest, TheLimitIsQuoted) {
  const auto message = EncodePredictionRequest(TwoSets());
  EXPECT_TRUE(DecodePredictionRequest(message, {.max_prediction_shards = 3}).ok());
  const auto refused = DecodePredictionRequest(message, {.max_prediction_shards = 2});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(refused.status()), testing::HasSubstr("at most 2 shards"));
}

}  // namespace
}  // namespace neuroshard
