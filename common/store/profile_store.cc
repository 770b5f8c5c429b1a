#include "common/store/profile_store.h"

#include <filesystem>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "common/store/postgres_database.h"
#include "common/store/record_rows.h"
#include "common/store/sample_rows.h"
#include "common/store/sql_database.h"
#include "common/store/sqlite_database.h"
#include "common/store/store_schema.h"

namespace neuroshard {
namespace {

template <typename Sample>
Status CheckSameSamples(SqlDatabase& database, std::int64_t sweep_id, const SweepInfo& info,
                        const std::vector<Sample>& samples) {
  NS_ASSIGN_OR_RETURN(const auto stored,
                      SelectSamples<Sample>(database, sweep_id, SampleFilter::kAll));
  if (stored == samples) return absl::OkStatus();
  return FailedPrecondition(
      "{}: sweep {} ({}) has the config hash {} but other samples: its samples were made by "
      "another "
      "version of the program; use another store or change the sweep's seed",
      database.name(), sweep_id, info.name, info.config_hash);
}

// Finds or makes a sweep; `add_record(row, i)` runs for each sample when it is made. Within a
// transaction.
template <typename Sample, typename AddRecord>
StatusOr<std::int64_t> FindOrMakeSweep(SqlDatabase& database, const SweepInfo& info, bool imported,
                                       const std::vector<Sample>& samples, AddRecord add_record) {
  SqlRow sweep = {{"kind", std::string(kKindText<Sample>)}, {"config_hash", info.config_hash}};
  NS_ASSIGN_OR_RETURN(const auto found, database.Find("sweep_id", "sweeps", sweep));
  if (found) {
    NS_RETURN_IF_ERROR(CheckSameSamples(database, *found, info, samples));
    return *found;
  }
  sweep.emplace_back("name", info.name);
  sweep.emplace_back("config_text", info.config_text);
  sweep.emplace_back("imported", std::int64_t{imported});
  NS_ASSIGN_OR_RETURN(const auto inserted, database.Insert("sweeps", sweep, "RETURNING sweep_id"));
  const std::int64_t sweep_id = inserted.value_or(0);
  NS_ASSIGN_OR_RETURN(const std::vector<std::int64_t> rows,
                      InsertSamples(database, sweep_id, samples));
  for (std::size_t i = 0; i < rows.size(); ++i) NS_RETURN_IF_ERROR(add_record(rows[i], i));
  return sweep_id;
}

// In a transaction of its own.
template <typename Sample, typename AddRecord>
StatusOr<std::int64_t> MakeSweep(SqlDatabase& database, const SweepInfo& info, bool imported,
                                 const std::vector<Sample>& samples, AddRecord add_record) {
  if (info.config_hash.empty()) return InvalidArgument("a sweep must have a config_hash");
  NS_RETURN_IF_ERROR(CheckSamples(samples));
  return InTransaction(database, TransactionKind::kExclusive, [&] {
    return FindOrMakeSweep(database, info, imported, samples, add_record);
  });
}

template <typename Measured>
auto SamplesOf(const std::vector<Measured>& measured) {
  return Mapped(measured, &Measured::sample);
}

// The row of a sample, how many ranks it is over (1 for compute), and whether it has a record.
struct SampleRow {
  std::int64_t row = 0;
  std::int64_t num_ranks = 1;
  bool measured = false;
};

template <typename Sample>
StatusOr<SampleRow> FindSample(SqlDatabase& database, std::int64_t sweep_id,
                               const std::string& sample_id) {
  constexpr std::string_view kKind = kKindText<Sample>;
  std::optional<SampleRow> found;
  NS_RETURN_IF_ERROR(database.Query(
      fmt::format(
          "SELECT sample, {1}, (SELECT count(*) FROM {0}_measurements m WHERE m.sample = s.sample) "
          "FROM {0}_samples s WHERE sweep_id = ? AND sample_id = ?",
          kKind, std::is_same_v<Sample, CommSample> ? "num_ranks" : "1"),
      {sweep_id, sample_id}, [&found](const SqlColumns& row) {
        found = SampleRow{row.Integer(0), row.Integer(1), row.Integer(2) > 0};
        return absl::OkStatus();
      }));
  if (found) return *found;
  return NotFound("{}: {} sweep {} has no sample {}", database.name(), kKind, sweep_id, sample_id);
}

Status CheckRanks(const std::string& sample_id, std::int64_t num_ranks,
                  std::span<const CommMeasurement> measurements) {
  std::vector<bool> seen(static_cast<std::size_t>(num_ranks));
  for (const CommMeasurement& measurement : measurements) {
    if (measurement.sample_id != sample_id) {
      return InvalidArgument("sample {}: got a record of sample {}", sample_id,
                             measurement.sample_id);
    }
    if (measurement.rank < 0 || measurement.rank >= num_ranks || At(seen, measurement.rank)) {
      return InvalidArgument("sample {}: rank {} does not exist or is given twice", sample_id,
                             measurement.rank);
    }
    At(seen, measurement.rank) = true;
  }
  if (measurements.size() == seen.size()) return absl::OkStatus();
  return InvalidArgument("sample {}: got records of {} of {} ranks", sample_id, measurements.size(),
                         num_ranks);
}

// Adds the records of a sample: one of compute, or one a rank of a collective.
template <typename Sample, typename Measurement>
Status AddMeasurements(SqlDatabase& database, std::int64_t sweep_id, const std::string& sample_id,
                       std::span<const Measurement> measurements) {
  return InTransaction(database, TransactionKind::kWrite, [&](bool again) -> Status {
    NS_ASSIGN_OR_RETURN(const SampleRow row, FindSample<Sample>(database, sweep_id, sample_id));
    if constexpr (std::is_same_v<Sample, CommSample>) {
      NS_RETURN_IF_ERROR(CheckRanks(sample_id, row.num_ranks, measurements));
    }
    if (row.measured && !again) {
      return AlreadyExists("{}: sample {} of {} sweep {} has a record already", database.name(),
                           sample_id, kKindText<Sample>, sweep_id);
    }
    for (const Measurement& measurement : measurements) {
      NS_RETURN_IF_ERROR(row.measured ? IsStored(database, row.row, measurement)
                                      : InsertRecord(database, row.row, measurement));
    }
    return absl::OkStatus();
  });
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

StatusOr<std::unique_ptr<SqlDatabase>> OpenReadOnly(const std::string& path) {
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

StatusOr<std::unique_ptr<SqlDatabase>> OpenReadWrite(const std::string& path) {
  NS_ASSIGN_OR_RETURN(auto database, SqliteDatabase::Open(path, SqliteDatabase::Access::kReadWrite,
                                                          ProfileStore::kBusyTimeoutMs));
  // SQLite falls back to reading where it may not write.
  if (!database->CanWrite()) {
    return PermissionDenied("{} is read-only", path);
  }
  NS_RETURN_IF_ERROR(PrepareSchema(*database));
  return database;
}

StatusOr<std::unique_ptr<SqlDatabase>> OpenPostgres(const std::string& address, StoreMode mode) {
  const bool read_only = mode == StoreMode::kReadOnly;
  NS_ASSIGN_OR_RETURN(auto database,
                      OpenPostgresDatabase(address, read_only, ProfileStore::kBusyTimeoutMs));
  NS_RETURN_IF_ERROR(DespiteLosses(*database, [&](bool) {
    return read_only ? CheckPostgresSchema(*database) : PreparePostgresSchema(*database);
  }));
  return database;
}

StatusOr<std::unique_ptr<SqlDatabase>> OpenFile(const std::string& path, StoreMode mode) {
  NS_RETURN_IF_ERROR(CheckPath(path, mode));
  return mode == StoreMode::kReadOnly ? OpenReadOnly(path) : OpenReadWrite(path);
}

}  // namespace

StatusOr<std::unique_ptr<ProfileStore>> ProfileStore::Open(const std::string& name,
                                                           StoreMode mode) {
  NS_ASSIGN_OR_RETURN(auto database,
                      IsPostgresAddress(name) ? OpenPostgres(name, mode) : OpenFile(name, mode));
  return std::unique_ptr<ProfileStore>(new ProfileStore(std::move(database), mode));
}

ProfileStore::ProfileStore(std::unique_ptr<SqlDatabase> database, StoreMode mode)
    : database_(std::move(database)), mode_(mode) {}

ProfileStore::~ProfileStore() = default;

bool ProfileStore::IsRemote(const std::string& name) { return IsPostgresAddress(name); }

Status ProfileStore::CheckWritable() const {
  if (mode_ == StoreMode::kReadWrite) return absl::OkStatus();
  return FailedPrecondition("{} is opened for reading only", database_->name());
}

template <typename Sample>
StatusOr<std::int64_t> ProfileStore::BeginSweep(const SweepInfo& info,
                                                const std::vector<Sample>& samples) {
  NS_RETURN_IF_ERROR(CheckWritable());
  return MakeSweep(*database_, info, false, samples, [](auto...) { return absl::OkStatus(); });
}

template <typename Sample>
StatusOr<std::vector<Sample>> ProfileStore::PendingSamples(std::int64_t sweep_id) const {
  SqlDatabase& database = *database_;
  return InTransaction(
      database, TransactionKind::kSnapshot, [&]() -> StatusOr<std::vector<Sample>> {
        const SqlRow sweep = {{"sweep_id", sweep_id}, {"kind", std::string(kKindText<Sample>)}};
        NS_ASSIGN_OR_RETURN(const auto found, database.Find("1", "sweeps", sweep));
        if (found) return SelectSamples<Sample>(database, sweep_id, SampleFilter::kPending);
        return NotFound("{} has no {} sweep {}", database.name(), kKindText<Sample>, sweep_id);
      });
}

Status ProfileStore::AddComputeMeasurement(std::int64_t sweep_id,
                                           const ComputeMeasurement& measurement) {
  NS_RETURN_IF_ERROR(CheckWritable());
  return AddMeasurements<ComputeSample>(*database_, sweep_id, measurement.sample_id,
                                        std::span(&measurement, 1));
}

Status ProfileStore::AddCommMeasurements(std::int64_t sweep_id, const std::string& sample_id,
                                         const std::vector<CommMeasurement>& measurements) {
  NS_RETURN_IF_ERROR(CheckWritable());
  return AddMeasurements<CommSample>(*database_, sweep_id, sample_id, std::span(measurements));
}

Status ProfileStore::RecordMeasured(const SweepInfo& info,
                                    const std::vector<MeasuredComputeSample>& compute,
                                    const std::vector<MeasuredCommSample>& comm) {
  NS_RETURN_IF_ERROR(CheckWritable());
  if (info.config_hash.empty()) return InvalidArgument("a sweep must have a config_hash");
  NS_RETURN_IF_ERROR(CheckSamples(SamplesOf(compute)));
  NS_RETURN_IF_ERROR(CheckSamples(SamplesOf(comm)));
  const auto add_compute = [&](std::int64_t row, std::size_t i) {
    return InsertRecord(*database_, row, compute[i].measurement);
  };
  const auto add_comm = [&](std::int64_t row, std::size_t i) -> Status {
    const CommSample& sample = comm[i].sample;
    NS_RETURN_IF_ERROR(
        CheckRanks(sample.sample_id, std::ssize(sample.dim_sums), comm[i].measurements));
    for (const CommMeasurement& measurement : comm[i].measurements) {
      NS_RETURN_IF_ERROR(InsertRecord(*database_, row, measurement));
    }
    return absl::OkStatus();
  };
  return InTransaction(*database_, TransactionKind::kExclusive, [&]() -> Status {
    SqlDatabase& database = *database_;
    if (!compute.empty()) {
      NS_RETURN_IF_ERROR(
          FindOrMakeSweep(database, info, false, SamplesOf(compute), add_compute).status());
    }
    if (comm.empty()) return absl::OkStatus();
    return FindOrMakeSweep(database, info, false, SamplesOf(comm), add_comm).status();
  });
}

template <typename Record>
StatusOr<std::int64_t> ProfileStore::ImportCosts(const SweepInfo& info,
                                                 const std::vector<Record>& costs) {
  NS_RETURN_IF_ERROR(CheckWritable());
  return MakeSweep(*database_, info, true, SamplesOf(costs), [&](std::int64_t row, std::size_t i) {
    return InsertImportedRecord(*database_, row, costs[i]);
  });
}

template <typename Record>
StatusOr<std::vector<Record>> ProfileStore::ReadRecords(SeriesCost cost) const {
  SqlDatabase& database = *database_;
  return InTransaction(
      database, TransactionKind::kSnapshot, [&]() -> StatusOr<std::vector<Record>> {
        NS_ASSIGN_OR_RETURN(const std::vector<SweepStatistics> sweeps, SelectStatistics(database));
        std::vector<Record> all;
        for (const SweepStatistics& sweep : sweeps) {
          if (sweep.kind != kKindOf<decltype(Record::sample)>) continue;
          NS_RETURN_IF_ERROR(SelectRecords(database, sweep.sweep_id, sweep.imported, cost, all));
        }
        return all;
      });
}

Status ProfileStore::CheckIntegrity() const {
  const MutexLock lock(database_->mutex());
  NS_ASSIGN_OR_RETURN(const std::vector<std::string> faults, database_->FindDamage());
  if (faults.empty()) return absl::OkStatus();
  return DataLoss("{} is damaged: {}", database_->name(), fmt::join(faults, "; "));
}

StatusOr<std::vector<SweepStatistics>> ProfileStore::Statistics() const {
  return InTransaction(*database_, TransactionKind::kSnapshot,
                       [&] { return SelectStatistics(*database_); });
}

template StatusOr<std::int64_t> ProfileStore::BeginSweep(const SweepInfo&,
                                                         const std::vector<ComputeSample>&);
template StatusOr<std::int64_t> ProfileStore::BeginSweep(const SweepInfo&,
                                                         const std::vector<CommSample>&);
template StatusOr<std::vector<ComputeSample>> ProfileStore::PendingSamples(std::int64_t) const;
template StatusOr<std::vector<CommSample>> ProfileStore::PendingSamples(std::int64_t) const;
template StatusOr<std::int64_t> ProfileStore::ImportCosts(const SweepInfo&,
                                                          const std::vector<ComputeRecord>&);
template StatusOr<std::int64_t> ProfileStore::ImportCosts(const SweepInfo&,
                                                          const std::vector<CommRecord>&);
template StatusOr<std::vector<ComputeRecord>> ProfileStore::ReadRecords(SeriesCost) const;
template StatusOr<std::vector<CommRecord>> ProfileStore::ReadRecords(SeriesCost) const;

}  // namespace neuroshard
