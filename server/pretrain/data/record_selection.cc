#include "server/pretrain/data/record_selection.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <span>
#include <utility>

#include "common/domain/backend_names.h"
#include "common/domain/rank_networks.h"
#include "server/pretrain/data/measured_problem.h"

namespace neuroshard {
namespace {

constexpr std::size_t kNamedSamples = 5;

// A condition's values over what one record touches: "fp32", or "fp16+fp32" within one sample.
std::string Joined(const std::set<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : "+") + value;
  return text.empty() ? "not stated" : text;
}

using Conditions = std::map<std::string, std::string>;

Conditions JoinedConditionsOf(const auto& record) {
  Conditions joined;
  for (const auto& [condition, values] : RecordConditionsOf(record))
    joined[condition] = Joined(values);
  return joined;
}

Conditions Wanted(const RecordFilter& filter) {
  Conditions wanted = filter.Chosen();
  wanted.erase("network");  // PassesNetwork
  if (filter.device) wanted["device"] = Joined({*filter.device});
  return wanted;
}

// Conditions that a record does not have (an optimizer of a collective) do not count.
bool Passes(const Conditions& conditions, const Conditions& wanted) {
  for (const auto& [condition, value] : wanted) {
    const auto found = conditions.find(condition);
    if (found != conditions.end() && found->second != value) return false;
  }
  return true;
}

class Census {
 public:
  void Add(const Conditions& conditions) {
    for (const auto& [condition, value] : conditions) ++counts_[condition][value];
  }

  // "batch_size: 512 (300 records), 2048 (20 records); ..." of the conditions with at least `least`
  // values; empty when there is none.
  std::string Describe(std::size_t least) const {
    std::string text;
    for (const auto& [condition, values] : counts_) {
      if (values.size() < least) continue;
      text += (text.empty() ? "" : "; ") + condition + ": ";
      std::string list;
      for (const auto& [value, count] : values) {
        list += fmt::format("{}{} ({} records)", list.empty() ? "" : ", ", value, count);
      }
      text += list;
    }
    return text;
  }

  // The one value, or "" when it is not stated.
  std::string Only(const std::string& condition) const {
    const auto found = counts_.find(condition);
    if (found == counts_.end() || found->second.begin()->first == "not stated") return "";
    return found->second.begin()->first;
  }

 private:
  std::map<std::string, std::map<std::string, std::int64_t>> counts_;
};

// Those that a model must have one value of.
Conditions MustAgree(Conditions conditions, ConditionSupport support) {
  conditions.erase("network");  // WarnOfNetworks
  if (support == ConditionSupport::kAny) {
    std::erase_if(conditions, [](const auto& condition) {
      return condition.first != "device" && !condition.first.ends_with("backend");
    });
  }
  return conditions;
}

bool RanOver(const MeasurementEnvironment& environment, const std::string& network) {
  for (const auto property : {kInterfaceProperty, kAddressProperty, kNetworkProperty}) {
    const auto found = environment.properties.find(std::string(property));
    if (found != environment.properties.end() && found->second == network) return true;
  }
  return false;
}

bool PassesNetwork(const ComputeRecord& /*record*/, const RecordFilter& /*filter*/) { return true; }

// Collectives that do not say over what they ran do not pass.
bool PassesNetwork(const CommRecord& record, const RecordFilter& filter) {
  if (!filter.network) return true;
  return !record.environments.empty() &&
         std::ranges::all_of(record.environments,
                             [&](const auto& rank) { return RanOver(rank, *filter.network); });
}

// What collectives of one network cost.
struct NetworkFigures {
  std::vector<double> cost_ms;  // of the slowest rank
  std::vector<double> gb_per_s;

  void Add(const CommRecord& record) {
    const CommSample& sample = record.sample;
    cost_ms.push_back(*std::ranges::max_element(record.cost_ms));
    const std::int64_t columns = *std::ranges::max_element(sample.dim_sums);
    const double bytes = static_cast<double>(columns) *
                         static_cast<double>(sample.batch_size * sample.element_bytes);
    // A distribution of ids has no columns.
    if (cost_ms.back() > 0 && bytes > 0) gb_per_s.push_back(bytes / cost_ms.back() / 1e6);
  }

  std::string Text() const {
    return fmt::format("{} samples, median {:.3g} ms at {:.3g} GB/s of the largest rank",
                       cost_ms.size(), UpperMedian(cost_ms), UpperMedian(gb_per_s));
  }
};

// Collectives within one host do not use what those between hosts do, so the two are compared among
// themselves.
void WarnOfNetworks(const std::vector<CommRecord>& comm, std::vector<std::string>& warnings) {
  std::map<std::string, std::int64_t> different_ranks;
  for (const bool one_host : {true, false}) {
    const auto counts = [&](const CommRecord& record) {
      return !record.environments.empty() && (HostsOf(record).size() == 1) == one_host;
    };
    std::set<RankNetwork> networks;
    for (const CommRecord& record : comm) {
      if (!counts(record)) continue;
      for (const auto& rank : record.environments) networks.insert(NetworkOf(rank));
    }
    const auto groups = GroupNetworks(networks);
    if (groups.size() < 2) continue;
    std::map<std::string, NetworkFigures> figures;
    for (const CommRecord& record : comm) {
      if (!counts(record)) continue;
      std::set<std::string> used;
      for (const std::set<RankNetwork>& group : groups) {
        for (const auto& rank : record.environments) {
          if (group.contains(NetworkOf(rank))) used.insert(group.begin()->ToText());
        }
      }
      if (used.empty()) continue;
      if (used.size() > 1) ++different_ranks[DifferentNetworks(record.environments)];
      figures[fmt::format("{}", fmt::join(used, " and "))].Add(record);
    }
    if (figures.size() < 2) continue;
    std::vector<std::string> parts;
    for (const auto& [network, of] : figures) {
      parts.push_back(fmt::format("{} ({})", network, of.Text()));
    }
    warnings.push_back(
        fmt::format("Collectives {} ran over different networks, which the model cannot tell "
                    "apart: {}. `records: {{network: ...}}` in the config chooses one by its "
                    "interface, address or network.",
                    one_host ? "within one host" : "between hosts", fmt::join(parts, "; ")));
  }
  for (const auto& [different, samples] : different_ranks) {
    warnings.push_back(fmt::format("In {} samples {}.", samples, different));
  }
}

void WarnOfOtherCadences(const RecordFilter& filter, const std::vector<CommRecord>& comm,
                         std::vector<std::string>& warnings) {
  const std::int64_t others = std::ranges::count_if(
      comm, [&](const CommRecord& record) { return record.sample.cadence != filter.cadence; });
  if (others == 0) return;
  const Cadence other =
      filter.cadence == Cadence::kBarrier ? Cadence::kBackToBack : Cadence::kBarrier;
  warnings.push_back(
      fmt::format("{} communication samples were measured with cadence {} and are left out; "
                  "`records: {{cadence: {}}}` in the config trains on them instead.",
                  others, ToText(other), ToText(other)));
}

bool IsCost(double ms) { return std::isfinite(ms) && ms >= 0; }

bool HasGoodCosts(const ComputeRecord& record) {
  const bool split = !std::isnan(record.forward_ms) || !std::isnan(record.backward_ms);
  return IsCost(record.total_ms) &&
         (!split || (IsCost(record.forward_ms) && IsCost(record.backward_ms)));
}

bool HasGoodCosts(const CommRecord& record) {
  return std::ranges::all_of(record.cost_ms, IsCost) &&
         record.cost_ms.size() == record.sample.dim_sums.size();
}

template <typename Record>
std::vector<Record> Keep(std::vector<Record> records, const RecordFilter& filter,
                         ConditionSupport support, Census& before, Census& after,
                         std::vector<std::string>& bad) {
  const Conditions wanted = Wanted(filter);
  std::vector<Record> kept;
  for (Record& record : records) {
    const Conditions conditions = JoinedConditionsOf(record);
    before.Add(conditions);
    if (!Passes(conditions, wanted) || !PassesNetwork(record, filter)) continue;
    after.Add(MustAgree(conditions, support));
    if (!HasGoodCosts(record)) bad.push_back(record.sample.sample_id);
    kept.push_back(std::move(record));
  }
  return kept;
}

}  // namespace

RecordConditions RecordConditionsOf(const ComputeRecord& record) {
  const ComputeSample& sample = record.sample;
  RecordConditions conditions = {{"batch_size", {std::to_string(sample.batch_size)}},
                                 {"optimizer", {std::string(ToText(sample.optimizer))}},
                                 {"weight_dtype", {}},
                                 {"pooling_mode", {}},
                                 {"compute_kernel", {}},
                                 {"weighted", {}},
                                 {"device", {record.environment.device}},
                                 {"compute backend", {record.environment.backend}}};
  for (const MeasuredShard& shard : sample.shards) {
    conditions["weight_dtype"].emplace(ToText(shard.weight_dtype));
    conditions["pooling_mode"].emplace(ToText(shard.pooling_mode));
    conditions["compute_kernel"].emplace(ToText(shard.compute_kernel));
    conditions["weighted"].emplace(shard.weighted ? "true" : "false");
  }
  return conditions;
}

RecordConditions RecordConditionsOf(const CommRecord& record) {
  RecordConditions conditions = {{"batch_size", {std::to_string(record.sample.batch_size)}},
                                 {"element_bytes", {std::to_string(record.sample.element_bytes)}},
                                 {"cadence", {std::string(ToText(record.sample.cadence))}},
                                 {"device", {}},
                                 {"collective backend", {}},
                                 {"network", {}}};
  for (const MeasurementEnvironment& environment : record.environments) {
    conditions["device"].insert(environment.device);
    conditions["collective backend"].insert(CollectiveBackendOf(environment));
    const RankNetwork network = NetworkOf(environment);
    if (network.stated()) conditions["network"].insert(network.ToText());
  }
  return conditions;
}

StatusOr<SelectedRecords> SelectRecords(std::vector<ComputeRecord> compute,
                                        std::vector<CommRecord> comm, const RecordFilter& filter,
                                        ConditionSupport support) {
  const std::size_t all = compute.size() + comm.size();
  if (support == ConditionSupport::kOne) {
    std::erase_if(comm, [](const CommRecord& record) {
      return record.sample.input_dist || record.sample.casts();
    });
  }
  if (all == 0) return FailedPrecondition("the store has no usable measurement");
  SelectedRecords selected;
  WarnOfOtherCadences(filter, comm, selected.warnings);
  Census before;
  Census after;
  std::vector<std::string> bad;
  selected.compute = Keep(std::move(compute), filter, support, before, after, bad);
  selected.comm = Keep(std::move(comm), filter, support, before, after, bad);
  selected.filtered_out =
      static_cast<std::int64_t>(all - selected.compute.size() - selected.comm.size());
  if (selected.compute.empty() && selected.comm.empty()) {
    return FailedPrecondition("none of the store's {} records passes the filter; it has {}", all,
                              before.Describe(1));
  }
  if (!bad.empty()) {
    const auto named = std::span(bad).first(std::min(kNamedSamples, bad.size()));
    return FailedPrecondition(
        "{} records have a cost that is negative, not finite or missing for a rank: {}{}",
        bad.size(), fmt::join(named, ", "), bad.size() > kNamedSamples ? ", ..." : "");
  }
  if (const std::string mixed = after.Describe(2); !mixed.empty()) {
    return FailedPrecondition(
        "the store mixes measurements that one model cannot tell apart: {}. Choose one value of "
        "each under `records:` in the config (batch_size, weight_dtype, optimizer, pooling_mode, "
        "compute_kernel, weighted, device), or with --batch-size",
        mixed);
  }
  if (const std::string kernel = after.Only("compute_kernel");
      support == ConditionSupport::kOne && !kernel.empty() &&
      kernel != ToText(ComputeKernel::kFused)) {
    return FailedPrecondition(
        "the records are of tables looked up by {}, and these networks price lookups in the "
        "device's memory (compute_kernel fused); the preset universal learns of both",
        kernel);
  }
  WarnOfNetworks(selected.comm, selected.warnings);
  const auto distributions =
      std::stable_partition(selected.comm.begin(), selected.comm.end(),
                            [](const CommRecord& record) { return !record.sample.input_dist; });
  selected.input_dist.assign(std::make_move_iterator(distributions),
                             std::make_move_iterator(selected.comm.end()));
  selected.comm.erase(distributions, selected.comm.end());
  const std::string batch_size = after.Only("batch_size");
  selected.conditions = {
      {after.Only("device"), after.Only("compute backend"), after.Only("collective backend"),
       selected.comm.empty() ? "" : std::string(ToText(filter.cadence))},
      batch_size.empty() ? 0 : std::stoll(batch_size),
      after.Only("weight_dtype"),
      after.Only("optimizer")};
  return selected;
}

}  // namespace neuroshard
