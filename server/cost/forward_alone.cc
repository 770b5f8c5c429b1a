#include "server/cost/forward_alone.h"

#include <algorithm>
#include <utility>

namespace neuroshard {
namespace {

class ForwardCompute final : public ComputeModel {
 public:
  explicit ForwardCompute(std::shared_ptr<const ComputeModel> compute)
      : compute_(std::move(compute)) {}

  int representation_width() const override { return compute_->representation_width(); }

  void Represent(const PricingConditions& conditions, std::span<const ShardFeatures> shards,
                 std::span<float> phi) const override {
    compute_->Represent(conditions, shards, phi);
  }

  void Costs(std::span<const float> sums, std::span<ComputeCost> out) const override {
    compute_->Costs(sums, out);
    for (ComputeCost& cost : out) cost = {cost.forward_ms, cost.forward_ms, 0};
  }

 private:
  const std::shared_ptr<const ComputeModel> compute_;
};

class ForwardComm final : public CommModel {
 public:
  explicit ForwardComm(std::shared_ptr<const CommModel> comm) : comm_(std::move(comm)) {}

  CommLoad Load(const ShardFeatures& shard) const override {
    CommLoad load = comm_->Load(shard);
    load.backward = 0;
    return load;
  }

  void BackwardCosts(std::span<const float> /*loads*/, std::span<float> cost_ms) const override {
    std::fill(cost_ms.begin(), cost_ms.end(), 0.0F);
  }

  void ForwardCosts(std::span<const float> loads, std::span<const float> start_offsets_ms,
                    std::span<float> cost_ms) const override {
    comm_->ForwardCosts(loads, start_offsets_ms, cost_ms);
  }

  CommSetup SetupOf(const ShardKinds& kinds) const override {
    return {comm_->SetupOf(kinds).forward_ms, 0};
  }

 private:
  const std::shared_ptr<const CommModel> comm_;
};

}  // namespace

std::shared_ptr<const ComputeModel> ForwardAlone(std::shared_ptr<const ComputeModel> compute) {
  return std::make_shared<const ForwardCompute>(std::move(compute));
}

std::shared_ptr<const CommModel> ForwardAlone(std::shared_ptr<const CommModel> comm) {
  return std::make_shared<const ForwardComm>(std::move(comm));
}

}  // namespace neuroshard
