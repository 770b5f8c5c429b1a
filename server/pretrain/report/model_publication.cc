#include "server/pretrain/report/model_publication.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <system_error>

#include "server/networks/manifest_fields.h"
#include "server/networks/model_manifest.h"
#include "server/pretrain/report/model_drift_measurement.h"

namespace neuroshard {
namespace {

namespace fs = std::filesystem;

// Whether `directory` can be written; where it is not there, the nearest folder above it that is.
Status CheckWritable(const fs::path& directory) {
  fs::path nearest = directory;
  std::error_code error;
  while (!nearest.empty() && !fs::exists(nearest, error)) nearest = nearest.parent_path();
  if (nearest.empty()) nearest = ".";
  const int reason = !fs::is_directory(nearest, error)             ? ENOTDIR
                     : ::access(nearest.c_str(), W_OK | X_OK) != 0 ? errno
                                                                   : 0;
  if (reason == 0) return absl::OkStatus();
  return Unavailable("{}: cannot be written: {}", nearest.string(), std::strerror(reason));
}

// Without values that are not stated.
std::string Listed(std::set<std::string> values) {
  values.erase("");
  return fmt::format("{}", fmt::join(values, ", "));
}

}  // namespace

StatusOr<ModelLocation> LocateModel(const std::string& path, ExistingVersion existing) {
  ModelLocation location;
  location.directory = fs::path(path).lexically_normal();
  if (!location.directory.has_filename()) location.directory = location.directory.parent_path();
  const auto version = VersionFromName(location.directory.filename().string());
  location.version = version.value_or(0);
  location.name = location.directory.parent_path().filename().string();
  if (!version || !IsModelName(location.name)) {
    return InvalidArgument(
        "{}: must end in NAME/VERSION: a name of letters, digits, '.', '_' and '-', and a positive "
        "number",
        path);
  }
  std::error_code error;
  if (existing == ExistingVersion::kRefuse && fs::exists(location.directory, error)) {
    return AlreadyExists("{} exists; choose the next version, or --overwrite to replace it", path);
  }
  NS_RETURN_IF_ERROR(CheckWritable(location.directory.parent_path()));
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
  std::set<std::string> flushes;
  for (const ComputeRecord& record : records.compute) {
    imported += record.imported;
    if (record.imported) continue;
    add(record.environment);
    flushes.insert(CacheFlushOf(record.environment));
  }
  flushes.erase("");
  for (const CommRecord& record : records.comm) {
    imported += record.imported;
    for (const MeasurementEnvironment& environment : record.environments) add(environment);
  }
  std::map<std::string, std::string> provenance = {
      {"store", store_file_name},
      {"compute_measurements", fmt::format("{}", records.compute.size())},
      {"comm_measurements", fmt::format("{}", records.comm.size())},
      {"imported_samples", fmt::format("{}", imported)},
      {"trained_at", UtcText(trained_at_unix_ms)},
      {"trained_by", "neuroshard-pretrain"},
  };
  const std::pair<const char*, std::string> optional_values[] = {
      {"hosts", Listed(hosts)},
      {"worker_versions", Listed(versions)},
      {"worker_git_commits", Listed(commits)},
      {kCacheFlushKey, flushes.size() > 1 ? kBothFlushes : Listed(flushes)},
      {"measured_from", times.empty() ? "" : UtcText(*times.begin())},
      {"measured_to", times.empty() ? "" : UtcText(*times.rbegin())},
  };
  for (const auto& [key, value] : optional_values) {
    if (!value.empty()) provenance[key] = value;
  }
  for (const auto& [key, value] : DescribeTrainingConfig(config)) {
    provenance["config." + key] = value;
  }
  return provenance;
}

Status PublishModel(const TrainingOutcome& outcome, const ModelLocation& location,
                    const std::map<std::string, std::string>& provenance,
                    ExistingVersion existing) {
  ModelManifest manifest = outcome.manifest;
  manifest.name = location.name;
  manifest.version = location.version;
  manifest.metrics = ManifestMetrics(outcome);
  manifest.provenance = provenance;
  std::map<std::string, std::string> texts = ReportTables(outcome);
  texts["REPORT.md"] = MarkdownReport(
      outcome, fmt::format("{} version {}", location.name, location.version), provenance);
  return WriteModelDirectory(location.directory, manifest, outcome.files, texts, existing);
}

}  // namespace neuroshard
