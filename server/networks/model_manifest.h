// model.yaml of the model repository: format neuroshard-cost-model/2 (README of this folder has
// every key).
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/domain/topology.h"
#include "server/cost/analytic/shard_perf.h"
#include "server/cost/cost_model.h"
#include "server/cost/interval_rule.h"
#include "server/cost/measured_rates.h"

namespace neuroshard {

inline constexpr std::string_view kModelFormat = "neuroshard-cost-model";  // /1 or /2
inline constexpr std::string_view kManifestFileName = "model.yaml";

// Kinds of networks. The first two are the NeuroShard paper's.
enum class NetworkKind {
  kTableSum,           // compute(rank) = head(sum over its shards of phi(z))
  kDeviceCount,        // communication of one rank count D: D dim sums and, forward, D start
                       // offsets (ms) in, D costs (ms) out
  kUniversalTableSum,  // network_compute.h
  kUniversalComm,      // universal_comm.h
};

NS_WORDS(NetworkKind, {kTableSum, "table_sum_mlp"}, {kDeviceCount, "device_count_mlp"},
         {kUniversalTableSum, "universal_table_sum"}, {kUniversalComm, "universal_comm"});

// Whether it is of compute: a function of the sum of phi over tables.
constexpr bool SumsTables(NetworkKind kind) {
  return kind == NetworkKind::kTableSum || kind == NetworkKind::kUniversalTableSum;
}
// Whether it is an ensemble over conditions of all kinds, and none of NeuroShard's networks.
constexpr bool IsUniversal(NetworkKind kind) {
  return kind == NetworkKind::kUniversalTableSum || kind == NetworkKind::kUniversalComm;
}

// Most ranks that a manifest may state and that communication networks price.
inline constexpr int kMaxRanks = 16384;

// Largest width of a layer of a universal communication network.
inline constexpr std::int64_t kMaxCommLayerWidth = 256;

// Number of members whose mean prices: most of the gain of the mean of all, in half of its time
// (server/networks/DECISIONS.md).
inline constexpr int kMaxPricingMembers = 2;

// A network of a model. Widths go from input to output, with ReLU between layers. Those of universal
// kinds are ensembles: the mean of the first members prices; the differences between all members
// give the intervals.
struct NetworkManifest {
  NetworkKind kind = NetworkKind::kTableSum;
  std::string file;  // safetensors, relative to the model's directory
  // Input columns in order: of FeatureColumns, ComputeFeatureNames (each once), or exactly
  // CommFeatureNames. kDeviceCount has none.
  std::vector<std::string> features;
  std::map<std::string, std::string> transforms;  // kTableSum: feature -> "log1p"
  std::int64_t cache_bytes = 0;                   // kUniversalTableSum: of the device; 0: not known
  int num_devices = 0;                            // kDeviceCount
  // Widths; where tables are summed, those of phi, whose last layer has a ReLU in kTableSum alone.
  std::vector<std::int64_t> layers;
  std::vector<std::int64_t> head_layers;  // from the sum of phi over tables to the outputs
  std::vector<std::string> outputs = {"total_ms"};  // or {"forward_ms", "backward_ms"}
  int members = 1;
  // Interval of all costs; for kUniversalComm, of the collectives that `intervals` lacks.
  std::optional<IntervalManifest> interval;
  std::map<std::string, IntervalManifest> intervals;  // kUniversalComm: by CollectiveName

  bool sums_tables() const { return SumsTables(kind); }
  bool is_universal() const { return IsUniversal(kind); }
  int pricing_members() const { return std::min(members, kMaxPricingMembers); }
  // Returns the width of kUniversalTableSum's one hidden layer of the head.
  std::int64_t head_width() const { return head_layers.size() == 3 ? head_layers[1] : 0; }
  // Returns the interval of a collective; null where the model has none.
  const IntervalManifest* IntervalOf(const std::string& collective) const {
    const auto own = intervals.find(collective);
    if (own != intervals.end()) return &own->second;
    return interval ? &*interval : nullptr;
  }

  bool operator==(const NetworkManifest&) const = default;
};

// Kind torchrec: TorchRec's formulas for compute and communication, with these coefficients.
inline constexpr std::string_view kTorchRecComputeKind = "torchrec";
struct TorchRecComputeManifest {
  std::vector<KernelCoefficients> coefficients;  // at least one; a type and kernel once

  bool operator==(const TorchRecComputeManifest&) const = default;
};

// Section input_dist.
struct InputDistManifest {
  MeasuredInputDist measured;
  std::optional<IntervalManifest> interval;

  bool operator==(const InputDistManifest&) const = default;
};

// Conditions of the samples that a model was trained on. Zero or empty: not stated, but for
// compute_kernels, of which empty means "fused" alone.
struct TrainedOnManifest : ConditionRanges {
  std::vector<std::string> weighted;     // "true", "false"
  std::vector<std::string> collectives;  // of CollectiveName

  bool operator==(const TrainedOnManifest&) const = default;
};

// A valid model.yaml. What it was measured with is its section hardware; an empty text was not
// stated, but for collective_cadence, which is kBarrier then where collectives were measured.
struct ModelManifest : MeasuredWith {
  std::string name;  // letters, digits, '.', '_', '-'; starts with a letter or digit; at most 128
  int version = 0;   // >= 1
  std::int64_t global_batch_size = 0;  // conditions; 0: not stated
  std::string weight_dtype;            // a word of DataType; empty: not stated
  std::string optimizer;               // a word of Optimizer; empty: not stated
  std::string unusable_reason;         // quality; empty: usable
  // kTableSum or kUniversalTableSum; without a file where `torchrec` is there.
  NetworkManifest compute;
  std::vector<NetworkManifest> forward_comm;  // with kTableSum: kDeviceCount, ascending num_devices
  std::vector<NetworkManifest> backward_comm;  // as forward_comm
  std::optional<NetworkManifest> comm;         // with kUniversalTableSum: kUniversalComm
  // Kind torchrec; then there are no networks.
  std::optional<TorchRecComputeManifest> torchrec;
  // What universal networks were trained on.
  std::optional<TrainedOnManifest> trained_on;
  // With universal networks:
  std::optional<MeasuredSteps> steps;           // none: not recorded
  std::optional<InputDistManifest> input_dist;  // none: a formula prices it
  MeasuredCasts casts;                          // a type that it does not have: a formula prices it
  // Section comm of kind fabric, with any kind of compute: communication was not measured; then
  // `comm` and the lists above are empty.
  std::optional<Fabric> fabric;
  bool files_listed = true;  // format /2: the version has a list of its files (model_directory.h)
  std::vector<StageDrift> drift;  // of drift.yaml beside model.yaml, not of its text
  std::string digest;             // of the version's files (model_directory.h), not of its text
  std::map<std::string, std::string>
      metrics;  // nested keys joined by dots: "compute.kendall_tau" -> "0.97"
  std::map<std::string, std::string> provenance;  // keys as in metrics

  bool is_universal() const { return compute.is_universal(); }
  // Returns all networks, compute first.
  std::vector<const NetworkManifest*> networks() const;

  bool operator==(const ModelManifest&) const = default;
};

// Returns how the collectives were measured that the model learned from, a word of Cadence; empty:
// none were.
std::string CadenceOf(const ModelManifest& manifest);

// Returns what the manifest says of its model. For kind torchrec that is only name, version,
// hardware, conditions, quality, drift, metrics and provenance; the caller fills in the rest.
CostModelInfo InfoOfManifest(const ModelManifest& manifest);

// Returns INVALID_ARGUMENT with every fault of the text as Violations, each with the path of its
// key ("compute.table_layers[0]"). Lists of networks are sorted by num_devices.
StatusOr<ModelManifest> ParseModelManifest(std::string_view yaml);

// Returns a text, with keys in a fixed order, that ParseModelManifest reads back as an equal value,
// apart from `drift` and `digest`. INVALID_ARGUMENT with the faults of a manifest that parsing
// would refuse.
StatusOr<std::string> FormatModelManifest(const ModelManifest& manifest);

// Returns INVALID_ARGUMENT unless `directory` ends in the manifest's NAME/VERSION.
Status CheckModelDirectory(const std::filesystem::path& directory, const ModelManifest& manifest);

// Reads DIRECTORY/model.yaml, with drift.yaml where there is one. DIRECTORY must end in the
// manifest's NAME/VERSION and have the files of its list. Errors name the file.
StatusOr<ModelManifest> ReadModelManifest(const std::filesystem::path& directory);

}  // namespace neuroshard
