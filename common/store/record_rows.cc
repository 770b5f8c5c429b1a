#include "common/store/record_rows.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "common/base/printable_text.h"
#include "common/store/row_columns.h"
#include "common/store/sample_rows.h"

namespace neuroshard {
namespace {

Status CheckCost(const std::string& sample_id, double cost_ms) {
  if (std::isfinite(cost_ms) && cost_ms >= 0) return absl::OkStatus();
  return InvalidArgument("sample {}: a cost must be a finite number of at least 0 ms, got {}",
                         sample_id, cost_ms);
}

// A driver's message may be of any encoding, which PostgreSQL refuses; it must not make a
// measurement unstorable.
std::string StorableText(const std::string& text) {
  constexpr std::size_t kMaxBytes = 4096;
  const bool storable = IsUtf8(text) && text.find('\0') == std::string::npos;
  return storable ? text : Printable(text, kMaxBytes);
}

StatusOr<MeasurementEnvironment> EnvironmentOf(
    const std::map<std::int64_t, MeasurementEnvironment>& environments, std::int64_t id,
    std::int64_t measured_at_unix_ms) {
  const auto found = environments.find(id);
  if (found == environments.end()) {
    return DataLoss("environment {} is missing", id);
  }
  MeasurementEnvironment environment = found->second;
  environment.measured_at_unix_ms = measured_at_unix_ms;
  return environment;
}

// All samples of a sweep by the keys of their rows.
template <typename Sample>
StatusOr<std::unordered_map<std::int64_t, Sample>> SamplesByRow(SqlDatabase& database,
                                                                std::int64_t sweep_id) {
  std::vector<std::int64_t> rows;
  NS_ASSIGN_OR_RETURN(auto samples,
                      SelectSamples<Sample>(database, sweep_id, SampleFilter::kAll, &rows));
  std::unordered_map<std::int64_t, Sample> by_row;
  for (std::size_t i = 0; i < rows.size(); ++i) by_row.emplace(rows[i], std::move(samples[i]));
  return by_row;
}

StatusOr<double> LeastOf(const std::string& series_text) {
  NS_ASSIGN_OR_RETURN(const TimedSeries series, FromRowText<TimedSeries>(series_text));
  if (series.samples_ms.empty()) return series.median_ms;
  return *std::ranges::min_element(series.samples_ms);
}

// The columns that a row of a table of records does not have are NULL.
SqlRow RowOf(std::int64_t sample, Outcome outcome, const std::string& detail) {
  return {{"sample", sample},
          {"outcome", std::string(ToText(outcome))},
          {"detail", StorableText(detail)}};
}

Status AddSeries(const std::string& sample_id, std::string_view cost_column,
                 std::string_view series_column, const TimedSeries& series, SqlRow& row) {
  NS_RETURN_IF_ERROR(CheckCost(sample_id, series.median_ms));
  row.emplace_back(cost_column, series.median_ms);
  row.emplace_back(series_column, ToRowText(series));
  return absl::OkStatus();
}

template <typename Measurement>
StatusOr<SqlRow> RowOf(SqlDatabase& database, std::int64_t sample, const Measurement& measurement) {
  SqlRow row = RowOf(sample, measurement.outcome, measurement.detail);
  NS_ASSIGN_OR_RETURN(const std::int64_t environment,
                      EnvironmentTextId(database, ToRowText(measurement.environment)));
  row.emplace_back("environment_id", environment);
  row.emplace_back("measured_at_unix_ms", measurement.environment.measured_at_unix_ms);
  const bool ok = measurement.outcome == Outcome::kOk;
  if constexpr (std::is_same_v<Measurement, CommMeasurement>) {
    row.emplace_back("rank", std::int64_t{measurement.rank});
    if (!ok) return row;
    NS_RETURN_IF_ERROR(
        AddSeries(measurement.sample_id, "cost_ms", "series", measurement.series, row));
  } else if (ok) {
    const std::string& id = measurement.sample_id;
    NS_RETURN_IF_ERROR(AddSeries(id, "forward_ms", "forward_series", measurement.forward, row));
    NS_RETURN_IF_ERROR(AddSeries(id, "backward_ms", "backward_series", measurement.backward, row));
    row.emplace_back("total_ms", measurement.total_ms());
  }
  return row;
}

template <typename Measurement>
constexpr std::string_view kTable = "compute_measurements";
template <>
constexpr std::string_view kTable<CommMeasurement> = "comm_measurements";

}  // namespace

StatusOr<std::map<std::int64_t, MeasurementEnvironment>> SelectEnvironments(SqlDatabase& database) {
  std::map<std::int64_t, MeasurementEnvironment> environments;
  const auto read = [&](const SqlColumns& row) -> Status {
    NS_ASSIGN_OR_RETURN(environments[row.Integer(0)],
                        FromRowText<MeasurementEnvironment>(row.Text(1)));
    return absl::OkStatus();
  };
  NS_RETURN_IF_ERROR(
      database.Query("SELECT environment_id, environment FROM environments", {}, read));
  return environments;
}

StatusOr<std::int64_t> EnvironmentTextId(SqlDatabase& database, const std::string& text) {
  const SqlRow row = {{"environment", text}};
  NS_ASSIGN_OR_RETURN(auto id, database.Find("environment_id", "environments", row));
  if (id) return *id;
  NS_ASSIGN_OR_RETURN(
      id, database.Insert("environments", row, "ON CONFLICT DO NOTHING RETURNING environment_id"));
  if (id) return *id;
  // Another process was first.
  NS_ASSIGN_OR_RETURN(id, database.Find("environment_id", "environments", row));
  if (id) return *id;
  return Internal("{}: an environment could not be stored", database.name());
}

template <typename Measurement>
Status InsertRecord(SqlDatabase& database, std::int64_t row, const Measurement& measurement) {
  NS_ASSIGN_OR_RETURN(const SqlRow values, RowOf(database, row, measurement));
  return database.Insert(kTable<Measurement>, values).status();
}

template <typename Measurement>
Status IsStored(SqlDatabase& database, std::int64_t row, const Measurement& measurement) {
  NS_ASSIGN_OR_RETURN(const SqlRow values, RowOf(database, row, measurement));
  NS_ASSIGN_OR_RETURN(const auto found, database.Find("1", kTable<Measurement>, values));
  if (found) return absl::OkStatus();
  return AlreadyExists("{}: another process stored a record of the same sample", database.name());
}

Status InsertImportedRecord(SqlDatabase& database, std::int64_t row, const ComputeRecord& cost) {
  NS_RETURN_IF_ERROR(CheckCost(cost.sample.sample_id, cost.total_ms));
  SqlRow values = RowOf(row, Outcome::kOk, "");
  values.emplace_back("total_ms", cost.total_ms);
  return database.Insert("compute_measurements", values).status();
}

Status InsertImportedRecord(SqlDatabase& database, std::int64_t row, const CommRecord& cost) {
  if (cost.cost_ms.size() != cost.sample.dim_sums.size()) {
    return InvalidArgument("sample {}: {} costs for {} ranks", cost.sample.sample_id,
                           cost.cost_ms.size(), cost.sample.dim_sums.size());
  }
  RowInserter insert(database, "comm_measurements");
  for (std::size_t rank = 0; rank < cost.cost_ms.size(); ++rank) {
    NS_RETURN_IF_ERROR(CheckCost(cost.sample.sample_id, cost.cost_ms[rank]));
    SqlRow values = RowOf(row, Outcome::kOk, "");
    values.emplace_back("rank", static_cast<std::int64_t>(rank));
    values.emplace_back("cost_ms", cost.cost_ms[rank]);
    NS_RETURN_IF_ERROR(insert.Add(std::move(values)));
  }
  return insert.Flush();
}

Status SelectRecords(SqlDatabase& database, std::int64_t sweep_id, bool imported, SeriesCost cost,
                     std::vector<ComputeRecord>& records) {
  NS_ASSIGN_OR_RETURN(const auto environments, SelectEnvironments(database));
  NS_ASSIGN_OR_RETURN(auto samples, SamplesByRow<ComputeSample>(database, sweep_id));
  return database.Query(
      "SELECT sample, total_ms, forward_ms, backward_ms, environment_id, measured_at_unix_ms, "
      "forward_series, backward_series FROM compute_measurements JOIN compute_samples USING "
      "(sample) WHERE sweep_id = ? AND outcome = 'ok' ORDER BY position",
      {sweep_id}, [&](const SqlColumns& row) -> Status {
        ComputeRecord& record = records.emplace_back();
        record.sample = std::move(samples[row.Integer(0)]);
        record.total_ms = row.Real(1);
        record.forward_ms = row.Real(2);
        record.backward_ms = row.Real(3);
        record.imported = imported;
        if (cost == SeriesCost::kLeast && !row.IsNull(6) && !row.IsNull(7)) {
          NS_ASSIGN_OR_RETURN(record.forward_ms, LeastOf(row.Text(6)));
          NS_ASSIGN_OR_RETURN(record.backward_ms, LeastOf(row.Text(7)));
          record.total_ms = record.forward_ms + record.backward_ms;
        }
        if (row.IsNull(4)) return absl::OkStatus();
        NS_ASSIGN_OR_RETURN(record.environment,
                            EnvironmentOf(environments, row.Integer(4), row.Integer(5)));
        return absl::OkStatus();
      });
}

Status SelectRecords(SqlDatabase& database, std::int64_t sweep_id, bool imported, SeriesCost cost,
                     std::vector<CommRecord>& records) {
  NS_ASSIGN_OR_RETURN(const auto environments, SelectEnvironments(database));
  NS_ASSIGN_OR_RETURN(auto samples, SamplesByRow<CommSample>(database, sweep_id));
  const std::size_t of_other_sweeps = records.size();
  const auto check_last = [&]() -> Status {
    if (records.size() == of_other_sweeps) return absl::OkStatus();
    const CommRecord& last = records.back();
    const std::size_t ranks = last.sample.dim_sums.size();
    if (last.cost_ms.size() == ranks &&
        (last.environments.empty() || last.environments.size() == ranks)) {
      return absl::OkStatus();
    }
    return absl::DataLossError("a collective lacks the record of a rank");
  };
  const auto read = [&](const SqlColumns& row) -> Status {
    if (row.Integer(1) == 0) {
      NS_RETURN_IF_ERROR(check_last());
      CommRecord& record = records.emplace_back();
      record.sample = std::move(samples[row.Integer(0)]);
      record.imported = imported;
    }
    if (records.size() == of_other_sweeps) {
      return absl::DataLossError("a collective's record has no rank 0");
    }
    CommRecord& record = records.back();
    record.cost_ms.push_back(row.Real(2));
    if (cost == SeriesCost::kLeast && !row.IsNull(5)) {
      NS_ASSIGN_OR_RETURN(record.cost_ms.back(), LeastOf(row.Text(5)));
    }
    if (row.IsNull(3)) return absl::OkStatus();
    NS_ASSIGN_OR_RETURN(const MeasurementEnvironment environment,
                        EnvironmentOf(environments, row.Integer(3), row.Integer(4)));
    record.environments.push_back(environment);
    return absl::OkStatus();
  };
  NS_RETURN_IF_ERROR(database.Query(
      "SELECT sample, rank, cost_ms, environment_id, m.measured_at_unix_ms, series FROM "
      "comm_measurements m JOIN comm_samples s USING (sample) WHERE sweep_id = ? "
      "AND NOT EXISTS (SELECT 1 FROM comm_measurements f WHERE f.sample = s.sample "
      "AND f.outcome <> 'ok') ORDER BY position, rank",
      {sweep_id}, read));
  return check_last();
}

StatusOr<std::vector<SweepStatistics>> SelectStatistics(SqlDatabase& database) {
  std::vector<SweepStatistics> sweeps;
  NS_RETURN_IF_ERROR(database.Query(
      "WITH outcomes (kind, sweep_id, sample, measured, failed) AS ("
      " SELECT 'compute', sweep_id, s.sample, CASE WHEN m.outcome IS NULL THEN 0 ELSE 1 END,"
      " CASE WHEN m.outcome <> 'ok' THEN 1 ELSE 0 END"
      " FROM compute_samples s LEFT JOIN compute_measurements m USING (sample)"
      " UNION ALL"
      " SELECT 'comm', sweep_id, s.sample, max(CASE WHEN m.outcome IS NULL THEN 0 ELSE 1 END),"
      " max(CASE WHEN m.outcome <> 'ok' THEN 1 ELSE 0 END)"
      " FROM comm_samples s LEFT JOIN comm_measurements m USING (sample) GROUP BY s.sample)"
      " SELECT w.sweep_id, w.kind, name, config_hash, imported, count(sample),"
      " coalesce(sum(measured), 0), coalesce(sum(failed), 0)"
      " FROM sweeps w LEFT JOIN outcomes o ON o.kind = w.kind AND o.sweep_id = w.sweep_id"
      " GROUP BY w.sweep_id ORDER BY w.sweep_id",
      {}, [&sweeps](const SqlColumns& row) {
        SweepStatistics& sweep = sweeps.emplace_back();
        sweep.sweep_id = row.Integer(0);
        sweep.kind = FromText<SweepKind>(row.Text(1)).value_or(SweepKind::kComm);
        sweep.name = row.Text(2);
        sweep.config_hash = row.Text(3);
        sweep.imported = row.Integer(4) != 0;
        sweep.samples = row.Integer(5);
        sweep.out_of_memory = row.Integer(7);
        sweep.ok = row.Integer(6) - sweep.out_of_memory;
        return absl::OkStatus();
      }));
  return sweeps;
}

template Status InsertRecord(SqlDatabase&, std::int64_t, const ComputeMeasurement&);
template Status InsertRecord(SqlDatabase&, std::int64_t, const CommMeasurement&);
template Status IsStored(SqlDatabase&, std::int64_t, const ComputeMeasurement&);
template Status IsStored(SqlDatabase&, std::int64_t, const CommMeasurement&);

}  // namespace neuroshard
