#include "client/cli/what_if.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "client/cli/input_file.h"
#include "client/cli/one_plan.h"
#include "client/cli/plan_report.h"
#include "client/cli/side_by_side.h"
#include "common/base/bytes.h"
#include "common/base/in_file.h"
#include "common/base/violations.h"
#include "common/codec/field_check.h"
#include "common/codec/field_limits.h"
#include "common/codec/message_text.h"
#include "common/codec/plan_codec.h"
#include "common/codec/request_codec.h"
#include "common/codec/text_file.h"
#include "common/codec/topology_codec.h"
#include "common/devices/device_table.h"
#include "common/domain/sharding_groups.h"

namespace neuroshard {
namespace {

constexpr int kMaxTopologies = 1000;  // and rows
constexpr double kMaxPrice = 1e9;
// Decoding takes memory for each.
constexpr std::int64_t kMaxDevices = std::int64_t{1} << 20;
constexpr std::int32_t kMaxSyncInterval = 1'000'000;

// One way to cut a topology's ranks into groups.
struct Groups {
  int size = 0;
  GroupRanks ranks = GroupRanks::kAlternating;
  Topology of_one = {};
  Status fault = {};  // why there are none such, where the size was asked for and has others
};

// What is asked for one row.
struct AskedRow {
  const v1::WhatIfTopology* topology = nullptr;
  std::optional<Groups> groups = {};  // none: without 2D
};

std::vector<int> DefaultGroupSizes(const Topology& topology) {
  const int world_size = topology.num_ranks();
  const int host = topology.ranks_per_host();
  std::vector<int> sizes;
  for (int size = host; host > 0 && size < world_size; size += host) {
    if (world_size % size == 0) sizes.push_back(size);
  }
  sizes.push_back(world_size);
  return sizes;
}

// The groups of this size that TorchRec can make, at most one of each kind of ranks, and why there
// is not the other; where there is neither, why.
StatusOr<std::vector<Groups>> GroupsOf(const v1::TwoDimensional& asked, const Topology& topology,
                                       int size) {
  std::vector<GroupRanks> kinds = {GroupRanks::kAlternating, GroupRanks::kContiguous};
  if (asked.has_use_inter_host_allreduce()) {
    kinds = {asked.use_inter_host_allreduce() ? GroupRanks::kContiguous : GroupRanks::kAlternating};
  } else if (size == 1 || size == topology.num_ranks() || topology.hosts().size() == 1) {
    kinds.pop_back();
  }
  std::vector<Groups> groups;
  for (const GroupRanks ranks : kinds) {
    auto of_one = TopologyOfGroup(topology, size, ranks);
    const Status fault = of_one.status();
    groups.push_back({size, ranks, std::move(of_one).value_or(Topology()), fault});
  }
  const auto is_possible = [](const Groups& each) { return each.fault.ok(); };
  if (std::ranges::none_of(groups, is_possible)) return groups.back().fault;
  // Where the size was not asked for, groups that are not possible are left out.
  if (asked.sharding_group_sizes().empty()) {
    std::erase_if(groups, [](const Groups& each) { return !each.fault.ok(); });
  }
  return groups;
}

// The rows that the topology is, which has no fault itself. Those of its groups go to `check`.
std::vector<AskedRow> RowsOf(const v1::WhatIfTopology& message, const FieldCheck& check) {
  if (!message.has_two_dimensional()) return {{&message}};
  Violations none;
  const Topology topology = DecodeTopology(message.topology(), none);
  const v1::TwoDimensional& asked = message.two_dimensional();
  std::vector<int> sizes(asked.sharding_group_sizes().begin(), asked.sharding_group_sizes().end());
  if (sizes.empty()) sizes = DefaultGroupSizes(topology);
  std::vector<AskedRow> rows;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::string field = fmt::format("two_dimensional.sharding_group_sizes[{}]", i);
    if (!check.InRange(field, std::int64_t{sizes[i]}, 1, topology.num_ranks())) continue;
    if (std::count(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(i), sizes[i]) > 0) {
      check.Fail(field, "must not be twice in the list, got {}", sizes[i]);
      continue;
    }
    auto groups = GroupsOf(asked, topology, sizes[i]);
    if (!groups.ok()) {
      check.Fail(field, Message(groups.status()));
    } else {
      for (Groups& each : *groups) rows.push_back({&message, std::move(each)});
    }
  }
  return rows;
}

// CheckWhatIf has found no fault in it.
std::vector<AskedRow> AskedRows(const v1::WhatIf& what_if) {
  std::vector<AskedRow> rows;
  Violations none;
  for (const v1::WhatIfTopology& topology : what_if.topologies()) {
    auto own = RowsOf(topology, FieldCheck("", none));
    std::move(own.begin(), own.end(), std::back_inserter(rows));
  }
  return rows;
}

// Rows that the topology is; 0 where it has a fault.
std::size_t CheckTopology(const v1::WhatIfTopology& topology, const std::string& path,
                          Violations& violations) {
  const FieldCheck check(path, violations);
  check.IsNonEmptyText("name", topology.name(), kMaxNameBytes);
  Violations inside;
  const std::int64_t devices = CountDevices(topology.topology());
  if (devices > kMaxDevices) {
    inside.Add("topology", "has {} devices, at most {} are possible", devices, kMaxDevices);
  }
  if (devices <= kMaxDevices) DecodeTopology(topology.topology(), inside);
  const std::size_t rows = inside.empty() ? RowsOf(topology, check).size() : 0;
  if (topology.two_dimensional().has_sync_interval_batches()) {
    check.InRange("two_dimensional.sync_interval_batches",
                  std::int64_t{topology.two_dimensional().sync_interval_batches()}, 1,
                  kMaxSyncInterval);
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
    check.InRange("price_per_device_hour", topology.price_per_device_hour(), 0.0, kMaxPrice);
  }
  return rows;
}

Status CheckWhatIf(const v1::WhatIf& what_if) {
  Violations violations;
  const FieldCheck check("", violations);
  if (what_if.topologies_size() == 0 || what_if.topologies_size() > kMaxTopologies) {
    check.Fail("topologies", "must have 1 to {} entries, got {}", kMaxTopologies,
               what_if.topologies_size());
    return violations.ToStatus();
  }
  std::map<std::string, int> first_of;
  std::size_t rows = 0;
  for (int i = 0; i < what_if.topologies_size(); ++i) {
    const v1::WhatIfTopology& topology = what_if.topologies(i);
    const std::string path = fmt::format("topologies[{}]", i);
    rows += CheckTopology(topology, path, violations);
    const auto [first, is_new] = first_of.try_emplace(topology.name(), i);
    if (!is_new && !topology.name().empty()) {
      violations.Add(path + ".name", "must differ from topologies[{}].name, {} is both",
                     first->second, Quoted(topology.name()));
    }
  }
  if (rows > kMaxTopologies) {
    check.Fail("topologies", "are {} rows with the sizes of groups, at most {} are possible", rows,
               kMaxTopologies);
  }
  CheckOnePlan(what_if, violations);
  return violations.ToStatus();
}

int Replicas(const AskedRow& asked) {
  if (!asked.groups) return 1;
  return static_cast<int>(CountDevices(asked.topology->topology())) / asked.groups->size;
}

std::int64_t GlobalBatchSize(const v1::WhatIfTopology& topology,
                             const v1::ShardPlanRequest& request) {
  if (topology.has_global_batch_size()) return topology.global_batch_size();
  if (topology.has_batch_size_per_device()) {
    return topology.batch_size_per_device() * CountDevices(topology.topology());
  }
  return GlobalBatchSizeOf(request);
}

// The request of the row; with groups, that of one of them.
v1::ShardPlanRequest RequestFor(const AskedRow& asked, v1::ShardPlanRequest request) {
  const std::int64_t batch = GlobalBatchSize(*asked.topology, request);
  const std::int64_t replicas = Replicas(asked);
  SetGlobalBatchSize((batch + replicas - 1) / replicas, request);
  *request.mutable_topology() = asked.topology->topology();
  if (asked.groups) {
    // Only what cutting changes is set: what the request leaves open stays open.
    const v1::Topology cut = EncodeTopology(asked.groups->of_one);
    *request.mutable_topology()->mutable_hosts() = cut.hosts();
    request.mutable_topology()->clear_pod_size();
    if (cut.has_pod_size()) request.mutable_topology()->set_pod_size(cut.pod_size());
  }
  if (asked.topology->has_cost_model()) {
    *request.mutable_cost_model() = asked.topology->cost_model();
  }
  // Models of devices that other topologies have. What is no device is for the planner to refuse.
  const auto has = [&](const PublishedDevice* device) {
    const auto& hosts = request.topology().hosts();
    return std::ranges::any_of(
        hosts, [&](const v1::HostGroup& host) { return FindDevice(host.device()) == device; });
  };
  auto& models = *request.mutable_device_cost_models();
  models.erase(std::remove_if(models.begin(), models.end(),
                              [&](const v1::DeviceCostModel& of) {
                                const PublishedDevice* device = FindDevice(of.device());
                                return device != nullptr && !has(device);
                              }),
               models.end());
  return request;
}

std::string RowName(const AskedRow& asked) {
  if (!asked.groups) return asked.topology->name();
  const bool contiguous = asked.groups->ranks == GroupRanks::kContiguous;
  return fmt::format("{} in {}groups of {}", asked.topology->name(),
                     contiguous ? "contiguous " : "", asked.groups->size);
}

void SetGroups(const AskedRow& asked, v1::TwoDimensionalRow& row) {
  row.set_sharding_group_size(asked.groups->size);
  row.set_use_inter_host_allreduce(asked.groups->ranks == GroupRanks::kContiguous);
  row.set_node_group_size(asked.groups->of_one.ranks_per_host());
  row.set_replicas(Replicas(asked));
  const v1::TwoDimensional& stated = asked.topology->two_dimensional();
  row.set_sync_interval_batches(stated.has_sync_interval_batches() ? stated.sync_interval_batches()
                                                                   : 1);
}

// What DMPCollection of TorchRec 1.9.2 does otherwise than the row's price says.
void AddTorchRecWarnings(const PlanRequest& request, const Plan& plan, v1::WhatIfRow& row) {
  std::set<Optimizer> optimizers;
  for (const Table& table : request.tables) optimizers.insert(request.optimizer_of(table));
  for (const Optimizer optimizer : optimizers) {
    if (optimizer == Optimizer::kSgd || optimizer == Optimizer::kAdagrad ||
        optimizer == Optimizer::kRowwiseAdagrad) {
      continue;
    }
    row.add_warnings(
        fmt::format("DMPCollection of TorchRec 1.9.2 averages the state of sgd, adagrad and "
                    "rowwise_adagrad; with {} it fails when it is made",
                    ToText(optimizer)));
  }
  if (std::ranges::any_of(plan.tables, [](const TablePlan& table) {
        return table.sharding_type == ShardingType::kDataParallel;
      })) {
    row.add_warnings(
        "DMPCollection reduces gradients of data_parallel tables over the ranks of all groups; "
        "they are priced over those of one");
  }
}

Status PriceSync(const AskedRow& asked, const v1::ShardPlanRequest& message,
                 const v1::Plan& message_plan, v1::WhatIfRow& row) {
  v1::TwoDimensionalRow& groups = *row.mutable_two_dimensional();
  if (groups.replicas() == 1) return absl::OkStatus();
  NS_ASSIGN_OR_RETURN(const PlanRequest request, DecodePlanRequest(message, RequestLimits()));
  NS_ASSIGN_OR_RETURN(const Plan plan, DecodePlan(message_plan));
  const SyncBytes bytes = SyncBytesOf(request, plan);
  groups.set_sync_bytes(bytes.total);
  Violations none;
  groups.set_sync_ms(SyncMs(DecodeTopology(asked.topology->topology(), none), asked.groups->size,
                            asked.groups->ranks, bytes));
  AddTorchRecWarnings(request, plan, row);
  return absl::OkStatus();
}

double SyncMsABatch(const v1::WhatIfRow& row) {
  if (!row.has_two_dimensional()) return 0;
  return row.two_dimensional().sync_ms() / row.two_dimensional().sync_interval_batches();
}

// TorchRec's planner has one rate for all bytes of an exchange (server/cost/analytic,
// CommBandwidth).
void AddHostsWarning(const v1::Topology& topology, v1::WhatIfRow& row) {
  std::int64_t hosts = 0;
  for (const v1::HostGroup& group : topology.hosts()) {
    hosts += group.has_count() ? group.count() : 1;
  }
  const std::int64_t pod_size = topology.has_pod_size() ? topology.pod_size() : 1;
  if (hosts <= pod_size || row.cost_model().name() != "analytic") return;
  row.add_warnings(
      "on more than one host, TorchRec's formulas send all that ranks exchange with all others at "
      "the rate between hosts, also what stays on a host: a second host may look useless here and "
      "help a trainer");
}

// two_dimensional.sync_ms is set.
void TakeAnswer(v1::ShardPlanResponse answer, const v1::WhatIfTopology& topology,
                v1::WhatIfRow& row) {
  row.set_embedding_cost_ms(answer.cost().embedding_cost_ms());
  const double cost_ms = row.embedding_cost_ms() + SyncMsABatch(row);
  if (cost_ms > 0) {
    row.set_samples_per_second(1e3 * static_cast<double>(row.global_batch_size()) / cost_ms);
  }
  const auto& ranks = answer.cost().ranks();
  const auto fullest = std::ranges::max_element(ranks, [](const auto& a, const auto& b) {
    return UsedShare(a.memory()) < UsedShare(b.memory());
  });
  if (fullest != ranks.end()) {
    row.set_fullest_rank(fullest->rank());
    *row.mutable_fullest_memory() = fullest->memory();
  }
  if (answer.has_lower_bound())
    *row.mutable_lower_bound() = std::move(*answer.mutable_lower_bound());
  *row.mutable_price_basis() = std::move(*answer.mutable_price_basis());
  *row.mutable_cost_model() = std::move(*answer.mutable_cost_model());
  row.mutable_warnings()->MergeFrom(answer.warnings());
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

// As fast and as cheap as `row`, and better in one of the two.
bool Beats(const v1::WhatIfRow& other, const v1::WhatIfRow& row) {
  const double speed = other.samples_per_second() - row.samples_per_second();
  const double saved = row.price_per_million_samples() - other.price_per_million_samples();
  return speed >= 0 && saved >= 0 && (speed > 0 || saved > 0);
}

// The first of the rows of each topology with groups that has the most samples a second; it gets
// its plan.
void MarkFastest(const std::vector<AskedRow>& asked, const std::vector<PlannedTopology>& planned,
                 std::vector<v1::WhatIfRow>& rows) {
  std::map<const v1::WhatIfTopology*, std::size_t> fastest;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!asked[i].groups || !rows[i].failure().empty()) continue;
    std::size_t& best = fastest.try_emplace(asked[i].topology, i).first->second;
    if (rows[i].samples_per_second() > rows[best].samples_per_second()) best = i;
  }
  for (const auto& [topology, i] : fastest) {
    rows[i].mutable_two_dimensional()->set_fastest(true);
    *rows[i].mutable_two_dimensional()->mutable_plan() = planned[i].plan;
  }
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
  return detail == Detail::kShort ? fmt::format("{:.0f}%", 100 * UsedShare(memory))
                                  : fmt::format("{} of {}", FormatBytes(memory.total_bytes()),
                                                FormatBytes(memory.capacity_bytes()));
}

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
  const std::vector<AskedRow> asked_rows = AskedRows(what_if);
  const std::size_t count = asked_rows.size();
  std::vector<v1::WhatIfRow> rows(count);
  std::vector<Status> failures(count);
  std::vector<PlannedTopology> planned(count);
  RunSideBySide(count, [&](std::size_t i) {
    const AskedRow& asked = asked_rows[i];
    const v1::WhatIfTopology& topology = *asked.topology;
    v1::WhatIfRow& row = rows[i];
    row.set_name(RowName(asked));
    row.set_devices(static_cast<std::int32_t>(CountDevices(topology.topology())));
    for (const v1::HostGroup& group : topology.topology().hosts()) {
      row.set_hosts(row.hosts() + (group.has_count() ? group.count() : 1));
    }
    row.set_global_batch_size(GlobalBatchSize(topology, request));
    if (asked.groups && !asked.groups->fault.ok()) {
      failures[i] = asked.groups->fault;
      row.set_failure(Message(failures[i]));
      return;
    }
    const v1::ShardPlanRequest message = RequestFor(asked, request);
    if (asked.groups) {
      SetGroups(asked, *row.mutable_two_dimensional());
      if (row.global_batch_size() % Replicas(asked) != 0) {
        row.add_warnings(fmt::format(
            "the batch of {} does not divide into {} groups: plans are for the larger share",
            row.global_batch_size(), Replicas(asked)));
      }
    }
    auto answer = planner.ShardPlan(message);
    failures[i] = answer.status();
    if (answer.ok() && asked.groups) failures[i] = PriceSync(asked, message, answer->plan(), row);
    if (failures[i].ok()) {
      planned[i] = {message, answer->plan()};
      TakeAnswer(*std::move(answer), topology, row);
      AddHostsWarning(message.topology(), row);
    } else {
      row.set_failure(Reason(failures[i]));
    }
  });
  for (const Status& failure : failures) {
    if (absl::IsUnavailable(failure)) return failure;
  }
  const bool alike = std::ranges::all_of(failures, [&](const Status& failure) {
    return !failure.ok() && Message(failure) == Message(failures.front());
  });
  if (alike) return failures.front();
  MarkFastest(asked_rows, planned, rows);
  v1::WhatIfAnswer answer;
  for (v1::WhatIfRow& row : rows) *answer.add_rows() = std::move(row);
  MarkPareto(answer);
  if (what_if.one_plan()) NS_RETURN_IF_ERROR(AddOnePlan(planner, planned, answer));
  return answer;
}

void MarkPareto(v1::WhatIfAnswer& answer) {
  for (v1::WhatIfRow& row : *answer.mutable_rows()) {
    if (!row.has_price_per_million_samples()) continue;
    row.set_pareto(std::ranges::none_of(answer.rows(), [&](const v1::WhatIfRow& other) {
      return other.has_price_per_million_samples() && Beats(other, row);
    }));
  }
}

std::string WhatIfAsTable(const v1::WhatIfAnswer& answer, const TextStyle& style) {
  using Row = v1::WhatIfRow;
  const auto& rows = answer.rows();
  const auto any = [&](bool (Row::*has)() const) {
    return std::ranges::any_of(rows, [&](const Row& row) { return (row.*has)(); });
  };
  const bool prices = any(&Row::has_price_per_million_samples);
  const bool groups = any(&Row::has_two_dimensional);
  // "-" where there is no plan.
  const auto planned = [](const auto& cell) {
    return [cell](const Row& row) { return row.failure().empty() ? Cell(cell(row)) : "-"; };
  };
  const auto synced = [&](const auto& cell) {
    return planned([cell](const Row& row) {
      return row.two_dimensional().replicas() > 1 ? Cell(cell(row)) : "-";
    });
  };
  TableOf<Row> table;
  table.Left("topology", &Row::name)
      .Right("devices", &Row::devices)
      .Right("batch", &Row::global_batch_size, style.wide())
      .Right("cost_ms", planned([](const Row& row) { return row.embedding_cost_ms(); }))
      .Right("one_plan", IfGiven(&Row::has_one_plan_cost_ms, &Row::one_plan_cost_ms),
             answer.has_one_plan())
      .Right("sync",
             synced([](const Row& row) { return FormatBytes(row.two_dimensional().sync_bytes()); }),
             groups && style.wide())
      .Right("sync_ms", synced(SyncMsABatch), groups)
      .Right("samples/s",
             planned([](const Row& row) { return SamplesText(row.samples_per_second()); }))
      .Right("max_memory", planned([&](const Row& row) {
               return MemoryText(row.fullest_memory(), style.detail);
             }))
      .Right("over_bound", planned(GapText))
      .Left("basis",
            [](const Row& row) {
              return row.failure().empty() ? row.price_basis().kind() : "no plan";
            })
      .Right(
          "price/M_samples",
          [](const Row& row) {
            return row.has_price_per_million_samples()
                       ? fmt::format("{:.4g}", row.price_per_million_samples())
                       : "-";
          },
          prices)
      .Left(
          "", [](const Row& row) { return row.pareto() ? "*" : ""; }, prices)
      .Marked([](const Row& row) {
        return row.pareto() ? TextTable::Mark::kBold : TextTable::Mark::kNone;
      });
  TableNotes notes;
  for (const Row& row : rows) notes.Add(row.name(), row.failure());
  for (const v1::WhatIfRow& row : rows)
    if (row.two_dimensional().fastest()) notes.Add(row.name(), "fastest groups of this topology");
  for (const v1::WhatIfRow& row : rows) notes.Add(row.name(), row.price_basis().text());
  for (const v1::WhatIfRow& row : rows) {
    for (const std::string& warning : row.warnings()) notes.Add(row.name(), "warning: " + warning);
  }
  std::string text = table.ToString(rows, style);
  text += Lines(
      "max_memory is that of the fullest rank; over_bound is how far the plan is above the least "
      "that any plan can cost (~: above an even spread, which a plan may be below); basis is what "
      "prices rest on: what one model priced does not compare with what another did, --model "
      "analytic prices all alike\n",
      style);
  if (prices) {
    text += Lines(
        "price/M_samples is what a million samples cost, in the currency of price_per_device_hour; "
        "*: every topology here that is faster costs more a sample, and every one that costs less "
        "is slower\n",
        style);
  }
  if (groups) {
    text += Lines(
        "sync_ms is what averaging weights and optimizer state over groups adds to each batch: "
        "rings at the links' published or stated rates, not measured\n",
        style);
  }
  if (answer.has_one_plan()) {
    const v1::OnePlan& one = answer.one_plan();
    text += Lines(one.failure().empty()
                      ? fmt::format("one_plan is what the plan made for {} costs, which is at most "
                                    "{:.3f} times what each topology's own costs: the one to take "
                                    "where any of them may run the job (--format json has it)\n",
                                    one.made_for(), one.worst_ratio())
                      : fmt::format("there is no one plan for all: {}\n", one.failure()),
                  style);
  }
  return text +
         Lines("samples/s are those of the embeddings alone, without dense layers\n", style) +
         notes.ToString(style);
}

}  // namespace neuroshard
