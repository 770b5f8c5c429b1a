#include "server/cost/step_comm.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace neuroshard {
namespace {

// Exchanges are numbered by module, then by type. Modules beyond those that have numbers of their
// own share them, so that a plan of more pays too little, but never for an exchange that it lacks.
constexpr std::size_t kTypes = 8;
constexpr std::size_t kModules = 64 / kTypes;
static_assert(kWords<ShardingType>.size() <= kTypes);

constexpr std::uint64_t BitsOf(ShardingType type) {
  std::uint64_t bits = 0;
  for (std::size_t module = 0; module < kModules; ++module) {
    bits |= std::uint64_t{1} << (module * kTypes + static_cast<std::size_t>(type));
  }
  return bits;
}

constexpr std::uint64_t kReplicas = BitsOf(ShardingType::kDataParallel);
constexpr std::uint64_t kCutRows = [] {
  std::uint64_t bits = 0;
  for (const auto& word : kWords<ShardingType>) {
    if (CutsRows(word.value)) bits |= BitsOf(word.value);
  }
  return bits;
}();

double TimeOf(const ExchangeTimes& times, std::uint64_t exchanges) {
  const int replicas = std::popcount(exchanges & kReplicas);
  const int cut_rows = std::popcount(exchanges & kCutRows);
  return replicas * times.replicas_ms + cut_rows * times.cut_rows_ms +
         (std::popcount(exchanges) - replicas - cut_rows) * times.whole_rows_ms;
}

class CommInSteps final : public CommModel {
 public:
  CommInSteps(std::shared_ptr<const CommModel> comm, const StepRates& rates,
              const PricingConditions& conditions)
      : comm_(std::move(comm)),
        rates_(rates),
        modules_(conditions.modules),
        input_dist_share_(conditions.pipeline_type == PipelineType::kNone ? 1
                                                                          : rates.pipelined_share) {
  }

  CommLoad Load(const ShardFeatures& shard) const override {
    CommLoad load = comm_->Load(shard);
    const auto module = std::lower_bound(modules_.begin(), modules_.end(), shard.module);
    const auto number = static_cast<std::size_t>(module - modules_.begin()) % kModules;
    load.kinds.exchanges = std::uint64_t{1}
                           << (number * kTypes + static_cast<std::size_t>(shard.layout.type));
    return load;
  }

  void Costs(CommStage stage, std::span<const float> loads, std::span<const float> start_offsets_ms,
             std::span<float> cost_ms) const override {
    comm_->Costs(stage, loads, start_offsets_ms, cost_ms);
    for (float& ms : cost_ms) ms *= static_cast<float>(rates_.comm_scale);
  }

  CommSetup SetupOf(const ShardKinds& kinds) const override {
    CommSetup setup = comm_->SetupOf(kinds);
    const double exchange_ms = TimeOf(rates_.exchange, kinds.exchanges);
    const double ids_ms = input_dist_share_ * TimeOf(rates_.input_dist, kinds.exchanges);
    setup.forward_ms = static_cast<float>(setup.forward_ms * rates_.comm_scale +
                                          exchange_ms * rates_.forward_share + ids_ms);
    setup.backward_ms = static_cast<float>(setup.backward_ms * rates_.comm_scale +
                                           exchange_ms * (1 - rates_.forward_share));
    return setup;
  }

  // Intervals of costs that are given with the times of steps in them.
  std::vector<CommInterval> Intervals(std::span<const RankComm> ranks) const override {
    return comm_->Intervals(ranks);
  }

 private:
  const std::shared_ptr<const CommModel> comm_;
  const StepRates rates_;
  const std::vector<std::uint64_t> modules_;
  const double input_dist_share_;
};

}  // namespace

std::shared_ptr<const CommModel> WithSteps(std::shared_ptr<const CommModel> comm,
                                           const StepRates& rates,
                                           const PricingConditions& conditions) {
  return std::make_shared<const CommInSteps>(std::move(comm), rates, conditions);
}

}  // namespace neuroshard
