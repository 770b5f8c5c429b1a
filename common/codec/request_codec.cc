#include "common/codec/request_codec.h"

#include <string>
#include <unordered_map>

#include "common/base/bytes.h"
#include "common/codec/field_check.h"
#include "common/codec/table_codec.h"
#include "common/codec/topology_codec.h"
#include "common/domain/memory_use.h"

namespace neuroshard {
namespace {

constexpr std::size_t kMaxRequestIdBytes = 128;
constexpr std::size_t kMaxModelNameBytes = 128;
constexpr std::size_t kMaxStrategyBytes = 64;
constexpr std::int64_t kMaxBatch = std::int64_t{1} << 30;
constexpr std::int64_t kMaxReserveBytes = std::int64_t{1} << 50;
constexpr std::int64_t kMaxTimeBudgetMs = 3'600'000;
// Whoever adds up bytes behind the codec stays far from the end of int64, even after every table is
// cut a thousand times.
constexpr std::int64_t kMaxTotalBytes = std::int64_t{1} << 60;

Status CheckLimits(const v1::ShardPlanRequest& message, const RequestLimits& limits) {
  if (message.tables_size() > limits.max_tables) {
    return ResourceExhausted("tables: the request has {} tables, this server takes at most {}",
                             message.tables_size(), limits.max_tables);
  }
  const std::int64_t devices = CountDevices(message.topology());
  // Groups of hosts without devices are faults that are found later, but cost a step each.
  if (devices > limits.max_devices || message.topology().hosts_size() > limits.max_devices) {
    return ResourceExhausted("topology: the request has {} devices, this server takes at most {}",
                             std::max<std::int64_t>(devices, message.topology().hosts_size()),
                             limits.max_devices);
  }
  return absl::OkStatus();
}

MemoryModel DecodeMemoryModel(const v1::MemoryModel& message, Violations& violations) {
  const FieldCheck check("memory", violations);
  MemoryModel memory;
  memory.rule = check.WordOrDefault("rule", message.rule(), MemoryRule::kFull);
  if (!(message.reserve_fraction() >= 0 && message.reserve_fraction() < 1)) {
    check.Fail("reserve_fraction", fmt::format("must be at least 0 and less than 1, got {}",
                                               message.reserve_fraction()));
  }
  memory.reserve_fraction = message.reserve_fraction();
  check.InRange("reserve_bytes", message.reserve_bytes(), 0, kMaxReserveBytes);
  memory.reserve_bytes = message.reserve_bytes();
  return memory;
}

CostModelRef DecodeCostModelRef(const v1::CostModelRef& message, Violations& violations) {
  const FieldCheck check("cost_model", violations);
  check.IsText("name", message.name(), kMaxModelNameBytes);
  check.InRange("version", message.version(), 0, std::int64_t{INT32_MAX});
  return {message.name(), message.version()};
}

SearchOptions DecodeSearchOptions(const v1::SearchOptions& message, Violations& violations) {
  const FieldCheck check("search", violations);
  SearchOptions options;
  check.IsText("strategy", message.strategy(), kMaxStrategyBytes);
  if (!message.strategy().empty()) options.strategy = message.strategy();
  if (message.has_beam_width()) options.beam_width = message.beam_width();
  if (message.has_num_candidates()) options.num_candidates = message.num_candidates();
  if (message.has_max_length()) options.max_length = message.max_length();
  if (message.has_search_steps()) options.search_steps = message.search_steps();
  check.InRange("beam_width", std::int64_t{options.beam_width}, 1, 64);
  check.InRange("num_candidates", std::int64_t{options.num_candidates}, 1, 1000);
  check.InRange("max_length", std::int64_t{options.max_length}, 0, 1000);
  check.InRange("search_steps", std::int64_t{options.search_steps}, 1, 101);
  if (message.has_time_budget_ms()) {
    check.InRange("time_budget_ms", message.time_budget_ms(), 0, kMaxTimeBudgetMs);
    options.time_budget = std::chrono::milliseconds(message.time_budget_ms());
  }
  options.seed = message.seed();
  return options;
}

void CheckUniqueNames(const v1::ShardPlanRequest& message, Violations& violations) {
  std::unordered_map<std::string_view, int> first_position;
  for (int i = 0; i < message.tables_size(); ++i) {
    const std::string& name = message.tables(i).name();
    if (name.empty()) continue;
    const auto [first, is_new] = first_position.emplace(name, i);
    if (!is_new) {
      violations.Add(fmt::format("tables[{}].name", i),
                     fmt::format("must be unique, got {}, which is also tables[{}].name",
                                 Quoted(name), first->second));
    }
  }
}

void CheckTotalBytes(const PlanRequest& request, Violations& violations) {
  double bytes = 0;
  for (const Table& table : request.tables) {
    bytes += static_cast<double>(
        ShardMemory(request, table, table.num_embeddings, table.embedding_dim).total_bytes());
  }
  if (bytes > static_cast<double>(kMaxTotalBytes)) {
    violations.Add("tables",
                   fmt::format("must take at most {} of memory together, got {:.3g} bytes",
                               FormatBytes(kMaxTotalBytes), bytes));
  }
}

}  // namespace

StatusOr<PlanRequest> DecodePlanRequest(const v1::ShardPlanRequest& message,
                                        const RequestLimits& limits) {
  NS_RETURN_IF_ERROR(CheckLimits(message, limits));
  Violations violations;
  const FieldCheck check("", violations);
  PlanRequest request;
  check.IsText("request_id", message.request_id(), kMaxRequestIdBytes);
  request.request_id = message.request_id();
  if (message.has_global_batch_size()) request.global_batch_size = message.global_batch_size();
  const bool batch_ok = check.InRange("global_batch_size", request.global_batch_size, 1, kMaxBatch);
  request.optimizer = check.WordOrDefault("optimizer", message.optimizer(), Optimizer::kSgd);
  request.memory = DecodeMemoryModel(message.memory(), violations);
  request.cost_model = DecodeCostModelRef(message.cost_model(), violations);
  request.search = DecodeSearchOptions(message.search(), violations);
  request.topology = DecodeTopology(message.topology(), violations);
  if (message.tables_size() == 0)
    violations.Add("tables", "must have at least one entry, got none");
  TableDecoder decoder(batch_ok ? request.global_batch_size : 1);
  request.tables.reserve(static_cast<std::size_t>(message.tables_size()));
  for (int i = 0; i < message.tables_size(); ++i) {
    request.tables.push_back(
        decoder.Decode(message.tables(i), FieldCheck(fmt::format("tables[{}]", i), violations)));
  }
  CheckUniqueNames(message, violations);
  if (violations.empty()) CheckTotalBytes(request, violations);
  NS_RETURN_IF_ERROR(violations.ToStatus());
  request.warnings = decoder.Warnings();
  return request;
}

v1::ShardPlanRequest EncodePlanRequest(const PlanRequest& request) {
  v1::ShardPlanRequest message;
  message.set_request_id(request.request_id);
  for (const Table& table : request.tables) *message.add_tables() = EncodeTable(table);
  *message.mutable_topology() = EncodeTopology(request.topology);
  message.set_global_batch_size(request.global_batch_size);
  message.set_optimizer(std::string(ToText(request.optimizer)));
  message.mutable_memory()->set_rule(std::string(ToText(request.memory.rule)));
  message.mutable_memory()->set_reserve_fraction(request.memory.reserve_fraction);
  message.mutable_memory()->set_reserve_bytes(request.memory.reserve_bytes);
  message.mutable_cost_model()->set_name(request.cost_model.name);
  message.mutable_cost_model()->set_version(request.cost_model.version);
  v1::SearchOptions& search = *message.mutable_search();
  search.set_strategy(request.search.strategy);
  search.set_beam_width(request.search.beam_width);
  search.set_num_candidates(request.search.num_candidates);
  search.set_max_length(request.search.max_length);
  search.set_search_steps(request.search.search_steps);
  if (request.search.time_budget) search.set_time_budget_ms(request.search.time_budget->count());
  search.set_seed(request.search.seed);
  return message;
}

}  // namespace neuroshard
