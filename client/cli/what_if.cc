#include "client/cli/what_if.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "client/cli/document_kind.h"
#include "client/cli/input_faults.h"
#include "client/cli/input_file.h"
#include "common/base/bytes.h"
#include "common/base/in_file.h"
#include "common/base/violations.h"
#include "common/codec/field_check.h"
#include "common/codec/field_limits.h"
#include "common/codec/message_text.h"
#include "common/codec/request_codec.h"
#include "common/codec/text_file.h"
#include "common/codec/topology_codec.h"

namespace neuroshard {
namespace {

constexpr int kMostTopologies = 1000;
constexpr std::size_t kCallsAtATime = 4;
constexpr double kMostPrice = 1e9;
// Decoding takes memory for each.
constexpr std::int64_t kMostDevices = std::int64_t{1} << 20;

void CheckTopology(const v1::WhatIfTopology& topology, const std::string& path,
                   Violations& violations) {
  const FieldCheck check(path, violations);
  check.IsNonEmptyText("name", topology.name(), kMaxNameBytes);
  Violations inside;
  const std::int64_t devices = CountDevices(topology.topology());
  if (devices > kMostDevices) {
    inside.Add("topology",
               fmt::format("has {} devices, at most {} are possible", devices, kMostDevices));
  } else {
    DecodeTopology(topology.topology(), inside);
  }
  DecodeCostModelRef(topology.cost_model(), inside);
  for (const Violation& violation : inside.kept())
    check.Fail(violation.field, violation.description);
  if (topology.has_global_batch_size() && topology.has_batch_size_per_device()) {
    check.Fail("batch_size_per_device", "must not be given beside global_batch_size");
  }
  if (topology.has_global_batch_size()) {
    check.InRange("global_batch_size", topology.global_batch_size(), 1, kMaxBatch);
  }
  if (topology.has_batch_size_per_device()) {
    check.InRange("batch_size_per_device", topology.batch_size_per_device(), 1,
                  kMaxBatch / std::clamp<std::int64_t>(devices, 1, kMaxBatch));
  }
  if (topology.has_price_per_device_hour()) {
    check.InRange("price_per_device_hour", topology.price_per_device_hour(), 0.0, kMostPrice);
  }
}

Status CheckWhatIf(const v1::WhatIf& what_if) {
  Violations violations;
  const FieldCheck check("", violations);
  if (what_if.topologies_size() == 0 || what_if.topologies_size() > kMostTopologies) {
    check.Fail("topologies", fmt::format("must have 1 to {} entries, got {}", kMostTopologies,
                                         what_if.topologies_size()));
    return violations.ToStatus();
  }
  std::map<std::string, int> first_of;
  for (int i = 0; i < what_if.topologies_size(); ++i) {
    const v1::WhatIfTopology& topology = what_if.topologies(i);
    const std::string path = fmt::format("topologies[{}]", i);
    CheckTopology(topology, path, violations);
    const auto [first, is_new] = first_of.try_emplace(topology.name(), i);
    if (!is_new && !topology.name().empty()) {
      violations.Add(path + ".name", fmt::format("must differ from topologies[{}].name, {} is both",
                                                 first->second, Quoted(topology.name())));
    }
  }
  return violations.ToStatus();
}

v1::ShardPlanRequest RequestFor(const v1::WhatIfTopology& topology, v1::ShardPlanRequest request) {
  *request.mutable_topology() = topology.topology();
  if (topology.has_global_batch_size()) {
    request.set_global_batch_size(topology.global_batch_size());
  }
  if (topology.has_batch_size_per_device()) {
    request.set_global_batch_size(topology.batch_size_per_device() *
                                  CountDevices(topology.topology()));
  }
  if (topology.has_cost_model()) *request.mutable_cost_model() = topology.cost_model();
  return request;
}

double UsedShare(const v1::RankCost& rank) {
  const v1::MemoryUse& memory = rank.memory();
  return memory.capacity_bytes() > 0 ? static_cast<double>(memory.total_bytes()) /
                                           static_cast<double>(memory.capacity_bytes())
                                     : 0;
}

void TakeAnswer(v1::ShardPlanResponse answer, const v1::WhatIfTopology& topology,
                v1::WhatIfRow& row) {
  const double cost_ms = answer.cost().embedding_cost_ms();
  row.set_embedding_cost_ms(cost_ms);
  if (cost_ms > 0) {
    row.set_samples_per_second(1e3 * static_cast<double>(row.global_batch_size()) / cost_ms);
  }
  const auto& ranks = answer.cost().ranks();
  const auto fullest =
      std::max_element(ranks.begin(), ranks.end(),
                       [](const auto& a, const auto& b) { return UsedShare(a) < UsedShare(b); });
  if (fullest != ranks.end()) {
    row.set_fullest_rank(fullest->rank());
    *row.mutable_fullest_memory() = fullest->memory();
  }
  if (answer.has_lower_bound())
    *row.mutable_lower_bound() = std::move(*answer.mutable_lower_bound());
  *row.mutable_price_basis() = std::move(*answer.mutable_price_basis());
  *row.mutable_cost_model() = std::move(*answer.mutable_cost_model());
  *row.mutable_warnings() = std::move(*answer.mutable_warnings());
  if (topology.has_price_per_device_hour() && row.samples_per_second() > 0) {
    row.set_price_per_million_samples(topology.price_per_device_hour() * row.devices() / 3600 *
                                      1e6 / row.samples_per_second());
  }
}

// What the planner said, without its address, which is the same for all.
std::string Reason(const Status& status) {
  const std::string message = Message(status);
  const std::size_t end = message.find(": ");
  return message.starts_with("planner at ") && end != std::string::npos ? message.substr(end + 2)
                                                                        : message;
}

// Runs task(0) .. task(count - 1), kCallsAtATime at a time.
template <typename Task>
void RunSideBySide(std::size_t count, const Task& task) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) task(i);
  };
  std::vector<std::thread> threads;
  for (std::size_t t = 1; t < std::min(kCallsAtATime, count); ++t) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
}

// As fast and as cheap as `row`, and better in one of the two.
bool Beats(const v1::WhatIfRow& other, const v1::WhatIfRow& row) {
  const double speed = other.samples_per_second() - row.samples_per_second();
  const double saved = row.price_per_million_samples() - other.price_per_million_samples();
  return speed >= 0 && saved >= 0 && (speed > 0 || saved > 0);
}

std::string SamplesText(double samples_per_second) {
  if (samples_per_second >= 1e6) return fmt::format("{:.2f} M", samples_per_second / 1e6);
  if (samples_per_second >= 1e3) return fmt::format("{:.1f} k", samples_per_second / 1e3);
  return fmt::format("{:.1f}", samples_per_second);
}

std::string GapText(const v1::WhatIfRow& row) {
  if (!row.lower_bound().has_gap_percent()) return "-";
  return fmt::format("{}{:.1f}%", row.lower_bound().kind() == "certified" ? "" : "~",
                     row.lower_bound().gap_percent());
}

std::string MemoryText(const v1::MemoryUse& memory, Detail detail) {
  if (memory.capacity_bytes() == 0) return "-";
  const double share = 100 * static_cast<double>(memory.total_bytes()) /
                       static_cast<double>(memory.capacity_bytes());
  return detail == Detail::kShort ? fmt::format("{:.0f}%", share)
                                  : fmt::format("{} of {}", FormatBytes(memory.total_bytes()),
                                                FormatBytes(memory.capacity_bytes()));
}

// Each text once, with the rows that it is said of: "a, b: text".
class Remarks {
 public:
  void Add(const std::string& name, const std::string& text) {
    if (text.empty()) return;
    const auto [place, is_new] = position_of_.try_emplace(text, remarks_.size());
    if (is_new) remarks_.push_back({text, {}});
    remarks_[place->second].second.push_back(name);
  }

  std::string ToString(const TextStyle& style) const {
    std::string lines;
    for (const auto& [text, names] : remarks_) {
      lines += Lines(fmt::format("{}: {}\n", fmt::join(names, ", "), text), style);
    }
    return lines;
  }

 private:
  std::map<std::string, std::size_t> position_of_;
  std::vector<std::pair<std::string, std::vector<std::string>>> remarks_;
};

}  // namespace

StatusOr<v1::WhatIf> ReadWhatIfFile(const std::string& path) {
  NS_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  v1::WhatIf what_if;
  const Status read = ReadMessageText(text, TextFormatOf(path, text), &what_if);
  if (const Status other = OtherDocument(text, DocumentKind::kWhatIf); !read.ok() && !other.ok()) {
    return InFile(path, other);
  }
  const Status values = CheckWhatIf(what_if);
  NS_RETURN_IF_ERROR(InFile(path, read.ok() ? values : FaultsOfTextAndValues(read, values)));
  return what_if;
}

StatusOr<v1::WhatIfAnswer> AskWhatIf(const PlannerClient& planner,
                                     const v1::ShardPlanRequest& request,
                                     const v1::WhatIf& what_if) {
  const std::size_t count = static_cast<std::size_t>(what_if.topologies_size());
  std::vector<v1::WhatIfRow> rows(count);
  std::vector<Status> failures(count);
  RunSideBySide(count, [&](std::size_t i) {
    const v1::WhatIfTopology& topology = what_if.topologies(static_cast<int>(i));
    const v1::ShardPlanRequest asked = RequestFor(topology, request);
    v1::WhatIfRow& row = rows[i];
    row.set_name(topology.name());
    row.set_devices(static_cast<std::int32_t>(CountDevices(asked.topology())));
    for (const v1::HostGroup& group : asked.topology().hosts()) {
      row.set_hosts(row.hosts() + (group.has_count() ? group.count() : 1));
    }
    row.set_global_batch_size(asked.has_global_batch_size() ? asked.global_batch_size()
                                                            : PlanRequest().global_batch_size);
    auto answer = planner.ShardPlan(asked);
    failures[i] = answer.status();
    if (answer.ok()) {
      TakeAnswer(*std::move(answer), topology, row);
    } else {
      row.set_failure(Reason(answer.status()));
    }
  });
  for (const Status& failure : failures) {
    if (absl::IsUnavailable(failure)) return failure;
  }
  const bool alike = std::all_of(failures.begin(), failures.end(), [&](const Status& failure) {
    return !failure.ok() && Message(failure) == Message(failures.front());
  });
  if (alike) return failures.front();
  v1::WhatIfAnswer answer;
  for (v1::WhatIfRow& row : rows) *answer.add_rows() = std::move(row);
  MarkPareto(answer);
  return answer;
}

void MarkPareto(v1::WhatIfAnswer& answer) {
  for (v1::WhatIfRow& row : *answer.mutable_rows()) {
    if (!row.has_price_per_million_samples()) continue;
    row.set_pareto(
        std::none_of(answer.rows().begin(), answer.rows().end(), [&](const v1::WhatIfRow& other) {
          return other.has_price_per_million_samples() && Beats(other, row);
        }));
  }
}

std::string WhatIfAsTable(const v1::WhatIfAnswer& answer, const TextStyle& style) {
  const auto& rows = answer.rows();
  const bool prices = std::any_of(rows.begin(), rows.end(), [](const v1::WhatIfRow& row) {
    return row.has_price_per_million_samples();
  });
  constexpr auto kLeft = TextTable::Align::kLeft;
  const bool wide = style.detail == Detail::kWide;
  std::vector<TextTable::Column> columns = {{"topology", kLeft}, {"devices"}};
  if (wide) columns.push_back({"batch"});
  for (const char* title : {"cost_ms", "samples/s", "fullest", "gap"}) columns.push_back({title});
  columns.push_back({"basis", kLeft});
  if (prices) columns.push_back({"price_per_M"});
  if (prices) columns.push_back({"", kLeft});
  TextTable table(std::move(columns));
  Remarks remarks;
  for (const v1::WhatIfRow& row : rows) {
    const bool planned = row.failure().empty();
    std::vector<std::string> cells = {row.name(), fmt::format("{}", row.devices())};
    if (wide) cells.push_back(fmt::format("{}", row.global_batch_size()));
    if (planned) {
      cells.insert(
          cells.end(),
          {fmt::format("{:.3f}", row.embedding_cost_ms()), SamplesText(row.samples_per_second()),
           MemoryText(row.fullest_memory(), style.detail), GapText(row), row.price_basis().kind()});
    } else {
      cells.insert(cells.end(), {"-", "-", "-", "-", "no plan"});
      remarks.Add(row.name(), row.failure());
    }
    if (prices) {
      cells.push_back(row.has_price_per_million_samples()
                          ? fmt::format("{:.4g}", row.price_per_million_samples())
                          : "-");
      cells.push_back(row.pareto() ? "*" : "");
    }
    table.AddRow(std::move(cells), row.pareto() ? TextTable::Mark::kBold : TextTable::Mark::kNone);
  }
  for (const v1::WhatIfRow& row : rows) remarks.Add(row.name(), row.price_basis().text());
  for (const v1::WhatIfRow& row : rows) {
    for (const std::string& warning : row.warnings())
      remarks.Add(row.name(), "warning: " + warning);
  }
  std::string text = table.ToString(style);
  if (prices) {
    text +=
        Lines("* no other is as fast and as cheap a sample, and better in one of the two\n", style);
  }
  return text +
         Lines("samples/s are those of the embeddings alone, without dense layers\n", style) +
         remarks.ToString(style);
}

}  // namespace neuroshard
