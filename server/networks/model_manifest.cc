#include "server/networks/model_manifest.h"

#include <fmt/ranges.h>

#include <functional>
#include <set>
#include <utility>

#include "common/base/printable_text.h"
#include "common/domain/backend_names.h"
#include "common/domain/vocabulary.h"
#include "server/cost/comm_features.h"
#include "server/cost/compute_features.h"
#include "server/cost/feature_columns.h"
#include "server/networks/fabric_file.h"
#include "server/networks/manifest_fields.h"
#include "server/networks/model_directory.h"
#include "server/networks/model_drift.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kMaxManifestBytes = 1 << 20;
constexpr std::int64_t kMaxVersion = 1'000'000'000;
constexpr std::int64_t kMaxMembers = 64;
constexpr std::int64_t kMaxBatchSize = std::int64_t{1} << 40;
constexpr std::size_t kMaxNoisePoints = 8;
constexpr std::size_t kMaxRankCounts = 64;
constexpr IntegerRange kAtLeastTwoRanks{2, kMaxRanks};
constexpr RealRange kCostMs{1e-12, 1e12};
constexpr RealRange kFactor{1e-6, 1e6};
constexpr RealRange kNsPerUnit{0, 1e6};
constexpr RealRange kCoefficient{0, 1e9};
constexpr RealRange kBytesPerSecond{1, 1e18};
constexpr RealRange kFixedMs{0, 1e6};
constexpr RealRange kMsOfExchange{0, 1e4};

// Names of all collectives, in the order of the letters.
std::vector<std::string_view> CollectiveNames() {
  std::vector<std::string_view> names;
  for (std::size_t kind = 0; kind < kCollectiveKinds; ++kind) {
    names.push_back(CollectiveName(static_cast<CollectiveKind>(kind)));
  }
  std::ranges::sort(names);
  return names;
}

// The words of the values that count; null: all do.
template <typename E>
std::vector<std::string_view> WordsIn(bool (*counts)(E) = nullptr) {
  std::vector<std::string_view> words;
  for (const auto& word : kWords<E>) {
    if (counts == nullptr || counts(word.value)) words.push_back(word.text);
  }
  return words;
}

// The width at a position of a list of layers that could be read.
void CheckWidth(ManifestFields& fields, std::string_view key, std::size_t position,
                const std::vector<std::int64_t>& widths, std::size_t expected,
                std::string_view what, std::string_view more = "") {
  if (widths.empty() || widths[position] == static_cast<std::int64_t>(expected)) return;
  fields.reader().AddViolation(fmt::format("{}[{}]", key, position), "must be {}{}{}, got {}", what,
                               expected, more, widths[position]);
}

// 1 to `most` rising values, and as many in the list beside them.
template <typename T>
void CheckPoints(ConfigReader& section, std::string_view key, const std::vector<T>& points,
                 std::size_t most, std::string_view beside_key, std::size_t beside) {
  if (points.empty() || points.size() > most) {
    section.AddViolation(key, "must list 1 to {} values, got {}", most, points.size());
  }
  if (std::adjacent_find(points.begin(), points.end(), std::greater_equal<>()) != points.end()) {
    section.AddViolation(key, "must rise from entry to entry");
  }
  if (beside != points.size()) {
    section.AddViolation(beside_key, "must have an entry for each of {}, {}, got {}", key,
                         points.size(), beside);
  }
}

void Describe(ManifestFields& fields, IntervalManifest& interval) {
  fields.Number("coverage", &interval.coverage, {0.01, 0.9999});
  fields.Number("factor", &interval.factor, kFactor);
  fields.List("noise_cost_ms", &interval.noise_cost_ms, kCostMs, Presence::kRequired);
  fields.List("noise", &interval.noise, {0, 100}, Presence::kRequired);
  fields.List("ranks", &interval.ranks, kAtLeastTwoRanks, Presence::kOptional);
  fields.List("rank_factors", &interval.rank_factors, kFactor, Presence::kOptional);
  if (!fields.reads()) return;
  CheckPoints(fields.reader(), "noise_cost_ms", interval.noise_cost_ms, kMaxNoisePoints, "noise",
              interval.noise.size());
  if (fields.reader().Has("ranks") || fields.reader().Has("rank_factors")) {
    CheckPoints(fields.reader(), "ranks", interval.ranks, kMaxRankCounts, "rank_factors",
                interval.rank_factors.size());
  }
}

void DescribeFeatures(ManifestFields& fields, std::vector<std::string>& features,
                      std::span<const std::string_view> known) {
  fields.KnownTexts("features", &features, known, Presence::kRequired);
  std::set<std::string_view> seen;
  for (std::size_t i = 0; fields.reads() && i < features.size(); ++i) {
    if (seen.insert(features[i]).second) continue;
    fields.reader().AddViolation(fmt::format("features[{}]", i), "{} is given twice",
                                 Quoted(features[i]));
  }
}

// What the parts of a network that could be read say of each other.
void CheckNetwork(ManifestFields& fields, std::string_view layers_key,
                  const NetworkManifest& network) {
  ConfigReader& reader = fields.reader();
  const bool universal_comm = network.kind == NetworkKind::kUniversalComm;
  if (network.kind == NetworkKind::kTableSum && reader.Has("features")) {
    const auto columns = FeatureColumns::Create(network.features, network.transforms);
    if (!columns.ok()) reader.AddViolation("features", Message(columns.status()));
  }
  // Which weights have to be at least 0 goes by position.
  if (universal_comm && !std::ranges::equal(network.features, CommFeatureNames())) {
    reader.AddViolation("features", "must be [{}]", fmt::join(CommFeatureNames(), ", "));
  }
  const std::size_t inputs = universal_comm ? kCommFeatures : network.features.size();
  if (inputs > 0 || network.is_universal()) {
    CheckWidth(fields, layers_key, 0, network.layers, inputs, "the number of features, ");
  }
  if (network.kind == NetworkKind::kTableSum) {
    const auto& head = network.head_layers;
    if (!network.layers.empty()) {
      CheckWidth(fields, "head_layers", 0, head, static_cast<std::size_t>(network.layers.back()),
                 "the last width of table_layers, ");
    }
    CheckWidth(fields, "head_layers", head.size() - 1, head, network.outputs.size(),
               "the number of outputs, ");
  }
  if (!universal_comm) return;
  CheckWidth(fields, layers_key, network.layers.size() - 1, network.layers, 1, "one cost, ");
  for (std::size_t i = 0; i < network.layers.size(); ++i) {
    if (network.layers[i] <= kMaxCommLayerWidth) continue;
    reader.AddViolation(fmt::format("layers[{}]", i), "must be at most {}, got {}",
                        kMaxCommLayerWidth, network.layers[i]);
  }
}

// The keys of a network of its kind.
void Describe(ManifestFields& fields, NetworkManifest& network) {
  fields.FileName("file", &network.file);
  fields.Constant("kind", ToText(network.kind));
  if (network.kind == NetworkKind::kDeviceCount) {
    fields.Number("num_devices", &network.num_devices, kAtLeastTwoRanks);
  } else if (network.kind == NetworkKind::kTableSum) {
    fields.List("features", &network.features, Presence::kRequired);
    fields.Map("transforms", &network.transforms);
  } else if (network.kind == NetworkKind::kUniversalTableSum) {
    DescribeFeatures(fields, network.features, ComputeFeatureNames());
    fields.Number("cache_bytes", &network.cache_bytes, {0, std::int64_t{1} << 50},
                  Presence::kOptional);
  } else {
    DescribeFeatures(fields, network.features, CommFeatureNames());
  }
  const std::string_view layers_key = network.sums_tables() ? "table_layers" : "layers";
  fields.Layers(layers_key, &network.layers);
  if (network.kind == NetworkKind::kTableSum) fields.Layers("head_layers", &network.head_layers);
  std::int64_t head_width = fields.reads() ? 0 : network.head_width();
  if (network.kind == NetworkKind::kUniversalTableSum) {
    fields.Number("head_width", &head_width, {1, kMaxLayerWidth});
  }
  if (network.sums_tables()) fields.Outputs(&network.outputs);
  if (network.is_universal()) {
    fields.Number("members", &network.members, {1, kMaxMembers}, Presence::kOptional);
    fields.Section("interval", &network.interval, Describe);
  }
  if (network.kind == NetworkKind::kUniversalComm) {
    fields.Section("intervals", [&](ManifestFields& intervals) {
      for (const std::string_view name : CollectiveNames()) {
        const auto found = network.intervals.find(std::string(name));
        std::optional<IntervalManifest> interval;
        if (found != network.intervals.end()) interval = found->second;
        intervals.Section(name, &interval, Describe);
        if (interval) network.intervals[std::string(name)] = *std::move(interval);
      }
    });
  }
  if (!fields.reads()) return;
  CheckNetwork(fields, layers_key, network);
  if (network.kind == NetworkKind::kUniversalTableSum && !network.layers.empty()) {
    network.head_layers = {network.layers.back(), head_width, std::ssize(network.outputs)};
  }
}

// Adds the networks of one direction, which may be a mapping, or a list of them for several rank
// counts; they are ascending.
void DescribeCommNetworks(ManifestFields& fields, std::string_view key, CommDirection direction,
                          std::vector<NetworkManifest>* networks) {
  std::set<int> counts;
  const auto describe = [&](ManifestFields& of_count, NetworkManifest& network) {
    network.kind = NetworkKind::kDeviceCount;
    Describe(of_count, network);
    if (!of_count.reads() || network.num_devices == 0) return;
    const auto ranks = static_cast<std::size_t>(network.num_devices);
    const bool forward = direction == CommDirection::kForward;
    CheckWidth(of_count, "layers", 0, network.layers, forward ? 2 * ranks : ranks, "",
               fmt::format(" ({} of {} devices)",
                           forward ? "dim sums and start offsets" : "dim sums", ranks));
    CheckWidth(of_count, "layers", network.layers.size() - 1, network.layers, ranks,
               "the number of devices, ");
    if (counts.insert(network.num_devices).second) return;
    of_count.reader().AddViolation("num_devices", "{} has a network already", ranks);
  };
  if (fields.reads() && !fields.reader().IsList(key)) {
    fields.Section(key, [&](ManifestFields& one) { describe(one, networks->emplace_back()); });
  } else {
    fields.Sections<NetworkManifest>(key, networks, describe);
  }
  if (fields.reads()) std::ranges::sort(*networks, {}, &NetworkManifest::num_devices);
}

void Describe(ManifestFields& fields, SizeCoefficients& of) {
  fields.Number("ids", &of.ids, kCoefficient);
  fields.Number("lookup", &of.lookup, kCoefficient);
  fields.Number("output", &of.output, kCoefficient);
  fields.Number("rows", &of.rows, kCoefficient);
}

template <typename E>
void DescribeWord(ManifestFields& fields, std::string_view key, E* word) {
  std::string text(ToText(*word));
  if (fields.reads()) fields.reader().Require({key});
  fields.WordText<E>(key, &text);
  *word = FromText<E>(text).value_or(*word);
}

void Describe(ManifestFields& fields, KernelCoefficients& entry) {
  DescribeWord(fields, "sharding_type", &entry.type);
  DescribeWord(fields, "compute_kernel", &entry.kernel);
  fields.Number("bytes_per_s", &entry.bytes_per_s, kBytesPerSecond);
  fields.Number("cached_bytes_per_s", &entry.cached_bytes_per_s, kBytesPerSecond);
  PerfCoefficients& of = entry.of;
  if (fields.reads()) fields.reader().Require({"forward", "backward"});
  fields.FlowSection("forward", [&](ManifestFields& pass) { Describe(pass, of.forward); });
  fields.FlowSection("backward", [&](ManifestFields& pass) { Describe(pass, of.backward); });
  fields.Number("forward_fixed_ms", &of.forward_fixed_ms, kFixedMs, Presence::kOptional);
  fields.Number("backward_fixed_ms", &of.backward_fixed_ms, kFixedMs, Presence::kOptional);
  fields.Number("backward_of_forward", &of.backward_of_forward, kCoefficient);
  fields.Number("weighted_backward", &of.weighted_backward, kCoefficient);
  fields.Number("weighted_gradient", &of.weighted_gradient, kCoefficient);
  fields.Number("min_lookup_cols", &of.min_lookup_cols, {0, 65536});
  fields.Flag("block_penalty", &of.block_penalty);
}

void Describe(ManifestFields& fields, TorchRecComputeManifest& compute) {
  fields.Constant("kind", kTorchRecComputeKind);
  if (fields.reads()) fields.reader().Require({"coefficients"});
  std::set<std::pair<ShardingType, ComputeKernel>> seen;
  fields.Sections<KernelCoefficients>(
      "coefficients", &compute.coefficients, [&](ManifestFields& section, KernelCoefficients& of) {
        Describe(section, of);
        if (!section.reads() || seen.insert({of.type, of.kernel}).second) return;
        section.reader().AddViolation(
            "compute_kernel",
            fmt::format("{} of {} is given twice", ToText(of.kernel), ToText(of.type)));
      });
  if (fields.reads() && compute.coefficients.empty()) {
    fields.reader().AddViolation("coefficients", "must have at least one entry");
  }
}

void Describe(ManifestFields& fields, TrainedOnManifest& trained_on) {
  const auto known = [&](std::string_view key, std::vector<std::string>& texts,
                         const std::vector<std::string_view>& words) {
    fields.KnownTexts(key, &texts, words, Presence::kOptional);
  };
  fields.MinMax("global_batch_size", kMaxBatchSize, &trained_on.min_batch_size,
                &trained_on.max_batch_size);
  known("weight_dtypes", trained_on.weight_dtypes, WordsIn<DataType>());
  known("optimizers", trained_on.optimizers, WordsIn<Optimizer>());
  known("weighted", trained_on.weighted, {"true", "false"});
  known("pooling_modes", trained_on.pooling_modes, WordsIn<PoolingMode>());
  known("compute_kernels", trained_on.compute_kernels, WordsIn(IsMeasurable));
  fields.MinMax("num_ranks", kMaxRanks, &trained_on.min_ranks, &trained_on.max_ranks);
  fields.Number("max_hosts", &trained_on.max_hosts, {1, kMaxRanks}, Presence::kOptional);
  known("collectives", trained_on.collectives, CollectiveNames());
}

// The list "rates", which is required, not empty and ascending by num_ranks.
template <typename Rates>
void DescribeRates(ManifestFields& fields, std::vector<Rates>* rates,
                   const std::function<void(ManifestFields&, Rates&)>& describe) {
  if (fields.reads()) fields.reader().Require({"rates"});
  int before = 0;
  fields.Sections<Rates>("rates", rates, [&](ManifestFields& of_ranks, Rates& entry) {
    describe(of_ranks, entry);
    if (of_ranks.reads() && entry.num_ranks <= before) {
      of_ranks.reader().AddViolation("num_ranks", "must rise from entry to entry, got {} after {}",
                                     entry.num_ranks, before);
    }
    before = entry.num_ranks;
  });
  if (fields.reads() && rates->empty()) {
    fields.reader().AddViolation("rates", "must have at least one entry");
  }
}

void Describe(ManifestFields& fields, InputDistManifest& input_dist) {
  MeasuredInputDist& measured = input_dist.measured;
  fields.Number("max_hosts", &measured.max_hosts, {1, kMaxRanks}, Presence::kOptional);
  DescribeRates<InputDistRates>(
      fields, &measured.rates, [](ManifestFields& of_ranks, InputDistRates& rates) {
        of_ranks.Number("num_ranks", &rates.num_ranks, kAtLeastTwoRanks);
        of_ranks.Number("fixed_ms", &rates.fixed_ms, {0, 1e6});
        of_ranks.Number("whole_ns_per_byte", &rates.whole_ns_per_byte, kNsPerUnit);
        of_ranks.Number("cut_ns_per_byte", &rates.cut_ns_per_byte, kNsPerUnit);
        of_ranks.Number("lengths_ns_per_byte", &rates.lengths_ns_per_byte, kNsPerUnit);
      });
  fields.Section("interval", &input_dist.interval, Describe);
}

void Describe(ManifestFields& fields, ExchangeTimes& times) {
  fields.Number("whole_rows", &times.whole_rows_ms, kMsOfExchange);
  fields.Number("cut_rows", &times.cut_rows_ms, kMsOfExchange);
  fields.Number("replicas", &times.replicas_ms, kMsOfExchange);
}

void Describe(ManifestFields& fields, MeasuredSteps& steps) {
  DescribeRates<StepRates>(fields, &steps.rates, [](ManifestFields& of_ranks, StepRates& rates) {
    if (of_ranks.reads()) of_ranks.reader().Require({"exchange_ms", "input_dist_ms"});
    of_ranks.Number("num_ranks", &rates.num_ranks, kAtLeastTwoRanks);
    of_ranks.Number("compute_scale", &rates.compute_scale, kFactor);
    of_ranks.Number("comm_scale", &rates.comm_scale, kFactor);
    of_ranks.FlowSection("exchange_ms",
                         [&](ManifestFields& times) { Describe(times, rates.exchange); });
    of_ranks.Number("forward_share", &rates.forward_share, {0, 1});
    of_ranks.Number("input_dist_scale", &rates.input_dist_scale, kFactor);
    of_ranks.FlowSection("input_dist_ms",
                         [&](ManifestFields& times) { Describe(times, rates.input_dist); });
    of_ranks.Number("pipelined_share", &rates.pipelined_share, {0, 100});
  });
}

void Describe(ManifestFields& fields, CastRates& rates) {
  fields.Number("ns_per_value", &rates.ns_per_value, kNsPerUnit);
  fields.Number("cached_values", &rates.cached_values, {0, 1e15});
  // Where it cannot be read, that alone is the fault.
  if (fields.reads()) rates.ns_per_value_beyond = rates.ns_per_value;
  fields.Number("ns_per_value_beyond", &rates.ns_per_value_beyond, kNsPerUnit);
  if (!fields.reads() || rates.ns_per_value_beyond >= rates.ns_per_value) return;
  fields.reader().AddViolation("ns_per_value_beyond", "must be at least ns_per_value, {}, got {}",
                               rates.ns_per_value, rates.ns_per_value_beyond);
}

void Describe(ManifestFields& fields, MeasuredCasts& casts) {
  fields.Section("fp16", &casts.fp16, Describe);
  fields.Section("bf16", &casts.bf16, Describe);
  if (fields.reads() && casts == MeasuredCasts()) {
    fields.reader().AddViolation("fp16", "or bf16 is required");
  }
}

// A plan's intervals have one coverage.
void CheckCoverages(const ModelManifest& manifest, ConfigReader& root) {
  std::vector<std::pair<std::string, double>> coverages;
  const auto add = [&](const char* path, const std::optional<IntervalManifest>& interval) {
    if (interval) coverages.emplace_back(path, interval->coverage);
  };
  add("compute.interval", manifest.compute.interval);
  if (manifest.comm) add("comm.interval", manifest.comm->interval);
  if (manifest.input_dist) add("input_dist.interval", manifest.input_dist->interval);
  if (manifest.comm) {
    for (const auto& [collective, interval] : manifest.comm->intervals) {
      coverages.emplace_back("comm.intervals." + collective, interval.coverage);
    }
  }
  for (const auto& [path, coverage] : coverages) {
    const auto& [first_path, first] = coverages.front();
    if (coverage == first) continue;
    root.AddViolation(path + ".coverage", "must be that of {}, {}, got {}", first_path, first,
                      coverage);
  }
}

// A network that was trained on rows in host memory has to be told of them: which kernel it is, and
// what a batch misses, without which all caches cost the same.
void CheckKernels(const ModelManifest& manifest, ConfigReader& root) {
  if (!manifest.trained_on) return;
  const std::vector<std::string>& kernels = manifest.trained_on->compute_kernels;
  const std::vector<std::string>& features = manifest.compute.features;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const auto kernel = FromText<ComputeKernel>(kernels[i]);
    if (!kernel || !IsInHostMemory(*kernel) || !IsMeasurable(*kernel)) continue;
    for (const std::string& feature : {kernels[i], std::string("log_missed_rows")}) {
      if (std::ranges::find(features, feature) != features.end()) continue;
      root.AddViolation(fmt::format("trained_on.compute_kernels[{}]", i),
                        "{} needs feature {} in compute.features, which lacks it: the network "
                        "cannot tell its lookups from others",
                        kernels[i], feature);
    }
  }
}

// What is written of a model that is of no use; others state nothing.
void DescribeQuality(ManifestFields& fields, std::string& unusable_reason) {
  bool usable = unusable_reason.empty();
  if (!fields.reads() && usable) return;
  fields.Flag("usable", &usable);
  fields.Text("reason", &unusable_reason, usable ? Presence::kOptional : Presence::kRequired);
  if (usable) unusable_reason.clear();
}

// The sections that the kind of compute decides about. Reading, the kind comes first.
void DescribeNetworks(ManifestFields& root, ModelManifest& manifest) {
  const std::string_view universal_kind = ToText(NetworkKind::kUniversalTableSum);
  const auto refuse = [&](const char* key, const std::string& why) {
    root.reader().AddViolation(key, why);
  };
  const auto of_universal = [&](const char* key, const std::function<void()>& describe) {
    if (!root.reads() || manifest.is_universal()) return describe();
    root.Section(key, [&](ManifestFields&) {
      refuse(key, fmt::format("goes with compute.kind {} alone", universal_kind));
    });
  };
  const auto describe_compute = [&](ManifestFields& fields) {
    if (fields.IsKind(kTorchRecComputeKind, manifest.torchrec.has_value())) {
      if (fields.reads()) manifest.torchrec.emplace();
      return Describe(fields, *manifest.torchrec);
    }
    if (fields.IsKind(universal_kind, manifest.is_universal())) {
      manifest.compute.kind = NetworkKind::kUniversalTableSum;
    }
    Describe(fields, manifest.compute);
  };
  const auto compute = [&] { root.Section("compute", Presence::kRequired, describe_compute); };
  if (root.reads()) compute();
  of_universal("trained_on", [&] { root.Section("trained_on", &manifest.trained_on, Describe); });
  root.Section("quality", [&](ManifestFields& quality) {
    DescribeQuality(quality, manifest.unusable_reason);
  });
  if (!root.reads()) compute();
  if (!root.reads()) {
    root.Section("comm", &manifest.comm, Describe);
  } else {
    root.Section("comm", [&](ManifestFields& fields) {
      if (manifest.torchrec) {
        refuse("comm", fmt::format("does not go with compute.kind {}", kTorchRecComputeKind));
      } else if (fields.IsKind(kFabricKind, false)) {
        DescribeFabric(fields, manifest.fabric.emplace());
      } else if (manifest.is_universal()) {
        manifest.comm.emplace().kind = NetworkKind::kUniversalComm;
        Describe(fields, *manifest.comm);
      } else {
        refuse("comm", fmt::format("goes with compute.kind {}, unless it is of kind {}",
                                   universal_kind, kFabricKind));
      }
    });
  }
  of_universal("input_dist", [&] { root.Section("input_dist", &manifest.input_dist, Describe); });
  of_universal("casts", [&] {
    root.Section("casts", [&](ManifestFields& fields) { Describe(fields, manifest.casts); });
  });
  if (!root.reads()) root.Section("comm", &manifest.fabric, DescribeFabric);
  of_universal("steps", [&] { root.Section("steps", &manifest.steps, Describe); });
  for (const char* key : {"forward_comm", "backward_comm"}) {
    if (!root.reads() || !root.reader().Has(key)) continue;
    if (manifest.is_universal()) {
      refuse(key, fmt::format("does not go with compute.kind {}; such a model has comm",
                              universal_kind));
    } else if (manifest.torchrec) {
      refuse(key, fmt::format("does not go with compute.kind {}", kTorchRecComputeKind));
    } else if (manifest.fabric) {
      refuse(key, fmt::format("does not go with comm.kind {}", kFabricKind));
    }
  }
  if (manifest.is_universal()) return;
  DescribeCommNetworks(root, "forward_comm", CommDirection::kForward, &manifest.forward_comm);
  DescribeCommNetworks(root, "backward_comm", CommDirection::kBackward, &manifest.backward_comm);
}

void Describe(ManifestFields& root, ModelManifest& manifest) {
  int format = manifest.files_listed ? 2 : 1;
  root.Format(kModelFormat, &format);
  manifest.files_listed = format != 1;
  root.Name("name", &manifest.name);
  root.Number("version", &manifest.version, {1, kMaxVersion});
  root.Section("hardware", [&](ManifestFields& hardware) {
    hardware.Text("device", &manifest.device);
    hardware.Text("backend", &manifest.backend);
    hardware.Text("collective_backend", &manifest.collective_backend);
    hardware.WordText<Cadence>("collective_cadence", &manifest.collective_cadence);
  });
  root.Section("conditions", [&](ManifestFields& conditions) {
    conditions.Number("global_batch_size", &manifest.global_batch_size, {1, INT64_MAX},
                      Presence::kOptional);
    conditions.WordText<DataType>("weight_dtype", &manifest.weight_dtype);
    conditions.WordText<Optimizer>("optimizer", &manifest.optimizer);
  });
  DescribeNetworks(root, manifest);
  root.Details("provenance", &manifest.provenance);
  root.Details("metrics", &manifest.metrics);
  if (!root.reads() || !manifest.is_universal()) return;
  CheckCoverages(manifest, root.reader());
  CheckKernels(manifest, root.reader());
}

// Models that were trained on workers' records before 2026-11-22 have the records' old names, and
// do not name the collectives. Elsewhere "cuda" may be anybody's kernels and stays.
void UseBackendNamesOfToday(ModelManifest& manifest) {
  const auto trainer = manifest.provenance.find("trained_by");
  if (trainer == manifest.provenance.end() || trainer->second != "neuroshard-pretrain") return;
  const bool measured_comm = manifest.comm || !manifest.forward_comm.empty();
  if (manifest.collective_backend.empty() && measured_comm) {
    if (manifest.backend == "cpu") manifest.collective_backend = kNeuroshardTcp;
    if (manifest.backend == "cuda") manifest.collective_backend = kNccl;
  }
  manifest.backend = BackendNameToday(manifest.backend);
}

bool Lists(const std::vector<std::string>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
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

// What the networks say of a model.
void AddNetworks(const ModelManifest& manifest, CostModelInfo& info) {
  ModelCoverage& coverage = info.coverage;
  ModelProperties& properties = info.properties;
  coverage.features = manifest.compute.features;
  properties.splits_compute = manifest.compute.outputs.size() == 2;
  if (!manifest.is_universal()) {
    info.kind = "neural";
    for (const NetworkManifest& forward : manifest.forward_comm) {
      const bool both =
          std::ranges::any_of(manifest.backward_comm, [&](const NetworkManifest& backward) {
            return backward.num_devices == forward.num_devices;
          });
      if (both) coverage.num_devices.push_back(forward.num_devices);
    }
    return;
  }
  info.kind = kUniversalKind;
  const TrainedOnManifest trained_on = manifest.trained_on.value_or(TrainedOnManifest());
  coverage.ranges = trained_on;
  coverage.max_ranks = manifest.comm ? kMaxRanks : 1;
  coverage.measured_types = MeasuredTypes(trained_on);
  if (manifest.comm) coverage.sharding_types = DefaultTypes(coverage.measured_types);
  properties.comm_run_a_rank = true;
  if (manifest.input_dist) {
    properties.measured_input_dist = manifest.input_dist->measured;
    properties.input_dist_interval = manifest.input_dist->interval;
  }
  properties.measured_steps = manifest.steps;
  properties.measured_casts = manifest.casts;
  properties.convex_compute = true;  // no negative weight behind the head's relu
}

}  // namespace

std::vector<const NetworkManifest*> ModelManifest::networks() const {
  std::vector<const NetworkManifest*> all;
  if (!torchrec) all.push_back(&compute);
  if (comm) all.push_back(&*comm);
  for (const auto* of_direction : {&forward_comm, &backward_comm}) {
    for (const NetworkManifest& network : *of_direction) all.push_back(&network);
  }
  return all;
}

std::string CadenceOf(const ModelManifest& manifest) {
  const bool measured =
      manifest.comm || !manifest.forward_comm.empty() || !manifest.backward_comm.empty();
  if (!measured) return "";
  return manifest.collective_cadence.empty() ? std::string(ToText(Cadence::kBarrier))
                                             : manifest.collective_cadence;
}

CostModelInfo InfoOfManifest(const ModelManifest& manifest) {
  CostModelInfo info;
  info.name = manifest.name;
  info.version = manifest.version;
  info.digest = manifest.digest;
  info.measured_with = manifest;
  info.measured_with.collective_cadence = CadenceOf(manifest);
  info.coverage.global_batch_size = manifest.global_batch_size;
  info.coverage.weight_dtype = manifest.weight_dtype;
  info.coverage.optimizer = manifest.optimizer;
  info.unusable_reason = manifest.unusable_reason;
  info.drift = manifest.drift;
  for (const auto& [key, value] : manifest.metrics) info.details["metrics." + key] = value;
  for (const auto& [key, value] : manifest.provenance) info.details["provenance." + key] = value;
  if (!manifest.torchrec) AddNetworks(manifest, info);
  if (!manifest.is_universal()) return info;
  const auto state = [&](const char* stage, const std::optional<IntervalManifest>& interval) {
    if (!interval) return;
    info.properties.interval_coverage = interval->coverage;
    info.typical_errors[stage] = IntervalRule(*interval).TypicalError();
  };
  state("compute", manifest.compute.interval);
  if (manifest.input_dist) state("input_dist", manifest.input_dist->interval);
  if (manifest.comm) {
    for (const auto& [stage, collective] : {std::pair("forward_comm", "all_to_all_forward"),
                                            std::pair("backward_comm", "all_to_all_backward")}) {
      const IntervalManifest* const interval = manifest.comm->IntervalOf(collective);
      state(stage, interval == nullptr ? std::nullopt : std::optional(*interval));
    }
  }
  return info;
}

StatusOr<ModelManifest> ParseModelManifest(std::string_view yaml) {
  NS_ASSIGN_OR_RETURN(
      ModelManifest manifest,
      ParseFields<ModelManifest>(
          yaml, [](ManifestFields& fields, ModelManifest& read) { Describe(fields, read); }));
  UseBackendNamesOfToday(manifest);
  return manifest;
}

StatusOr<std::string> FormatModelManifest(const ModelManifest& manifest) {
  ModelManifest written = manifest;
  NS_ASSIGN_OR_RETURN(const std::string text, ManifestFields::Write([&](ManifestFields& fields) {
                        Describe(fields, written);
                      }));
  StatusOr<ModelManifest> read_back = ParseModelManifest(text);
  if (!read_back.ok()) return read_back.status();
  read_back->drift = manifest.drift;
  read_back->digest = manifest.digest;
  if (*read_back != manifest) {
    return InvalidArgument(
        "model {}/{}: the manifest does not read back as it was; networks have "
        "to be in ascending order of num_devices and texts free of NUL",
        manifest.name, manifest.version);
  }
  return text;
}

StatusOr<ModelManifest> ReadModelManifest(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kManifestFileName;
  NS_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path, kMaxManifestBytes));
  StatusOr<ModelManifest> manifest = ParseModelManifest(text);
  if (!manifest.ok()) return Annotate(manifest.status(), path.string());
  if (!text.ends_with('\n')) {
    return InvalidArgument("{}: it is cut: its last line has no end", path.string());
  }
  NS_RETURN_IF_ERROR(CheckModelDirectory(directory, *manifest));
  NS_ASSIGN_OR_RETURN(manifest->digest, CheckModelFiles(directory, manifest->files_listed));
  NS_ASSIGN_OR_RETURN(manifest->drift, ReadModelDrift(directory));
  return manifest;
}

Status CheckModelDirectory(const std::filesystem::path& directory, const ModelManifest& manifest) {
  const std::filesystem::path whole =
      (std::filesystem::absolute(directory) / "").lexically_normal().parent_path();
  const std::string version = whole.filename().string();
  const std::string name = whole.parent_path().filename().string();
  if (name != manifest.name || version != std::to_string(manifest.version)) {
    return InvalidArgument("{}: name and version are {}/{}, the directory is {}/{}",
                           (directory / kManifestFileName).string(), manifest.name,
                           manifest.version, name, version);
  }
  return absl::OkStatus();
}

}  // namespace neuroshard
