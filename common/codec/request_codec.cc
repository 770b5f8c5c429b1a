#include "common/codec/request_codec.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "common/base/bytes.h"
#include "common/base/printable_text.h"
#include "common/codec/constraints_codec.h"
#include "common/codec/field_check.h"
#include "common/codec/field_limits.h"
#include "common/codec/message_fields.h"
#include "common/codec/plan_codec.h"
#include "common/codec/request_faults.h"
#include "common/codec/table_codec.h"
#include "common/codec/topology_codec.h"
#include "common/devices/device_table.h"
#include "common/domain/memory_use.h"

namespace neuroshard {

NS_FIELDS(MemoryModel, rule, reserve_fraction, reserve_bytes, dense_bytes);
NS_FIELDS(CostModelRef, name, version, digest);
NS_FIELDS(QuantizedComms, forward_dtype, backward_dtype);
NS_FIELDS(DistributedEmbeddingsOptions, column_slice_threshold_elements,
          row_slice_threshold_elements, data_parallel_threshold_elements,
          gpu_embedding_size_elements);
NS_FIELDS(HugeCtrOptions, bandwidth_ratio, work_ratio, data_parallel_threshold_gb, iterations,
          hierarchical);
NS_FIELDS(PlanGoal, measure, tolerance);
// But for the time budget and the goals.
NS_FIELDS(SearchOptions, strategy, beam_width, num_candidates, max_length, search_steps, seed,
          max_threads, refine_steps, explain);
NS_SPARSE_FIELDS(SearchOptions, distributed_embeddings, hugectr, objective, effort);
template <>
inline constexpr std::tuple kFields<DeviceCostModel> = {
    NamedMember{"device", &DeviceCostModel::device},
    NamedMember{"cost_model", &DeviceCostModel::model}};
NS_FIELDS(PlanRequest, request_id, global_batch_size, optimizer, pipeline_type, memory, cost_model,
          search);
NS_SPARSE_FIELDS(PlanRequest, quantized_comms, device_cost_models);

namespace {

constexpr double kMaxReserveBytes = std::int64_t{1} << 50;
constexpr FieldRange kMemoryRanges[] = {{"reserve_bytes", 0, kMaxReserveBytes},
                                        {"dense_bytes", 0, kMaxReserveBytes}};
// Whoever adds up bytes behind the codec stays far from the end of int64, even after every table is
// cut a thousand times.
constexpr std::int64_t kMaxTotalBytes = std::int64_t{1} << 60;

constexpr FieldRange kSearchRanges[] = {{"beam_width", 1, 64},
                                        {"num_candidates", 1, 1000},
                                        {"max_length", 0, 1000},
                                        {"search_steps", 1, 101},
                                        {"max_threads", 1, kMaxSearchThreads},
                                        {"time_budget_ms", 0, 3'600'000},
                                        {"refine_steps", 0, std::int64_t{1} << 60}};
constexpr double kMaxElements = std::int64_t{1} << 62;
constexpr FieldRange kDistributedEmbeddingsRanges[] = {
    {"column_slice_threshold_elements", 1, kMaxElements},
    {"row_slice_threshold_elements", 1, kMaxElements},
    {"data_parallel_threshold_elements", 1, kMaxElements},
    {"gpu_embedding_size_elements", 1, kMaxElements}};
constexpr double kMaxRatio = 1e6;
constexpr FieldRange kHugeCtrRanges[] = {{"bandwidth_ratio", 1 / kMaxRatio, kMaxRatio},
                                         {"work_ratio", 1 / kMaxRatio, kMaxRatio},
                                         {"data_parallel_threshold_gb", 0, kMaxRatio},
                                         {"iterations", 1, 100'000}};

// The parts of a request that are within their limits, which are those worth looking into.
struct Admitted {
  bool tables = true;
  bool topology = true;
  bool constraints = true;
  bool previous_plan = true;
};

// No codec has several values in a byte.
void CheckWire(const QuantizedComms& comms, const FieldCheck& check) {
  const auto check_one = [&](std::string_view field, const std::optional<DataType>& dtype) {
    if (!dtype || ElementBits(*dtype) >= 8) return;
    check.Fail(field, "must be fp32, fp16, bf16, fp8 or int8, got {}", ToText(*dtype));
  };
  check_one("forward_dtype", comms.forward_dtype);
  check_one("backward_dtype", comms.backward_dtype);
}

Admitted CheckLimits(const v1::ShardPlanRequest& message, const RequestLimits& limits,
                     Violations& over_limits) {
  Admitted admitted;
  const auto check = [&](bool within, const char* field, std::string description) {
    if (!within) over_limits.Add(field, std::move(description));
    return within;
  };
  admitted.tables = check(message.tables_size() <= limits.max_tables, "tables",
                          fmt::format("the request has {} tables, this server takes at most {}",
                                      message.tables_size(), limits.max_tables));
  // Groups of hosts without devices are faults that are found later, but cost a step each.
  const std::int64_t devices =
      std::max<std::int64_t>(CountDevices(message.topology()), message.topology().hosts_size());
  admitted.topology = check(devices <= limits.max_devices, "topology",
                            fmt::format("the request has {} devices, this server takes at most {}",
                                        devices, limits.max_devices));
  const std::int64_t threads = message.search().max_threads();
  check(threads <= limits.max_search_threads || threads > kMaxSearchThreads, "search.max_threads",
        fmt::format("the request asks for {} threads, this server gives a search at most {}",
                    threads, limits.max_search_threads));
  const std::int64_t entries = CountConstraintEntries(message.constraints());
  admitted.constraints =
      check(entries <= limits.max_constraint_entries, "constraints",
            fmt::format("the rules and groups have {} entries (tables, types, ranks and hosts "
                        "that they name), this server takes at most {}",
                        entries, limits.max_constraint_entries));
  admitted.previous_plan =
      CheckShardLimit("migration.previous", message.migration().previous(), limits, over_limits);
  return admitted;
}

// Whether it is in its ranges and its rule a word, of which TakeFields told.
bool CheckMemory(const v1::MemoryModel& message, const FieldCheck& check) {
  const double fraction = message.reserve_fraction();
  const bool is_share = fraction >= 0 && fraction < 1;
  if (!is_share) {
    check.Fail("reserve_fraction", "must be at least 0 and less than 1, got {}", fraction);
  }
  const bool is_word = message.rule().empty() || FromText<MemoryRule>(message.rule());
  return CheckRanges<kMemoryRanges>(message, check) && is_share && is_word;
}

void CheckTotalBytes(const PlanRequest& request, Violations& violations) {
  double bytes = 0;
  for (const Table& table : request.tables) {
    bytes += static_cast<double>(
        ShardMemory(request, table, table.num_embeddings, table.embedding_dim).total_bytes());
  }
  if (bytes > static_cast<double>(kMaxTotalBytes)) {
    violations.Add("tables", "must take at most {} of memory together, got {:.3g} bytes",
                   FormatBytes(kMaxTotalBytes), bytes);
  }
}

// A device that has less memory than what is kept free of it holds nothing, and looks overfull in
// answers; a request where all are so is a mistake.
void CheckReserves(const PlanRequest& request, Violations& violations) {
  const std::vector<Device>& devices = request.topology.devices;
  if (devices.empty()) return;
  const auto largest = std::ranges::max_element(devices, {}, &Device::memory_bytes);
  const std::int64_t reserve = ReserveBytes(request.memory, largest->memory_bytes);
  if (reserve <= largest->memory_bytes) {
    const std::int64_t left = largest->memory_bytes - reserve;
    if (request.memory.dense_bytes <= left) return;
    violations.Add(
        "memory.dense_bytes",
        "must be at most {}, which the reserve leaves of the largest device's {}, got {}", left,
        largest->memory_bytes, request.memory.dense_bytes);
    return;
  }
  violations.Add("memory.reserve_bytes",
                 "keeps {} bytes ({}) free of each device{}, and the largest has {} ({})", reserve,
                 FormatBytes(reserve),
                 request.memory.reserve_fraction > 0 ? ", with reserve_fraction" : "",
                 largest->memory_bytes, FormatBytes(largest->memory_bytes));
}

void CheckDigest(const FieldCheck& check, std::string_view field, const std::string& digest) {
  constexpr std::size_t kSha256Digits = 64;
  if (digest.empty() || (digest.size() == kSha256Digits &&
                         digest.find_first_not_of("0123456789abcdef") == std::string::npos)) {
    return;
  }
  check.Fail(field, "must be {} lower case hexadecimal digits, got {}", kSha256Digits,
             Quoted(digest));
}

// Those that are `asked` for, with the names that the table of devices has.
std::vector<DeviceCostModel> DecodeDeviceCostModels(const v1::ShardPlanRequest& message,
                                                    const std::vector<DeviceCostModel>& asked,
                                                    const Topology& topology, bool topology_ok,
                                                    Violations& violations) {
  std::vector<DeviceCostModel> models;
  const std::vector<std::string> on_hosts = DeviceNames(topology);
  std::set<std::string> seen;
  for (int i = 0; i < message.device_cost_models_size(); ++i) {
    const v1::DeviceCostModel& entry = message.device_cost_models(i);
    const FieldCheck check(fmt::format("device_cost_models[{}]", i), violations);
    check.IsNonEmptyText("cost_model.name", entry.cost_model().name(), kMaxModelNameBytes);
    check.InRange("cost_model.version", entry.cost_model().version(), 0, std::int64_t{INT32_MAX});
    CheckDigest(check, "cost_model.digest", entry.cost_model().digest());
    const PublishedDevice* device = FindDevice(entry.device());
    if (entry.device().empty()) {
      check.Fail("device", "must not be empty");
    } else if (device == nullptr) {
      check.Fail("device", DescribeUnknownDevice(entry.device()));
    } else if (!seen.insert(device->name).second) {
      check.Fail("device", "{} has a cost model already", device->name);
    } else if (topology_ok && std::ranges::find(on_hosts, device->name) == on_hosts.end()) {
      check.Fail("device", "must be a device of topology.hosts, which {}, got {}",
                 on_hosts.empty() ? std::string("name none")
                                  : fmt::format("name {}", fmt::join(on_hosts, ", ")),
                 device->name);
    } else {
      models.push_back({device->name, At(asked, i).model});
    }
  }
  return models;
}

// Into `options`, whose strategy and objective are decoded.
void DecodeGoals(const v1::SearchOptions& message, SearchOptions& options, const FieldCheck& check,
                 const Violations& violations) {
  constexpr int kMaxGoals = static_cast<int>(kWords<PlanMeasure>.size());
  if (message.goals().empty()) return;
  if (message.goals_size() < 2 || message.goals_size() > kMaxGoals) {
    check.Fail("goals", "must be none, or 2 to {}: cost and what comes after it, got {}", kMaxGoals,
               message.goals_size());
  }
  if (options.strategy != kObeysConstraints || options.objective != PlanObjective::kMaxOfMeans) {
    check.Fail("goals", "are for the strategy '{}' with the objective '{}'", kObeysConstraints,
               ToText(PlanObjective::kMaxOfMeans));
  }
  for (int i = 0; i < std::min(message.goals_size(), kMaxGoals); ++i) {
    const FieldCheck of_goal = check.In("goals", i);
    const std::size_t before = violations.count();
    const auto goal = TakeFields<PlanGoal>(message.goals(i), of_goal, AbsentWord::kFault);
    of_goal.InRange("tolerance", goal.tolerance, 0.0, 1.0);
    if (violations.count() > before) continue;
    if ((i == 0) != (goal.measure == PlanMeasure::kCost)) {
      of_goal.Fail("measure", i == 0 ? "the first must be cost" : "cost can only be the first");
    }
    const auto is_same = [&](const PlanGoal& other) { return other.measure == goal.measure; };
    if (i > 0 && std::ranges::any_of(options.goals, is_same)) {
      of_goal.Fail("measure", "'{}' is a goal already", ToText(goal.measure));
    }
    options.goals.push_back(goal);
  }
}

// Checks the options, which are all but the goals and the budget, and adds those. The strategy stays
// text; the search checks the name.
void DecodeSearchOptions(const v1::SearchOptions& message, const FieldCheck& check,
                         const Violations& violations, SearchOptions& options) {
  check.IsOneOf("strategy", options.strategy, kStrategyNames);
  CheckRanges<kSearchRanges>(message, check);
  if (message.has_time_budget_ms()) {
    options.time_budget = std::chrono::milliseconds(message.time_budget_ms());
  }
  CheckRanges<kDistributedEmbeddingsRanges>(message.distributed_embeddings(),
                                            check.In("distributed_embeddings"));
  CheckRanges<kHugeCtrRanges>(message.hugectr(), check.In("hugectr"));
  if (options.objective == PlanObjective::kMeanOfMax && options.strategy != kObeysConstraints) {
    check.Fail("objective", "'{}' does not know mean_of_max; '{}' does", options.strategy,
               kObeysConstraints);
  }
  DecodeGoals(message, options, check, violations);
}

}  // namespace

CostModelRef DecodeCostModelRef(const v1::CostModelRef& message, Violations& violations) {
  const FieldCheck check("cost_model", violations);
  check.IsText("name", message.name(), kMaxModelNameBytes);
  check.InRange("version", message.version(), 0, std::int64_t{INT32_MAX});
  CheckDigest(check, "digest", message.digest());
  return TakeFields<CostModelRef>(message, check);
}

v1::CostModelRef EncodeCostModelRef(const CostModelRef& model) {
  return MessageOf<v1::CostModelRef>(model);
}

bool CheckShardLimit(const std::string& path, const v1::Plan& plan, const RequestLimits& limits,
                     Violations& over_limits) {
  const std::int64_t shards = CountShards(plan);
  const std::int64_t tables = plan.tables_size();
  if (std::max(tables, shards) <= limits.max_plan_shards) return true;
  over_limits.Add(path + ".tables",
                  "the plan has {} tables and {} shards, this server takes at most {} of each",
                  tables, shards, limits.max_plan_shards);
  return false;
}

StatusOr<PlanRequest> DecodePlanRequest(const v1::ShardPlanRequest& message,
                                        const RequestLimits& limits) {
  RequestFaults faults;
  const Admitted admitted = CheckLimits(message, limits, faults.over_limits);
  Violations& violations = faults.violations;
  const FieldCheck check("", violations);
  auto request = TakeFields<PlanRequest>(message, check);
  check.IsText("request_id", request.request_id, kMaxRequestIdBytes);
  const bool batch_ok = check.InRange("global_batch_size", request.global_batch_size, 1, kMaxBatch);
  CheckWire(request.quantized_comms, check.In("quantized_comms"));
  const bool memory_ok = CheckMemory(message.memory(), check.In("memory"));
  request.cost_model = DecodeCostModelRef(message.cost_model(), violations);
  DecodeSearchOptions(message.search(), check.In("search"), violations, request.search);
  const std::size_t faults_before = violations.count();
  if (admitted.topology) request.topology = DecodeTopology(message.topology(), violations);
  const bool topology_ok = admitted.topology && violations.count() == faults_before;
  if (memory_ok && topology_ok) CheckReserves(request, violations);
  request.device_cost_models = DecodeDeviceCostModels(message, request.device_cost_models,
                                                      request.topology, topology_ok, violations);
  if (message.tables_size() == 0)
    violations.Add("tables", "must have at least one entry, got none");
  TableDecoder decoder(batch_ok ? request.global_batch_size : 1);
  if (admitted.tables) {
    request.tables.reserve(static_cast<std::size_t>(message.tables_size()));
    for (int i = 0; i < message.tables_size(); ++i) {
      request.tables.push_back(decoder.Decode(message.tables(i), check.In("tables", i)));
    }
    CheckUniqueNames(message.tables(), "tables", violations);
    if (request.search.objective == PlanObjective::kMeanOfMax && decoder.num_batches() == 0) {
      violations.Add("search.objective",
                     "mean_of_max needs batches: no table has batch_pooling_factors");
    }
  }
  // They name tables.
  if (admitted.tables && admitted.constraints) {
    request.constraints =
        DecodeConstraints(message.constraints(), request.tables,
                          topology_ok ? request.topology : Topology(), violations);
  }
  if (message.has_migration() && admitted.previous_plan) {
    request.migration = DecodeMigration(message.migration(), request.tables, violations);
  }
  for (int i = 0; i < message.search().goals_size(); ++i) {
    const std::string field = fmt::format("search.goals[{}].measure", i);
    const std::string& measure = message.search().goals(i).measure();
    if (measure == ToText(PlanMeasure::kMovedBytes) && !message.has_migration()) {
      violations.Add(field, "'moved_bytes' needs a plan in place: the request has no migration");
    }
    if (measure == ToText(PlanMeasure::kMaxStash) && !request.stashes()) {
      violations.Add(field,
                     "'max_stash' needs tables to stash: none has stash_weights, and there is no "
                     "memory.dense_bytes");
    }
  }
  if (violations.empty()) CheckTotalBytes(request, violations);
  NS_RETURN_IF_ERROR(faults.ToStatus());
  request.warnings = decoder.Warnings(request.tables);
  for (std::string& warning : TopologyWarnings(message.topology(), request.topology)) {
    request.warnings.push_back(std::move(warning));
  }
  for (std::string& warning : ConstraintWarnings(request)) {
    request.warnings.push_back(std::move(warning));
  }
  return request;
}

v1::ShardPlanRequest EncodePlanRequest(const PlanRequest& request) {
  auto message = MessageOf<v1::ShardPlanRequest>(request);
  for (const Table& table : request.tables) *message.add_tables() = EncodeTable(table);
  *message.mutable_topology() = EncodeTopology(request.topology);
  v1::SearchOptions& search = *message.mutable_search();
  if (request.search.time_budget) search.set_time_budget_ms(request.search.time_budget->count());
  for (const PlanGoal& goal : request.search.goals) PutFields(goal, *search.add_goals());
  if (!request.constraints.empty()) {
    *message.mutable_constraints() = EncodeConstraints(request.constraints, request.tables);
  }
  if (request.migration) *message.mutable_migration() = EncodeMigration(*request.migration);
  return message;
}

}  // namespace neuroshard
