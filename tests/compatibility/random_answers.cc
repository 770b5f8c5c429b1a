// Answers of the planner to random requests, a line each, so that two states of the code can be
// compared byte for byte: the plan or the refusal, an evaluation of a plan, and the resharding.
//
//   random_answers --seed 1 --count 1000 > before.txt      (digests; --full prints the answers)
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/hash.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/domain/resharding.h"
#include "server/cost/analytic/analytic_cost_model.h"
#include "server/planner/planner.h"
#include "server/search/run_search.h"
#include "server/service/planner_messages.h"
#include "tests/support/concave_cost_model.h"
#include "tests/support/fake_clock.h"
#include "tests/support/random_constraints.h"
#include "tests/support/random_migration.h"
#include "tests/support/random_plan.h"
#include "tests/support/random_plan_request.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::AddRandomConstraints;
using ::neuroshard::testing::AddRandomMigration;
using ::neuroshard::testing::ConcaveCostModel;
using ::neuroshard::testing::FakeClock;
using ::neuroshard::testing::RandomPlan;
using ::neuroshard::testing::RandomPlanRequest;
using ::neuroshard::testing::RandomSubset;

// Memories of hosts that have a part of the weights, and rules that let some tables be there.
void AddRandomHostMemory(Random& random, PlanRequest& request) {
  double bytes = 0;
  for (const Table& table : request.tables) {
    bytes += 4.0 * static_cast<double>(table.num_embeddings * table.embedding_dim);
  }
  const std::size_t hosts = request.topology.hosts().size();
  const auto part = [&] {
    return static_cast<std::int64_t>((0.1 + 1.5 * random.UniformReal()) * bytes /
                                     static_cast<double>(hosts));
  };
  const bool has_ssd = random.Below(2) == 0;
  if (!has_ssd || random.Below(4) > 0) {
    for (std::size_t h = 0; h < hosts; ++h) request.topology.host_memory_bytes.push_back(part());
  }
  if (has_ssd) {
    for (std::size_t h = 0; h < hosts; ++h) request.topology.ssd_bytes.push_back(part());
    request.topology.bandwidths.ssd_bytes_per_s =
        0.05 * request.topology.bandwidths.host_to_device_bytes_per_s;
  }
  for (Device& device : request.topology.devices) {
    device.memory_bytes = device.memory_bytes / random.Between(1, 4) + 1;
    if (random.Below(4) == 0) device.max_host_memory_bytes = part();
    if (random.Below(4) == 0) device.max_ssd_bytes = part();
  }
  if (has_ssd || random.Below(3) == 0) {
    TableRule rule;
    rule.tables = RandomSubset(random, static_cast<int>(request.tables.size()), 1);
    rule.compute_kernels = {ComputeKernel::kFused, ComputeKernel::kFusedUvm,
                            ComputeKernel::kFusedUvmCaching};
    // Other types of weights are refused when a request is read.
    const bool may_be_on_ssd = std::all_of(rule.tables.begin(), rule.tables.end(), [&](int table) {
      return CanBeOnSsd(request.tables[static_cast<std::size_t>(table)].weight_dtype);
    });
    if (has_ssd && may_be_on_ssd) rule.compute_kernels.push_back(ComputeKernel::kKeyValue);
    if (random.Below(3) == 0) rule.cache_load_factor = 0.1 + 0.8 * random.UniformReal();
    request.constraints.tables.push_back(std::move(rule));
  }
}

void AddRandomBatches(Random& random, PlanRequest& request) {
  const std::int64_t batches = random.Between(2, 5);
  for (Table& table : request.tables) {
    for (std::int64_t b = 0; b < batches; ++b) {
      table.batch_pooling_factors.push_back(table.pooling_factor * 2 * random.UniformReal());
    }
  }
  request.search.objective = PlanObjective::kMeanOfMax;
}

// Two of three are of `refine`, which alone obeys demands; the others take turns.
PlanRequest RandomRequest(Random& random, std::uint64_t number) {
  PlanRequest request = RandomPlanRequest(random, {.max_tables = number % 7 == 0 ? 24 : 8,
                                                   .max_ranks = number % 5 == 0 ? 12 : 6,
                                                   .min_slack = 0.8,
                                                   .max_slack = 4,
                                                   .ranks_per_host = {1, 2, 3},
                                                   .torchrec_memory = true});
  request.request_id = fmt::format("random {}", number);
  request.search.max_length = 2;
  request.search.refine_steps = 25;
  if (random.Below(8) == 0) request.search.refine_steps.reset();
  request.search.max_threads = 1 + static_cast<int>(random.Below(2));
  if (random.Below(3) == 0) {
    for (Device& device : request.topology.devices) {
      device.compute_speed = static_cast<double>(random.Between(1, 3));
    }
  }
  if (number % 3 == 2) {
    request.search.strategy = kStrategyNames[random.Below(kStrategyNames.size())];
    if (random.Below(8) == 0) AddRandomHostMemory(random, request);
    return request;
  }
  if (random.Below(8) == 0) {
    for (Table& table : request.tables) {
      if (random.Below(2) == 0) table.kind = TableKind::kEmbedding;
    }
  }
  if (random.Below(8) == 0) {
    for (std::size_t t = 0; t < request.tables.size(); t += 2) {
      request.tables[t].extra_bytes_per_row = 24;
      request.tables[t].allocated_rows = request.tables[t].num_embeddings * 5 / 4;
    }
  }
  if (random.Below(5) > 1) AddRandomConstraints(random, request, 4 + random.Below(12));
  if (random.Below(3) == 0) AddRandomHostMemory(random, request);
  if (random.Below(3) == 0) AddRandomMigration(random, request);
  if (random.Below(6) == 0) AddRandomBatches(random, request);
  request.search.explain = random.Below(4) == 0;
  return request;
}

std::string Text(const TableShard& shard) {
  return fmt::format("{}[{}+{},{}+{}]@{}", shard.table, shard.shard.row_offset, shard.shard.rows,
                     shard.shard.col_offset, shard.shard.cols, shard.shard.rank);
}

std::string Text(const std::vector<TableShard>& shards) {
  std::string text;
  for (const TableShard& shard : shards) text += " " + Text(shard);
  return text;
}

std::string Text(const Resharding& resharding) {
  std::string text =
      fmt::format("resharding: {}, buffer {}\nfreed first:{}\n", ToText(resharding.order),
                  resharding.buffer_bytes, Text(resharding.freed_first));
  for (const ReshardingStep& step : resharding.steps) {
    text += "step: to buffer" + Text(step.to_buffer) + ", made";
    for (const MadeShard& made : step.made) {
      text += " " + Text(made.made) + " of";
      for (const MovedPart& part : made.parts) {
        text += fmt::format(" {} from {} {} {} {}+{}", Text(TableShard{made.made.table, part.part}),
                            part.from_rank, ToText(part.link), static_cast<int>(part.from_memory),
                            part.weights_bytes, part.optimizer_bytes);
      }
    }
    text += ", freed" + Text(step.freed) + "\n";
  }
  for (const Waiting& wait : resharding.cycle) {
    text += fmt::format("rank {} wants {} for {}\n", wait.rank, Text(wait.wants), Text(wait.holds));
  }
  for (const std::int64_t bytes : resharding.peak_bytes) text += fmt::format("peak {}\n", bytes);
  for (const SharedMemoryPeak& peak : resharding.shared) {
    text += fmt::format("shared peak {} of {}\n", peak.peak_bytes, peak.capacity_bytes);
  }
  return text;
}

// Payloads have no order of their own.
std::string Text(const Status& status) {
  std::set<std::string> payloads;
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    payloads.insert(fmt::format("{} {}", std::string(type), std::string(payload)));
  });
  return fmt::format("{}: {}\n{}\n", absl::StatusCodeToString(status.code()),
                     std::string(status.message()), fmt::join(payloads, "\n"));
}

template <typename Answer, typename Encode>
std::string Text(const StatusOr<Answer>& answer, const Encode& encode) {
  if (!answer.ok()) return Text(answer.status());
  if constexpr (requires { encode(*answer).DebugString(); }) {
    return encode(*answer).DebugString();
  } else {
    return encode(*answer);
  }
}

std::string AnswerTo(const PlanRequest& request, const Plan& other,
                     std::shared_ptr<const CostModel> model) {
  const FakeClock clock;
  const Planner planner([&](const PlanRequest&) { return std::vector{model}; }, RunSearch, clock);
  const auto evaluated = [&](const PlanAnswer& a) { return EncodeEvaluation(request, a); };
  const StatusOr<PlanAnswer> made = planner.MakePlan(request, NeverStop(), nullptr);
  std::string text = Text(made, [&](const PlanAnswer& answer) {
    return EncodePlanAnswer(request, answer, FingerprintOf(request, answer));
  });
  text += "other plan: " + Text(planner.EvaluatePlan(request, other), evaluated);
  if (!made.ok()) return text;
  text += "this plan: " + Text(planner.EvaluatePlan(request, made->plan), evaluated);
  if (request.migration) {
    text += Text(Reshard(request, made->plan), [](const Resharding& r) { return Text(r); });
  }
  return text;
}

int Run(std::uint64_t seed, std::uint64_t first, std::uint64_t count, bool full) {
  for (std::uint64_t i = first; i < first + count; ++i) {
    Random random(MixBits(seed) + i * kGoldenGamma);
    const PlanRequest request = RandomRequest(random, i);
    const Plan other = RandomPlan(random, request);
    const std::shared_ptr<const CostModel> model =
        random.Below(3) == 0 ? MakeAnalyticCostModel()
                             : std::make_shared<const ConcaveCostModel>(random.Below(7));
    const std::string answer = AnswerTo(request, other, model);
    const std::string_view kind = answer.starts_with("plan {") ? "plan" : "refused";
    std::cout << i << " " << request.search.strategy << " " << kind << " ";
    if (full) {
      std::cout << "\n" << answer;
    } else {
      std::cout << fmt::format("{:016x}\n", Fnv1a(answer));
    }
  }
  return std::cout.flush() ? 0 : 1;
}

}  // namespace
}  // namespace neuroshard

int main(int argc, char** argv) {
  std::uint64_t seed = 1, first = 0, count = 1000;
  bool full = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    std::uint64_t* const number = name == "--seed"    ? &seed
                                  : name == "--first" ? &first
                                  : name == "--count" ? &count
                                                      : nullptr;
    if (name == "--full") {
      full = true;
    } else if (number != nullptr && i + 1 < argc) {
      *number = std::strtoull(argv[++i], nullptr, 10);
    } else {
      std::cerr << "usage: random_answers [--seed S] [--first I] [--count N] [--full]\n";
      return 2;
    }
  }
  return neuroshard::Run(seed, first, count, full);
}
