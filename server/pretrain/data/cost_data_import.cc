#include "server/pretrain/data/cost_data_import.h"

#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "common/base/sha256.h"
#include "common/base/text_lines.h"
#include "server/networks/regular_file.h"
#include "server/pretrain/data/cost_data_text.h"

namespace neuroshard {
namespace {

constexpr std::size_t kNamedLines = 5;
constexpr std::size_t kSampleIdDigits = 24;
constexpr std::int64_t kMaxFileBytes = std::int64_t{1} << 36;

// Equal content gets different ids, by how often it has occurred so far.
using Occurrences = std::map<std::string, int>;
std::string NextId(const std::string& content, Occurrences& occurrences) {
  const std::string hash = Sha256Hex(content).substr(0, kSampleIdDigits);
  return fmt::format("{}-{}", hash, ++occurrences[hash]);
}

// Imports what the store does not have.
template <typename Record>
Status ImportNew(const std::string& name, std::vector<Record>& costs, ImportCount& count,
                 ProfileStore* store) {
  NS_ASSIGN_OR_RETURN(const std::vector<Record> stored, store->ReadRecords<Record>());
  std::set<std::string> known;
  for (const Record& record : stored) {
    if (record.imported) known.insert(record.sample.sample_id);
  }
  std::string all_ids;
  std::vector<Record> fresh;
  for (Record& cost : costs) {
    if (known.contains(cost.sample.sample_id)) {
      ++count.already_there;
      continue;
    }
    all_ids += cost.sample.sample_id + "\n";
    fresh.push_back(std::move(cost));
  }
  count.imported = std::ssize(fresh);
  if (fresh.empty()) return absl::OkStatus();
  const std::string hash = Sha256Hex(all_ids);
  const SweepInfo info = {fmt::format("{}-{}", name, hash.substr(0, 12)), "import:" + hash,
                          "imported from NeuroShard's text format"};
  return store->ImportCosts(info, fresh).status();
}

// Calls parse(line) for every line that is not blank; it returns whether the line is well-formed.
template <typename Parse>
Status ForEachLine(const std::filesystem::path& path, ImportCount& count, Parse parse) {
  NS_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path, kMaxFileBytes));
  std::int64_t number = 0;
  std::int64_t good = 0;
  for (const std::string_view line : SplitLines(text)) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    ++count.lines;
    if (parse(line)) {
      ++good;
      continue;
    }
    ++count.malformed;
    if (count.first_malformed.size() < kNamedLines) count.first_malformed.push_back(number);
  }
  if (good == 0) {
    return InvalidArgument("{}: none of its {} lines is a cost line", path.string(), count.lines);
  }
  return absl::OkStatus();
}

StatusOr<std::vector<ComputeRecord>> ReadComputeCosts(const std::filesystem::path& directory,
                                                      std::int64_t batch_size, ImportCount& count) {
  const std::filesystem::path tables_path = directory / "table_configs.json";
  NS_ASSIGN_OR_RETURN(const std::string tables_text, ReadRegularFile(tables_path, kMaxFileBytes));
  const auto tables = ParseTableConfigs(tables_text);
  if (!tables.ok()) return Annotate(tables.status(), tables_path.string());
  const auto num_tables = static_cast<std::int64_t>(tables->size());
  Occurrences occurrences;
  std::vector<ComputeRecord> costs;
  NS_RETURN_IF_ERROR(ForEachLine(directory / "data.txt", count, [&](std::string_view line) {
    const auto parsed = ParseComputeCostLine(line, num_tables);
    if (!parsed) return false;
    ComputeRecord cost;
    cost.total_ms = parsed->cost_ms;
    cost.sample.batch_size = batch_size;
    std::string content = fmt::format("compute {} {}", batch_size, parsed->cost_ms);
    for (const std::int64_t id : parsed->table_ids) {
      const MeasuredShard& shard = (*tables)[id];
      cost.sample.shards.push_back(shard);
      content += fmt::format(" {} {} {}", shard.rows, shard.cols, shard.pooling_factor);
      for (const double share : shard.reuse_histogram) content += fmt::format(" {}", share);
    }
    cost.sample.sample_id = NextId(content, occurrences);
    costs.push_back(std::move(cost));
    return true;
  }));
  return costs;
}

StatusOr<std::vector<CommRecord>> ReadCommCosts(const std::filesystem::path& directory,
                                                std::int64_t batch_size, ImportCount& count) {
  Occurrences occurrences;
  std::vector<CommRecord> costs;
  NS_RETURN_IF_ERROR(ForEachLine(directory / "data.txt", count, [&](std::string_view line) {
    const auto parsed = ParseCommCostLine(line);
    if (!parsed) return false;
    std::string content = fmt::format("comm {}", batch_size);
    for (const auto dim : parsed->dim_sums) content += fmt::format(" {}", dim);
    for (const auto* list :
         {&parsed->start_offsets_ms, &parsed->forward_ms, &parsed->backward_ms}) {
      for (const double value : *list) content += fmt::format(" {}", value);
    }
    const std::string id = NextId(content, occurrences);
    CommSample backward;
    backward.sample_id = id + "b";
    backward.direction = CommDirection::kBackward;
    backward.dim_sums = parsed->dim_sums;
    backward.batch_size = batch_size;
    CommSample forward = backward;
    forward.sample_id = id + "f";
    forward.direction = CommDirection::kForward;
    forward.start_offsets_ms = parsed->start_offsets_ms;
    costs.push_back({.sample = std::move(backward), .cost_ms = parsed->backward_ms});
    costs.push_back({.sample = std::move(forward), .cost_ms = parsed->forward_ms});
    return true;
  }));
  return costs;
}

}  // namespace

StatusOr<CostData> ReadCostData(const CostDataSource& source) {
  CostData data;
  if (source.compute_directory) {
    NS_ASSIGN_OR_RETURN(data.compute, ReadComputeCosts(*source.compute_directory, source.batch_size,
                                                       data.compute_count.emplace()));
  }
  if (source.comm_directory) {
    NS_ASSIGN_OR_RETURN(data.comm, ReadCommCosts(*source.comm_directory, source.batch_size,
                                                 data.comm_count.emplace()));
  }
  return data;
}

Status ImportCostData(CostData& data, ProfileStore* store) {
  if (data.compute_count) {
    NS_RETURN_IF_ERROR(ImportNew("neuroshard-compute", data.compute, *data.compute_count, store));
  }
  if (data.comm_count) {
    NS_RETURN_IF_ERROR(ImportNew("neuroshard-comm", data.comm, *data.comm_count, store));
  }
  return absl::OkStatus();
}

}  // namespace neuroshard
