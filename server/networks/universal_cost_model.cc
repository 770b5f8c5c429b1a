#include "server/networks/universal_cost_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "server/cost/fabric/fabric_cost_model.h"
#include "server/cost/unmeasured_compute.h"
#include "server/cost/volume_equivalent.h"
#include "server/networks/manifest_info.h"
#include "server/networks/network_tensors.h"
#include "server/networks/neural_cost_model.h"
#include "server/networks/safetensors.h"
#include "server/networks/universal_comm.h"
#include "server/networks/universal_compute.h"

namespace neuroshard {
namespace {

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
  ModelCoverage& coverage = info.coverage;
  coverage.ranges = {
      trained_on.min_batch_size, trained_on.max_batch_size, trained_on.weight_dtypes,
      trained_on.optimizers,     trained_on.min_ranks,      trained_on.max_ranks,
      trained_on.max_hosts,      trained_on.pooling_modes,  trained_on.compute_kernels};
  coverage.features = manifest.universal->features;
  coverage.max_ranks = manifest.comm ? UniversalComm::kMaxRanks : 1;
  coverage.measured_types = MeasuredTypes(trained_on);
  if (manifest.comm) coverage.sharding_types = DefaultTypes(coverage.measured_types);
  info.properties.splits_compute = manifest.universal->outputs.size() == 2;
  info.properties.comm_run_a_rank = true;
  if (manifest.input_dist) {
    info.properties.measured_input_dist = manifest.input_dist->measured;
    info.properties.input_dist_interval = manifest.input_dist->interval;
  }
  info.properties.measured_casts = manifest.casts;
  info.properties.convex_compute = true;  // no negative weight behind the head's relu
  return info;
}

class UniversalCostModel final : public CostModel {
 public:
  // `comm` null: one rank alone.
  UniversalCostModel(CostModelInfo info, std::shared_ptr<const UniversalCompute> compute,
                     std::unique_ptr<const UniversalComm> comm)
      : CostModel(std::move(info)), compute_(std::move(compute)), comm_(std::move(comm)) {}

  StatusOr<BoundCostModel> Bind(const PricingConditions& conditions) const override {
    const bool one_rank = conditions.num_ranks == 1;
    std::shared_ptr<const CommModel> comm = CommOfOneRank();
    if (!one_rank && comm_ == nullptr) {
      return FailedPrecondition(
          "cost model {} version {} has no communication network: it prices 1 device, got {}",
          info().name, info().version, conditions.num_ranks);
    }
    if (!one_rank) {
      NS_ASSIGN_OR_RETURN(comm, comm_->Bind(conditions));
    }
    const ModelCoverage& coverage = info().coverage;
    return BoundCostModel(conditions, info().properties,
                          one_rank || Measured(coverage.ranges, conditions)
                              ? coverage.sharding_types
                              : ModelCoverage().sharding_types,
                          WithUnmeasured(compute_, info(), conditions), std::move(comm));
  }

  // The first caller pays for no page faults, and what is not finite here never will be.
  Status TrialRun() const {
    const double compute_ms = compute_->TrialRun();
    if (!std::isfinite(compute_ms)) {
      return InvalidArgument("compute network: a trial run gives {}, must be finite", compute_ms);
    }
    if (comm_ == nullptr) return absl::OkStatus();
    PricingConditions conditions;
    conditions.num_ranks = 2;
    NS_ASSIGN_OR_RETURN(const auto comm, comm_->Bind(conditions));
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

 private:
  const std::shared_ptr<const UniversalCompute> compute_;
  const std::unique_ptr<const UniversalComm> comm_;
};

}  // namespace

StatusOr<std::shared_ptr<const CostModel>> LoadUniversalCostModel(
    const ModelManifest& manifest, const std::filesystem::path& directory) {
  const UniversalComputeManifest& compute = manifest.universal.value();
  NS_ASSIGN_OR_RETURN(const TensorFile file,
                      ReadNetworkFile(directory / compute.file, UniversalComputeTensors(compute)));
  std::unique_ptr<const UniversalComm> comm;
  if (manifest.comm) {
    NS_ASSIGN_OR_RETURN(
        const TensorFile comm_file,
        ReadNetworkFile(directory / manifest.comm->file, UniversalCommTensors(*manifest.comm)));
    comm = std::make_unique<const UniversalComm>(
        *manifest.comm, manifest.trained_on.value_or(TrainedOnManifest()), comm_file);
  }
  auto model = std::make_shared<const UniversalCostModel>(
      InfoOf(manifest), std::make_shared<const UniversalCompute>(compute, file), std::move(comm));
  NS_RETURN_IF_ERROR(Annotate(model->TrialRun(), directory.string()));
  return model;
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
