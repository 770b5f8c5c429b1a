#include "server/networks/network_cost_model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "server/cost/analytic/analytic_cost_model.h"
#include "server/cost/fabric/fabric_cost_model.h"
#include "server/cost/unmeasured_compute.h"
#include "server/cost/volume_equivalent.h"
#include "server/networks/mlp_network.h"
#include "server/networks/network_compute.h"
#include "server/networks/network_tensors.h"
#include "server/networks/universal_comm.h"

namespace neuroshard {
namespace {

// Whether the samples had collectives of so many ranks on so many hosts.
bool Measured(const ConditionRanges& ranges, const PricingConditions& conditions) {
  return conditions.num_ranks >= ranges.min_ranks && conditions.num_ranks <= ranges.max_ranks &&
         std::ssize(conditions.hosts) <= std::max(1, ranges.max_hosts);
}

// One of NeuroShard's communication networks: dim sums of the ranks, and forward their start
// offsets, in; a cost for each rank out.
struct NeuralNetwork {
  Normalisation normalisation;
  MlpNetwork mlp;

  // Computes `cost_ms`, [n, ranks], unclamped. `parts` are [n, ranks] each and together the inputs.
  void Run(std::span<const std::span<const float>> parts, std::span<float> cost_ms) const {
    constexpr std::size_t kBlockRows = 1024;  // whose inputs are laid out together
    thread_local std::vector<float> inputs;   // so that calls ask for no memory
    const auto ranks = static_cast<std::size_t>(mlp.output_width());
    assert(parts.size() * ranks == static_cast<std::size_t>(mlp.input_width()));
    const std::size_t rows = cost_ms.size() / ranks;
    for (std::size_t begin = 0; begin < rows; begin += kBlockRows) {
      const std::size_t end = std::min(begin + kBlockRows, rows);
      inputs.clear();
      for (std::size_t row = begin; row < end; ++row) {
        std::size_t column = 0;
        for (const std::span<const float> part : parts) {
          for (const float value : part.subspan(row * ranks, ranks)) {
            inputs.push_back(normalisation.Apply(column++, value));
          }
        }
      }
      mlp.Run(static_cast<std::int64_t>(end - begin), inputs,
              cost_ms.subspan(begin * ranks, (end - begin) * ranks));
    }
  }
};

// Both directions at one rank count; null: there is no network.
struct NeuralDirections {
  std::shared_ptr<const NeuralNetwork> forward;
  std::shared_ptr<const NeuralNetwork> backward;
};

// Loads are VolumeEquivalent's; every cost is at least 0 and finite.
class BoundNeuralComm final : public CommModel {
 public:
  BoundNeuralComm(const PricingConditions& conditions, NeuralDirections networks)
      : conditions_(conditions), networks_(std::move(networks)) {}

  CommLoad Load(const ShardFeatures& shard) const override {
    return VolumeEquivalent(conditions_, shard);
  }

  void Costs(CommStage stage, std::span<const float> loads, std::span<const float> start_offsets_ms,
             std::span<float> cost_ms) const override {
    const bool forward = stage == CommStage::kForward;
    const std::span<const float> parts[] = {loads, start_offsets_ms};
    const NeuralNetwork& network = forward ? *networks_.forward : *networks_.backward;
    network.Run(std::span(parts).first(forward ? 2 : 1), cost_ms);
    for (float& value : cost_ms) value = FiniteCost(value);
  }

 private:
  const PricingConditions conditions_;
  const NeuralDirections networks_;
};

// Checks the costs of a trial run: a network that gives one here that is not finite is useless. The
// run also spares the first caller its page faults.
Status CheckTrial(const std::filesystem::path& directory, std::string_view network,
                  std::span<const float> values) {
  for (const float value : values) {
    if (std::isfinite(value)) continue;
    return InvalidArgument("{}: {}: a trial run gives {}, must be finite", directory.string(),
                           network, value);
  }
  return absl::OkStatus();
}

// The communication half of NeuroShard's networks, by the rank counts that have both directions.
using NeuralComm = std::map<int, NeuralDirections>;

// Reads the manifest's files in `directory` and runs every network once, to refuse results that are
// not finite. Errors are those of ReadNetworkFile.
StatusOr<NeuralComm> LoadNeuralComm(const ModelManifest& manifest,
                                    const std::filesystem::path& directory) {
  NeuralComm comm;
  for (const bool forward : {true, false}) {
    for (const auto& of_count : forward ? manifest.forward_comm : manifest.backward_comm) {
      const int ranks = of_count.num_devices;
      NS_ASSIGN_OR_RETURN(const TensorFile file, ReadNetworkFile(directory, of_count));
      const auto network = std::make_shared<const NeuralNetwork>(NeuralNetwork{
          Normalisation(file), MlpNetwork(file, "layer", of_count.layers, DenseActivation::kNone)});
      const std::vector<float> dim_sums(static_cast<std::size_t>(ranks), 512.0F);
      const std::vector<float> start_offsets_ms(dim_sums.size(), 0.0F);
      std::vector<float> cost_ms(dim_sums.size());
      const std::span<const float> parts[] = {dim_sums, start_offsets_ms};
      network->Run(std::span(parts).first(forward ? 2 : 1), cost_ms);
      NS_RETURN_IF_ERROR(CheckTrial(directory,
                                    fmt::format("{} communication network for {} devices",
                                                forward ? "forward" : "backward", ranks),
                                    cost_ms));
      (forward ? comm[ranks].forward : comm[ranks].backward) = network;
    }
  }
  std::erase_if(comm, [](const auto& of_count) {
    return of_count.second.forward == nullptr || of_count.second.backward == nullptr;
  });
  return comm;
}

// The communication of so many ranks as the conditions have, two or more; FAILED_PRECONDITION for a
// number that the model does not know.
using BindComm = std::function<StatusOr<std::shared_ptr<const CommModel>>(
    const CostModelInfo&, const PricingConditions&)>;

class NetworkCostModel final : public CostModel {
 public:
  NetworkCostModel(CostModelInfo info, std::shared_ptr<const NetworkCompute> compute,
                   BindComm bind_comm)
      : CostModel(std::move(info)),
        compute_(std::move(compute)),
        bind_comm_(std::move(bind_comm)) {}

  StatusOr<BoundCostModel> Bind(const PricingConditions& conditions) const override {
    const bool one_rank = conditions.num_ranks == 1;
    if (conditions.optimizer == Optimizer::kNone && !info().properties.splits_compute) {
      return FailedPrecondition(
          "cost model {} version {} does not tell the forward pass, which optimizer none asks for, "
          "from the backward pass",
          info().name, info().version);
    }
    std::shared_ptr<const CommModel> comm = CommOfOneRank();
    if (!one_rank) {
      NS_ASSIGN_OR_RETURN(comm, bind_comm_(info(), conditions));
    }
    const ModelCoverage& coverage = info().coverage;
    return BoundCostModel(conditions, info().properties,
                          one_rank || Measured(coverage.ranges, conditions)
                              ? coverage.sharding_types
                              : ModelCoverage().sharding_types,
                          WithUnmeasured(compute_, info(), conditions), std::move(comm));
  }

 private:
  const std::shared_ptr<const NetworkCompute> compute_;
  const BindComm bind_comm_;
};

// The communication of the manifest's networks.
StatusOr<BindComm> LoadComm(const ModelManifest& manifest, const std::filesystem::path& directory) {
  if (manifest.comm) {
    NS_ASSIGN_OR_RETURN(const TensorFile file, ReadNetworkFile(directory, *manifest.comm));
    const UniversalComm comm(*manifest.comm, manifest.trained_on.value_or(TrainedOnManifest()),
                             file);
    PricingConditions two_ranks;
    two_ranks.num_ranks = 2;
    NS_ASSIGN_OR_RETURN(const auto bound, comm.Bind(two_ranks));
    float cost_ms[2];
    bound->ForwardCosts(std::array{512.0F, 512.0F}, std::array{0.0F, 1.0F}, cost_ms);
    NS_RETURN_IF_ERROR(CheckTrial(directory, "communication network", cost_ms));
    return [comm](const CostModelInfo& /*info*/, const PricingConditions& conditions) {
      return comm.Bind(conditions);
    };
  }
  if (manifest.is_universal()) {
    return [](const CostModelInfo& info, const PricingConditions& conditions) {
      return FailedPrecondition(
          "cost model {} version {} has no communication network: it prices 1 device, got {}",
          info.name, info.version, conditions.num_ranks);
    };
  }
  NS_ASSIGN_OR_RETURN(const NeuralComm comm, LoadNeuralComm(manifest, directory));
  return [comm](const CostModelInfo& info,
                const PricingConditions& conditions) -> StatusOr<std::shared_ptr<const CommModel>> {
    if (const auto found = comm.find(conditions.num_ranks); found != comm.end()) {
      return std::make_shared<const BoundNeuralComm>(conditions, found->second);
    }
    const std::vector<int>& counts = info.coverage.num_devices;
    return FailedPrecondition(
        "cost model {} version {} has no communication networks for {} devices; it has them for {}",
        info.name, info.version, conditions.num_ranks,
        counts.empty() ? "none (1 device needs no communication)"
                       : fmt::format("{}", fmt::join(counts, ", ")));
  };
}

StatusOr<std::shared_ptr<const CostModel>> LoadNetworks(const ModelManifest& manifest,
                                                        const std::filesystem::path& directory) {
  NS_ASSIGN_OR_RETURN(const TensorFile file, ReadNetworkFile(directory, manifest.compute));
  NS_ASSIGN_OR_RETURN(BindComm bind_comm, LoadComm(manifest, directory));
  auto compute = std::make_shared<const NetworkCompute>(manifest.compute, file);
  const auto compute_ms = static_cast<float>(compute->TrialRun());
  NS_RETURN_IF_ERROR(CheckTrial(directory, "compute network", {&compute_ms, 1}));
  CostModelInfo info = InfoOfManifest(manifest);
  return std::make_shared<const NetworkCostModel>(std::move(info), std::move(compute),
                                                  std::move(bind_comm));
}

}  // namespace

StatusOr<std::shared_ptr<const CostModel>> LoadCostModel(const ModelManifest& manifest,
                                                         const std::filesystem::path& directory) {
  if (manifest.torchrec) {
    return MakeAnalyticCostModel(InfoOfManifest(manifest), manifest.torchrec->coefficients);
  }
  NS_ASSIGN_OR_RETURN(std::shared_ptr<const CostModel> model, LoadNetworks(manifest, directory));
  if (!manifest.fabric) return model;
  return MakeFabricCostModel(std::move(model), *manifest.fabric);
}

}  // namespace neuroshard
