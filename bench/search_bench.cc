// The search, from its innermost call to whole tasks, on one thread.
//
// BM_HeadEvaluations/rows: the fused compute cost of `rows` rank contents in one call. of_gemm: its
// rate beside that of the matrix products alone by the installed BLAS (the same shapes in floats,
// measured just before).
// BM_GreedyPass/devices: the inner search, 11 dim caps, on the uncut tables of each task.
// BM_Search/strategy/devices: whole searches; `refine` with quick effort. With
// _universal the model is the shipped universal one, else all has networks as in the paper. The
// last two run NeuroShard's 100 tasks of max dim 128 and count memory requests by search step: what
// falls between two levels of the beam is part of a step, too.
#include <benchmark/benchmark.h>
#include <cblas.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/allocation_count.h"
#include "bench/benchmark_tasks.h"
#include "common/base/random.h"
#include "server/cost/pricing_conditions.h"
#include "server/networks/model_manifest.h"
#include "server/search/core/shard_table.h"
#include "server/search/neuroshard/greedy_grid.h"
#include "server/search/run_search.h"

namespace neuroshard {
namespace {

template <typename T>
T ValueOrExit(StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "%s\n", Message(value.status()).c_str());
  std::exit(1);
}

const std::shared_ptr<const CostModel>& Model(ShippedModel which) {
  static const auto paper = ValueOrExit(LoadModel(ShippedModelDirectory(ShippedModel::kPaper)));
  static const auto universal =
      ValueOrExit(LoadModel(ShippedModelDirectory(ShippedModel::kUniversal)));
  return which == ShippedModel::kPaper ? paper : universal;
}
BoundCostModel PaperModel(int num_devices) {
  return ValueOrExit(Model(ShippedModel::kPaper)->Bind({.num_ranks = num_devices}));
}

const std::vector<PlanRequest>& Tasks(int num_devices, ShippedModel model) {
  static std::map<std::pair<int, ShippedModel>, std::vector<PlanRequest>> all;
  auto& tasks = all[{num_devices, model}];
  if (tasks.empty()) tasks = ValueOrExit(BenchmarkTaskRequests(num_devices, 128, *Model(model)));
  return tasks;
}

// What the CPU did for this thread; other processes do not count.
double ThreadSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Counts the memory requests from each poll, that is search step, to the next. Never stops.
class StepWatch final : public StopSignal {
 public:
  bool ShouldStop() const override {
    const std::int64_t now = AllocationsOfThisThread();
    if (last_ >= 0) {
      ++steps_;
      quiet_steps_ += now == last_;
      allocations_ += now - last_;
    }
    last_ = now;
    return false;
  }
  // Between searches: what happens until the next poll belongs to no step.
  void Reset() { last_ = -1; }

  void Report(benchmark::State& state) const {
    if (steps_ == 0) return;
    const double steps = static_cast<double>(steps_);
    state.counters["allocs_per_step"] = static_cast<double>(allocations_) / steps;
    state.counters["steps_without_alloc"] = static_cast<double>(quiet_steps_) / steps;
  }

 private:
  mutable std::int64_t last_ = -1;
  mutable std::int64_t steps_ = 0;
  mutable std::int64_t quiet_steps_ = 0;
  mutable std::int64_t allocations_ = 0;
};

std::vector<float> RandomSums(std::size_t rows) {
  Random random(1);
  std::vector<float> sums(rows * static_cast<std::size_t>(PaperModel(1).representation_width()));
  for (float& value : sums) value = static_cast<float>(10 * random.UniformReal());
  return sums;
}

// Rows a second when the head is nothing but its matrix products.
double GemmRowsPerSecond(int rows) {
  const std::vector<std::int64_t> widths =
      ValueOrExit(ReadModelManifest(ShippedModelDirectory(ShippedModel::kPaper)))
          .compute.head_layers;
  std::vector<std::vector<float>> weights, values;
  for (std::size_t layer = 0; layer < widths.size(); ++layer) {
    values.emplace_back(static_cast<std::size_t>(rows * widths[layer]), 0.5F);
    if (layer > 0) {
      weights.emplace_back(static_cast<std::size_t>(widths[layer - 1] * widths[layer]), 0.25F);
    }
  }
  const auto products = [&] {
    for (std::size_t layer = 0; layer < weights.size(); ++layer) {
      const int in = static_cast<int>(widths[layer]);
      const int out = static_cast<int>(widths[layer + 1]);
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, out, in, 1.0F,
                  values[layer].data(), in, weights[layer].data(), out, 0.0F,
                  values[layer + 1].data(), out);
    }
    benchmark::DoNotOptimize(values.back().data());
  };
  const int calls = 200'000 / rows + 10;
  double best = 0;
  for (int repetition = 0; repetition < 5; ++repetition) {
    const double begin = ThreadSeconds();
    for (int call = 0; call < calls; ++call) products();
    best = std::max(best, static_cast<double>(calls) * rows / (ThreadSeconds() - begin));
  }
  return best;
}

void BM_HeadEvaluations(benchmark::State& state) {
  const std::size_t rows = static_cast<std::size_t>(state.range(0));
  const std::vector<float> sums = RandomSums(rows);
  std::vector<ComputeCost> costs(rows);
  const double limit = GemmRowsPerSecond(static_cast<int>(rows));
  const BoundCostModel model = PaperModel(1);
  model.ComputeCosts(sums, costs);
  const std::int64_t before = AllocationsOfThisThread();
  for (auto _ : state) {
    model.ComputeCosts(sums, costs);
    benchmark::DoNotOptimize(costs.data());
  }
  state.counters["allocs_per_call"] = static_cast<double>(AllocationsOfThisThread() - before) /
                                      static_cast<double>(state.iterations());
  const std::int64_t items = state.iterations() * state.range(0);
  state.SetItemsProcessed(items);
  state.counters["of_gemm"] =
      benchmark::Counter(static_cast<double>(items) / limit, benchmark::Counter::kIsRate);
}
BENCHMARK(BM_HeadEvaluations)->Arg(1)->Arg(4)->Arg(16)->Arg(64)->Arg(256)->Arg(1024);

void BM_GreedyPass(benchmark::State& state) {
  const std::vector<double> caps = DimCapFactors(11);
  const int devices = static_cast<int>(state.range(0));
  const BoundCostModel model = PaperModel(devices);
  StepWatch watch;
  std::int64_t pieces = 0;
  for (auto _ : state) {
    for (const PlanRequest& request : Tasks(devices, ShippedModel::kPaper)) {
      SearchContext context(request, model, watch, nullptr);
      ShardTable shard_table(context);
      GreedyGrid grid(context, shard_table);
      const SplitSequence base = MakeSequence(WholeTables(request), shard_table);
      benchmark::DoNotOptimize(grid.Run({&base, 1}, caps, {}));
      pieces += static_cast<std::int64_t>(base.pieces.size());
    }
  }
  const double passes = static_cast<double>(state.iterations() * 100);
  state.counters["per_pass"] =
      benchmark::Counter(passes, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.SetItemsProcessed(pieces);
}
BENCHMARK(BM_GreedyPass)->Arg(4)->Arg(8)->Unit(benchmark::kMillisecond);

double MeanCostMs(int num_devices, ShippedModel which, const std::string& strategy,
                  StepWatch& watch) {
  double sum_ms = 0;
  const std::vector<PlanRequest>& tasks = Tasks(num_devices, which);
  for (PlanRequest request : tasks) {
    request.search.strategy = strategy;
    request.search.effort = SearchEffort::kQuick;
    const BoundCostModel model = ValueOrExit(Model(which)->Bind(ConditionsOf(request)));
    sum_ms += ValueOrExit(RunSearch(request, model, watch, nullptr)).cost.embedding_cost_ms;
    watch.Reset();
  }
  return sum_ms / static_cast<double>(tasks.size());
}

void BM_Search(benchmark::State& state, const std::string& strategy, ShippedModel model) {
  const int num_devices = static_cast<int>(state.range(0));
  static std::map<std::pair<int, ShippedModel>, double> neuroshard_ms;
  if (!neuroshard_ms.contains({num_devices, model})) {
    StepWatch watch;
    neuroshard_ms[{num_devices, model}] = MeanCostMs(num_devices, model, "neuroshard", watch);
  }
  StepWatch watch;
  double cost_ms = 0;
  for (auto _ : state) cost_ms += MeanCostMs(num_devices, model, strategy, watch);
  const double iterations = static_cast<double>(state.iterations());
  state.counters["per_task"] = benchmark::Counter(
      100 * iterations, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["to_neuroshard"] = cost_ms / iterations / neuroshard_ms.at({num_devices, model});
  watch.Report(state);
}
void ForSeconds(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(4)->Arg(8)->Unit(benchmark::kMillisecond)->MinTime(3);
}
void Once(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(4)->Arg(8)->Unit(benchmark::kMillisecond)->Iterations(1);
}
BENCHMARK_CAPTURE(BM_Search, neuroshard, "neuroshard", ShippedModel::kPaper)->Apply(ForSeconds);
BENCHMARK_CAPTURE(BM_Search, neuroshard_universal, "neuroshard", ShippedModel::kUniversal)
    ->Apply(ForSeconds);
BENCHMARK_CAPTURE(BM_Search, refine, "refine", ShippedModel::kPaper)->Apply(Once);
BENCHMARK_CAPTURE(BM_Search, refine_universal, "refine", ShippedModel::kUniversal)->Apply(Once);

}  // namespace
}  // namespace neuroshard

BENCHMARK_MAIN();
