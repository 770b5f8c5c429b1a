#include "server/models/model_manifest.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

#include "common/base/printable_text.h"
#include "common/base/violations.h"
#include "common/domain/backend_names.h"
#include "common/domain/vocabulary.h"
#include "server/cost/feature_columns.h"
#include "server/models/fabric_section.h"
#include "server/models/manifest_section.h"
#include "server/models/model_drift.h"
#include "server/models/regular_file.h"
#include "server/models/universal_sections.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kMaxManifestBytes = 1 << 20;
constexpr std::int64_t kMaxDevices = 16384;
constexpr std::int64_t kMaxVersion = 1'000'000'000;
constexpr std::size_t kMaxNameLength = 128;
// metrics and provenance: enough for people, and an end for documents whose aliases multiply.
constexpr int kMaxDetailNodes = 10'000;
constexpr int kMaxDetailDepth = 16;

bool IsModelName(const std::string& name) {
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kMaxNameLength &&
         std::isalnum(static_cast<unsigned char>(name.front())) != 0 &&
         std::all_of(name.begin(), name.end(), allowed);
}

template <typename E>
std::string WordOf(const ManifestSection& section, const std::string& key) {
  std::string text = section.Text(key);
  if (!text.empty() && !FromText<E>(text)) {
    section.Fault(key, fmt::format("must be one of {}, got {}", AllWords<E>(), Quoted(text)));
  }
  return text;
}

// The kind that a section states; empty where it states none.
std::string KindOf(const YAML::Node& section) {
  if (!section.IsMap() || !section["kind"] || !section["kind"].IsScalar()) return "";
  return section["kind"].Scalar();
}

class DetailReader {
 public:
  explicit DetailReader(Violations& violations) : violations_(violations) {}

  void Read(const YAML::Node& node, const std::string& path, const std::string& key, int depth,
            std::map<std::string, std::string>& details) {
    if (full_) return;
    if (++nodes_ > kMaxDetailNodes || depth > kMaxDetailDepth) {
      violations_.Add(path, fmt::format("metrics and provenance have more than {} entries or are "
                                        "nested deeper than {} levels",
                                        kMaxDetailNodes, kMaxDetailDepth));
      full_ = true;
      return;
    }
    if (node.IsMap()) {
      for (const auto& item : node) {
        if (!item.first.IsScalar()) {
          violations_.Add(path, "has a key that is not a plain word");
          continue;
        }
        const std::string child = item.first.Scalar();
        Read(item.second, path + "." + child, key.empty() ? child : key + "." + child, depth + 1,
             details);
      }
    } else if (node.IsSequence()) {
      for (std::size_t i = 0; i < node.size(); ++i) {
        Read(node[i], fmt::format("{}[{}]", path, i), fmt::format("{}[{}]", key, i), depth + 1,
             details);
      }
    } else if (!details.emplace(key, node.IsScalar() ? node.Scalar() : "").second) {
      violations_.Add(path, "stated twice");
    }
  }

 private:
  Violations& violations_;
  int nodes_ = 0;
  bool full_ = false;
};

std::map<std::string, std::string> ReadTransforms(const ManifestSection& section,
                                                  Violations& violations) {
  std::map<std::string, std::string> transforms;
  const YAML::Node* node = section.Find("transforms");
  if (node == nullptr) return transforms;
  if (!node->IsMap()) {
    section.Fault("transforms", fmt::format("must be a mapping, got {}", Shown(*node)));
    return transforms;
  }
  for (const auto& item : *node) {
    if (!item.first.IsScalar() || !item.second.IsScalar()) {
      section.Fault("transforms", "must map feature names to transform names");
    } else if (!transforms.emplace(item.first.Scalar(), item.second.Scalar()).second) {
      violations.Add(section.Path("transforms." + item.first.Scalar()), "stated twice");
    }
  }
  return transforms;
}

void CheckComputeWidths(const ManifestSection& section, const ComputeNetworkManifest& compute) {
  const auto& table = compute.table_layers;
  const auto& head = compute.head_layers;
  if (!table.empty() && !compute.features.empty() &&
      table.front() != static_cast<std::int64_t>(compute.features.size())) {
    section.Fault("table_layers[0]", fmt::format("must be the number of features, {}, got {}",
                                                 compute.features.size(), table.front()));
  }
  if (!table.empty() && !head.empty() && head.front() != table.back()) {
    section.Fault("head_layers[0]",
                  fmt::format("must be the last width of table_layers, {}, got {}", table.back(),
                              head.front()));
  }
  if (!head.empty() && head.back() != static_cast<std::int64_t>(compute.outputs.size())) {
    section.Fault(fmt::format("head_layers[{}]", head.size() - 1),
                  fmt::format("must be the number of outputs, {}, got {}", compute.outputs.size(),
                              head.back()));
  }
}

ComputeNetworkManifest ReadCompute(const YAML::Node& node, Violations& violations) {
  ComputeNetworkManifest compute;
  const ManifestSection section(
      node, "compute",
      {"file", "kind", "features", "transforms", "table_layers", "head_layers", "outputs"},
      violations);
  if (!section.valid()) return compute;
  section.Constant("kind", "table_sum_mlp");
  compute.file = section.File("file");
  if (const YAML::Node* features = section.Require("features")) {
    compute.features = section.Texts("features", *features);
  }
  compute.transforms = ReadTransforms(section, violations);
  if (section.Find("features") != nullptr) {
    const auto columns = FeatureColumns::Create(compute.features, compute.transforms);
    if (!columns.ok()) section.Fault("features", Message(columns.status()));
  }
  compute.table_layers = section.Layers("table_layers");
  compute.head_layers = section.Layers("head_layers");
  compute.outputs = ReadOutputs(section);
  CheckComputeWidths(section, compute);
  return compute;
}

CommNetworkManifest ReadCommNetwork(const YAML::Node& node, const std::string& path,
                                    CommDirection direction, Violations& violations) {
  CommNetworkManifest network;
  const ManifestSection section(node, path, {"file", "kind", "num_devices", "layers"}, violations);
  if (!section.valid()) return network;
  section.Constant("kind", "device_count_mlp");
  network.file = section.File("file");
  const std::int64_t ranks = section.RequiredInteger("num_devices", 2, kMaxDevices);
  network.num_devices = static_cast<int>(ranks);
  network.layers = section.Layers("layers");
  if (ranks == 0 || network.layers.empty()) return network;
  const bool forward = direction == CommDirection::kForward;
  const std::int64_t inputs = forward ? 2 * ranks : ranks;
  if (network.layers.front() != inputs) {
    section.Fault("layers[0]", fmt::format("must be {} ({} of {} devices), got {}", inputs,
                                           forward ? "dim sums and start offsets" : "dim sums",
                                           ranks, network.layers.front()));
  }
  if (network.layers.back() != ranks) {
    section.Fault(
        fmt::format("layers[{}]", network.layers.size() - 1),
        fmt::format("must be the number of devices, {}, got {}", ranks, network.layers.back()));
  }
  return network;
}

// One mapping, or a list of them for several rank counts.
std::vector<CommNetworkManifest> ReadCommNetworks(const ManifestSection& root,
                                                  const std::string& key, CommDirection direction,
                                                  Violations& violations) {
  std::vector<CommNetworkManifest> networks;
  const YAML::Node* node = root.Find(key);
  if (node == nullptr) return networks;
  if (!node->IsSequence()) {
    networks.push_back(ReadCommNetwork(*node, key, direction, violations));
    return networks;
  }
  std::set<int> counts;
  for (std::size_t i = 0; i < node->size(); ++i) {
    const std::string path = fmt::format("{}[{}]", key, i);
    networks.push_back(ReadCommNetwork((*node)[i], path, direction, violations));
    const int ranks = networks.back().num_devices;
    if (ranks != 0 && !counts.insert(ranks).second) {
      violations.Add(path + ".num_devices", fmt::format("{} has a network already", ranks));
    }
  }
  std::sort(networks.begin(), networks.end(),
            [](const auto& a, const auto& b) { return a.num_devices < b.num_devices; });
  return networks;
}

// A plan's intervals have one coverage.
void CheckCoverages(const ModelManifest& manifest, const ManifestSection& root) {
  std::vector<std::pair<std::string, double>> coverages;
  if (manifest.universal->interval) {
    coverages.emplace_back("compute.interval", manifest.universal->interval->coverage);
  }
  if (manifest.comm && manifest.comm->interval) {
    coverages.emplace_back("comm.interval", manifest.comm->interval->coverage);
  }
  if (manifest.comm) {
    for (const auto& [collective, interval] : manifest.comm->intervals) {
      coverages.emplace_back("comm.intervals." + collective, interval.coverage);
    }
  }
  for (const auto& [path, coverage] : coverages) {
    const auto& [first_path, first] = coverages.front();
    if (coverage == first) continue;
    root.Fault(path + ".coverage",
               fmt::format("must be that of {}, {}, got {}", first_path, first, coverage));
  }
}

// A kind of compute, and the kinds of communication that go with it.
void ReadNetworks(const ManifestSection& root, Violations& violations, ModelManifest& manifest) {
  const YAML::Node* compute = root.Require("compute");
  const bool universal =
      compute != nullptr && KindOf(*compute) == std::string(kUniversalComputeKind);
  const YAML::Node* comm = root.Find("comm");
  if (comm != nullptr && KindOf(*comm) == std::string(kFabricKind)) {
    manifest.fabric = ReadFabricSection(*comm, violations);
    comm = nullptr;
  }
  if (!universal) {
    if (compute != nullptr) manifest.compute = ReadCompute(*compute, violations);
    manifest.forward_comm =
        ReadCommNetworks(root, "forward_comm", CommDirection::kForward, violations);
    manifest.backward_comm =
        ReadCommNetworks(root, "backward_comm", CommDirection::kBackward, violations);
  } else {
    manifest.universal = ReadUniversalCompute(*compute, violations);
    if (comm != nullptr) manifest.comm = ReadUniversalComm(*comm, violations);
    CheckCoverages(manifest, root);
    if (const YAML::Node* trained_on = root.Find("trained_on")) {
      manifest.trained_on = ReadTrainedOn(*trained_on, violations);
    }
  }
  if (!universal && comm != nullptr) {
    root.Fault("comm", fmt::format("goes with compute.kind {}, unless it is of kind {}",
                                   kUniversalComputeKind, kFabricKind));
  }
  if (!universal && root.Find("trained_on") != nullptr) {
    root.Fault("trained_on", fmt::format("goes with compute.kind {} alone", kUniversalComputeKind));
  }
  for (const char* key : {"forward_comm", "backward_comm"}) {
    if (root.Find(key) == nullptr) continue;
    if (universal) {
      root.Fault(key, fmt::format("does not go with compute.kind {}; such a model has comm",
                                  kUniversalComputeKind));
    } else if (manifest.fabric) {
      root.Fault(key, fmt::format("does not go with comm.kind {}", kFabricKind));
    }
  }
}

void ReadQuality(const ManifestSection& root, Violations& violations, ModelManifest& manifest) {
  const YAML::Node* node = root.Find("quality");
  if (node == nullptr) return;
  const ManifestSection quality(*node, "quality", {"usable", "reason"}, violations);
  if (!quality.valid()) return;
  const std::string usable = quality.RequiredText("usable");
  if (usable == "false") {
    manifest.unusable_reason = quality.RequiredText("reason");
  } else if (usable != "true" && !usable.empty()) {
    quality.Fault("usable", fmt::format("must be true or false, got {}", Quoted(usable)));
  }
}

void ReadIdentity(const ManifestSection& root, Violations& violations, ModelManifest& manifest) {
  root.Constant("format", kModelFormat);
  manifest.name = root.RequiredText("name");
  if (!manifest.name.empty() && !IsModelName(manifest.name)) {
    root.Fault("name", fmt::format("must be 1 to {} letters, digits, '.', '_' or '-', the first a "
                                   "letter or digit, got {}",
                                   kMaxNameLength, Quoted(manifest.name)));
  }
  manifest.version = static_cast<int>(root.RequiredInteger("version", 1, kMaxVersion));
  if (const YAML::Node* node = root.Find("hardware")) {
    const ManifestSection hardware(*node, "hardware", {"device", "backend", "collective_backend"},
                                   violations);
    manifest.device = hardware.Text("device");
    manifest.backend = hardware.Text("backend");
    manifest.collective_backend = hardware.Text("collective_backend");
  }
  if (const YAML::Node* node = root.Find("conditions")) {
    const ManifestSection conditions(
        *node, "conditions", {"global_batch_size", "weight_dtype", "optimizer"}, violations);
    manifest.global_batch_size = conditions.Integer("global_batch_size", 1, INT64_MAX);
    manifest.weight_dtype = WordOf<DataType>(conditions, "weight_dtype");
    manifest.optimizer = WordOf<Optimizer>(conditions, "optimizer");
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

StatusOr<YAML::Node> LoadYaml(std::string_view text) {
  if (!IsUtf8(text)) return InvalidArgument("not valid YAML: the text is not UTF-8");
  try {
    return YAML::Load(std::string(text));
  } catch (const YAML::Exception& error) {
    return InvalidArgument("not valid YAML: {}", error.what());
  }
}

}  // namespace

StatusOr<ModelManifest> ParseModelManifest(std::string_view yaml) {
  NS_ASSIGN_OR_RETURN(const YAML::Node document, LoadYaml(yaml));
  Violations violations;
  ModelManifest manifest;
  try {
    const ManifestSection root(
        document, "",
        {"format", "name", "version", "hardware", "conditions", "trained_on", "quality", "compute",
         "comm", "forward_comm", "backward_comm", "provenance", "metrics"},
        violations);
    if (!root.valid()) return violations.ToStatus();
    ReadIdentity(root, violations, manifest);
    ReadNetworks(root, violations, manifest);
    ReadQuality(root, violations, manifest);
    DetailReader details(violations);
    for (const auto& [key, target] :
         {std::pair{"metrics", &manifest.metrics}, std::pair{"provenance", &manifest.provenance}}) {
      const YAML::Node* node = root.Find(key);
      if (node == nullptr) continue;
      if (node->IsMap()) {
        details.Read(*node, key, "", 0, *target);
      } else {
        root.Fault(key, fmt::format("must be a mapping, got {}", Shown(*node)));
      }
    }
  } catch (const YAML::Exception& error) {
    return InvalidArgument("not valid YAML: {}", error.what());
  }
  NS_RETURN_IF_ERROR(violations.ToStatus());
  UseBackendNamesOfToday(manifest);
  return manifest;
}

StatusOr<ModelManifest> ReadModelManifest(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kManifestFileName;
  NS_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path, kMaxManifestBytes));
  StatusOr<ModelManifest> manifest = ParseModelManifest(text);
  if (!manifest.ok()) return Annotate(manifest.status(), path.string());
  NS_RETURN_IF_ERROR(CheckModelDirectory(directory, *manifest));
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
