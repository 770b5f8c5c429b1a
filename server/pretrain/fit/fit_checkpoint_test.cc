#include "server/pretrain/fit/fit_checkpoint.h"

#include <gtest/gtest.h>

#include <limits>

namespace neuroshard {
namespace {

std::vector<MemberState> TwoStates() {
  MemberState fresh = InitialState({1, -2.5f, 3e-20f}, 0.1);
  MemberState later = fresh;
  later.best_parameters = {4, 5, std::numeric_limits<float>::infinity()};
  later.first_moment = {0.1f, 0.2f, 0.3f};
  later.second_moment = {1e-9f, 0, 7};
  later.steps = 123'456'789'012;
  later.epoch = 7;
  later.best_epoch = 5;
  later.decayed_epoch = 3;
  later.learning_rate = 1.0 / 3;
  later.train_loss = 0.1 + 0.2;
  later.validation_loss = 1e-300;
  later.best_validation_loss = 2.5;
  return {fresh, later};
}

TEST(FitCheckpointTest, StatesComeBackToTheBit) {
  const auto bytes = EncodeCheckpoint("of these samples", TwoStates());
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(DecodeCheckpoint(*bytes, "of these samples"), TwoStates());
}

TEST(FitCheckpointTest, OtherSamplesAndDamagedBytesAreNothing) {
  const std::string bytes = *EncodeCheckpoint("of these samples", TwoStates());
  EXPECT_EQ(DecodeCheckpoint(bytes, "of other samples"), std::nullopt);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{7}, bytes.size() / 2, bytes.size() - 1}) {
    EXPECT_EQ(DecodeCheckpoint(bytes.substr(0, size), "of these samples"), std::nullopt) << size;
  }
  std::string damaged = bytes;
  damaged.replace(damaged.find("0.3333"), 3, "0.x");
  EXPECT_EQ(DecodeCheckpoint(damaged, "of these samples"), std::nullopt);
}

}  // namespace
}  // namespace neuroshard
