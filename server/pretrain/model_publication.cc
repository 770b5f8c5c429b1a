#include "server/pretrain/model_publication.h"

#include <fmt/chrono.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <set>
#include <system_error>
#include <utility>

#include "server/models/model_directory.h"
#include "server/models/model_manifest.h"
#include "server/models/regular_file.h"
#include "server/pretrain/scatter_plot.h"
#include "server/pretrain/training_report.h"

namespace neuroshard {
namespace {

namespace fs = std::filesystem;

std::vector<std::int64_t> Widths(std::int64_t inputs, const std::vector<LinearLayer>& layers) {
  std::vector<std::int64_t> widths = {inputs};
  for (const LinearLayer& layer : layers) widths.push_back(layer.outputs);
  return widths;
}

void AddLayers(const std::string& prefix, const std::vector<LinearLayer>& layers,
               TensorFile& file) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LinearLayer& layer = layers[i];
    const std::string name = fmt::format("{}.{}", prefix, i);
    file.tensors[name + ".weight"] = {{layer.outputs, layer.inputs}, layer.weight};
    file.tensors[name + ".bias"] = {{layer.outputs}, layer.bias};
  }
}

TensorFile MakeTensorFile(const TrainedNetwork& network) {
  TensorFile file;
  const auto features = static_cast<std::int64_t>(network.feature_mean.size());
  file.tensors["feature_mean"] = {{features}, network.feature_mean};
  file.tensors["feature_std"] = {{features}, network.feature_std};
  const bool sums_rows = !network.row_layers.empty();
  if (sums_rows) AddLayers("table", network.row_layers, file);
  AddLayers(sums_rows ? "head" : "layer", network.head_layers, file);
  return file;
}

struct ModelFiles {
  ModelManifest manifest;
  std::map<std::string, TensorFile> files;
};

ModelFiles MakeModelFiles(const TrainedCostModel& model, const ModelLocation& location,
                          const std::map<std::string, std::string>& provenance) {
  ModelFiles result;
  ModelManifest& manifest = result.manifest;
  manifest.name = location.name;
  manifest.version = location.version;
  manifest.device = model.conditions.device;
  manifest.backend = model.conditions.backend;
  manifest.global_batch_size = model.conditions.batch_size;
  manifest.weight_dtype = model.conditions.weight_dtype;
  manifest.optimizer = model.conditions.optimizer;
  const auto features = static_cast<std::int64_t>(model.features.size());
  manifest.compute.file = "compute.safetensors";
  manifest.compute.features = model.features;
  manifest.compute.transforms = model.transforms;
  manifest.compute.table_layers = Widths(features, model.compute.row_layers);
  manifest.compute.head_layers =
      Widths(manifest.compute.table_layers.back(), model.compute.head_layers);
  manifest.compute.outputs = model.compute_outputs;
  result.files[manifest.compute.file] = MakeTensorFile(model.compute);
  for (const TrainedCommNetwork& comm : model.comm) {
    CommNetworkManifest network;
    network.file = fmt::format("{}_comm_{}.safetensors", ToText(comm.direction), comm.num_ranks);
    network.num_devices = comm.num_ranks;
    network.layers = Widths(static_cast<std::int64_t>(comm.network.feature_mean.size()),
                            comm.network.head_layers);
    result.files[network.file] = MakeTensorFile(comm.network);
    const bool forward = comm.direction == CommDirection::kForward;
    (forward ? manifest.forward_comm : manifest.backward_comm).push_back(std::move(network));
  }
  manifest.metrics = ManifestMetrics(model);
  manifest.provenance = provenance;
  return result;
}

Status WriteReports(const TrainedCostModel& model, const fs::path& directory,
                    const std::string& title,
                    const std::map<std::string, std::string>& provenance) {
  for (const NetworkReport* report : AllReports(model)) {
    NS_RETURN_IF_ERROR(WriteFileAtomically(directory / PlotFileName(*report),
                                           ScatterPlot(report->name + ", held-out samples",
                                                       report->measured_ms, report->predicted_ms)));
  }
  return WriteFileAtomically(directory / "REPORT.md", MarkdownReport(model, title, provenance));
}

// Removes the folder it is given, whatever happens.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(fs::path path) : path_(std::move(path)) { Remove(); }
  ~TemporaryFolder() { Remove(); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const fs::path& path() const { return path_; }

 private:
  void Remove() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  fs::path path_;
};

Status Rename(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (!error) return absl::OkStatus();
  return Unavailable("{}: cannot be written: {}", to.string(), error.message());
}

std::string Date(std::int64_t unix_ms) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(static_cast<std::time_t>(unix_ms / 1000)));
}

std::string Listed(const std::set<std::string>& values) {
  std::string text;
  for (const std::string& value : values) {
    if (!value.empty()) text += (text.empty() ? "" : ", ") + value;
  }
  return text;
}

}  // namespace

StatusOr<ModelLocation> LocateModel(const std::string& path, ExistingVersion existing) {
  ModelLocation location;
  location.directory = fs::path(path).lexically_normal();
  if (!location.directory.has_filename()) location.directory = location.directory.parent_path();
  const std::string version = location.directory.filename().string();
  location.name = location.directory.parent_path().filename().string();
  const char* end = version.data() + version.size();
  const auto parsed = std::from_chars(version.data(), end, location.version);
  const bool is_version = parsed.ec == std::errc() && parsed.ptr == end && location.version > 0 &&
                          version.front() != '0';
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  const bool is_name =
      !location.name.empty() && location.name.size() <= 128 && is_plain(location.name.front()) &&
      std::all_of(location.name.begin(), location.name.end(),
                  [&](char c) { return is_plain(c) || c == '.' || c == '_' || c == '-'; });
  if (!is_version || !is_name) {
    return InvalidArgument(
        "{}: must end in NAME/VERSION: a name of letters, digits, '.', '_' and '-', and a positive "
        "number",
        path);
  }
  std::error_code error;
  if (existing == ExistingVersion::kRefuse && fs::exists(location.directory, error)) {
    return absl::AlreadyExistsError(
        fmt::format("{} exists; choose the next version, or --overwrite to replace it", path));
  }
  return location;
}

std::map<std::string, std::string> DescribeProvenance(const SelectedRecords& records,
                                                      const TrainingConfig& config,
                                                      const std::string& store_file_name,
                                                      std::int64_t trained_at_unix_ms) {
  std::set<std::string> hosts;
  std::set<std::string> versions;
  std::set<std::string> commits;
  std::set<std::int64_t> times;
  std::int64_t imported = 0;
  const auto add = [&](const MeasurementEnvironment& environment) {
    hosts.insert(environment.hostname);
    versions.insert(environment.worker_version);
    commits.insert(environment.git_commit);
    times.insert(environment.measured_at_unix_ms);
  };
  for (const ComputeRecord& record : records.compute) {
    imported += record.imported;
    if (!record.imported) add(record.environment);
  }
  for (const CommRecord& record : records.comm) {
    imported += record.imported;
    for (const MeasurementEnvironment& environment : record.environments) add(environment);
  }
  std::map<std::string, std::string> provenance = {
      {"store", store_file_name},
      {"compute_measurements", fmt::format("{}", records.compute.size())},
      {"comm_measurements", fmt::format("{}", records.comm.size())},
      {"imported_samples", fmt::format("{}", imported)},
      {"trained_at", Date(trained_at_unix_ms)},
      {"trained_by", "neuroshard-pretrain"},
  };
  const std::pair<const char*, std::string> optional_values[] = {
      {"hosts", Listed(hosts)},
      {"worker_versions", Listed(versions)},
      {"worker_git_commits", Listed(commits)},
      {"measured_from", times.empty() ? "" : Date(*times.begin())},
      {"measured_to", times.empty() ? "" : Date(*times.rbegin())},
  };
  for (const auto& [key, value] : optional_values) {
    if (!value.empty()) provenance[key] = value;
  }
  for (const auto& [key, value] : DescribeTrainingConfig(config)) {
    provenance["config." + key] = value;
  }
  return provenance;
}

Status PublishModel(const TrainedCostModel& model, const ModelLocation& location,
                    const std::map<std::string, std::string>& provenance,
                    ExistingVersion existing) {
  // Names that start with a dot are no versions to a planner that watches the repository.
  const fs::path beside = location.directory.parent_path();
  const std::string suffix = fmt::format("{}.{}", location.version, ::getpid());
  const TemporaryFolder staging(beside / (".staging-" + suffix));
  const TemporaryFolder replaced(beside / (".replaced-" + suffix));
  const fs::path staged = staging.path() / location.name / std::to_string(location.version);

  const ModelFiles model_files = MakeModelFiles(model, location, provenance);
  NS_RETURN_IF_ERROR(WriteModelDirectory(staged, model_files.manifest, model_files.files));
  const std::string title = fmt::format("{} version {}", location.name, location.version);
  NS_RETURN_IF_ERROR(WriteReports(model, staged, title, provenance));

  std::error_code error;
  if (fs::exists(location.directory, error)) {
    if (existing == ExistingVersion::kRefuse) {
      return absl::AlreadyExistsError(location.directory.string() + " exists");
    }
    NS_RETURN_IF_ERROR(Rename(location.directory, replaced.path()));
    const Status renamed = Rename(staged, location.directory);
    if (!renamed.ok()) {
      fs::rename(replaced.path(), location.directory, error);
      return renamed;
    }
  } else {
    NS_RETURN_IF_ERROR(Rename(staged, location.directory));
  }
  return SyncDirectory(beside);
}

}  // namespace neuroshard
