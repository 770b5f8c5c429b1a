#include "common/store/record_rows.h"

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>

#include "common/store/row_text.h"
#include "common/store/sample_rows.h"

namespace neuroshard {
namespace {

constexpr char kInsertCompute[] =
    "INSERT INTO compute_measurements (sample, outcome, detail, total_ms, forward_ms, backward_ms, "
    "forward_series, backward_series, environment_id, measured_at_unix_ms) VALUES (?, ?, ?, ?, ?, "
    "?, "
    "?, ?, ?, ?)";
constexpr char kInsertComm[] =
    "INSERT INTO comm_measurements (sample, rank, outcome, detail, cost_ms, series, "
    "environment_id, "
    "measured_at_unix_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?)";

Status CheckCost(const std::string& sample_id, double cost_ms) {
  if (std::isfinite(cost_ms) && cost_ms >= 0) return absl::OkStatus();
  return InvalidArgument("sample {}: a cost must be a finite number of at least 0 ms, got {}",
                         sample_id, cost_ms);
}

// Thousands of records come from one environment.
StatusOr<std::int64_t> EnvironmentId(SqliteDatabase& database,
                                     const MeasurementEnvironment& environment) {
  const std::string text = EnvironmentToText(environment);
  NS_ASSIGN_OR_RETURN(
      SqliteStatement insert,
      database.Prepare("INSERT INTO environments (environment) VALUES (?) ON CONFLICT DO NOTHING"));
  NS_RETURN_IF_ERROR(insert.Bind(text).Run());
  NS_ASSIGN_OR_RETURN(
      SqliteStatement find,
      database.Prepare("SELECT environment_id FROM environments WHERE environment = ?"));
  NS_ASSIGN_OR_RETURN(const bool found, find.Bind(text).Step());
  return found ? find.Integer(0) : 0;
}

StatusOr<std::map<std::int64_t, MeasurementEnvironment>> SelectEnvironments(
    SqliteDatabase& database) {
  NS_ASSIGN_OR_RETURN(SqliteStatement rows,
                      database.Prepare("SELECT environment_id, environment FROM environments"));
  std::map<std::int64_t, MeasurementEnvironment> environments;
  while (true) {
    NS_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return environments;
    NS_ASSIGN_OR_RETURN(environments[rows.Integer(0)], EnvironmentFromText(rows.Text(1)));
  }
}

StatusOr<MeasurementEnvironment> EnvironmentOf(
    const std::map<std::int64_t, MeasurementEnvironment>& environments, std::int64_t id,
    std::int64_t measured_at_unix_ms) {
  const auto found = environments.find(id);
  if (found == environments.end()) {
    return absl::DataLossError(fmt::format("environment {} is missing", id));
  }
  MeasurementEnvironment environment = found->second;
  environment.measured_at_unix_ms = measured_at_unix_ms;
  return environment;
}

template <typename Sample>
std::unordered_map<std::int64_t, Sample> ByRow(std::vector<StoredSample<Sample>> samples) {
  std::unordered_map<std::int64_t, Sample> by_row;
  for (StoredSample<Sample>& stored : samples) by_row.emplace(stored.row, std::move(stored.sample));
  return by_row;
}

}  // namespace

Status InsertRecord(SqliteDatabase& database, std::int64_t row,
                    const ComputeMeasurement& measurement) {
  NS_ASSIGN_OR_RETURN(const std::int64_t environment,
                      EnvironmentId(database, measurement.environment));
  NS_ASSIGN_OR_RETURN(SqliteStatement insert, database.Prepare(kInsertCompute));
  insert.Bind(row).Bind(ToText(measurement.outcome)).Bind(measurement.detail);
  if (measurement.outcome == Outcome::kOk) {
    NS_RETURN_IF_ERROR(CheckCost(measurement.sample_id, measurement.forward.median_ms));
    NS_RETURN_IF_ERROR(CheckCost(measurement.sample_id, measurement.backward.median_ms));
    insert.Bind(measurement.total_ms())
        .Bind(measurement.forward.median_ms)
        .Bind(measurement.backward.median_ms)
        .Bind(SeriesToText(measurement.forward))
        .Bind(SeriesToText(measurement.backward));
  } else {
    insert.BindNull().BindNull().BindNull().BindNull().BindNull();
  }
  return insert.Bind(environment).Bind(measurement.environment.measured_at_unix_ms).Run();
}

Status InsertRecord(SqliteDatabase& database, std::int64_t row,
                    const CommMeasurement& measurement) {
  NS_ASSIGN_OR_RETURN(const std::int64_t environment,
                      EnvironmentId(database, measurement.environment));
  NS_ASSIGN_OR_RETURN(SqliteStatement insert, database.Prepare(kInsertComm));
  insert.Bind(row)
      .Bind(std::int64_t{measurement.rank})
      .Bind(ToText(measurement.outcome))
      .Bind(measurement.detail);
  if (measurement.outcome == Outcome::kOk) {
    NS_RETURN_IF_ERROR(CheckCost(measurement.sample_id, measurement.series.median_ms));
    insert.Bind(measurement.series.median_ms).Bind(SeriesToText(measurement.series));
  } else {
    insert.BindNull().BindNull();
  }
  return insert.Bind(environment).Bind(measurement.environment.measured_at_unix_ms).Run();
}

Status InsertImportedRecord(SqliteDatabase& database, std::int64_t row, const ComputeRecord& cost) {
  NS_RETURN_IF_ERROR(CheckCost(cost.sample.sample_id, cost.total_ms));
  NS_ASSIGN_OR_RETURN(SqliteStatement insert, database.Prepare(kInsertCompute));
  insert.Bind(row).Bind(ToText(Outcome::kOk)).Bind("").Bind(cost.total_ms);
  return insert.BindNull().BindNull().BindNull().BindNull().BindNull().BindNull().Run();
}

Status InsertImportedRecord(SqliteDatabase& database, std::int64_t row, const CommRecord& cost) {
  if (cost.cost_ms.size() != cost.sample.dim_sums.size()) {
    return InvalidArgument("sample {}: {} costs for {} ranks", cost.sample.sample_id,
                           cost.cost_ms.size(), cost.sample.dim_sums.size());
  }
  NS_ASSIGN_OR_RETURN(SqliteStatement insert, database.Prepare(kInsertComm));
  for (std::size_t rank = 0; rank < cost.cost_ms.size(); ++rank) {
    NS_RETURN_IF_ERROR(CheckCost(cost.sample.sample_id, cost.cost_ms[rank]));
    insert.Reset();
    insert.Bind(row).Bind(static_cast<std::int64_t>(rank)).Bind(ToText(Outcome::kOk)).Bind("");
    insert.Bind(cost.cost_ms[rank]).BindNull().BindNull().BindNull();
    NS_RETURN_IF_ERROR(insert.Run());
  }
  return absl::OkStatus();
}

StatusOr<std::vector<ComputeRecord>> SelectComputeRecords(SqliteDatabase& database,
                                                          std::int64_t sweep_id, bool imported) {
  NS_ASSIGN_OR_RETURN(const auto environments, SelectEnvironments(database));
  NS_ASSIGN_OR_RETURN(auto stored, SelectComputeSamples(database, sweep_id, SampleFilter::kAll));
  auto samples = ByRow(std::move(stored));
  NS_ASSIGN_OR_RETURN(
      SqliteStatement rows,
      database.Prepare("SELECT sample, total_ms, forward_ms, backward_ms, environment_id, "
                       "measured_at_unix_ms FROM compute_measurements JOIN compute_samples USING "
                       "(sample) WHERE sweep_id = ? AND outcome = 'ok' ORDER BY position"));
  rows.Bind(sweep_id);
  std::vector<ComputeRecord> records;
  while (true) {
    NS_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return records;
    ComputeRecord& record = records.emplace_back();
    record.sample = std::move(samples[rows.Integer(0)]);
    record.total_ms = rows.Real(1);
    record.forward_ms = rows.Real(2);
    record.backward_ms = rows.Real(3);
    record.imported = imported;
    if (rows.IsNull(4)) continue;
    NS_ASSIGN_OR_RETURN(record.environment,
                        EnvironmentOf(environments, rows.Integer(4), rows.Integer(5)));
  }
}

StatusOr<std::vector<CommRecord>> SelectCommRecords(SqliteDatabase& database, std::int64_t sweep_id,
                                                    bool imported) {
  NS_ASSIGN_OR_RETURN(const auto environments, SelectEnvironments(database));
  NS_ASSIGN_OR_RETURN(auto stored, SelectCommSamples(database, sweep_id, SampleFilter::kAll));
  auto samples = ByRow(std::move(stored));
  NS_ASSIGN_OR_RETURN(
      SqliteStatement rows,
      database.Prepare(
          "SELECT sample, rank, cost_ms, environment_id, m.measured_at_unix_ms FROM "
          "comm_measurements m JOIN comm_samples s USING (sample) WHERE sweep_id = ? "
          "AND NOT EXISTS (SELECT 1 FROM comm_measurements f WHERE f.sample = s.sample "
          "AND f.outcome <> 'ok') ORDER BY position, rank"));
  rows.Bind(sweep_id);
  std::vector<CommRecord> records;
  while (true) {
    NS_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return records;
    if (rows.Integer(1) == 0) {
      CommRecord& record = records.emplace_back();
      record.sample = std::move(samples[rows.Integer(0)]);
      record.imported = imported;
    }
    if (records.empty()) return absl::DataLossError("a collective's record has no rank 0");
    records.back().cost_ms.push_back(rows.Real(2));
    if (rows.IsNull(3)) continue;
    NS_ASSIGN_OR_RETURN(const MeasurementEnvironment environment,
                        EnvironmentOf(environments, rows.Integer(3), rows.Integer(4)));
    records.back().environments.push_back(environment);
  }
}

}  // namespace neuroshard
