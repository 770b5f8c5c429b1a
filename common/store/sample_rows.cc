#include "common/store/sample_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "common/store/row_text.h"

namespace neuroshard {
namespace {

bool AllFinite(const auto& values) {
  return std::all_of(values.begin(), values.end(),
                     [](double value) { return std::isfinite(value); });
}

// What is wrong with one sample, apart from its id; empty when nothing is.
std::string FaultOf(const ComputeSample& sample) {
  if (sample.shards.empty()) return "has no shards";
  for (const MeasuredShard& shard : sample.shards) {
    if (!std::isfinite(shard.pooling_factor) || !AllFinite(shard.reuse_histogram)) {
      return "has a shard with a number that is not finite";
    }
  }
  return "";
}

std::string FaultOf(const CommSample& sample) {
  if (sample.dim_sums.empty()) return "has no ranks";
  if (!sample.start_offsets_ms.empty() &&
      sample.start_offsets_ms.size() != sample.dim_sums.size()) {
    return "has start offsets for another number of ranks";
  }
  return AllFinite(sample.start_offsets_ms) ? "" : "has a start offset that is not finite";
}

template <typename Sample>
Status CheckAll(const std::vector<Sample>& samples) {
  std::set<std::string_view> ids;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::string& id = samples[i].sample_id;
    if (id.empty()) return InvalidArgument("samples[{}] has no sample_id", i);
    if (!ids.insert(id).second) return InvalidArgument("sample_id {} is given twice", id);
    if (const std::string fault = FaultOf(samples[i]); !fault.empty()) {
      return InvalidArgument("sample {} {}", id, fault);
    }
  }
  return absl::OkStatus();
}

// Samples draw from few distinct shards (5136 augmented tables for 100,000 samples), so a shard is
// one row that samples refer to.
class ShardRows {
 public:
  static StatusOr<ShardRows> Prepare(SqliteDatabase& database) {
    NS_ASSIGN_OR_RETURN(
        SqliteStatement find,
        database.Prepare(
            "SELECT shard_id FROM shards WHERE table_name = ? AND num_rows = ? AND cols "
            "= ? AND pooling_factor = ? AND reuse_histogram = ? AND weight_dtype = ? AND "
            "pooling_mode = ? AND weighted = ?"));
    NS_ASSIGN_OR_RETURN(
        SqliteStatement insert,
        database.Prepare("INSERT INTO shards (table_name, num_rows, cols, "
                         "pooling_factor, reuse_histogram, weight_dtype, "
                         "pooling_mode, weighted) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"));
    return ShardRows(database, std::move(find), std::move(insert));
  }

  StatusOr<std::int64_t> IdOf(const MeasuredShard& shard) {
    find_.Reset();
    BindShard(find_, shard);
    NS_ASSIGN_OR_RETURN(const bool found, find_.Step());
    if (found) return find_.Integer(0);
    insert_.Reset();
    BindShard(insert_, shard);
    NS_RETURN_IF_ERROR(insert_.Run());
    return database_.LastInsertedId();
  }

 private:
  ShardRows(SqliteDatabase& database, SqliteStatement find, SqliteStatement insert)
      : database_(database), find_(std::move(find)), insert_(std::move(insert)) {}

  static void BindShard(SqliteStatement& statement, const MeasuredShard& shard) {
    statement.Bind(shard.table)
        .Bind(shard.rows)
        .Bind(shard.cols)
        .Bind(shard.pooling_factor)
        .Bind(HistogramToText(shard.reuse_histogram))
        .Bind(ToText(shard.weight_dtype))
        .Bind(ToText(shard.pooling_mode))
        .Bind(std::int64_t{shard.weighted});
  }

  SqliteDatabase& database_;
  SqliteStatement find_;
  SqliteStatement insert_;
};

template <typename E>
StatusOr<E> WordFromText(const std::string& text) {
  const std::optional<E> value = FromText<E>(text);
  if (!value) return absl::DataLossError(fmt::format("a stored word is damaged: {}", text));
  return *value;
}

StatusOr<std::map<std::int64_t, MeasuredShard>> SelectShards(SqliteDatabase& database) {
  NS_ASSIGN_OR_RETURN(
      SqliteStatement rows,
      database.Prepare("SELECT shard_id, table_name, num_rows, cols, pooling_factor, "
                       "reuse_histogram, weight_dtype, pooling_mode, weighted FROM "
                       "shards"));
  std::map<std::int64_t, MeasuredShard> shards;
  while (true) {
    NS_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return shards;
    MeasuredShard& shard = shards[rows.Integer(0)];
    shard.table = rows.Text(1);
    shard.rows = rows.Integer(2);
    shard.cols = rows.Integer(3);
    shard.pooling_factor = rows.Real(4);
    NS_ASSIGN_OR_RETURN(shard.reuse_histogram, HistogramFromText(rows.Text(5)));
    NS_ASSIGN_OR_RETURN(shard.weight_dtype, WordFromText<DataType>(rows.Text(6)));
    NS_ASSIGN_OR_RETURN(shard.pooling_mode, WordFromText<PoolingMode>(rows.Text(7)));
    shard.weighted = rows.Integer(8) != 0;
  }
}

std::string SelectFrom(std::string_view columns, std::string_view kind, SampleFilter filter) {
  return fmt::format(
      "SELECT sample, sample_id, batch_size, {} FROM {}_samples WHERE sweep_id = ?{} ORDER BY "
      "position",
      columns, kind,
      filter == SampleFilter::kPending
          ? fmt::format(" AND sample NOT IN (SELECT sample FROM {}_measurements)", kind)
          : "");
}

}  // namespace

Status CheckSamples(const std::vector<ComputeSample>& samples) { return CheckAll(samples); }
Status CheckSamples(const std::vector<CommSample>& samples) { return CheckAll(samples); }

StatusOr<std::vector<std::int64_t>> InsertSamples(SqliteDatabase& database, std::int64_t sweep_id,
                                                  const std::vector<ComputeSample>& samples) {
  NS_ASSIGN_OR_RETURN(ShardRows shard_rows, ShardRows::Prepare(database));
  NS_ASSIGN_OR_RETURN(
      SqliteStatement insert,
      database.Prepare("INSERT INTO compute_samples (sweep_id, position, sample_id, "
                       "shard_ids, batch_size, optimizer, seed) VALUES (?, ?, ?, ?, "
                       "?, ?, ?)"));
  std::vector<std::int64_t> rows;
  for (const ComputeSample& sample : samples) {
    std::vector<std::int64_t> shard_ids;
    for (const MeasuredShard& shard : sample.shards) {
      NS_ASSIGN_OR_RETURN(const std::int64_t id, shard_rows.IdOf(shard));
      shard_ids.push_back(id);
    }
    insert.Reset();
    insert.Bind(sweep_id)
        .Bind(static_cast<std::int64_t>(rows.size()))
        .Bind(sample.sample_id)
        .Bind(IntegersToText(shard_ids))
        .Bind(sample.batch_size)
        .Bind(ToText(sample.optimizer))
        .Bind(std::bit_cast<std::int64_t>(sample.seed));
    NS_RETURN_IF_ERROR(insert.Run());
    rows.push_back(database.LastInsertedId());
  }
  return rows;
}

StatusOr<std::vector<std::int64_t>> InsertSamples(SqliteDatabase& database, std::int64_t sweep_id,
                                                  const std::vector<CommSample>& samples) {
  NS_ASSIGN_OR_RETURN(SqliteStatement insert,
                      database.Prepare("INSERT INTO comm_samples (sweep_id, position, sample_id, "
                                       "direction, num_ranks, dim_sums, start_offsets_ms, "
                                       "batch_size, element_bytes, collective) "
                                       "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"));
  std::vector<std::int64_t> rows;
  for (const CommSample& sample : samples) {
    insert.Reset();
    insert.Bind(sweep_id)
        .Bind(static_cast<std::int64_t>(rows.size()))
        .Bind(sample.sample_id)
        .Bind(ToText(sample.direction))
        .Bind(static_cast<std::int64_t>(sample.dim_sums.size()))
        .Bind(IntegersToText(sample.dim_sums))
        .Bind(RealsToText(sample.start_offsets_ms))
        .Bind(sample.batch_size)
        .Bind(sample.element_bytes)
        .Bind(ToText(sample.collective));
    NS_RETURN_IF_ERROR(insert.Run());
    rows.push_back(database.LastInsertedId());
  }
  return rows;
}

StatusOr<std::vector<StoredSample<ComputeSample>>> SelectComputeSamples(SqliteDatabase& database,
                                                                        std::int64_t sweep_id,
                                                                        SampleFilter filter) {
  NS_ASSIGN_OR_RETURN(const auto shards, SelectShards(database));
  NS_ASSIGN_OR_RETURN(SqliteStatement rows, database.Prepare(SelectFrom(
                                                "shard_ids, optimizer, seed", "compute", filter)));
  rows.Bind(sweep_id);
  std::vector<StoredSample<ComputeSample>> samples;
  while (true) {
    NS_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return samples;
    StoredSample<ComputeSample>& stored = samples.emplace_back();
    stored.row = rows.Integer(0);
    stored.sample.sample_id = rows.Text(1);
    stored.sample.batch_size = rows.Integer(2);
    NS_ASSIGN_OR_RETURN(const std::vector<std::int64_t> shard_ids, IntegersFromText(rows.Text(3)));
    for (const std::int64_t id : shard_ids) {
      const auto shard = shards.find(id);
      if (shard == shards.end()) {
        return absl::DataLossError(
            fmt::format("shard {} of sample {} is missing", id, stored.sample.sample_id));
      }
      stored.sample.shards.push_back(shard->second);
    }
    NS_ASSIGN_OR_RETURN(stored.sample.optimizer, WordFromText<Optimizer>(rows.Text(4)));
    stored.sample.seed = std::bit_cast<std::uint64_t>(rows.Integer(5));
  }
}

StatusOr<std::vector<StoredSample<CommSample>>> SelectCommSamples(SqliteDatabase& database,
                                                                  std::int64_t sweep_id,
                                                                  SampleFilter filter) {
  NS_ASSIGN_OR_RETURN(
      SqliteStatement rows,
      database.Prepare(SelectFrom(
          "direction, dim_sums, start_offsets_ms, element_bytes, collective", "comm", filter)));
  rows.Bind(sweep_id);
  std::vector<StoredSample<CommSample>> samples;
  while (true) {
    NS_ASSIGN_OR_RETURN(const bool more, rows.Step());
    if (!more) return samples;
    StoredSample<CommSample>& stored = samples.emplace_back();
    stored.row = rows.Integer(0);
    stored.sample.sample_id = rows.Text(1);
    stored.sample.batch_size = rows.Integer(2);
    NS_ASSIGN_OR_RETURN(stored.sample.direction, WordFromText<CommDirection>(rows.Text(3)));
    NS_ASSIGN_OR_RETURN(stored.sample.dim_sums, IntegersFromText(rows.Text(4)));
    NS_ASSIGN_OR_RETURN(stored.sample.start_offsets_ms, RealsFromText(rows.Text(5)));
    stored.sample.element_bytes = rows.Integer(6);
    NS_ASSIGN_OR_RETURN(stored.sample.collective, WordFromText<Collective>(rows.Text(7)));
  }
}

}  // namespace neuroshard
