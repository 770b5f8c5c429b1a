#include "server/cost/comm_model.h"

#include <algorithm>

namespace neuroshard {
namespace {

class OneRank final : public CommModel {
 public:
  CommLoad Load(const ShardFeatures& /*shard*/) const override { return {}; }

  void Costs(CommStage /*stage*/, std::span<const float> /*loads*/,
             std::span<const float> /*start_offsets_ms*/, std::span<float> cost_ms) const override {
    std::ranges::fill(cost_ms, 0.0F);
  }

  std::vector<CommInterval> Intervals(std::span<const RankComm> ranks) const override {
    return std::vector<CommInterval>(ranks.size());
  }
};

}  // namespace

std::shared_ptr<const CommModel> CommOfOneRank() {
  static const auto instance = std::make_shared<const OneRank>();
  return instance;
}

}  // namespace neuroshard
