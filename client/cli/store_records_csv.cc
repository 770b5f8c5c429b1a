#include "client/cli/store_records_csv.h"

#include <absl/strings/str_replace.h>
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <type_traits>

#include "common/domain/backend_names.h"
#include "common/domain/measurement.h"

namespace neuroshard {
namespace {

constexpr std::string_view kEnvironmentColumns =
    ",imported,hostname,device,backend,collective_backend,worker_version,git_commit,"
    "measured_at_unix_ms";

// A field of CSV, in quotes where it needs them.
std::string Field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  return '"' + absl::StrReplaceAll(std::string(text), {{"\"", "\"\""}}) + '"';
}

// The shortest text that is this number again; empty for none.
std::string Number(double value) { return std::isnan(value) ? "" : fmt::format("{}", value); }

std::string EnvironmentFields(const MeasurementEnvironment& environment, bool imported) {
  if (imported) return ",1,,,,,,,";
  return fmt::format(",0,{},{},{},{},{},{},{}", Field(environment.hostname),
                     Field(environment.device), Field(environment.backend),
                     Field(CollectiveBackendOf(environment)), Field(environment.worker_version),
                     Field(environment.git_commit), environment.measured_at_unix_ms);
}

std::string ShardsText(const std::vector<MeasuredShard>& shards) {
  auto list = nlohmann::ordered_json::array();
  for (const MeasuredShard& shard : shards) {
    nlohmann::ordered_json& entry = list.emplace_back();
    ForEachField(shard, [&entry]<typename T>(const char* name, const T& member) {
      if constexpr (std::is_enum_v<T>) {
        entry[name] = ToText(member);
      } else {
        entry[name] = member;
      }
    });
    if (shard.compute_kernel != ComputeKernel::kFused) {
      entry["compute_kernel"] = ToText(shard.compute_kernel);
    }
    if (shard.cache_load_factor != 0) entry["cache_load_factor"] = shard.cache_load_factor;
  }
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The columns of one rank's distribution of ids; empty ones for a collective.
std::string InputDistFields(const CommSample& sample, std::size_t rank) {
  if (!sample.input_dist) return ",,,,,";
  const InputDistSample& input = *sample.input_dist;
  return fmt::format(",{},{},{},{},{:d}", input.whole_features[rank], Number(input.whole_ids[rank]),
                     input.cut_features, Number(input.cut_ids), input.weighted);
}

}  // namespace

std::string RecordsAsCsv(const std::vector<ComputeRecord>& records) {
  std::string csv = "sample_id,batch_size,optimizer,seed,shards,forward_ms,backward_ms,total_ms";
  csv += fmt::format("{}\n", kEnvironmentColumns);
  for (const ComputeRecord& record : records) {
    const ComputeSample& sample = record.sample;
    csv +=
        fmt::format("{},{},{},{},{},{},{},{}", Field(sample.sample_id), sample.batch_size,
                    ToText(sample.optimizer), sample.seed, Field(ShardsText(sample.shards)),
                    Number(record.forward_ms), Number(record.backward_ms), Number(record.total_ms));
    csv += EnvironmentFields(record.environment, record.imported) + "\n";
  }
  return csv;
}

std::string RecordsAsCsv(const std::vector<CommRecord>& records) {
  std::string csv =
      "sample_id,rank,num_ranks,direction,collective,batch_size,element_bytes,dim_sum,"
      "start_offset_ms,cost_ms";
  csv += fmt::format(
      "{},whole_features,whole_ids,cut_features,cut_ids,weighted,wire_dtype,"
      "cadence,network_interface,network_address,network\n",
      kEnvironmentColumns);
  for (const CommRecord& record : records) {
    const CommSample& sample = record.sample;
    const bool embeddings = !sample.input_dist;
    for (std::size_t rank = 0; rank < record.cost_ms.size(); ++rank) {
      csv += fmt::format(
          "{},{},{},{},{},{},{},{},{},{}", Field(sample.sample_id), rank, record.cost_ms.size(),
          embeddings ? ToText(sample.direction) : "", CollectiveWord(sample), sample.batch_size,
          embeddings ? std::to_string(sample.element_bytes) : "",
          embeddings ? std::to_string(sample.dim_sums[rank]) : "",
          Number(sample.start_offsets_ms.empty() ? 0.0 : sample.start_offsets_ms[rank]),
          Number(record.cost_ms[rank]));
      const MeasurementEnvironment environment =
          record.imported ? MeasurementEnvironment() : record.environments[rank];
      csv += EnvironmentFields(environment, record.imported);
      csv += fmt::format("{},{},{}", InputDistFields(sample, rank),
                         embeddings ? ToText(sample.wire_dtype) : "", ToText(sample.cadence));
      for (const auto property : {kInterfaceProperty, kAddressProperty, kNetworkProperty}) {
        csv += ',' + Field(environment.property(property));
      }
      csv += '\n';
    }
  }
  return csv;
}

}  // namespace neuroshard
