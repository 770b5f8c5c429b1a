#include "server/pretrain/report/model_publication.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <set>
#include <system_error>
#include <utility>

#include "server/networks/model_directory.h"
#include "server/networks/model_files.h"
#include "server/networks/model_manifest.h"
#include "server/networks/regular_file.h"
#include "server/pretrain/report/model_drift_measurement.h"
#include "server/pretrain/report/training_report.h"

namespace neuroshard {
namespace {

namespace fs = std::filesystem;

Status WriteReports(const TrainingOutcome& outcome, const fs::path& directory,
                    const std::string& title,
                    const std::map<std::string, std::string>& provenance) {
  for (const auto& [name, table] : ReportTables(outcome)) {
    NS_RETURN_IF_ERROR(WriteFileAtomically(directory / name, table));
  }
  NS_RETURN_IF_ERROR(
      WriteFileAtomically(directory / "REPORT.md", MarkdownReport(outcome, title, provenance)));
  return WriteFileList(directory);
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

// `staged` in the place of `target`, which is there.
Status Exchange(const fs::path& staged, const fs::path& target, const fs::path& away) {
  if (::renameat2(AT_FDCWD, staged.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    return absl::OkStatus();
  }
  if (errno != EINVAL && errno != ENOSYS) {
    return Unavailable("{}: cannot be replaced: {}", target.string(), std::strerror(errno));
  }
  const TemporaryFolder replaced(away);
  NS_RETURN_IF_ERROR(Rename(target, replaced.path()));
  const Status renamed = Rename(staged, target);
  std::error_code ignored;
  if (!renamed.ok()) fs::rename(replaced.path(), target, ignored);
  return renamed;
}

// Of `directory` or, where it is not there yet, of the nearest folder above it that is.
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

Status PublishDirectory(const ModelLocation& location, ExistingVersion existing,
                        const std::function<Status(const fs::path& staged)>& write) {
  // Names that start with a dot are no versions to a planner that watches the repository.
  const fs::path beside = location.directory.parent_path();
  const std::string suffix = fmt::format("{}.{}", location.version, ::getpid());
  const TemporaryFolder staging(beside / (".staging-" + suffix));
  const fs::path staged = staging.path() / location.name / std::to_string(location.version);
  NS_RETURN_IF_ERROR(write(staged));

  std::error_code error;
  if (!fs::exists(location.directory, error)) {
    NS_RETURN_IF_ERROR(Rename(staged, location.directory));
  } else if (existing == ExistingVersion::kRefuse) {
    return absl::AlreadyExistsError(location.directory.string() + " exists");
  } else {
    NS_RETURN_IF_ERROR(Exchange(staged, location.directory, beside / (".replaced-" + suffix)));
  }
  return SyncDirectory(beside);
}

Status PublishModel(const TrainingOutcome& outcome, const ModelLocation& location,
                    const std::map<std::string, std::string>& provenance,
                    ExistingVersion existing) {
  ModelManifest manifest = outcome.manifest;
  manifest.name = location.name;
  manifest.version = location.version;
  manifest.metrics = ManifestMetrics(outcome);
  manifest.provenance = provenance;
  return PublishDirectory(location, existing, [&](const fs::path& staged) -> Status {
    NS_RETURN_IF_ERROR(WriteModelDirectory(staged, manifest, outcome.files));
    return WriteReports(outcome, staged,
                        fmt::format("{} version {}", location.name, location.version), provenance);
  });
}

}  // namespace neuroshard
