#include "common/store/sample_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>

#include "common/base/number_text.h"
#include "common/store/row_text.h"

namespace neuroshard {
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
    const SqlRow row = {{"table_name", shard.table},
                        {"num_rows", shard.rows},
                        {"cols", shard.cols},
                        {"pooling_factor", shard.pooling_factor},
                        {"reuse_histogram", ToRowText(shard.reuse_histogram)},
                        {"weight_dtype", std::string(ToText(shard.weight_dtype))},
                        {"pooling_mode", std::string(ToText(shard.pooling_mode))},
                        {"weighted", std::int64_t{shard.weighted}}};
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
  NS_RETURN_IF_ERROR(database.ForEachRow(
      fmt::format("SELECT sample FROM {}_samples WHERE sweep_id = ? ORDER BY position", kind),
      {sweep_id}, [&keys](const SqlStatement& row) {
        keys.push_back(row.Integer(0));
        return absl::OkStatus();
      }));
  return keys;
}

template <typename E>
StatusOr<E> WordFromText(const std::string& text) {
  const std::optional<E> value = FromText<E>(text);
  if (!value) return DataLoss("a stored word is damaged: {}", text);
  return *value;
}

using ShardsByKey = std::map<std::int64_t, MeasuredShard>;

Status SelectShards(SqlDatabase& database, ShardsByKey& shards) {
  return database.ForEachRow(
      "SELECT shard_id, table_name, num_rows, cols, pooling_factor, reuse_histogram, weight_dtype, "
      "pooling_mode, weighted FROM shards",
      {}, [&shards](const SqlStatement& row) -> Status {
        MeasuredShard& shard = shards[row.Integer(0)];
        shard.table = row.Text(1);
        shard.rows = row.Integer(2);
        shard.cols = row.Integer(3);
        shard.pooling_factor = row.Real(4);
        NS_ASSIGN_OR_RETURN(shard.reuse_histogram, FromRowText<ReuseHistogram>(row.Text(5)));
        NS_ASSIGN_OR_RETURN(shard.weight_dtype, WordFromText<DataType>(row.Text(6)));
        NS_ASSIGN_OR_RETURN(shard.pooling_mode, WordFromText<PoolingMode>(row.Text(7)));
        shard.weighted = row.Integer(8) != 0;
        return absl::OkStatus();
      });
}

// The columns that only this kind of samples has; Read takes them from the fourth on.
template <typename Sample>
constexpr std::string_view kOwnColumns = "shard_ids, optimizer, seed, shard_kernels";
template <>
constexpr std::string_view kOwnColumns<CommSample> =
    "direction, dim_sums, start_offsets_ms, element_bytes, collective, input_dist, wire_dtype, "
    "cadence";

Status Read(const SqlStatement& row, const ShardsByKey& shards, ComputeSample& sample) {
  NS_ASSIGN_OR_RETURN(const auto shard_ids, FromRowText<std::vector<std::int64_t>>(row.Text(3)));
  for (const std::int64_t id : shard_ids) {
    const auto shard = shards.find(id);
    if (shard == shards.end()) {
      return DataLoss("shard {} of sample {} is missing", id, sample.sample_id);
    }
    sample.shards.push_back(shard->second);
  }
  NS_ASSIGN_OR_RETURN(sample.optimizer, WordFromText<Optimizer>(row.Text(4)));
  sample.seed = std::bit_cast<std::uint64_t>(row.Integer(5));
  return KernelsFromText(row.Text(6), sample.shards);
}

Status Read(const SqlStatement& row, const ShardsByKey&, CommSample& sample) {
  NS_ASSIGN_OR_RETURN(sample.direction, WordFromText<CommDirection>(row.Text(3)));
  NS_ASSIGN_OR_RETURN(sample.dim_sums, FromRowText<std::vector<std::int64_t>>(row.Text(4)));
  NS_ASSIGN_OR_RETURN(sample.start_offsets_ms, FromRowText<std::vector<double>>(row.Text(5)));
  sample.element_bytes = row.Integer(6);
  if (const std::string input = row.Text(8); !input.empty()) {
    NS_ASSIGN_OR_RETURN(sample.input_dist, FromRowText<InputDistSample>(input));
  } else {
    NS_ASSIGN_OR_RETURN(sample.collective, WordFromText<Collective>(row.Text(7)));
  }
  NS_ASSIGN_OR_RETURN(sample.wire_dtype, WordFromText<DataType>(row.Text(9)));
  NS_ASSIGN_OR_RETURN(sample.cadence, WordFromText<Cadence>(row.Text(10)));
  return absl::OkStatus();
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

StatusOr<std::vector<std::int64_t>> InsertSamples(SqlDatabase& database, std::int64_t sweep_id,
                                                  const std::vector<ComputeSample>& samples) {
  ShardRows shard_rows(database);
  RowInserter insert(database, "compute_samples");
  std::int64_t position = 0;
  for (const ComputeSample& sample : samples) {
    std::vector<std::int64_t> shard_ids;
    for (const MeasuredShard& shard : sample.shards) {
      NS_ASSIGN_OR_RETURN(const std::int64_t id, shard_rows.IdOf(shard));
      shard_ids.push_back(id);
    }
    NS_RETURN_IF_ERROR(insert.Add({{"sweep_id", sweep_id},
                                   {"position", position++},
                                   {"sample_id", sample.sample_id},
                                   {"shard_ids", ToRowText(shard_ids)},
                                   {"batch_size", sample.batch_size},
                                   {"optimizer", std::string(ToText(sample.optimizer))},
                                   {"seed", std::bit_cast<std::int64_t>(sample.seed)},
                                   {"shard_kernels", KernelsToText(sample.shards)}}));
  }
  NS_RETURN_IF_ERROR(insert.Flush());
  return RowsOf(database, sweep_id, kKindText<ComputeSample>);
}

StatusOr<std::vector<std::int64_t>> InsertSamples(SqlDatabase& database, std::int64_t sweep_id,
                                                  const std::vector<CommSample>& samples) {
  RowInserter insert(database, "comm_samples");
  std::int64_t position = 0;
  for (const CommSample& sample : samples) {
    NS_RETURN_IF_ERROR(
        insert.Add({{"sweep_id", sweep_id},
                    {"position", position++},
                    {"sample_id", sample.sample_id},
                    {"direction", std::string(ToText(sample.direction))},
                    {"num_ranks", static_cast<std::int64_t>(sample.dim_sums.size())},
                    {"dim_sums", ToRowText(sample.dim_sums)},
                    {"start_offsets_ms", ToRowText(sample.start_offsets_ms)},
                    {"batch_size", sample.batch_size},
                    {"element_bytes", sample.element_bytes},
                    {"collective", std::string(CollectiveWord(sample))},
                    {"input_dist", sample.input_dist ? ToRowText(*sample.input_dist) : ""},
                    {"wire_dtype", std::string(ToText(sample.wire_dtype))},
                    {"cadence", std::string(ToText(sample.cadence))}}));
  }
  NS_RETURN_IF_ERROR(insert.Flush());
  return RowsOf(database, sweep_id, kKindText<CommSample>);
}

template <typename Sample>
StatusOr<std::vector<Sample>> SelectSamples(SqlDatabase& database, std::int64_t sweep_id,
                                            SampleFilter filter, std::vector<std::int64_t>* rows) {
  ShardsByKey shards;
  if (std::is_same_v<Sample, ComputeSample>) NS_RETURN_IF_ERROR(SelectShards(database, shards));
  const std::string sql = fmt::format(
      "SELECT sample, sample_id, batch_size, {0} FROM {1}_samples s WHERE sweep_id = ?{2} ORDER BY "
      "position",
      kOwnColumns<Sample>, kKindText<Sample>,
      filter == SampleFilter::kAll
          ? ""
          : fmt::format(
                " AND NOT EXISTS (SELECT 1 FROM {}_measurements m WHERE m.sample = s.sample)",
                kKindText<Sample>));
  std::vector<Sample> samples;
  const auto read = [&](const SqlStatement& row) -> Status {
    if (rows != nullptr) rows->push_back(row.Integer(0));
    Sample& sample = samples.emplace_back();
    sample.sample_id = row.Text(1);
    sample.batch_size = row.Integer(2);
    NS_RETURN_IF_ERROR(Read(row, shards, sample));
    return CheckStored(sample);
  };
  NS_RETURN_IF_ERROR(database.ForEachRow(sql, {sweep_id}, read));
  return samples;
}

template Status CheckSamples(const std::vector<ComputeSample>&);
template Status CheckSamples(const std::vector<CommSample>&);
template StatusOr<std::vector<ComputeSample>> SelectSamples(SqlDatabase&, std::int64_t,
                                                            SampleFilter,
                                                            std::vector<std::int64_t>*);
template StatusOr<std::vector<CommSample>> SelectSamples(SqlDatabase&, std::int64_t, SampleFilter,
                                                         std::vector<std::int64_t>*);

}  // namespace neuroshard
