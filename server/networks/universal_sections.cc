#include "server/networks/universal_sections.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "common/base/printable_text.h"
#include "common/domain/vocabulary.h"
#include "server/cost/comm_features.h"
#include "server/cost/compute_features.h"
#include "server/networks/interval_section.h"
#include "server/networks/manifest_fields.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kMaxMembers = 64;
constexpr std::int64_t kMaxRanks = 16384;
constexpr std::int64_t kMaxBatchSize = std::int64_t{1} << 40;

// Those that are there, each of `known`.
std::vector<std::string> ReadKnown(ConfigReader& section, std::string_view key,
                                   std::span<const std::string_view> known) {
  std::vector<std::string> texts;
  section.Read(key, &texts);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (std::find(known.begin(), known.end(), texts[i]) == known.end()) {
      section.AddViolation(
          fmt::format("{}[{}]", key, i),
          fmt::format("must be one of {}, got {}", fmt::join(known, ", "), Quoted(texts[i])));
    }
  }
  return texts;
}

// Required; each once.
std::vector<std::string> ReadFeatures(ConfigReader& section,
                                      std::span<const std::string_view> known) {
  section.Require({"features"});
  std::vector<std::string> features = ReadKnown(section, "features", known);
  std::set<std::string_view> seen;
  for (std::size_t i = 0; i < features.size(); ++i) {
    if (seen.insert(features[i]).second) continue;
    section.AddViolation(fmt::format("features[{}]", i),
                         fmt::format("{} is given twice", Quoted(features[i])));
  }
  return features;
}

void CheckWidth(ConfigReader& section, std::string_view key, std::size_t position,
                const std::vector<std::int64_t>& widths, std::size_t expected,
                std::string_view what) {
  if (widths.empty() || widths[position] == static_cast<std::int64_t>(expected)) return;
  section.AddViolation(fmt::format("{}[{}]", key, position),
                       fmt::format("must be {}, {}, got {}", what, expected, widths[position]));
}

template <typename E>
std::vector<std::string_view> WordsIn() {
  std::vector<std::string_view> words;
  for (const auto& word : kWords<E>) words.push_back(word.text);
  return words;
}

// Kernels whose lookups can have been measured.
std::vector<std::string_view> MeasurableKernels() {
  std::vector<std::string_view> words;
  for (const auto& word : kWords<ComputeKernel>) {
    if (IsMeasurable(word.value)) words.push_back(word.text);
  }
  return words;
}

// {min, max}, if it is there.
template <typename T>
void ReadRange(ConfigReader& owner, std::string_view key, std::int64_t most, T* min, T* max) {
  auto section = owner.SectionIfGiven(key);
  if (!section) return;
  section->Require({"min", "max"});
  section->Read("min", min, {1, most});
  section->Read("max", max, {1, most});
  if (*min > *max) {
    section->AddViolation("min", fmt::format("must be at most max = {}, got {}", *max, *min));
  }
}

template <typename T>
void EmitKnown(YAML::Emitter& out, std::string_view key, const std::vector<T>& values) {
  if (!values.empty()) EmitList(out, key, values);
}

void EmitRange(YAML::Emitter& out, std::string_view key, std::int64_t low, std::int64_t high) {
  if (high == 0) return;
  out << YAML::Key << std::string(key) << YAML::Value << YAML::Flow << YAML::BeginMap;
  EmitScalar(out, "min", low);
  EmitScalar(out, "max", high);
  out << YAML::EndMap;
}

}  // namespace

UniversalComputeManifest ReadUniversalCompute(ConfigReader section) {
  UniversalComputeManifest compute;
  RequireConstant(section, "kind", kUniversalComputeKind);
  compute.file = ReadFileName(section, "file");
  compute.features = ReadFeatures(section, ComputeFeatureNames());
  section.Read("cache_bytes", &compute.cache_bytes, {0, std::int64_t{1} << 50});
  compute.table_layers = ReadLayers(section, "table_layers");
  CheckWidth(section, "table_layers", 0, compute.table_layers, compute.features.size(),
             "the number of features");
  section.Require({"head_width"});
  section.Read("head_width", &compute.head_width, {1, kMaxLayerWidth});
  compute.outputs = ReadOutputs(section);
  section.Read("members", &compute.members, {1, kMaxMembers});
  compute.interval = ReadInterval(section);
  return compute;
}

UniversalCommManifest ReadUniversalComm(ConfigReader section) {
  UniversalCommManifest comm;
  RequireConstant(section, "kind", kUniversalCommKind);
  comm.file = ReadFileName(section, "file");
  comm.features = ReadFeatures(section, CommFeatureNames());
  // Which weights have to be at least 0 goes by position.
  if (!std::equal(comm.features.begin(), comm.features.end(), CommFeatureNames().begin(),
                  CommFeatureNames().end())) {
    section.AddViolation("features",
                         fmt::format("must be [{}]", fmt::join(CommFeatureNames(), ", ")));
  }
  comm.layers = ReadLayers(section, "layers");
  CheckWidth(section, "layers", 0, comm.layers, kCommFeatures, "the number of features");
  if (!comm.layers.empty()) {
    CheckWidth(section, "layers", comm.layers.size() - 1, comm.layers, 1, "one cost");
    for (std::size_t i = 0; i < comm.layers.size(); ++i) {
      if (comm.layers[i] <= kMaxCommLayerWidth) continue;
      section.AddViolation(
          fmt::format("layers[{}]", i),
          fmt::format("must be at most {}, got {}", kMaxCommLayerWidth, comm.layers[i]));
    }
  }
  section.Read("members", &comm.members, {1, kMaxMembers});
  comm.interval = ReadInterval(section);
  comm.intervals = ReadIntervals(section);
  return comm;
}

TrainedOnManifest ReadTrainedOn(ConfigReader section) {
  TrainedOnManifest trained_on;
  ReadRange(section, "global_batch_size", kMaxBatchSize, &trained_on.min_batch_size,
            &trained_on.max_batch_size);
  trained_on.weight_dtypes = ReadKnown(section, "weight_dtypes", WordsIn<DataType>());
  trained_on.optimizers = ReadKnown(section, "optimizers", WordsIn<Optimizer>());
  trained_on.weighted =
      ReadKnown(section, "weighted", std::vector<std::string_view>{"true", "false"});
  trained_on.pooling_modes = ReadKnown(section, "pooling_modes", WordsIn<PoolingMode>());
  trained_on.compute_kernels = ReadKnown(section, "compute_kernels", MeasurableKernels());
  ReadRange(section, "num_ranks", kMaxRanks, &trained_on.min_ranks, &trained_on.max_ranks);
  section.Read("max_hosts", &trained_on.max_hosts, {1, kMaxRanks});
  std::vector<std::string_view> collectives;
  for (std::size_t kind = 0; kind < kCollectiveKinds; ++kind) {
    collectives.push_back(CollectiveName(static_cast<CollectiveKind>(kind)));
  }
  trained_on.collectives = ReadKnown(section, "collectives", collectives);
  return trained_on;
}

void EmitUniversalCompute(YAML::Emitter& out, const UniversalComputeManifest& compute) {
  out << YAML::Key << "compute" << YAML::Value << YAML::BeginMap;
  EmitScalar(out, "file", compute.file);
  EmitScalar(out, "kind", kUniversalComputeKind);
  EmitList(out, "features", compute.features);
  if (compute.cache_bytes != 0) EmitScalar(out, "cache_bytes", compute.cache_bytes);
  EmitList(out, "table_layers", compute.table_layers);
  EmitScalar(out, "head_width", compute.head_width);
  EmitList(out, "outputs", compute.outputs);
  EmitScalar(out, "members", compute.members);
  EmitInterval(out, compute.interval);
  out << YAML::EndMap;
}

void EmitUniversalComm(YAML::Emitter& out, const UniversalCommManifest& comm) {
  out << YAML::Key << "comm" << YAML::Value << YAML::BeginMap;
  EmitScalar(out, "file", comm.file);
  EmitScalar(out, "kind", kUniversalCommKind);
  EmitList(out, "features", comm.features);
  EmitList(out, "layers", comm.layers);
  EmitScalar(out, "members", comm.members);
  EmitInterval(out, comm.interval);
  EmitIntervals(out, comm.intervals);
  out << YAML::EndMap;
}

void EmitTrainedOn(YAML::Emitter& out, const TrainedOnManifest& trained_on) {
  out << YAML::Key << "trained_on" << YAML::Value << YAML::BeginMap;
  EmitRange(out, "global_batch_size", trained_on.min_batch_size, trained_on.max_batch_size);
  EmitKnown(out, "weight_dtypes", trained_on.weight_dtypes);
  EmitKnown(out, "optimizers", trained_on.optimizers);
  EmitKnown(out, "weighted", trained_on.weighted);
  EmitKnown(out, "pooling_modes", trained_on.pooling_modes);
  EmitKnown(out, "compute_kernels", trained_on.compute_kernels);
  EmitRange(out, "num_ranks", trained_on.min_ranks, trained_on.max_ranks);
  if (trained_on.max_hosts != 0) EmitScalar(out, "max_hosts", trained_on.max_hosts);
  EmitKnown(out, "collectives", trained_on.collectives);
  out << YAML::EndMap;
}

}  // namespace neuroshard
