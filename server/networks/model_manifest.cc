#include "server/networks/model_manifest.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "common/domain/backend_names.h"
#include "common/domain/vocabulary.h"
#include "server/cost/feature_columns.h"
#include "server/networks/casts_section.h"
#include "server/networks/fabric_file.h"
#include "server/networks/input_dist_section.h"
#include "server/networks/manifest_fields.h"
#include "server/networks/model_drift.h"
#include "server/networks/model_files.h"
#include "server/networks/regular_file.h"
#include "server/networks/universal_sections.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kMaxManifestBytes = 1 << 20;
constexpr std::int64_t kMaxDevices = 16384;
constexpr std::int64_t kMaxVersion = 1'000'000'000;
constexpr std::size_t kMaxDetails = 10'000;  // of metrics, and of provenance

template <typename E>
std::string ReadOptionalWord(ConfigReader& section, std::string_view key) {
  if (!section.Has(key)) return "";
  E word{};
  section.ReadWord(key, &word);
  return std::string(ToText(word));
}

void CheckComputeWidths(ConfigReader& section, const ComputeNetworkManifest& compute) {
  const auto& table = compute.table_layers;
  const auto& head = compute.head_layers;
  if (!table.empty() && !compute.features.empty() &&
      table.front() != static_cast<std::int64_t>(compute.features.size())) {
    section.AddViolation("table_layers[0]",
                         fmt::format("must be the number of features, {}, got {}",
                                     compute.features.size(), table.front()));
  }
  if (!table.empty() && !head.empty() && head.front() != table.back()) {
    section.AddViolation("head_layers[0]",
                         fmt::format("must be the last width of table_layers, {}, got {}",
                                     table.back(), head.front()));
  }
  if (!head.empty() && head.back() != static_cast<std::int64_t>(compute.outputs.size())) {
    section.AddViolation(fmt::format("head_layers[{}]", head.size() - 1),
                         fmt::format("must be the number of outputs, {}, got {}",
                                     compute.outputs.size(), head.back()));
  }
}

ComputeNetworkManifest ReadCompute(ConfigReader section) {
  ComputeNetworkManifest compute;
  RequireConstant(section, "kind", "table_sum_mlp");
  compute.file = ReadFileName(section, "file");
  section.Require({"features"});
  section.Read("features", &compute.features);
  section.Read("transforms", &compute.transforms);
  if (section.Has("features")) {
    const auto columns = FeatureColumns::Create(compute.features, compute.transforms);
    if (!columns.ok()) section.AddViolation("features", Message(columns.status()));
  }
  compute.table_layers = ReadLayers(section, "table_layers");
  compute.head_layers = ReadLayers(section, "head_layers");
  compute.outputs = ReadOutputs(section);
  CheckComputeWidths(section, compute);
  return compute;
}

CommNetworkManifest ReadCommNetwork(ConfigReader& section, CommDirection direction) {
  CommNetworkManifest network;
  RequireConstant(section, "kind", "device_count_mlp");
  network.file = ReadFileName(section, "file");
  section.Require({"num_devices"});
  section.Read("num_devices", &network.num_devices, {2, kMaxDevices});
  network.layers = ReadLayers(section, "layers");
  const int ranks = network.num_devices;
  if (ranks == 0 || network.layers.empty()) return network;
  const bool forward = direction == CommDirection::kForward;
  const int inputs = forward ? 2 * ranks : ranks;
  if (network.layers.front() != inputs) {
    section.AddViolation("layers[0]",
                         fmt::format("must be {} ({} of {} devices), got {}", inputs,
                                     forward ? "dim sums and start offsets" : "dim sums", ranks,
                                     network.layers.front()));
  }
  if (network.layers.back() != ranks) {
    section.AddViolation(
        fmt::format("layers[{}]", network.layers.size() - 1),
        fmt::format("must be the number of devices, {}, got {}", ranks, network.layers.back()));
  }
  return network;
}

// One mapping, or a list of them for several rank counts; ascending.
std::vector<CommNetworkManifest> ReadCommNetworks(ConfigReader& root, std::string_view key,
                                                  CommDirection direction) {
  std::vector<CommNetworkManifest> networks;
  std::vector<ConfigReader> sections;
  if (root.IsList(key)) {
    sections = root.Sections(key);
  } else if (auto section = root.SectionIfGiven(key)) {
    sections.push_back(*std::move(section));
  }
  std::set<int> counts;
  for (ConfigReader& section : sections) {
    networks.push_back(ReadCommNetwork(section, direction));
    const int ranks = networks.back().num_devices;
    if (ranks != 0 && !counts.insert(ranks).second) {
      section.AddViolation("num_devices", fmt::format("{} has a network already", ranks));
    }
  }
  std::sort(networks.begin(), networks.end(),
            [](const auto& a, const auto& b) { return a.num_devices < b.num_devices; });
  return networks;
}

// A plan's intervals have one coverage.
void CheckCoverages(const ModelManifest& manifest, ConfigReader& root) {
  std::vector<std::pair<std::string, double>> coverages;
  if (manifest.universal->interval) {
    coverages.emplace_back("compute.interval", manifest.universal->interval->coverage);
  }
  if (manifest.comm && manifest.comm->interval) {
    coverages.emplace_back("comm.interval", manifest.comm->interval->coverage);
  }
  if (manifest.input_dist && manifest.input_dist->interval) {
    coverages.emplace_back("input_dist.interval", manifest.input_dist->interval->coverage);
  }
  if (manifest.comm) {
    for (const auto& [collective, interval] : manifest.comm->intervals) {
      coverages.emplace_back("comm.intervals." + collective, interval.coverage);
    }
  }
  for (const auto& [path, coverage] : coverages) {
    const auto& [first_path, first] = coverages.front();
    if (coverage == first) continue;
    root.AddViolation(path + ".coverage",
                      fmt::format("must be that of {}, {}, got {}", first_path, first, coverage));
  }
}

// A network that was trained on rows in host memory has to be told of them: which kernel it is, and
// what a batch misses, without which all caches cost the same.
void CheckKernels(const ModelManifest& manifest, ConfigReader& root) {
  if (!manifest.trained_on) return;
  const std::vector<std::string>& kernels = manifest.trained_on->compute_kernels;
  const std::vector<std::string>& features = manifest.universal->features;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const auto kernel = FromText<ComputeKernel>(kernels[i]);
    if (!kernel || !IsInHostMemory(*kernel) || !IsMeasurable(*kernel)) continue;
    for (const std::string& feature : {kernels[i], std::string("log_missed_rows")}) {
      if (std::find(features.begin(), features.end(), feature) != features.end()) continue;
      root.AddViolation(fmt::format("trained_on.compute_kernels[{}]", i),
                        fmt::format("{} needs feature {} in compute.features, which lacks it: "
                                    "the network cannot tell its lookups from others",
                                    kernels[i], feature));
    }
  }
}

// The kind that a section states; empty where it states none.
std::string KindOf(ConfigReader& section) {
  std::string kind;
  if (!section.IsList("kind") && !section.IsMapping("kind")) section.Read("kind", &kind);
  return kind;
}

// A kind of compute, and the kinds of communication that go with it.
void ReadNetworks(ConfigReader& root, ModelManifest& manifest) {
  root.Require({"compute"});
  std::optional<ConfigReader> compute = root.SectionIfGiven("compute");
  const bool universal = compute && KindOf(*compute) == kUniversalComputeKind;
  std::optional<ConfigReader> comm = root.SectionIfGiven("comm");
  if (comm && KindOf(*comm) == kFabricKind) {
    manifest.fabric = ReadFabricSection(*comm);
    comm.reset();
  }
  std::optional<ConfigReader> trained_on = root.SectionIfGiven("trained_on");
  std::optional<ConfigReader> input_dist = root.SectionIfGiven("input_dist");
  std::optional<ConfigReader> casts = root.SectionIfGiven("casts");
  if (universal) {
    manifest.universal = ReadUniversalCompute(*compute);
    if (comm) manifest.comm = ReadUniversalComm(*comm);
    if (trained_on) manifest.trained_on = ReadTrainedOn(*trained_on);
    if (input_dist) manifest.input_dist = ReadInputDist(*input_dist);
    if (casts) manifest.casts = ReadCasts(*casts);
    CheckCoverages(manifest, root);
    CheckKernels(manifest, root);
  } else {
    if (compute) manifest.compute = ReadCompute(*compute);
    if (comm) {
      root.AddViolation("comm", fmt::format("goes with compute.kind {}, unless it is of kind {}",
                                            kUniversalComputeKind, kFabricKind));
    }
    for (const auto& [key, section] :
         {std::pair("trained_on", &trained_on), std::pair("input_dist", &input_dist),
          std::pair("casts", &casts)}) {
      if (!*section) continue;
      root.AddViolation(key, fmt::format("goes with compute.kind {} alone", kUniversalComputeKind));
    }
  }
  for (const char* key : {"forward_comm", "backward_comm"}) {
    if (!root.Has(key)) continue;
    if (universal) {
      root.AddViolation(key, fmt::format("does not go with compute.kind {}; such a model has comm",
                                         kUniversalComputeKind));
    } else if (manifest.fabric) {
      root.AddViolation(key, fmt::format("does not go with comm.kind {}", kFabricKind));
    }
  }
  if (universal) return;
  manifest.forward_comm = ReadCommNetworks(root, "forward_comm", CommDirection::kForward);
  manifest.backward_comm = ReadCommNetworks(root, "backward_comm", CommDirection::kBackward);
}

void ReadQuality(ConfigReader& root, ModelManifest& manifest) {
  std::optional<ConfigReader> quality = root.SectionIfGiven("quality");
  if (!quality) return;
  bool usable = true;
  quality->Require({"usable"});
  quality->Read("usable", &usable);
  if (!usable) quality->Require({"reason"});
  const std::string reason = ReadText(*quality, "reason");
  if (!usable) manifest.unusable_reason = reason;
}

void ReadIdentity(ConfigReader& root, ModelManifest& manifest) {
  manifest.files_listed = ReadFormat(root, kModelFormat) != 1;
  manifest.name = ReadName(root, "name");
  root.Require({"version"});
  root.Read("version", &manifest.version, {1, kMaxVersion});
  if (auto hardware = root.SectionIfGiven("hardware")) {
    manifest.device = ReadText(*hardware, "device");
    manifest.backend = ReadText(*hardware, "backend");
    manifest.collective_backend = ReadText(*hardware, "collective_backend");
    manifest.collective_cadence = ReadOptionalWord<Cadence>(*hardware, "collective_cadence");
  }
  if (auto conditions = root.SectionIfGiven("conditions")) {
    conditions->Read("global_batch_size", &manifest.global_batch_size, {1, INT64_MAX});
    manifest.weight_dtype = ReadOptionalWord<DataType>(*conditions, "weight_dtype");
    manifest.optimizer = ReadOptionalWord<Optimizer>(*conditions, "optimizer");
  }
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

}  // namespace

std::string CadenceOf(const ModelManifest& manifest) {
  const bool measured =
      manifest.comm || !manifest.forward_comm.empty() || !manifest.backward_comm.empty();
  if (!measured) return "";
  return manifest.collective_cadence.empty() ? std::string(ToText(Cadence::kBarrier))
                                             : manifest.collective_cadence;
}

StatusOr<ModelManifest> ParseModelManifest(std::string_view yaml) {
  NS_ASSIGN_OR_RETURN(ConfigReader root, ConfigReader::FromText(std::string(yaml), ""));
  ModelManifest manifest;
  ReadIdentity(root, manifest);
  ReadNetworks(root, manifest);
  ReadQuality(root, manifest);
  root.ReadFlattened("metrics", kMaxDetails, &manifest.metrics);
  root.ReadFlattened("provenance", kMaxDetails, &manifest.provenance);
  NS_RETURN_IF_ERROR(root.Finish());
  UseBackendNamesOfToday(manifest);
  return manifest;
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
