#include "server/models/universal_sections.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string_view>

#include "common/base/printable_text.h"
#include "common/domain/vocabulary.h"
#include "server/cost/comm_features.h"
#include "server/cost/compute_features.h"
#include "server/models/interval_section.h"
#include "server/models/manifest_section.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kMaxMembers = 64;
constexpr std::int64_t kMostRanks = 16384;

// Features that `known` has, each once.
std::vector<std::string> ReadFeatures(const ManifestSection& section,
                                      std::span<const std::string_view> known) {
  std::vector<std::string> features;
  const YAML::Node* node = section.Require("features");
  if (node == nullptr) return features;
  features = section.Texts("features", *node);
  std::set<std::string_view> seen;
  for (std::size_t i = 0; i < features.size(); ++i) {
    const std::string key = fmt::format("features[{}]", i);
    if (std::find(known.begin(), known.end(), features[i]) == known.end()) {
      section.Fault(key, fmt::format("unknown feature {}", Quoted(features[i])));
    } else if (!seen.insert(features[i]).second) {
      section.Fault(key, fmt::format("{} is stated twice", features[i]));
    }
  }
  return features;
}

// The number of members that price and say how sure they are.
int ReadMembers(const ManifestSection& section) {
  const std::int64_t members = section.Integer("members", 1, kMaxMembers);
  return members == 0 ? 1 : static_cast<int>(members);
}

void CheckWidth(const ManifestSection& section, const std::string& key, std::size_t position,
                const std::vector<std::int64_t>& widths, std::size_t expected,
                std::string_view what) {
  if (widths.empty() || widths[position] == static_cast<std::int64_t>(expected)) return;
  section.Fault(fmt::format("{}[{}]", key, position),
                fmt::format("must be {}, {}, got {}", what, expected, widths[position]));
}

// Those that are there; `known` empty: any.
std::vector<std::string> OptionalTexts(const ManifestSection& section, const std::string& key,
                                       const std::vector<std::string_view>& known) {
  const YAML::Node* node = section.Find(key);
  if (node == nullptr) return {};
  std::vector<std::string> texts = section.Texts(key, *node);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (std::find(known.begin(), known.end(), texts[i]) == known.end()) {
      section.Fault(
          fmt::format("{}[{}]", key, i),
          fmt::format("must be one of {}, got {}", fmt::join(known, ", "), Quoted(texts[i])));
    }
  }
  return texts;
}

template <typename E>
std::vector<std::string_view> WordsIn() {
  std::vector<std::string_view> words;
  for (const auto& word : kWords<E>) words.push_back(word.text);
  return words;
}

// {min, max}; both 0 where `key` is absent.
std::pair<std::int64_t, std::int64_t> ReadRange(const ManifestSection& owner,
                                                const std::string& key, std::int64_t most,
                                                Violations& violations) {
  const YAML::Node* node = owner.Find(key);
  if (node == nullptr) return {0, 0};
  const ManifestSection section(*node, owner.Path(key), {"min", "max"}, violations);
  if (!section.valid()) return {0, 0};
  const std::int64_t low = section.RequiredInteger("min", 1, most);
  const std::int64_t high = section.RequiredInteger("max", 1, most);
  if (low > high) section.Fault("min", fmt::format("must be at most max = {}, got {}", high, low));
  return {low, high};
}

template <typename T>
void EmitFlow(YAML::Emitter& out, const std::string& key, const std::vector<T>& values) {
  if (values.empty()) return;
  out << YAML::Key << key << YAML::Value << YAML::Flow << YAML::BeginSeq;
  for (const T& value : values) out << fmt::format("{}", value);
  out << YAML::EndSeq;
}

void EmitRange(YAML::Emitter& out, const std::string& key, std::int64_t low, std::int64_t high) {
  if (high == 0) return;
  out << YAML::Key << key << YAML::Value << YAML::Flow << YAML::BeginMap;
  out << YAML::Key << "min" << YAML::Value << low << YAML::Key << "max" << YAML::Value << high;
  out << YAML::EndMap;
}

}  // namespace

std::vector<std::string> ReadOutputs(const ManifestSection& section) {
  const std::vector<std::string> total = {"total_ms"};
  const std::vector<std::string> split = {"forward_ms", "backward_ms"};
  const YAML::Node* node = section.Find("outputs");
  if (node == nullptr) return total;
  const std::vector<std::string> outputs = section.Texts("outputs", *node);
  if (outputs == total || outputs == split) return outputs;
  section.Fault("outputs",
                fmt::format("must be [total_ms] or [forward_ms, backward_ms], got {}",
                            node->IsSequence() ? fmt::format("[{}]", fmt::join(outputs, ", "))
                                               : Shown(*node)));
  return outputs;
}

UniversalComputeManifest ReadUniversalCompute(const YAML::Node& node, Violations& violations) {
  UniversalComputeManifest compute;
  const ManifestSection section(node, "compute",
                                {"file", "kind", "features", "cache_bytes", "table_layers",
                                 "head_width", "outputs", "members", "interval"},
                                violations);
  if (!section.valid()) return compute;
  section.Constant("kind", kUniversalComputeKind);
  compute.file = section.File("file");
  compute.features = ReadFeatures(section, ComputeFeatureNames());
  compute.cache_bytes = section.Integer("cache_bytes", 0, std::int64_t{1} << 50);
  compute.table_layers = section.Layers("table_layers");
  CheckWidth(section, "table_layers", 0, compute.table_layers, compute.features.size(),
             "the number of features");
  compute.head_width = section.RequiredInteger("head_width", 1, ManifestSection::kMaxLayerWidth);
  compute.outputs = ReadOutputs(section);
  compute.members = ReadMembers(section);
  compute.interval = ReadInterval(section, violations);
  return compute;
}

UniversalCommManifest ReadUniversalComm(const YAML::Node& node, Violations& violations) {
  UniversalCommManifest comm;
  const ManifestSection section(
      node, "comm", {"file", "kind", "features", "layers", "members", "interval", "intervals"},
      violations);
  if (!section.valid()) return comm;
  section.Constant("kind", kUniversalCommKind);
  comm.file = section.File("file");
  comm.features = ReadFeatures(section, CommFeatureNames());
  // Which weights have to be at least 0 goes by position.
  if (!std::equal(comm.features.begin(), comm.features.end(), CommFeatureNames().begin(),
                  CommFeatureNames().end())) {
    section.Fault("features", fmt::format("must be [{}]", fmt::join(CommFeatureNames(), ", ")));
  }
  comm.layers = section.Layers("layers");
  CheckWidth(section, "layers", 0, comm.layers, kCommFeatures, "the number of features");
  if (!comm.layers.empty()) {
    CheckWidth(section, "layers", comm.layers.size() - 1, comm.layers, 1, "one cost");
    for (std::size_t i = 0; i < comm.layers.size(); ++i) {
      if (comm.layers[i] <= kMaxCommLayerWidth) continue;
      section.Fault(fmt::format("layers[{}]", i),
                    fmt::format("must be at most {}, got {}", kMaxCommLayerWidth, comm.layers[i]));
    }
  }
  comm.members = ReadMembers(section);
  comm.interval = ReadInterval(section, violations);
  comm.intervals = ReadIntervals(section, violations);
  return comm;
}

TrainedOnManifest ReadTrainedOn(const YAML::Node& node, Violations& violations) {
  TrainedOnManifest trained_on;
  const ManifestSection section(node, "trained_on",
                                {"global_batch_size", "weight_dtypes", "optimizers", "weighted",
                                 "pooling_modes", "num_ranks", "max_hosts", "collectives"},
                                violations);
  if (!section.valid()) return trained_on;
  std::tie(trained_on.min_batch_size, trained_on.max_batch_size) =
      ReadRange(section, "global_batch_size", std::int64_t{1} << 40, violations);
  trained_on.weight_dtypes = OptionalTexts(section, "weight_dtypes", WordsIn<DataType>());
  trained_on.optimizers = OptionalTexts(section, "optimizers", WordsIn<Optimizer>());
  trained_on.weighted = OptionalTexts(section, "weighted", {"true", "false"});
  trained_on.pooling_modes = OptionalTexts(section, "pooling_modes", WordsIn<PoolingMode>());
  const auto [min_ranks, max_ranks] = ReadRange(section, "num_ranks", kMostRanks, violations);
  trained_on.min_ranks = static_cast<int>(min_ranks);
  trained_on.max_ranks = static_cast<int>(max_ranks);
  trained_on.max_hosts = static_cast<int>(section.Integer("max_hosts", 1, kMostRanks));
  std::vector<std::string_view> collectives;
  for (std::size_t kind = 0; kind < kCollectiveKinds; ++kind) {
    collectives.push_back(CollectiveName(static_cast<CollectiveKind>(kind)));
  }
  trained_on.collectives = OptionalTexts(section, "collectives", collectives);
  return trained_on;
}

void EmitUniversalCompute(YAML::Emitter& out, const UniversalComputeManifest& compute) {
  out << YAML::Key << "compute" << YAML::Value << YAML::BeginMap;
  out << YAML::Key << "file" << YAML::Value << compute.file;
  out << YAML::Key << "kind" << YAML::Value << std::string(kUniversalComputeKind);
  EmitFlow(out, "features", compute.features);
  if (compute.cache_bytes != 0) {
    out << YAML::Key << "cache_bytes" << YAML::Value << compute.cache_bytes;
  }
  EmitFlow(out, "table_layers", compute.table_layers);
  out << YAML::Key << "head_width" << YAML::Value << compute.head_width;
  EmitFlow(out, "outputs", compute.outputs);
  out << YAML::Key << "members" << YAML::Value << compute.members;
  EmitInterval(out, compute.interval);
  out << YAML::EndMap;
}

void EmitUniversalComm(YAML::Emitter& out, const UniversalCommManifest& comm) {
  out << YAML::Key << "comm" << YAML::Value << YAML::BeginMap;
  out << YAML::Key << "file" << YAML::Value << comm.file;
  out << YAML::Key << "kind" << YAML::Value << std::string(kUniversalCommKind);
  EmitFlow(out, "features", comm.features);
  EmitFlow(out, "layers", comm.layers);
  out << YAML::Key << "members" << YAML::Value << comm.members;
  EmitInterval(out, comm.interval);
  EmitIntervals(out, comm.intervals);
  out << YAML::EndMap;
}

void EmitTrainedOn(YAML::Emitter& out, const TrainedOnManifest& trained_on) {
  out << YAML::Key << "trained_on" << YAML::Value << YAML::BeginMap;
  EmitRange(out, "global_batch_size", trained_on.min_batch_size, trained_on.max_batch_size);
  EmitFlow(out, "weight_dtypes", trained_on.weight_dtypes);
  EmitFlow(out, "optimizers", trained_on.optimizers);
  EmitFlow(out, "weighted", trained_on.weighted);
  EmitFlow(out, "pooling_modes", trained_on.pooling_modes);
  EmitRange(out, "num_ranks", trained_on.min_ranks, trained_on.max_ranks);
  if (trained_on.max_hosts != 0) {
    out << YAML::Key << "max_hosts" << YAML::Value << trained_on.max_hosts;
  }
  EmitFlow(out, "collectives", trained_on.collectives);
  out << YAML::EndMap;
}

}  // namespace neuroshard
