#include "common/store/sample_rows.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "common/base/number_text.h"
#include "common/store/row_columns.h"

namespace neuroshard {

// But for the kernels, which are the sample's (KernelsToText).
template <>
inline constexpr std::tuple kColumns<MeasuredShard> = {
    NamedMember{"table_name", &MeasuredShard::table},
    NamedMember{"num_rows", &MeasuredShard::rows},
    NamedMember{"cols", &MeasuredShard::cols},
    NamedMember{"pooling_factor", &MeasuredShard::pooling_factor},
    NamedMember{"reuse_histogram", &MeasuredShard::reuse_histogram},
    NamedMember{"weight_dtype", &MeasuredShard::weight_dtype},
    NamedMember{"pooling_mode", &MeasuredShard::pooling_mode},
    NamedMember{"weighted", &MeasuredShard::weighted}};
// But for what each kind has of its own (AddOwn).
NS_COLUMNS(ComputeSample, sample_id, batch_size, optimizer, seed);
NS_COLUMNS(CommSample, sample_id, batch_size, direction, dim_sums, start_offsets_ms, element_bytes,
           input_dist, wire_dtype, cadence);

namespace {

bool AllFinite(const auto& values) {
  return std::ranges::all_of(values, [](double value) { return std::isfinite(value); });
}

// What is wrong with one sample, apart from its id; empty when nothing is.
std::string FaultOf(const ComputeSample& sample) {
  if (sample.shards.empty()) return "has no shards";
  for (const MeasuredShard& shard : sample.shards) {
    if (!std::isfinite(shard.pooling_factor) || !AllFinite(shard.reuse_histogram)) {
      return "has a shard with a number that is not finite";
    }
    if (!IsMeasurable(shard.compute_kernel)) return "has a kernel that is not measured";
    const bool cached = shard.compute_kernel == ComputeKernel::kFusedUvmCaching;
    const double load_factor = shard.cache_load_factor;
    if (cached ? !(load_factor > 0 && load_factor <= 1) : load_factor != 0) {
      return "has a load factor that is not that of its kernel";
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
  if (sample.cadence != Cadence::kBarrier && !sample.start_offsets_ms.empty()) {
    return "has start offsets without a barrier to count from";
  }
  if (const auto& input = sample.input_dist) {
    if (input->whole_features.size() != sample.dim_sums.size() ||
        input->whole_ids.size() != sample.dim_sums.size()) {
      return "has features for another number of ranks";
    }
    const auto possible = [](double number) { return std::isfinite(number) && number >= 0; };
    if (!std::ranges::all_of(input->whole_ids, possible) ||
        !std::ranges::all_of(input->whole_features, possible) || !possible(input->cut_ids) ||
        input->cut_features < 0) {
      return "has numbers of features or ids that are negative or not finite";
    }
  }
  if (sample.casts() &&
      (!IsWireCast(sample.wire_dtype) || sample.collective != Collective::kAllToAll ||
       sample.element_bytes != ElementBits(sample.wire_dtype) / 8)) {
    return "has casts that are not measured";
  }
  return AllFinite(sample.start_offsets_ms) ? "" : "has a start offset that is not finite";
}

// A store that was damaged is not believed.
template <typename Sample>
Status CheckStored(const Sample& sample) {
  const std::string fault = FaultOf(sample);
  if (fault.empty()) return absl::OkStatus();
  return DataLoss("stored sample {} {}", sample.sample_id, fault);
}

// Samples draw from few distinct shards (5136 augmented tables for 100,000 samples), so a shard is
// one row that samples refer to. Within one transaction.
class ShardRows {
 public:
  explicit ShardRows(SqlDatabase& database) : database_(database) {}

  StatusOr<std::int64_t> IdOf(MeasuredShard shard) {
    shard.compute_kernel = ComputeKernel::kFused;  // kernels are the sample's (KernelsToText)
    shard.cache_load_factor = 0;
    if (const auto known = ids_.find(shard); known != ids_.end()) return known->second;
    SqlRow row;
    AddColumns(shard, row);
    NS_ASSIGN_OR_RETURN(auto id, database_.Find("shard_id", "shards", row));
    if (!id) {
      NS_ASSIGN_OR_RETURN(id, database_.Insert("shards", row, "RETURNING shard_id"));
    }
    return ids_[shard] = id.value_or(0);
  }

 private:
  SqlDatabase& database_;
  std::map<MeasuredShard, std::int64_t> ids_;
};

// The kernels of a sample's shards: "fused fused_uvm fused_uvm_caching:0.2"; empty where all are
// fused, as they were before there were others.
std::string KernelsToText(const std::vector<MeasuredShard>& shards) {
  std::string text;
  bool all_fused = true;
  for (const MeasuredShard& shard : shards) {
    all_fused = all_fused && shard.compute_kernel == ComputeKernel::kFused;
    text += fmt::format("{}{}", text.empty() ? "" : " ", ToText(shard.compute_kernel));
    if (shard.cache_load_factor != 0) text += fmt::format(":{}", shard.cache_load_factor);
  }
  return all_fused ? "" : text;
}

Status KernelsFromText(const std::string& text, std::vector<MeasuredShard>& shards) {
  if (text.empty()) return absl::OkStatus();
  const auto damaged = [&text] { return DataLoss("stored kernels are damaged: {}", text); };
  std::istringstream words(text);
  for (MeasuredShard& shard : shards) {
    std::string word;
    if (!(words >> word)) return damaged();
    const std::size_t colon = word.find(':');
    const auto kernel = FromText<ComputeKernel>(word.substr(0, colon));
    if (!kernel) return damaged();
    shard.compute_kernel = *kernel;
    if (colon == std::string::npos) continue;
    const auto load_factor = NumberOf<double>(std::string_view(word).substr(colon + 1));
    if (!load_factor) return damaged();
    shard.cache_load_factor = *load_factor;
  }
  std::string more;
  return words >> more ? damaged() : absl::OkStatus();
}

// The keys of a sweep's rows, by position.
StatusOr<std::vector<std::int64_t>> RowsOf(SqlDatabase& database, std::int64_t sweep_id,
                                           std::string_view kind) {
  std::vector<std::int64_t> keys;
  NS_RETURN_IF_ERROR(database.Query(
      fmt::format("SELECT sample FROM {}_samples WHERE sweep_id = ? ORDER BY position", kind),
      {sweep_id}, [&keys](const SqlColumns& row) {
        keys.push_back(row.Integer(0));
        return absl::OkStatus();
      }));
  return keys;
}

using ShardsByKey = std::map<std::int64_t, MeasuredShard>;

Status SelectShards(SqlDatabase& database, ShardsByKey& shards) {
  return database.Query(
      fmt::format("SELECT shard_id, {} FROM shards", ColumnNames<MeasuredShard>()), {},
      [&shards](const SqlColumns& row) { return TakeColumns(row, 1, shards[row.Integer(0)]); });
}

// The two columns that only one kind of samples has, besides those of kColumns.
template <typename Sample>
constexpr std::string_view kOwnColumns = "shard_ids, shard_kernels";
template <>
constexpr std::string_view kOwnColumns<CommSample> = "num_ranks, collective";

Status AddOwn(const ComputeSample& sample, ShardRows& shard_rows, SqlRow& row) {
  std::vector<std::int64_t> shard_ids;
  for (const MeasuredShard& shard : sample.shards) {
    NS_ASSIGN_OR_RETURN(const std::int64_t id, shard_rows.IdOf(shard));
    shard_ids.push_back(id);
  }
  row.emplace_back("shard_ids", ToRowText(shard_ids));
  row.emplace_back("shard_kernels", KernelsToText(sample.shards));
  return absl::OkStatus();
}

Status AddOwn(const CommSample& sample, ShardRows&, SqlRow& row) {
  row.emplace_back("num_ranks", std::ssize(sample.dim_sums));
  row.emplace_back("collective", std::string(CollectiveWord(sample)));
  return absl::OkStatus();
}

// From column `first` on.
Status TakeOwn(const SqlColumns& row, int first, const ShardsByKey& shards, ComputeSample& sample) {
  NS_ASSIGN_OR_RETURN(const auto ids, FromRowText<std::vector<std::int64_t>>(row.Text(first)));
  for (const std::int64_t id : ids) {
    const auto shard = shards.find(id);
    if (shard == shards.end()) {
      return DataLoss("shard {} of sample {} is missing", id, sample.sample_id);
    }
    sample.shards.push_back(shard->second);
  }
  return KernelsFromText(row.Text(first + 1), sample.shards);
}

Status TakeOwn(const SqlColumns& row, int first, const ShardsByKey&, CommSample& sample) {
  return sample.input_dist ? absl::OkStatus() : FromSql(row, first + 1, sample.collective);
}

}  // namespace

template <typename Sample>
Status CheckSamples(const std::vector<Sample>& samples) {
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

template <typename Sample>
StatusOr<std::vector<std::int64_t>> InsertSamples(SqlDatabase& database, std::int64_t sweep_id,
                                                  const std::vector<Sample>& samples) {
  ShardRows shard_rows(database);
  RowInserter insert(database, fmt::format("{}_samples", kKindText<Sample>));
  std::int64_t position = 0;
  for (const Sample& sample : samples) {
    SqlRow row = {{"sweep_id", sweep_id}, {"position", position++}};
    AddColumns(sample, row);
    NS_RETURN_IF_ERROR(AddOwn(sample, shard_rows, row));
    NS_RETURN_IF_ERROR(insert.Add(std::move(row)));
  }
  NS_RETURN_IF_ERROR(insert.Flush());
  return RowsOf(database, sweep_id, kKindText<Sample>);
}

template <typename Sample>
StatusOr<std::vector<Sample>> SelectSamples(SqlDatabase& database, std::int64_t sweep_id,
                                            SampleFilter filter, std::vector<std::int64_t>* rows) {
  ShardsByKey shards;
  if (std::is_same_v<Sample, ComputeSample>) NS_RETURN_IF_ERROR(SelectShards(database, shards));
  const std::string sql = fmt::format(
      "SELECT sample, {}, {} FROM {}_samples s WHERE sweep_id = ?{} ORDER BY position",
      kOwnColumns<Sample>, ColumnNames<Sample>(), kKindText<Sample>,
      filter == SampleFilter::kAll
          ? ""
          : fmt::format(
                " AND NOT EXISTS (SELECT 1 FROM {}_measurements m WHERE m.sample = s.sample)",
                kKindText<Sample>));
  std::vector<Sample> samples;
  const auto read = [&](const SqlColumns& row) -> Status {
    if (rows != nullptr) rows->push_back(row.Integer(0));
    Sample& sample = samples.emplace_back();
    NS_RETURN_IF_ERROR(TakeColumns(row, 3, sample));
    NS_RETURN_IF_ERROR(TakeOwn(row, 1, shards, sample));
    return CheckStored(sample);
  };
  NS_RETURN_IF_ERROR(database.Query(sql, {sweep_id}, read));
  return samples;
}

template Status CheckSamples(const std::vector<ComputeSample>&);
template Status CheckSamples(const std::vector<CommSample>&);
template StatusOr<std::vector<std::int64_t>> InsertSamples(SqlDatabase&, std::int64_t,
                                                           const std::vector<ComputeSample>&);
template StatusOr<std::vector<std::int64_t>> InsertSamples(SqlDatabase&, std::int64_t,
                                                           const std::vector<CommSample>&);
template StatusOr<std::vector<ComputeSample>> SelectSamples(SqlDatabase&, std::int64_t,
                                                            SampleFilter,
                                                            std::vector<std::int64_t>*);
template StatusOr<std::vector<CommSample>> SelectSamples(SqlDatabase&, std::int64_t, SampleFilter,
                                                         std::vector<std::int64_t>*);

}  // namespace neuroshard
