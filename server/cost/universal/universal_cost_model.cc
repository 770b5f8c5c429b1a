#include "server/cost/universal/universal_cost_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "server/cost/comm_model.h"
#include "server/cost/fabric/fabric_cost_model.h"
#include "server/cost/neural/neural_cost_model.h"
#include "server/cost/universal/universal_comm.h"
#include "server/cost/universal/universal_compute.h"
#include "server/cost/volume_equivalent.h"
#include "server/models/manifest_info.h"
#include "server/models/network_tensors.h"
#include "server/models/safetensors.h"

namespace neuroshard {
namespace {

constexpr int kMostModelRanks = 16384;

bool Lists(const std::vector<std::string>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Types whose collectives the samples had.
std::vector<ShardingType> MeasuredTypes(const TrainedOnManifest& trained_on) {
  std::vector<ShardingType> types = {ShardingType::kTableWise, ShardingType::kColumnWise,
                                     ShardingType::kTableColumnWise};
  if (Lists(trained_on.collectives, "reduce_scatter") &&
      Lists(trained_on.collectives, "all_gather")) {
    types.insert(types.end(), {ShardingType::kRowWise, ShardingType::kTableRowWise,
                               ShardingType::kGridShard, ShardingType::kRowWiseSubset});
  }
  if (Lists(trained_on.collectives, "all_reduce")) types.push_back(ShardingType::kDataParallel);
  return types;
}

// What a search tries unasked: what was measured and TorchRec can run.
std::vector<ShardingType> DefaultTypes(std::vector<ShardingType> measured) {
  std::erase(measured, ShardingType::kRowWiseSubset);
  return measured;
}

// Whether the samples had collectives of so many ranks on so many hosts.
bool Measured(const ConditionRanges& ranges, const PricingConditions& conditions) {
  return conditions.num_ranks >= ranges.min_ranks && conditions.num_ranks <= ranges.max_ranks &&
         std::ssize(conditions.hosts) <= std::max(1, ranges.max_hosts);
}

CostModelInfo InfoOf(const ModelManifest& manifest) {
  const TrainedOnManifest trained_on = manifest.trained_on.value_or(TrainedOnManifest());
  CostModelInfo info = InfoOfManifest(manifest);
  info.kind = "universal";
  info.ranges = {trained_on.min_batch_size, trained_on.max_batch_size, trained_on.weight_dtypes,
                 trained_on.optimizers,     trained_on.min_ranks,      trained_on.max_ranks,
                 trained_on.max_hosts};
  info.features = manifest.universal->features;
  info.max_ranks = manifest.comm ? kMostModelRanks : 1;
  info.measured_types = MeasuredTypes(trained_on);
  if (manifest.comm) info.sharding_types = DefaultTypes(info.measured_types);
  info.splits_compute = manifest.universal->outputs.size() == 2;
  info.convex_compute = true;  // no negative weight behind the head's relu
  const auto state = [&](const char* stage, const IntervalManifest* interval) {
    if (interval == nullptr) return;
    info.interval_coverage = interval->coverage;
    info.typical_errors[stage] = IntervalRule(*interval).TypicalError();
  };
  const auto& of_compute = manifest.universal->interval;
  state("compute", of_compute ? &*of_compute : nullptr);
  if (manifest.comm) {
    state("forward_comm", manifest.comm->IntervalOf("all_to_all_forward"));
    state("backward_comm", manifest.comm->IntervalOf("all_to_all_backward"));
  }
  return info;
}

// What a model and those that were bound from it share.
struct UniversalParts {
  CostModelInfo info;
  CostModelInfo info_elsewhere;  // at conditions that the samples did not have
  UniversalCompute compute;
  std::shared_ptr<const CommModel> comm;  // null: one rank alone
};

class UniversalCostModel final : public CostModel {
 public:
  // `comm` null: unbound.
  UniversalCostModel(std::shared_ptr<const UniversalParts> parts,
                     std::shared_ptr<const CommForConditions> comm, bool measured = true)
      : parts_(std::move(parts)), comm_(std::move(comm)), measured_(measured) {}

  const CostModelInfo& info() const override {
    return measured_ ? parts_->info : parts_->info_elsewhere;
  }

  Status CheckConditions(const PricingConditions& conditions) const override {
    if (conditions.num_ranks == 1) return absl::OkStatus();
    if (parts_->comm != nullptr) return parts_->comm->CheckConditions(conditions);
    return FailedPrecondition(
        "cost model {} version {} has no communication network: it prices 1 device, got {}",
        info().name, info().version, conditions.num_ranks);
  }

  std::shared_ptr<const CostModel> ForConditions(
      const PricingConditions& conditions) const override {
    if (conditions.num_ranks == 1) return nullptr;
    return std::make_shared<const UniversalCostModel>(
        parts_, parts_->comm->ForConditions(conditions), Measured(info().ranges, conditions));
  }

  int representation_width() const override {
    return static_cast<int>(parts_->compute.representation_width());
  }

  void Represent(const PricingConditions& conditions, std::span<const ShardFeatures> shards,
                 std::span<float> phi, std::span<CommLoad> loads) const override {
    for (std::size_t i = 0; i < shards.size(); ++i) {
      loads[i] =
          comm_ == nullptr ? VolumeEquivalent(conditions, shards[i]) : comm_->Load(shards[i]);
    }
    parts_->compute.Represent(conditions, shards, phi);
  }

  void ComputeCosts(std::span<const float> sums, std::span<ComputeCost> out) const override {
    parts_->compute.Costs(sums, out);
  }

  void BackwardCommCosts(int num_ranks, std::span<const float> loads,
                         std::span<float> cost_ms) const override {
    BackwardCostsOf(comm_.get(), num_ranks, loads, cost_ms);
  }

  void ForwardCommCosts(int num_ranks, std::span<const float> loads,
                        std::span<const float> start_offsets_ms,
                        std::span<float> cost_ms) const override {
    ForwardCostsOf(comm_.get(), num_ranks, loads, start_offsets_ms, cost_ms);
  }

  CommSetup SetupOf(const ShardKinds& kinds) const override {
    return comm_ == nullptr ? CommSetup() : comm_->SetupOf(kinds);
  }

  std::vector<ComputeInterval> ComputeIntervals(
      const PricingConditions& conditions,
      std::span<const std::vector<ShardFeatures>> shards_of_ranks,
      std::span<const ComputeCost> costs) const override {
    return parts_->compute.Intervals(conditions, shards_of_ranks, costs);
  }

  std::vector<CommInterval> CommIntervals(std::span<const RankComm> ranks) const override {
    if (comm_ != nullptr) return comm_->Intervals(ranks);
    // One rank does not communicate, for certain.
    return std::vector<CommInterval>(ranks.size());
  }

 private:
  const std::shared_ptr<const UniversalParts> parts_;
  const std::shared_ptr<const CommForConditions> comm_;
  const bool measured_;
};

StatusOr<TensorFile> ReadTensorsOf(const std::filesystem::path& path,
                                   const std::vector<TensorSpec>& expected) {
  NS_ASSIGN_OR_RETURN(TensorFile file, ReadTensorFile(path));
  NS_RETURN_IF_ERROR(CheckNetworkTensors(expected, file, path.string()));
  return file;
}

// The first caller pays for no page faults, and what is not finite here never will be.
Status TrialRun(const UniversalParts& parts) {
  const double compute_ms = parts.compute.TrialRun();
  if (!std::isfinite(compute_ms)) {
    return InvalidArgument("compute network: a trial run gives {}, must be finite", compute_ms);
  }
  if (parts.comm == nullptr) return absl::OkStatus();
  PricingConditions conditions;
  conditions.num_ranks = 2;
  const auto comm = parts.comm->ForConditions(conditions);
  const float loads[] = {512, 512};
  const float start_offsets_ms[] = {0, 1};
  float cost_ms[2];
  comm->ForwardCosts(loads, start_offsets_ms, cost_ms);
  for (const float value : cost_ms) {
    if (std::isfinite(value)) continue;
    return InvalidArgument("communication network: a trial run gives {}, must be finite", value);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::shared_ptr<const CostModel>> LoadUniversalCostModel(
    const ModelManifest& manifest, const std::filesystem::path& directory) {
  const UniversalComputeManifest& compute = manifest.universal.value();
  NS_ASSIGN_OR_RETURN(const TensorFile file,
                      ReadTensorsOf(directory / compute.file, UniversalComputeTensors(compute)));
  std::shared_ptr<const CommModel> comm;
  if (manifest.comm) {
    NS_ASSIGN_OR_RETURN(
        const TensorFile comm_file,
        ReadTensorsOf(directory / manifest.comm->file, UniversalCommTensors(*manifest.comm)));
    comm = MakeUniversalComm(*manifest.comm, manifest.trained_on.value_or(TrainedOnManifest()),
                             comm_file);
  }
  const CostModelInfo info = InfoOf(manifest);
  CostModelInfo info_elsewhere = info;
  info_elsewhere.sharding_types = CostModelInfo().sharding_types;
  const auto parts = std::make_shared<const UniversalParts>(UniversalParts{
      info, std::move(info_elsewhere), UniversalCompute(compute, file), std::move(comm)});
  NS_RETURN_IF_ERROR(Annotate(TrialRun(*parts), directory.string()));
  return std::make_shared<const UniversalCostModel>(parts, nullptr);
}

StatusOr<std::shared_ptr<const CostModel>> LoadCostModel(const ModelManifest& manifest,
                                                         const std::filesystem::path& directory) {
  NS_ASSIGN_OR_RETURN(std::shared_ptr<const CostModel> model,
                      manifest.universal ? LoadUniversalCostModel(manifest, directory)
                                         : LoadNeuralCostModel(manifest, directory));
  if (!manifest.fabric) return model;
  return MakeFabricCostModel(std::move(model), *manifest.fabric);
}

}  // namespace neuroshard
