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
#include "server/cost/measured_casts.h"
#include "server/cost/measured_input_dist.h"
#include "server/cost/measured_steps.h"

namespace neuroshard {

inline constexpr std::string_view kModelFormat = "neuroshard-cost-model";  // /1 or /2
inline constexpr std::string_view kManifestFileName = "model.yaml";

// NeuroShard's compute network: compute(rank) = head(sum over its shards of phi(z)). Widths go from
// input to output.
struct ComputeNetworkManifest {
  std::string file;                               // safetensors, relative to the model's directory
  std::vector<std::string> features;              // input columns in order (FeatureColumns)
  std::map<std::string, std::string> transforms;  // feature -> "log1p"
  std::vector<std::int64_t> table_layers;         // phi: ReLU after each layer
  std::vector<std::int64_t> head_layers;          // ReLU between layers
  std::vector<std::string> outputs = {"total_ms"};  // or {"forward_ms", "backward_ms"}

  bool operator==(const ComputeNetworkManifest&) const = default;
};

// NeuroShard's communication network for one rank count D. Inputs are D dim sums and, forward, D
// start offsets (ms); outputs are D costs (ms).
struct CommNetworkManifest {
  std::string file;
  int num_devices = 0;
  std::vector<std::int64_t> layers;  // ReLU between layers

  bool operator==(const CommNetworkManifest&) const = default;
};

inline constexpr std::string_view kUniversalComputeKind = "universal_table_sum";
inline constexpr std::string_view kUniversalCommKind = "universal_comm";
// Largest width of a layer of a communication network.
inline constexpr std::int64_t kMaxCommLayerWidth = 256;

// Number of members whose mean prices: most of the gain of the mean of all, in half of its time
// (server/networks/DECISIONS.md).
inline constexpr int kMaxPricingMembers = 2;

// Kind universal_table_sum. The mean of the first members prices; the differences between all
// members give the intervals.
struct UniversalComputeManifest {
  std::string file;                        // safetensors, relative to the model's directory
  std::vector<std::string> features;       // of ComputeFeatureNames, each once
  std::int64_t cache_bytes = 0;            // of the device; 0: not known
  std::vector<std::int64_t> table_layers;  // phi: features to representation
  std::int64_t head_width = 0;
  std::vector<std::string> outputs = {"total_ms"};  // or {"forward_ms", "backward_ms"}
  int members = 1;
  std::optional<IntervalManifest> interval;

  int pricing_members() const { return std::min(members, kMaxPricingMembers); }
  bool operator==(const UniversalComputeManifest&) const = default;
};

// Kind universal_comm.
struct UniversalCommManifest {
  std::string file;
  std::vector<std::string> features;  // exactly CommFeatureNames
  std::vector<std::int64_t> layers;   // 22 to 1
  int members = 1;
  std::optional<IntervalManifest> interval;           // of collectives that have none of their own
  std::map<std::string, IntervalManifest> intervals;  // by CollectiveName

  int pricing_members() const { return std::min(members, kMaxPricingMembers); }
  // Returns the interval of a collective; null where the model has none.
  const IntervalManifest* IntervalOf(const std::string& collective) const {
    const auto own = intervals.find(collective);
    if (own != intervals.end()) return &own->second;
    return interval ? &*interval : nullptr;
  }

  bool operator==(const UniversalCommManifest&) const = default;
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

// A valid model.yaml.
struct ModelManifest {
  std::string name;    // letters, digits, '.', '_', '-'; starts with a letter or digit; at most 128
  int version = 0;     // >= 1
  std::string device;  // hardware; empty: not stated
  std::string backend;             // whose kernels were timed (backend_names.h); empty: not stated
  std::string collective_backend;  // whose collectives; empty: not stated, or not measured
  std::string collective_cadence;  // a word of Cadence; empty: kBarrier, where it was measured
  std::int64_t global_batch_size = 0;             // conditions; 0: not stated
  std::string weight_dtype;                       // a word of DataType; empty: not stated
  std::string optimizer;                          // a word of Optimizer; empty: not stated
  std::string unusable_reason;                    // quality; empty: usable
  ComputeNetworkManifest compute;                 // kind table_sum_mlp, unless `universal` is there
  std::vector<CommNetworkManifest> forward_comm;  // ascending num_devices; may be empty
  std::vector<CommNetworkManifest> backward_comm;  // ascending num_devices; may be empty
  // Kind universal_table_sum, with its communication and what both were trained on; then `compute`
  // and the lists above are empty.
  std::optional<UniversalComputeManifest> universal;
  // Kind torchrec; then `compute` and all other networks are empty.
  std::optional<TorchRecComputeManifest> torchrec;
  std::optional<UniversalCommManifest> comm;
  std::optional<TrainedOnManifest> trained_on;
  std::optional<MeasuredSteps> steps;           // with `universal`; none: not recorded
  std::optional<InputDistManifest> input_dist;  // with `universal`; none: a formula prices it
  MeasuredCasts casts;  // with `universal`; a type that it does not have: a formula prices it
  // Section comm of kind fabric, with any kind of compute: communication was not measured; then
  // `comm` and the lists above are empty.
  std::optional<Fabric> fabric;
  bool files_listed = true;       // format /2: the version has a list of its files (model_files.h)
  std::vector<StageDrift> drift;  // of drift.yaml beside model.yaml, not of its text
  std::string digest;             // of the version's files (model_files.h), not of its text
  std::map<std::string, std::string>
      metrics;  // nested keys joined by dots: "compute.kendall_tau" -> "0.97"
  std::map<std::string, std::string> provenance;  // the same

  bool operator==(const ModelManifest&) const = default;
};

// Returns how the collectives were measured that the model learned from, a word of Cadence; empty:
// none were.
std::string CadenceOf(const ModelManifest& manifest);

// Returns the parts of the info that every kind of model has: name, version, hardware, conditions,
// quality, drift, metrics and provenance. The caller fills in the rest.
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
