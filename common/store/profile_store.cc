#include "common/store/profile_store.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "common/store/record_rows.h"
#include "common/store/sample_rows.h"
#include "common/store/sqlite_database.h"
#include "common/store/store_schema.h"

namespace neuroshard {
namespace {

template <typename Sample>
constexpr std::string_view kKindText = "compute";
template <>
constexpr std::string_view kKindText<CommSample> = "comm";

template <typename Sample>
StatusOr<std::vector<StoredSample<Sample>>> SelectSamples(SqliteDatabase& database,
                                                          std::int64_t sweep_id,
                                                          SampleFilter filter) {
  if constexpr (std::is_same_v<Sample, ComputeSample>) {
    return SelectComputeSamples(database, sweep_id, filter);
  } else {
    return SelectCommSamples(database, sweep_id, filter);
  }
}

// nullopt when there is none.
StatusOr<std::optional<std::int64_t>> FindSweep(SqliteDatabase& database, std::string_view kind,
                                                const std::string& config_hash) {
  NS_ASSIGN_OR_RETURN(
      SqliteStatement find,
      database.Prepare("SELECT sweep_id FROM sweeps WHERE kind = ? AND config_hash = ?"));
  NS_ASSIGN_OR_RETURN(const bool found, find.Bind(kind).Bind(config_hash).Step());
  if (!found) return std::optional<std::int64_t>();
  return std::optional(find.Integer(0));
}

StatusOr<std::int64_t> InsertSweep(SqliteDatabase& database, std::string_view kind,
                                   const SweepInfo& info, bool imported) {
  NS_ASSIGN_OR_RETURN(SqliteStatement insert,
                      database.Prepare("INSERT INTO sweeps (kind, name, config_hash, config_text, "
                                       "imported) VALUES (?, ?, ?, ?, ?)"));
  insert.Bind(kind).Bind(info.name).Bind(info.config_hash).Bind(info.config_text);
  NS_RETURN_IF_ERROR(insert.Bind(std::int64_t{imported}).Run());
  return database.LastInsertedId();
}

template <typename Sample>
Status CheckSameSamples(SqliteDatabase& database, std::int64_t sweep_id, const SweepInfo& info,
                        const std::vector<Sample>& samples) {
  NS_ASSIGN_OR_RETURN(const auto stored,
                      SelectSamples<Sample>(database, sweep_id, SampleFilter::kAll));
  bool same = stored.size() == samples.size();
  for (std::size_t i = 0; same && i < samples.size(); ++i) same = stored[i].sample == samples[i];
  if (same) return absl::OkStatus();
  return FailedPrecondition(
      "{}: sweep {} ({}) has the config hash {} but other samples: its samples were made by "
      "another "
      "version of the program; use another store or change the sweep's seed",
      database.path(), sweep_id, info.name, info.config_hash);
}

// Finds or makes a sweep; `add_records(rows)` runs when it is made. Within a transaction.
template <typename Sample, typename AddRecords>
StatusOr<std::int64_t> FindOrMakeSweep(SqliteDatabase& database, const SweepInfo& info,
                                       bool imported, const std::vector<Sample>& samples,
                                       AddRecords add_records) {
  NS_ASSIGN_OR_RETURN(const std::optional<std::int64_t> found,
                      FindSweep(database, kKindText<Sample>, info.config_hash));
  if (found) {
    NS_RETURN_IF_ERROR(CheckSameSamples(database, *found, info, samples));
    return *found;
  }
  NS_ASSIGN_OR_RETURN(const std::int64_t sweep_id,
                      InsertSweep(database, kKindText<Sample>, info, imported));
  NS_ASSIGN_OR_RETURN(const std::vector<std::int64_t> rows,
                      InsertSamples(database, sweep_id, samples));
  NS_RETURN_IF_ERROR(add_records(rows));
  return sweep_id;
}

// In a transaction of its own.
template <typename Sample, typename AddRecords>
StatusOr<std::int64_t> BeginSweep(SqliteDatabase& database, const SweepInfo& info, bool imported,
                                  const std::vector<Sample>& samples, AddRecords add_records) {
  if (info.config_hash.empty()) return InvalidArgument("a sweep must have a config_hash");
  NS_RETURN_IF_ERROR(CheckSamples(samples));
  const MutexLock lock(database.mutex());
  NS_ASSIGN_OR_RETURN(SqliteTransaction transaction, SqliteTransaction::Begin(database));
  NS_ASSIGN_OR_RETURN(const std::int64_t sweep_id,
                      FindOrMakeSweep(database, info, imported, samples, add_records));
  NS_RETURN_IF_ERROR(transaction.Commit());
  return sweep_id;
}

template <typename Measured>
auto SamplesOf(const std::vector<Measured>& measured) {
  std::vector<decltype(Measured::sample)> samples;
  for (const Measured& one : measured) samples.push_back(one.sample);
  return samples;
}

template <typename Sample>
StatusOr<std::vector<Sample>> PendingSamples(SqliteDatabase& database, std::int64_t sweep_id) {
  const MutexLock lock(database.mutex());
  NS_ASSIGN_OR_RETURN(SqliteStatement sweep,
                      database.Prepare("SELECT 1 FROM sweeps WHERE sweep_id = ? AND kind = ?"));
  NS_ASSIGN_OR_RETURN(const bool found, sweep.Bind(sweep_id).Bind(kKindText<Sample>).Step());
  if (!found) {
    return NotFound("{} has no {} sweep {}", database.path(), kKindText<Sample>, sweep_id);
  }
  NS_ASSIGN_OR_RETURN(auto stored,
                      SelectSamples<Sample>(database, sweep_id, SampleFilter::kPending));
  std::vector<Sample> samples;
  for (StoredSample<Sample>& pending : stored) samples.push_back(std::move(pending.sample));
  return samples;
}

// The row of a sample that has no record yet, and how many ranks it is over (1 for compute).
struct OpenRow {
  std::int64_t row = 0;
  std::int64_t num_ranks = 1;
};

template <typename Sample>
StatusOr<OpenRow> FindOpenRow(SqliteDatabase& database, std::int64_t sweep_id,
                              const std::string& sample_id) {
  constexpr std::string_view kKind = kKindText<Sample>;
  NS_ASSIGN_OR_RETURN(
      SqliteStatement find,
      database.Prepare(fmt::format(
          "SELECT sample, EXISTS (SELECT 1 FROM {0}_measurements m WHERE m.sample = s.sample), {1} "
          "FROM {0}_samples s WHERE sweep_id = ? AND sample_id = ?",
          kKind, std::is_same_v<Sample, CommSample> ? "num_ranks" : "1")));
  NS_ASSIGN_OR_RETURN(const bool found, find.Bind(sweep_id).Bind(sample_id).Step());
  if (!found) {
    return NotFound("{}: {} sweep {} has no sample {}", database.path(), kKind, sweep_id,
                    sample_id);
  }
  if (find.Integer(1) != 0) {
    return absl::AlreadyExistsError(fmt::format("{}: sample {} of {} sweep {} has a record already",
                                                database.path(), sample_id, kKind, sweep_id));
  }
  return OpenRow{find.Integer(0), find.Integer(2)};
}

Status CheckRanks(const std::string& sample_id, std::int64_t num_ranks,
                  const std::vector<CommMeasurement>& measurements) {
  std::vector<bool> seen(static_cast<std::size_t>(num_ranks));
  for (const CommMeasurement& measurement : measurements) {
    if (measurement.sample_id != sample_id) {
      return InvalidArgument("sample {}: got a record of sample {}", sample_id,
                             measurement.sample_id);
    }
    if (measurement.rank < 0 || measurement.rank >= num_ranks ||
        seen[static_cast<std::size_t>(measurement.rank)]) {
      return InvalidArgument("sample {}: rank {} does not exist or is given twice", sample_id,
                             measurement.rank);
    }
    seen[static_cast<std::size_t>(measurement.rank)] = true;
  }
  if (measurements.size() == seen.size()) return absl::OkStatus();
  return InvalidArgument("sample {}: got records of {} of {} ranks", sample_id, measurements.size(),
                         num_ranks);
}

StatusOr<std::vector<SweepStatistics>> SelectStatistics(SqliteDatabase& database) {
  NS_ASSIGN_OR_RETURN(
      SqliteStatement rows,
      database.Prepare(
          "WITH outcomes (kind, sweep_id, sample, measured, failed) AS ("
          " SELECT 'compute', sweep_id, s.sample, m.outcome IS NOT NULL, m.outcome <> 'ok'"
          " FROM compute_samples s LEFT JOIN compute_measurements m USING (sample)"
          " UNION ALL"
          " SELECT 'comm', sweep_id, s.sample, count(m.outcome) > 0, max(m.outcome <> 'ok')"
          " FROM comm_samples s LEFT JOIN comm_measurements m USING (sample) GROUP BY s.sample)"
          " SELECT w.sweep_id, w.kind, name, config_hash, imported, count(sample),"
          " ifnull(sum(measured), 0), ifnull(sum(failed), 0)"
          " FROM sweeps w LEFT JOIN outcomes o ON o.kind = w.kind AND o.sweep_id = w.sweep_id"
          " GROUP BY w.sweep_id ORDER BY w.sweep_id"));
  std::vector<SweepStatistics> sweeps;
  while (true) {
    NS_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return sweeps;
    SweepStatistics& sweep = sweeps.emplace_back();
    sweep.sweep_id = rows.Integer(0);
    sweep.kind = rows.Text(1) == "compute" ? SweepKind::kCompute : SweepKind::kComm;
    sweep.name = rows.Text(2);
    sweep.config_hash = rows.Text(3);
    sweep.imported = rows.Integer(4) != 0;
    sweep.samples = rows.Integer(5);
    sweep.out_of_memory = rows.Integer(7);
    sweep.ok = rows.Integer(6) - sweep.out_of_memory;
  }
}

// The records of all sweeps of one kind, by `select(sweep_id, imported)`.
template <typename Record, typename Select>
StatusOr<std::vector<Record>> RecordsOfAllSweeps(SqliteDatabase& database, SweepKind kind,
                                                 Select select) {
  const MutexLock lock(database.mutex());
  // One read transaction, so that a writer between two statements does not show.
  NS_RETURN_IF_ERROR(database.Execute("BEGIN"));
  const auto read = [&]() -> StatusOr<std::vector<Record>> {
    NS_ASSIGN_OR_RETURN(const std::vector<SweepStatistics> sweeps, SelectStatistics(database));
    std::vector<Record> all;
    for (const SweepStatistics& sweep : sweeps) {
      if (sweep.kind != kind) continue;
      NS_ASSIGN_OR_RETURN(std::vector<Record> records, select(sweep.sweep_id, sweep.imported));
      all.insert(all.end(), std::make_move_iterator(records.begin()),
                 std::make_move_iterator(records.end()));
    }
    return all;
  };
  StatusOr<std::vector<Record>> all = read();
  NS_RETURN_IF_ERROR(database.Execute("COMMIT"));
  return all;
}

Status CheckPath(const std::string& path, StoreMode mode) {
  std::error_code error;
  const std::filesystem::file_status file = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(file)) return FailedPrecondition("{} is a directory", path);
  if (std::filesystem::exists(file)) return absl::OkStatus();
  if (mode == StoreMode::kReadOnly) return NotFound("there is no profile store {}", path);
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (!parent.empty() && !std::filesystem::is_directory(parent, error)) {
    return NotFound("cannot create {}: there is no directory {}", path, parent.string());
  }
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<SqliteDatabase>> OpenReadOnly(const std::string& path) {
  NS_ASSIGN_OR_RETURN(auto database, SqliteDatabase::Open(path, SqliteDatabase::Access::kReadOnly,
                                                          ProfileStore::kBusyTimeoutMs));
  const Status status = CheckSchema(*database);
  if (status.ok()) return database;
  // A write-ahead log needs files beside the store. Where those cannot be made (read-only media)
  // and there is no log with content, nobody can be writing, and the file is complete by itself.
  std::error_code error;
  const auto log_bytes = std::filesystem::file_size(path + "-wal", error);
  if (status.code() != absl::StatusCode::kPermissionDenied || (!error && log_bytes > 0)) {
    return status;
  }
  NS_ASSIGN_OR_RETURN(database, SqliteDatabase::Open(path, SqliteDatabase::Access::kImmutable,
                                                     ProfileStore::kBusyTimeoutMs));
  NS_RETURN_IF_ERROR(CheckSchema(*database));
  return database;
}

StatusOr<std::unique_ptr<SqliteDatabase>> OpenReadWrite(const std::string& path) {
  NS_ASSIGN_OR_RETURN(auto database, SqliteDatabase::Open(path, SqliteDatabase::Access::kReadWrite,
                                                          ProfileStore::kBusyTimeoutMs));
  // SQLite falls back to reading where it may not write.
  if (!database->CanWrite()) {
    return absl::PermissionDeniedError(fmt::format("{} is read-only", path));
  }
  NS_RETURN_IF_ERROR(PrepareSchema(*database));
  return database;
}

}  // namespace

StatusOr<std::unique_ptr<ProfileStore>> ProfileStore::Open(const std::string& path,
                                                           StoreMode mode) {
  NS_RETURN_IF_ERROR(CheckPath(path, mode));
  NS_ASSIGN_OR_RETURN(auto database,
                      mode == StoreMode::kReadOnly ? OpenReadOnly(path) : OpenReadWrite(path));
  return std::unique_ptr<ProfileStore>(new ProfileStore(std::move(database), mode));
}

ProfileStore::ProfileStore(std::unique_ptr<SqliteDatabase> database, StoreMode mode)
    : database_(std::move(database)), mode_(mode) {}

ProfileStore::~ProfileStore() = default;

Status ProfileStore::CheckWritable() const {
  if (mode_ == StoreMode::kReadWrite) return absl::OkStatus();
  return FailedPrecondition("{} is opened for reading only", database_->path());
}

StatusOr<std::int64_t> ProfileStore::BeginComputeSweep(const SweepInfo& info,
                                                       const std::vector<ComputeSample>& samples) {
  NS_RETURN_IF_ERROR(CheckWritable());
  return BeginSweep(*database_, info, false, samples, [](const auto&) { return absl::OkStatus(); });
}

StatusOr<std::int64_t> ProfileStore::BeginCommSweep(const SweepInfo& info,
                                                    const std::vector<CommSample>& samples) {
  NS_RETURN_IF_ERROR(CheckWritable());
  return BeginSweep(*database_, info, false, samples, [](const auto&) { return absl::OkStatus(); });
}

StatusOr<std::vector<ComputeSample>> ProfileStore::PendingComputeSamples(
    std::int64_t sweep_id) const {
  return PendingSamples<ComputeSample>(*database_, sweep_id);
}

StatusOr<std::vector<CommSample>> ProfileStore::PendingCommSamples(std::int64_t sweep_id) const {
  return PendingSamples<CommSample>(*database_, sweep_id);
}

Status ProfileStore::AddComputeMeasurement(std::int64_t sweep_id,
                                           const ComputeMeasurement& measurement) {
  NS_RETURN_IF_ERROR(CheckWritable());
  const MutexLock lock(database_->mutex());
  NS_ASSIGN_OR_RETURN(SqliteTransaction transaction, SqliteTransaction::Begin(*database_));
  NS_ASSIGN_OR_RETURN(const OpenRow open,
                      FindOpenRow<ComputeSample>(*database_, sweep_id, measurement.sample_id));
  NS_RETURN_IF_ERROR(InsertRecord(*database_, open.row, measurement));
  return transaction.Commit();
}

Status ProfileStore::AddCommMeasurements(std::int64_t sweep_id, const std::string& sample_id,
                                         const std::vector<CommMeasurement>& measurements) {
  NS_RETURN_IF_ERROR(CheckWritable());
  const MutexLock lock(database_->mutex());
  NS_ASSIGN_OR_RETURN(SqliteTransaction transaction, SqliteTransaction::Begin(*database_));
  NS_ASSIGN_OR_RETURN(const OpenRow open, FindOpenRow<CommSample>(*database_, sweep_id, sample_id));
  NS_RETURN_IF_ERROR(CheckRanks(sample_id, open.num_ranks, measurements));
  for (const CommMeasurement& measurement : measurements) {
    NS_RETURN_IF_ERROR(InsertRecord(*database_, open.row, measurement));
  }
  return transaction.Commit();
}

Status ProfileStore::RecordMeasured(const SweepInfo& info,
                                    const std::vector<MeasuredComputeSample>& compute,
                                    const std::vector<MeasuredCommSample>& comm) {
  NS_RETURN_IF_ERROR(CheckWritable());
  if (info.config_hash.empty()) return InvalidArgument("a sweep must have a config_hash");
  NS_RETURN_IF_ERROR(CheckSamples(SamplesOf(compute)));
  NS_RETURN_IF_ERROR(CheckSamples(SamplesOf(comm)));
  const MutexLock lock(database_->mutex());
  NS_ASSIGN_OR_RETURN(SqliteTransaction transaction, SqliteTransaction::Begin(*database_));
  if (!compute.empty()) {
    const auto add = [&](const std::vector<std::int64_t>& rows) -> Status {
      for (std::size_t i = 0; i < compute.size(); ++i) {
        NS_RETURN_IF_ERROR(InsertRecord(*database_, rows[i], compute[i].measurement));
      }
      return absl::OkStatus();
    };
    NS_RETURN_IF_ERROR(FindOrMakeSweep(*database_, info, false, SamplesOf(compute), add).status());
  }
  if (!comm.empty()) {
    const auto add = [&](const std::vector<std::int64_t>& rows) -> Status {
      for (std::size_t i = 0; i < comm.size(); ++i) {
        const CommSample& sample = comm[i].sample;
        NS_RETURN_IF_ERROR(CheckRanks(sample.sample_id,
                                      static_cast<std::int64_t>(sample.dim_sums.size()),
                                      comm[i].measurements));
        for (const CommMeasurement& measurement : comm[i].measurements) {
          NS_RETURN_IF_ERROR(InsertRecord(*database_, rows[i], measurement));
        }
      }
      return absl::OkStatus();
    };
    NS_RETURN_IF_ERROR(FindOrMakeSweep(*database_, info, false, SamplesOf(comm), add).status());
  }
  return transaction.Commit();
}

StatusOr<std::int64_t> ProfileStore::ImportComputeCosts(const SweepInfo& info,
                                                        const std::vector<ComputeRecord>& costs) {
  return Import<ComputeSample>(info, costs);
}

StatusOr<std::int64_t> ProfileStore::ImportCommCosts(const SweepInfo& info,
                                                     const std::vector<CommRecord>& costs) {
  return Import<CommSample>(info, costs);
}

template <typename Sample, typename Cost>
StatusOr<std::int64_t> ProfileStore::Import(const SweepInfo& info, const std::vector<Cost>& costs) {
  NS_RETURN_IF_ERROR(CheckWritable());
  std::vector<Sample> samples;
  for (const Cost& cost : costs) samples.push_back(cost.sample);
  return BeginSweep(*database_, info, true, samples,
                    [&](const std::vector<std::int64_t>& rows) -> Status {
                      for (std::size_t i = 0; i < costs.size(); ++i) {
                        NS_RETURN_IF_ERROR(InsertImportedRecord(*database_, rows[i], costs[i]));
                      }
                      return absl::OkStatus();
                    });
}

StatusOr<std::vector<ComputeRecord>> ProfileStore::ReadComputeRecords() const {
  return RecordsOfAllSweeps<ComputeRecord>(
      *database_, SweepKind::kCompute, [&](std::int64_t sweep_id, bool imported) {
        return SelectComputeRecords(*database_, sweep_id, imported);
      });
}

StatusOr<std::vector<CommRecord>> ProfileStore::ReadCommRecords() const {
  return RecordsOfAllSweeps<CommRecord>(*database_, SweepKind::kComm,
                                        [&](std::int64_t sweep_id, bool imported) {
                                          return SelectCommRecords(*database_, sweep_id, imported);
                                        });
}

Status ProfileStore::CheckIntegrity() const {
  constexpr const char* kChecks[] = {
      "SELECT integrity_check FROM pragma_integrity_check(5) WHERE integrity_check <> 'ok'",
      "SELECT 'a row of ' || \"table\" || ' refers to none of ' || parent "
      "FROM pragma_foreign_key_check LIMIT 5"};
  const MutexLock lock(database_->mutex());
  std::string faults;
  for (const char* check : kChecks) {
    NS_ASSIGN_OR_RETURN(SqliteStatement statement, database_->Prepare(check));
    while (true) {
      NS_ASSIGN_OR_RETURN(const bool row, statement.Step());
      if (!row) break;
      faults += (faults.empty() ? "" : "; ") + statement.Text(0);
    }
  }
  if (faults.empty()) return absl::OkStatus();
  return absl::DataLossError(fmt::format("{} is damaged: {}", database_->path(), faults));
}

StatusOr<std::vector<SweepStatistics>> ProfileStore::Statistics() const {
  const MutexLock lock(database_->mutex());
  return SelectStatistics(*database_);
}

}  // namespace neuroshard
