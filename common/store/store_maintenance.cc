#include "common/store/store_maintenance.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/base/file_descriptor.h"
#include "common/store/record_rows.h"
#include "common/store/row_columns.h"
#include "common/store/sample_rows.h"
#include "common/store/sql_database.h"

namespace neuroshard {
namespace {

// Columns of a record that are copied as they are.
constexpr std::string_view kComputeColumns[] = {
    "outcome",     "detail",         "total_ms",        "forward_ms",
    "backward_ms", "forward_series", "backward_series", "measured_at_unix_ms"};
constexpr std::string_view kCommColumns[] = {"rank",    "outcome", "detail",
                                             "cost_ms", "series",  "measured_at_unix_ms"};

std::span<const std::string_view> ColumnsOf(SweepKind kind) {
  return kind == SweepKind::kCompute ? std::span<const std::string_view>(kComputeColumns)
                                     : kCommColumns;
}

StatusOr<SweepInfo> InfoOf(SqlDatabase& database, std::int64_t sweep_id) {
  SweepInfo info;
  NS_RETURN_IF_ERROR(
      database.Query("SELECT name, config_hash, config_text FROM sweeps WHERE sweep_id = ?",
                     {sweep_id}, [&info](const SqlColumns& row) {
                       info = {row.Text(0), row.Text(1), row.Text(2)};
                       return absl::OkStatus();
                     }));
  return info;
}

// One record of a rank (0 for compute) as its row has it.
struct RawRecord {
  std::string sample_id;
  std::string environment;
  SqlRow values;  // of ColumnsOf
};

// The rows of the samples that have no record yet, by sample_id.
StatusOr<std::map<std::string, std::int64_t>> PendingRows(SqlDatabase& database, SweepKind kind,
                                                          std::int64_t sweep_id) {
  std::map<std::string, std::int64_t> pending;
  NS_RETURN_IF_ERROR(database.Query(
      fmt::format("SELECT sample_id, sample FROM {0}_samples s WHERE sweep_id = ? AND NOT EXISTS "
                  "(SELECT 1 FROM {0}_measurements m WHERE m.sample = s.sample)",
                  ToText(kind)),
      {sweep_id}, [&pending](const SqlColumns& row) {
        pending[row.Text(0)] = row.Integer(1);
        return absl::OkStatus();
      }));
  return pending;
}

SqlValue ValueOf(const SqlColumns& rows, int column, std::string_view name) {
  if (rows.IsNull(column)) return std::monostate();
  if (name == "rank" || name == "measured_at_unix_ms") return rows.Integer(column);
  if (name.ends_with("_ms")) return rows.Real(column);
  return rows.Text(column);
}

// Copies the records of one sweep that is in both stores.
class SweepCopy {
 public:
  SweepCopy(SqlDatabase& from, SqlDatabase& to, SweepKind kind,
            const std::function<void()>& on_record, CopyReport& report)
      : from_(from), to_(to), kind_(kind), on_record_(on_record), report_(report) {}

  // Within a snapshot of `from`.
  Status Run(std::int64_t from_sweep, std::int64_t to_sweep) {
    NS_ASSIGN_OR_RETURN(pending_, InTransaction(to_, TransactionKind::kSnapshot,
                                                [&] { return PendingRows(to_, kind_, to_sweep); }));
    const std::span<const std::string_view> names = ColumnsOf(kind_);
    NS_RETURN_IF_ERROR(from_.Query(
        fmt::format(
            "SELECT sample_id, environment, {1} FROM {0}_measurements m JOIN {0}_samples s ON "
            "s.sample = m.sample LEFT JOIN environments e ON e.environment_id = m.environment_id "
            "WHERE s.sweep_id = ? ORDER BY position{2}",
            ToText(kind_), fmt::join(names, ", "), kind_ == SweepKind::kComm ? ", rank" : ""),
        {from_sweep}, [&](const SqlColumns& row) {
          RawRecord record{row.Text(0), row.Text(1), {}};
          for (std::size_t i = 0; i < names.size(); ++i) {
            record.values.emplace_back(names[i], ValueOf(row, static_cast<int>(i) + 2, names[i]));
          }
          return Take(std::move(record));
        }));
    return Flush();
  }

 private:
  // Few enough that others wait briefly, enough that a commit's sync is shared by many.
  static constexpr std::size_t kSamplesATransaction = 500;

  Status Take(RawRecord record) {
    if (record.sample_id != last_sample_) {
      if (batch_samples_ == kSamplesATransaction) NS_RETURN_IF_ERROR(Flush());
      last_sample_ = record.sample_id;
      is_missing_ = pending_.contains(record.sample_id);
      batch_samples_ += is_missing_ ? 1 : 0;
      ++(is_missing_ ? report_.copied : report_.already_there);
      on_record_();
    }
    if (is_missing_) batch_.push_back(std::move(record));
    return absl::OkStatus();
  }

  Status Flush() {
    if (batch_.empty()) return absl::OkStatus();
    const auto store = [&]() -> Status {
      std::map<std::string, SqlValue> environments;
      // A sweep that measures the same samples at this moment keeps what it has recorded.
      RowInserter insert(to_, fmt::format("{}_measurements", ToText(kind_)),
                         "ON CONFLICT DO NOTHING");
      for (const RawRecord& record : batch_) {
        const auto [environment, is_new] = environments.try_emplace(record.environment);
        if (is_new && !record.environment.empty()) {
          NS_ASSIGN_OR_RETURN(environment->second, EnvironmentTextId(to_, record.environment));
        }
        SqlRow row = record.values;
        row.emplace_back("sample", pending_.at(record.sample_id));
        row.emplace_back("environment_id", environment->second);
        NS_RETURN_IF_ERROR(insert.Add(std::move(row)));
      }
      return insert.Flush();
    };
    NS_RETURN_IF_ERROR(InTransaction(to_, TransactionKind::kWrite, store));
    batch_.clear();
    batch_samples_ = 0;
    return absl::OkStatus();
  }

  SqlDatabase& from_;
  SqlDatabase& to_;
  SweepKind kind_;
  const std::function<void()>& on_record_;
  CopyReport& report_;
  std::map<std::string, std::int64_t> pending_;
  std::vector<RawRecord> batch_;
  std::size_t batch_samples_ = 0;
  std::string last_sample_;
  bool is_missing_ = false;  // of the last sample: the target has no record
};

// The sweep with its samples in `to`; of an imported one with its records.
template <typename Record>
StatusOr<std::int64_t> CopySweep(SqlDatabase& from, const SweepStatistics& sweep,
                                 ProfileStore& to) {
  NS_ASSIGN_OR_RETURN(const SweepInfo info, InfoOf(from, sweep.sweep_id));
  if (sweep.imported) {
    std::vector<Record> records;
    NS_RETURN_IF_ERROR(SelectRecords(from, sweep.sweep_id, true, SeriesCost::kMedian, records));
    return to.ImportCosts(info, records);
  }
  NS_ASSIGN_OR_RETURN(const auto samples, SelectSamples<decltype(Record::sample)>(
                                              from, sweep.sweep_id, SampleFilter::kAll));
  return to.BeginSweep(info, samples);
}

Status SyncPath(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.open() && fsync(file.get()) == 0) return absl::OkStatus();
  return Unavailable("{}: cannot be written to disk", path);
}

// Every record of one sweep, decoded and compared.
class SweepCheck {
 public:
  SweepCheck(SqlDatabase& database, const SweepStatistics& sweep, std::vector<std::string>& faults)
      : database_(database), sweep_(sweep), faults_(faults) {}

  Status Run() {
    const bool compute = sweep_.kind == SweepKind::kCompute;
    const std::int64_t id = sweep_.sweep_id;
    const Status samples =
        compute ? SelectSamples<ComputeSample>(database_, id, SampleFilter::kAll).status()
                : SelectSamples<CommSample>(database_, id, SampleFilter::kAll).status();
    if (absl::IsDataLoss(samples)) {
      Add("", Message(samples));
    } else if (!samples.ok()) {
      return samples;
    }
    return compute ? CheckCompute() : CheckComm();
  }

 private:
  void Add(const std::string& sample_id, const std::string& fault) {
    faults_.push_back(fmt::format("{} sweep {} ({}){}: {}", ToText(sweep_.kind), sweep_.sweep_id,
                                  sweep_.name, sample_id.empty() ? "" : ", sample " + sample_id,
                                  fault));
  }

  // A series that is there has the median that the row says.
  void CheckSeries(const SqlColumns& rows, int series, int median, const char* what) {
    if (rows.IsNull(series)) return;
    const auto decoded = FromRowText<TimedSeries>(rows.Text(series));
    if (!decoded.ok()) {
      Add(rows.Text(0), Message(decoded.status()));
    } else if (decoded->median_ms != rows.Real(median)) {
      Add(rows.Text(0), fmt::format("{} is {} ms, the median of its series {} ms", what,
                                    rows.Real(median), decoded->median_ms));
    }
  }

  void CheckOutcome(const SqlColumns& rows, int outcome, int cost) {
    const auto word = FromText<Outcome>(rows.Text(outcome));
    if (!word) {
      Add(rows.Text(0), "unknown outcome " + rows.Text(outcome));
    } else if ((*word == Outcome::kOk) !=
               (std::isfinite(rows.Real(cost)) && rows.Real(cost) >= 0)) {
      Add(rows.Text(0), "the cost does not fit the outcome " + rows.Text(outcome));
    }
  }

  Status CheckCompute() {
    return database_.Query(
        "SELECT sample_id, outcome, total_ms, forward_ms, backward_ms, forward_series, "
        "backward_series FROM compute_measurements m JOIN compute_samples s ON s.sample = m.sample "
        "WHERE sweep_id = ?",
        {sweep_.sweep_id}, [this](const SqlColumns& row) {
          CheckOutcome(row, 1, 2);
          CheckSeries(row, 5, 3, "the forward cost");
          CheckSeries(row, 6, 4, "the backward cost");
          if (!row.IsNull(3) && row.Real(2) != row.Real(3) + row.Real(4)) {
            Add(row.Text(0), "the total is not the sum of forward and backward");
          }
          return absl::OkStatus();
        });
  }

  Status CheckComm() {
    NS_RETURN_IF_ERROR(database_.Query(
        "SELECT sample_id, num_ranks, count(*) FROM comm_measurements m JOIN comm_samples s ON "
        "s.sample = m.sample WHERE sweep_id = ? GROUP BY sample_id, num_ranks HAVING count(*) <> "
        "num_ranks",
        {sweep_.sweep_id}, [this](const SqlColumns& row) {
          Add(row.Text(0),
              fmt::format("has records of {} of {} ranks", row.Integer(2), row.Integer(1)));
          return absl::OkStatus();
        }));
    return database_.Query(
        "SELECT sample_id, outcome, cost_ms, series FROM comm_measurements m JOIN comm_samples s "
        "ON s.sample = m.sample WHERE sweep_id = ?",
        {sweep_.sweep_id}, [this](const SqlColumns& row) {
          CheckOutcome(row, 1, 2);
          CheckSeries(row, 3, 2, "the cost");
          return absl::OkStatus();
        });
  }

  SqlDatabase& database_;
  const SweepStatistics& sweep_;
  std::vector<std::string>& faults_;
};

// Whether `text` has `word` with no letter, digit, dash or dot beside it.
bool HasWord(std::string_view text, std::string_view word) {
  const auto ends = [&](std::size_t at) {
    return at >= text.size() || (std::isalnum(static_cast<unsigned char>(text[at])) == 0 &&
                                 std::string_view("-._").find(text[at]) == std::string_view::npos);
  };
  for (std::size_t at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at + 1)) {
    if (ends(at + word.size()) && (at == 0 || ends(at - 1))) return true;
  }
  return false;
}

bool Matches(const MeasurementEnvironment& environment, const std::string& word) {
  std::map<std::string, std::string> values = environment.properties;
  ForEachField(environment,
               [&values](const char* name, const std::string& value) { values[name] = value; });
  return std::ranges::any_of(values, [&](const auto& entry) {
    return HasWord(entry.second, word) || entry.first + '=' + entry.second == word;
  });
}

// Keys of the environments that match `word`, as a list for SQL.
StatusOr<std::string> MatchingEnvironments(SqlDatabase& database, const std::string& word) {
  NS_ASSIGN_OR_RETURN(const auto environments, SelectEnvironments(database));
  std::string ids = "-1";
  for (const auto& [id, environment] : environments) {
    if (Matches(environment, word)) ids += fmt::format(", {}", id);
  }
  return ids;
}

Status Prune(SqlDatabase& database, SweepKind kind, const std::string& matches, bool dry_run,
             PruneReport& report) {
  struct Affected {
    std::int64_t sweep_id;
    bool whole;
  };
  std::vector<Affected> affected;
  NS_RETURN_IF_ERROR(database.Query(
      fmt::format(
          "SELECT s.sweep_id, count(DISTINCT m.sample), count(DISTINCT CASE WHEN {1} THEN m.sample "
          "END) FROM {0}_measurements m JOIN {0}_samples s ON s.sample = m.sample GROUP BY "
          "s.sweep_id",
          ToText(kind), matches),
      {}, [&](const SqlColumns& row) {
        if (row.Integer(2) == 0) return absl::OkStatus();
        report.records += row.Integer(2);
        affected.push_back({row.Integer(0), row.Integer(1) == row.Integer(2)});
        report.sweeps += affected.back().whole ? 1 : 0;
        return absl::OkStatus();
      }));
  if (dry_run) return absl::OkStatus();
  for (const Affected& sweep : affected) {
    const std::string samples = fmt::format("(SELECT sample FROM {}_samples WHERE sweep_id = {})",
                                            ToText(kind), sweep.sweep_id);
    NS_RETURN_IF_ERROR(database.Execute(fmt::format(
        "DELETE FROM {0}_measurements WHERE sample IN {1} AND sample IN (SELECT sample FROM "
        "{0}_measurements m WHERE {2})",
        ToText(kind), samples, matches)));
    if (!sweep.whole) continue;
    NS_RETURN_IF_ERROR(database.Execute(
        fmt::format("DELETE FROM {}_samples WHERE sweep_id = {}; DELETE FROM sweeps WHERE "
                    "sweep_id = {}",
                    ToText(kind), sweep.sweep_id, sweep.sweep_id)));
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<StoreContent> DescribeStore(const ProfileStore& store) {
  SqlDatabase& database = store.database();
  const auto describe = [&]() -> StatusOr<StoreContent> {
    StoreContent content;
    NS_ASSIGN_OR_RETURN(content.sweeps, SelectStatistics(database));
    std::map<std::string, EnvironmentUse> uses;
    for (const SweepKind kind : {SweepKind::kCompute, SweepKind::kComm}) {
      const auto add_use = [&](const SqlColumns& row) -> Status {
        NS_ASSIGN_OR_RETURN(MeasurementEnvironment environment,
                            FromRowText<MeasurementEnvironment>(row.Text(0)));
        for (const std::string_view of_one : kPropertiesOfOneRecord) {
          environment.properties.erase(std::string(of_one));
        }
        EnvironmentUse& use = uses[ToRowText(environment)];
        const bool first = use.compute_records + use.comm_records == 0;
        (kind == SweepKind::kCompute ? use.compute_records : use.comm_records) += row.Integer(1);
        use.first_unix_ms = first ? row.Integer(2) : std::min(use.first_unix_ms, row.Integer(2));
        use.last_unix_ms = std::max(use.last_unix_ms, row.Integer(3));
        use.environment = std::move(environment);
        return absl::OkStatus();
      };
      NS_RETURN_IF_ERROR(database.Query(
          fmt::format(
              "SELECT environment, records, first, last FROM environments e JOIN (SELECT "
              "environment_id, count(*) AS records, min(measured_at_unix_ms) AS first, "
              "max(measured_at_unix_ms) AS last FROM {}_measurements GROUP BY environment_id) m ON "
              "m.environment_id = e.environment_id",
              ToText(kind)),
          {}, add_use));
    }
    for (auto& [text, use] : uses) content.environments.push_back(std::move(use));
    NS_ASSIGN_OR_RETURN(content.bytes, database.Bytes());
    return content;
  };
  return InTransaction(database, TransactionKind::kSnapshot, describe);
}

StatusOr<CopyReport> CopyStore(const ProfileStore& from, ProfileStore& to,
                               const std::function<void()>& on_record) {
  SqlDatabase& source = from.database();
  if (source.name() == to.database().name()) {
    return InvalidArgument("{} cannot be copied into itself", source.name());
  }
  const auto copy = [&]() -> StatusOr<CopyReport> {
    CopyReport report;
    NS_ASSIGN_OR_RETURN(const std::vector<SweepStatistics> sweeps, SelectStatistics(source));
    NS_ASSIGN_OR_RETURN(const std::vector<SweepStatistics> had, to.Statistics());
    for (const SweepStatistics& sweep : sweeps) {
      NS_ASSIGN_OR_RETURN(const std::int64_t in_target,
                          sweep.kind == SweepKind::kCompute
                              ? CopySweep<ComputeRecord>(source, sweep, to)
                              : CopySweep<CommRecord>(source, sweep, to));
      ++report.sweeps;
      const bool is_new = std::ranges::none_of(had, [&](const SweepStatistics& other) {
        return other.kind == sweep.kind && other.config_hash == sweep.config_hash;
      });
      if (sweep.imported && is_new) {  // came with its records
        report.copied += sweep.ok;
        for (std::int64_t i = 0; i < sweep.ok; ++i) on_record();
        continue;
      }
      NS_RETURN_IF_ERROR(SweepCopy(source, to.database(), sweep.kind, on_record, report)
                             .Run(sweep.sweep_id, in_target));
    }
    return report;
  };
  return InTransaction(source, TransactionKind::kSnapshot, copy);
}

Status BackUpStore(const ProfileStore& from, const std::string& path,
                   const std::function<void()>& on_record) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    return AlreadyExists("{} exists; a backup overwrites nothing", path);
  }
  const std::string part = fmt::format("{}.{}.part", path, getpid());
  const auto make = [&]() -> Status {
    SqlDatabase& database = from.database();
    if (ProfileStore::IsRemote(database.name())) {
      NS_ASSIGN_OR_RETURN(const auto to, ProfileStore::Open(part, StoreMode::kReadWrite));
      return CopyStore(from, *to, on_record).status();
    }
    const MutexLock lock(database.mutex());
    const Status made = database.QueryOne("VACUUM INTO ?", {part}).status();
    if (!absl::IsResourceExhausted(made) && !absl::IsPermissionDenied(made)) return made;
    // SQLite names the store that is copied; what cannot be written is the copy.
    const std::string detail = Message(made).substr(database.name().size());
    return {made.code(), path + detail};
  };
  Status status = make();
  // SQLite does not report a last checkpoint that fails; what stays in its log would be lost.
  if (status.ok() && std::filesystem::exists(part + "-wal", error)) {
    status = ResourceExhausted("{}: cannot be written whole", part);
  }
  if (status.ok()) status = SyncPath(part);
  if (status.ok() && std::rename(part.c_str(), path.c_str()) != 0) {
    status = PermissionDenied("{}: cannot be renamed to {}", part, path);
  }
  if (!status.ok()) {
    for (const char* suffix : {"", "-wal", "-shm"}) std::remove((part + suffix).c_str());
    return status;
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return SyncPath(folder.empty() ? "." : folder);
}

StatusOr<std::vector<std::string>> FindStoreFaults(const ProfileStore& store) {
  constexpr std::size_t kMaxFaults = 20;
  SqlDatabase& database = store.database();
  const auto check = [&]() -> StatusOr<std::vector<std::string>> {
    NS_ASSIGN_OR_RETURN(std::vector<std::string> faults, database.FindDamage());
    NS_RETURN_IF_ERROR(database.Query(
        "SELECT environment_id, environment FROM environments", {}, [&](const SqlColumns& row) {
          const Status decoded = FromRowText<MeasurementEnvironment>(row.Text(1)).status();
          if (!decoded.ok()) {
            faults.push_back(fmt::format("environment {}: {}", row.Integer(0), Message(decoded)));
          }
          return absl::OkStatus();
        }));
    NS_ASSIGN_OR_RETURN(const std::vector<SweepStatistics> sweeps, SelectStatistics(database));
    for (const SweepStatistics& sweep : sweeps) {
      if (faults.size() >= kMaxFaults) break;
      NS_RETURN_IF_ERROR(SweepCheck(database, sweep, faults).Run());
    }
    if (faults.size() > kMaxFaults) faults.resize(kMaxFaults);
    return faults;
  };
  return InTransaction(database, TransactionKind::kSnapshot, check);
}

StatusOr<PruneReport> PruneStore(ProfileStore& store, const PruneRule& rule, bool dry_run) {
  if (!rule.before_unix_ms && rule.environment.empty()) {
    return InvalidArgument("neither an age nor an environment is given");
  }
  SqlDatabase& database = store.database();
  const auto prune = [&]() -> StatusOr<PruneReport> {
    PruneReport report;
    std::string matches = "m.environment_id IS NOT NULL";
    if (rule.before_unix_ms) {
      matches += fmt::format(" AND m.measured_at_unix_ms < {}", *rule.before_unix_ms);
    }
    if (!rule.environment.empty()) {
      NS_ASSIGN_OR_RETURN(const std::string ids, MatchingEnvironments(database, rule.environment));
      matches += fmt::format(" AND m.environment_id IN ({})", ids);
    }
    NS_RETURN_IF_ERROR(Prune(database, SweepKind::kCompute, matches, dry_run, report));
    NS_RETURN_IF_ERROR(Prune(database, SweepKind::kComm, matches, dry_run, report));
    return report;
  };
  return InTransaction(database, dry_run ? TransactionKind::kSnapshot : TransactionKind::kExclusive,
                       prune);
}

}  // namespace neuroshard
