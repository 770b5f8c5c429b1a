#include "server/pretrain/data/cost_data_import.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "common/base/number_text.h"
#include "common/base/sha256.h"
#include "common/base/text_lines.h"
#include "common/base/violations.h"
#include "server/networks/regular_file.h"

namespace neuroshard {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";

std::string_view Trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

std::vector<std::string_view> Words(std::string_view text) {
  std::vector<std::string_view> words;
  for (text = Trim(text); !text.empty(); text = Trim(text)) {
    const std::size_t end = std::min(text.find_first_of(kSpaces), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return words;
}

// Finite and at least 0.
std::optional<double> ParseNumber(std::string_view text) {
  const auto value = NumberOf<double>(Trim(text));
  if (!value || !std::isfinite(*value) || *value < 0) return {};
  return value;
}

std::optional<std::vector<double>> ParseNumbers(std::string_view list) {
  std::vector<double> numbers;
  for (const std::string_view text : SplitText(list, ',')) {
    const auto number = ParseNumber(text);
    if (!number) return {};
    numbers.push_back(*number);
  }
  return numbers;
}

// Whole numbers in [0, limit).
std::optional<std::vector<std::int64_t>> ParseWholeNumbers(std::string_view list, double limit) {
  const auto numbers = ParseNumbers(list);
  if (!numbers) return {};
  std::vector<std::int64_t> whole;
  for (const double number : *numbers) {
    if (number != std::floor(number) || number >= limit) return {};
    whole.push_back(static_cast<std::int64_t>(number));
  }
  return whole;
}

std::string_view WithoutBrackets(std::string_view text) {
  text = Trim(text);
  const bool bracketed = text.starts_with('[') && text.ends_with(']');
  return bracketed ? text.substr(1, text.size() - 2) : text;
}

// A number of a table; `minimum` where it is faulty.
double NumberIn(const nlohmann::json& table, const std::string& path, const std::string& key,
                double minimum, double maximum, Violations& violations) {
  const std::string field = path + "." + key;
  const auto found = table.find(key);
  if (found == table.end()) {
    violations.Add(field, "is missing");
  } else if (!found->is_number()) {
    violations.Add(field, "must be a number, got {}", found->dump());
  } else if (const double value = found->get<double>(); value >= minimum && value <= maximum) {
    return value;
  } else {
    violations.Add(field, "must be in [{}, {}], got {}", minimum, maximum, value);
  }
  return minimum;
}

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

std::optional<ComputeCostLine> ParseComputeCostLine(std::string_view line,
                                                    std::int64_t num_tables) {
  std::string_view ids;
  std::string_view cost;
  constexpr std::string_view kTask = "task:";
  constexpr std::string_view kCost = "cost:";
  line = Trim(line);
  if (line.starts_with(kTask)) {
    const std::size_t bar = line.find('|');
    if (bar == std::string_view::npos) return {};
    ids = WithoutBrackets(line.substr(kTask.size(), bar - kTask.size()));
    cost = Trim(line.substr(bar + 1));
    if (!cost.starts_with(kCost)) return {};
    cost.remove_prefix(kCost.size());
  } else {
    const auto words = Words(line);
    if (words.size() != 2) return {};
    ids = words[0];
    cost = words[1];
  }
  auto table_ids = ParseWholeNumbers(ids, static_cast<double>(num_tables));
  const auto cost_ms = ParseNumber(cost);
  if (!table_ids || !cost_ms) return {};
  return ComputeCostLine{std::move(*table_ids), *cost_ms};
}

std::optional<CommCostLine> ParseCommCostLine(std::string_view line) {
  const auto words = Words(line);
  if (words.size() != 4) return {};
  constexpr double kMaxDimSum = 1e12;
  auto dim_sums = ParseWholeNumbers(words[0], kMaxDimSum);
  auto offsets = ParseNumbers(words[1]);
  auto forward = ParseNumbers(words[2]);
  auto backward = ParseNumbers(words[3]);
  if (!dim_sums || !offsets || !forward || !backward) return {};
  const std::size_t ranks = dim_sums->size();
  if (offsets->size() != ranks || forward->size() != ranks || backward->size() != ranks) return {};
  return CommCostLine{std::move(*dim_sums), std::move(*offsets), std::move(*forward),
                      std::move(*backward)};
}

StatusOr<std::vector<MeasuredShard>> ParseTableConfigs(const std::string& json) {
  const nlohmann::json document = nlohmann::json::parse(json, nullptr, false);
  if (document.is_discarded()) return InvalidArgument("is not JSON");
  if (!document.is_array() || document.empty()) {
    return InvalidArgument("must be a list of tables, got {}",
                           document.is_array() ? "an empty one" : document.type_name());
  }
  constexpr double kMaxCount = 1e12;
  constexpr double kMaxPooling = 1e9;
  Violations violations;
  std::vector<MeasuredShard> tables;
  for (std::size_t i = 0; i < document.size(); ++i) {
    const std::string path = fmt::format("[{}]", i);
    if (!document[i].is_object()) {
      violations.Add(path, "must be a table, got {}", document[i].type_name());
      continue;
    }
    const auto number = [&](const std::string& key, double minimum, double maximum) {
      return NumberIn(document[i], path, key, minimum, maximum, violations);
    };
    MeasuredShard table;
    table.table = fmt::format("{}", i);
    table.rows = static_cast<std::int64_t>(number("row", 1, kMaxCount));
    table.cols = static_cast<std::int64_t>(number("dim", 1, kMaxCount));
    table.pooling_factor = number("pooling_factor", 0, kMaxPooling);
    for (int bin = 0; bin < kReuseBins; ++bin) {
      table.reuse_histogram[bin] = number(fmt::format("bin_{}", bin), 0, 1);
    }
    tables.push_back(std::move(table));
  }
  NS_RETURN_IF_ERROR(violations.ToStatus());
  return tables;
}

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
