// The search, from its innermost call to whole tasks, on one thread.
//
// BM_HeadEvaluations/rows: the fused compute cost of `rows` rank contents in one call, beside the
// matrix products alone (the same shapes in double, OpenBLAS) that it cannot do without.
// BM_GreedyPass/devices: the inner search, 11 dim caps, on the uncut tables of each task.
// BM_Search/devices: whole `neuroshard` searches. Both on the 100 tasks of max dim 128, with the
// memory requests of each search step counted.
#include <benchmark/benchmark.h>
#include <cblas.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/allocation_count.h"
#include "bench/benchmark_tasks.h"
#include "common/base/random.h"
#include "server/models/model_manifest.h"
#include "server/search/neuroshard/greedy_grid.h"
#include "server/search/neuroshard/shard_catalog.h"
#include "server/search/run_search.h"

namespace neuroshard {
namespace {

template <typename T>
T ValueOrExit(StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "%s\n", Message(value.status()).c_str());
  std::exit(1);
}

const CostModel& Model() {
  static const auto model = ValueOrExit(LoadModel(ShippedModelDirectory()));
  return *model;
}

const std::vector<PlanRequest>& Tasks(int num_devices) {
  static std::vector<std::vector<PlanRequest>> by_count(1025);
  auto& tasks = by_count[static_cast<std::size_t>(num_devices)];
  if (tasks.empty()) tasks = ValueOrExit(BenchmarkTaskRequests(num_devices, 128, Model()));
  return tasks;
}

// Never stops; counts the memory requests from each poll, that is search step, to the next.
class StepAllocations final : public StopSignal {
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
  void Pause() { last_ = -1; }

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
  std::vector<float> sums(rows * static_cast<std::size_t>(Model().representation_width()));
  for (float& value : sums) value = static_cast<float>(10 * random.UniformReal());
  return sums;
}

void BM_HeadEvaluations(benchmark::State& state) {
  const std::size_t rows = static_cast<std::size_t>(state.range(0));
  const std::vector<float> sums = RandomSums(rows);
  std::vector<ComputeCost> costs(rows);
  Model().ComputeCosts(sums, costs);
  const std::int64_t before = AllocationsOfThisThread();
  for (auto _ : state) {
    Model().ComputeCosts(sums, costs);
    benchmark::DoNotOptimize(costs.data());
  }
  state.counters["allocs_per_call"] = static_cast<double>(AllocationsOfThisThread() - before) /
                                      static_cast<double>(state.iterations());
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_HeadEvaluations)->Arg(1)->Arg(4)->Arg(16)->Arg(64)->Arg(256)->Arg(1024);

// The limit: nothing but the head's matrix products.
void BM_HeadGemm(benchmark::State& state) {
  const std::vector<std::int64_t> widths =
      ValueOrExit(ReadModelManifest(ShippedModelDirectory())).compute.head_layers;
  const int rows = static_cast<int>(state.range(0));
  std::vector<std::vector<double>> weights, values;
  for (std::size_t layer = 0; layer < widths.size(); ++layer) {
    values.emplace_back(static_cast<std::size_t>(rows * widths[layer]), 0.5);
    if (layer > 0) weights.emplace_back(widths[layer - 1] * widths[layer], 0.25);
  }
  for (auto _ : state) {
    for (std::size_t layer = 0; layer < weights.size(); ++layer) {
      const int in = static_cast<int>(widths[layer]);
      const int out = static_cast<int>(widths[layer + 1]);
      cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, out, in, 1.0,
                  values[layer].data(), in, weights[layer].data(), out, 0.0,
                  values[layer + 1].data(), out);
    }
    benchmark::DoNotOptimize(values.back().data());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_HeadGemm)->Arg(1)->Arg(4)->Arg(16)->Arg(64)->Arg(256)->Arg(1024);

void BM_GreedyPass(benchmark::State& state) {
  const std::vector<double> caps = DimCapFactors(11);
  const StepAllocations stop;
  std::int64_t pieces = 0;
  for (auto _ : state) {
    for (const PlanRequest& request : Tasks(static_cast<int>(state.range(0)))) {
      SearchContext context(request, Model(), stop, nullptr);
      ShardCatalog catalog(context);
      GreedyGrid grid(context, catalog);
      const SplitSequence base = MakeSequence(WholeTables(request), catalog);
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

void BM_Search(benchmark::State& state, const std::string& strategy) {
  StepAllocations stop;
  double cost_ms = 0;
  for (auto _ : state) {
    for (PlanRequest request : Tasks(static_cast<int>(state.range(0)))) {
      request.search.strategy = strategy;
      const auto result = RunSearch(request, Model(), stop, nullptr);
      stop.Pause();
      if (result.ok()) cost_ms += result->cost.embedding_cost_ms;
    }
  }
  const double searches = static_cast<double>(state.iterations() * 100);
  state.counters["per_task"] =
      benchmark::Counter(searches, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["mean_cost_ms"] = cost_ms / searches;
  stop.Report(state);
}
BENCHMARK_CAPTURE(BM_Search, neuroshard, std::string("neuroshard"))
    ->Arg(4)
    ->Arg(8)
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1)
    ->Repetitions(3)
    ->ReportAggregatesOnly();

}  // namespace
}  // namespace neuroshard

BENCHMARK_MAIN();
