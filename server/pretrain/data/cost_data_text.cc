#include "server/pretrain/data/cost_data_text.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "common/base/number_text.h"
#include "common/base/text_lines.h"
#include "common/base/violations.h"

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

}  // namespace neuroshard
