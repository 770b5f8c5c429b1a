// Bandwidth of the CPU embedding kernels, beside what the same core reaches when it reads and
// copies memory in order. Arguments of the benchmarks: embedding_dim / Zipf exponent x 100 (0:
// uniform) of ids over a table of 1 GiB.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/bytes.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/embedding_kernels.h"
#include "kernels/indices/lookup_generator.h"
#include "kernels/indices/testing/zipf_lookups.h"
#include "kernels/tcp/tcp_backend.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kTableBytes = kGiB;
constexpr std::int64_t kBatchSize = 8192;
constexpr double kPoolingFactor = 20;

struct Baseline {
  double read_gb_per_s = 0;
  double copy_gb_per_s = 0;  // bytes read plus bytes written
};

// Like the rates that the library reports: other processes do not count, the waits for memory do.
double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double BestSeconds(const std::function<void()>& work) {
  double best = 1e30;
  for (int i = 0; i < 5; ++i) {
    const double begin = CpuSeconds();
    work();
    best = std::min(best, CpuSeconds() - begin);
  }
  return best;
}

Baseline MeasureBaseline() {
  constexpr std::int64_t kWords = 512 * kMiB / 8;
  std::vector<std::uint64_t> from(kWords, 1), to(kWords, 2);
  Baseline baseline;
  baseline.read_gb_per_s = kWords * 8e-9 / BestSeconds([&] {
                             benchmark::DoNotOptimize(ReadEveryLine(from.data(), kWords));
                           });
  baseline.copy_gb_per_s = 2 * kWords * 8e-9 / BestSeconds([&] {
                             std::memcpy(to.data(), from.data(), kWords * 8);
                             benchmark::ClobberMemory();
                           });
  return baseline;
}

const Baseline& TheBaseline() {
  static const Baseline baseline = MeasureBaseline();
  return baseline;
}

struct Setup {
  std::unique_ptr<CpuDevice> device;
  std::unique_ptr<EmbeddingOp> op;
  double ids = 0;
  double distinct = 0;
  double cols = 0;
};

Setup MakeSetup(const benchmark::State& state, Optimizer optimizer) {
  const std::int64_t cols = state.range(0);
  const std::int64_t rows = kTableBytes / 4 / cols;
  Setup setup;
  setup.device =
      CpuDevice::Create(4 * kGiB, std::make_shared<TcpBackend>(CollectiveOptions{})).value();
  EmbeddingOpSpec spec;
  spec.tables = {{rows, cols, PoolingMode::kSum}};
  spec.batch_size = kBatchSize;
  spec.optimizer = optimizer;
  setup.op = setup.device->CreateEmbeddingOp(spec).value();
  LookupBatch batch = ExpandLookups(PlanZipfLookups({rows, kBatchSize, kPoolingFactor, false, 1},
                                                    static_cast<double>(state.range(1)) / 100)
                                        .value());
  std::vector<std::int64_t> ids = batch.ids;
  std::sort(ids.begin(), ids.end());
  setup.ids = static_cast<double>(ids.size());
  setup.distinct = static_cast<double>(std::unique(ids.begin(), ids.end()) - ids.begin());
  setup.cols = static_cast<double>(cols);
  (void)setup.op->SetInputs({std::move(batch)});
  return setup;
}

void Report(benchmark::State& state, double bytes_per_pass, double baseline_gb_per_s) {
  const auto passes = static_cast<double>(state.iterations());
  state.counters["GB/s"] =
      benchmark::Counter(bytes_per_pass * 1e-9 * passes, benchmark::Counter::kIsRate);
  state.counters["of_baseline"] = benchmark::Counter(
      bytes_per_pass * 1e-9 * passes / baseline_gb_per_s, benchmark::Counter::kIsRate);
}

void BM_Forward(benchmark::State& state) {
  Setup setup = MakeSetup(state, Optimizer::kSgd);
  for (auto _ : state) {
    state.PauseTiming();
    setup.device->FlushCache();
    state.ResumeTiming();
    setup.op->Forward();
  }
  Report(state, setup.ids * (8 + setup.cols * 4) + kBatchSize * setup.cols * 4,
         TheBaseline().read_gb_per_s);
}

void Backward(benchmark::State& state, Optimizer optimizer) {
  Setup setup = MakeSetup(state, optimizer);
  for (auto _ : state) {
    state.PauseTiming();
    setup.device->FlushCache();
    state.ResumeTiming();
    setup.op->Backward();
  }
  // Each occurrence reads its gradient, each distinct row and its state are read and written (the
  // one number of row-wise Adagrad is left out).
  const OptimizerStateShape row = StateOfRow(optimizer, static_cast<std::int64_t>(setup.cols));
  const auto state_floats = static_cast<double>(row.momentum1 + row.momentum2);
  const double row_floats = setup.cols + (state_floats < setup.cols ? 0 : state_floats);
  Report(state, setup.ids * (8 + setup.cols * 4) + setup.distinct * row_floats * 8,
         TheBaseline().copy_gb_per_s);
}
void BM_BackwardSgd(benchmark::State& state) { Backward(state, Optimizer::kSgd); }
void BM_BackwardRowwiseAdagrad(benchmark::State& state) {
  Backward(state, Optimizer::kRowwiseAdagrad);
}
void BM_BackwardAdagrad(benchmark::State& state) { Backward(state, Optimizer::kAdagrad); }
void BM_BackwardAdam(benchmark::State& state) { Backward(state, Optimizer::kAdam); }
void BM_BackwardPartialRowwiseAdam(benchmark::State& state) {
  Backward(state, Optimizer::kPartialRowwiseAdam);
}
void BM_BackwardLamb(benchmark::State& state) { Backward(state, Optimizer::kLamb); }
void BM_BackwardLarsSgd(benchmark::State& state) { Backward(state, Optimizer::kLarsSgd); }

// What creating an op costs: its weights are initialised every time.
void BM_Create(benchmark::State& state) {
  Setup setup = MakeSetup(state, Optimizer::kSgd);
  EmbeddingOpSpec spec;
  spec.tables = {{kTableBytes / 4 / state.range(0), state.range(0), PoolingMode::kSum}};
  spec.batch_size = kBatchSize;
  for (auto _ : state) {
    setup.op.reset();
    setup.op = setup.device->CreateEmbeddingOp(spec).value();
  }
  Report(state, static_cast<double>(kTableBytes), TheBaseline().copy_gb_per_s);
}

// Ids of one table made by the host, 65,536 samples: ids per second. zipf_percent -1: with the
// default reuse histogram.
void BM_ExpandLookups(benchmark::State& state) {
  const LookupSpec spec = {std::int64_t{1} << 23, 65536, static_cast<double>(state.range(0)), false,
                           1};
  for (auto _ : state) {
    const StatusOr<LookupPlan> plan =
        state.range(1) < 0 ? PlanLookups(spec, DefaultReuseHistogram())
                           : PlanZipfLookups(spec, static_cast<double>(state.range(1)) / 100);
    benchmark::DoNotOptimize(ExpandLookups(*plan).ids.data());
  }
  state.SetItemsProcessed(state.iterations() * spec.batch_size * state.range(0));
}

void Arguments(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"dim", "zipf_percent"})
      ->ArgsProduct({{4, 16, 64, 128, 256}, {0, 105}})
      ->Unit(benchmark::kMillisecond);
}
BENCHMARK(BM_Forward)->Apply(Arguments);
BENCHMARK(BM_BackwardSgd)->Apply(Arguments);
BENCHMARK(BM_BackwardRowwiseAdagrad)->Apply(Arguments);
BENCHMARK(BM_BackwardAdagrad)->Apply(Arguments);
BENCHMARK(BM_BackwardAdam)->Apply(Arguments);
BENCHMARK(BM_BackwardPartialRowwiseAdam)->Apply(Arguments);
BENCHMARK(BM_BackwardLamb)->Apply(Arguments);
BENCHMARK(BM_BackwardLarsSgd)->Apply(Arguments);
BENCHMARK(BM_Create)->Args({64, 0})->Unit(benchmark::kMillisecond);
BENCHMARK(BM_ExpandLookups)
    ->ArgNames({"pooling", "zipf_percent"})
    ->ArgsProduct({{10, 100}, {-1, 0, 105}})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace neuroshard

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const neuroshard::Baseline& baseline = neuroshard::TheBaseline();
  std::printf("baseline: reads %.1f GB/s, copies %.1f GB/s (read + written); kernels: %s\n",
              baseline.read_gb_per_s, baseline.copy_gb_per_s,
              neuroshard::KernelInstructionSet().c_str());
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
