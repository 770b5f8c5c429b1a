// Bandwidth of the CUDA embedding kernels, beside what the same device reaches in the same run when
// it copies memory. Prints tables in Markdown, on SIGTERM those of the cases before it; the JSON
// document is written anew after every case, so that a run that is killed leaves what it measured.
//
//   gpu_kernels_bench [--quick|--tiny] [--only CASE,...] [--json FILE]
//
// --quick: fewer passes. --tiny: every case on tables and batches so small that its times mean
// nothing: whether it runs.
// Device time between events, caches flushed before each pass, two batches of ids rotated, median
// and 10th and 90th percentile. Traffic models: kernels/cuda/testing/traffic.h. GB = 1e9 bytes.
#include <algorithm>
#include <bit>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "bench/gpu_kernels_report.h"
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "kernels/api/statistics.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/kernel_launches.h"
#include "kernels/cuda/testing/traffic.h"
#include "kernels/indices/testing/zipf_lookups.h"
#include "tests/support/no_collectives.h"

namespace neuroshard {
namespace {

using Json = nlohmann::ordered_json;

volatile std::sig_atomic_t told_to_stop = 0;

using testing::NoCollectives;

struct Case {
  std::string name;
  std::vector<std::int64_t> cols;  // one a table
  double zipf_exponent = 0;        // 0: uniform
  DataType type = DataType::kFp32;
  Optimizer optimizer = Optimizer::kRowwiseAdagrad;
  double pooling_factor = 20;
  std::int64_t batch_size = 0;  // 0: by the width
  bool weighted = false;
  PoolingMode pooling_mode = PoolingMode::kSum;
};

struct Shape {
  // Rows of 128 columns get this batch; narrower ones a larger one, for about equal bytes a pass.
  std::int64_t batch_size = 8192;
  std::int64_t most_samples = 1 << 30;
  std::int64_t table_bytes = 2 * kGiB;  // far beyond any L2
  std::int64_t copied_bytes = kGiB;
  int warmups = 5;
  int iterations = 30;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const std::vector<std::int64_t> mixed = {4, 8, 16, 32, 64, 96, 128, 256};
  for (const double zipf : {0.0, 1.1}) {
    const std::string ids = zipf == 0 ? "uniform" : "zipf1.1";
    for (const std::int64_t cols : {32, 64, 128}) {
      cases.push_back({fmt::format("dim{}_{}", cols, ids), std::vector(8, cols), zipf});
    }
    cases.push_back({"mixed4..256_" + ids, mixed, zipf});
  }
  for (const DataType type : {DataType::kFp16, DataType::kBf16}) {
    for (const std::int64_t cols : {32, 128}) {
      cases.push_back(
          {fmt::format("dim{}_uniform_{}", cols, ToText(type)), std::vector(8, cols), 0, type});
    }
  }
  const std::vector<std::int64_t> eight(8, 128);
  cases.push_back({.name = "dim128_uniform_sgd", .cols = eight, .optimizer = Optimizer::kSgd});
  cases.push_back({.name = "dim128_uniform_adam", .cols = eight, .optimizer = Optimizer::kAdam});
  cases.push_back({.name = "dim128_uniform_weighted", .cols = eight, .weighted = true});
  // Half of the public tables have fewer than two ids a sample, where there is little to load at
  // once.
  for (const double pooling : {0.5, 1.0, 3.0}) {
    for (const std::int64_t cols : {32, 128}) {
      cases.push_back({.name = fmt::format("dim{}_uniform_pooling{}", cols, pooling),
                       .cols = std::vector(8, cols),
                       .pooling_factor = pooling,
                       .batch_size = 65536});
    }
  }
  cases.push_back({.name = "dim128_uniform_pooling1_bf16",
                   .cols = eight,
                   .type = DataType::kBf16,
                   .pooling_factor = 1,
                   .batch_size = 65536});
  cases.push_back({.name = "dim128_uniform_unpooled",
                   .cols = eight,
                   .pooling_factor = 3,
                   .batch_size = 16384,
                   .pooling_mode = PoolingMode::kNone});
  for (const double pooling : {1.0, 3.0}) {
    cases.push_back({.name = fmt::format("tables100_dim64_batch2048_pooling{}", pooling),
                     .cols = std::vector<std::int64_t>(100, 64),
                     .pooling_factor = pooling,
                     .batch_size = 2048});
  }
  return cases;
}

std::int64_t BatchSize(const Case& c, const Shape& shape) {
  if (c.batch_size > 0) return std::min(c.batch_size, shape.most_samples);
  std::int64_t cols = 0;
  for (const std::int64_t one : c.cols) cols += one;
  const std::int64_t wide = 128 * static_cast<std::int64_t>(c.cols.size());
  return shape.batch_size *
         std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(1, wide / cols)));
}

// What `bytes` moved in these times make of the bandwidth of copying.
Json Rate(std::int64_t bytes, double ms, double copy_gb_per_s) {
  const double gb_per_s = static_cast<double>(bytes) / ms * 1e-6;
  return {{"bytes", bytes}, {"gb_per_s", gb_per_s}, {"of_copy", gb_per_s / copy_gb_per_s}};
}

Json Times(const std::vector<double>& ms) {
  return {{"median_ms", Percentile(ms, 50)},
          {"p10_ms", Percentile(ms, 10)},
          {"p90_ms", Percentile(ms, 90)}};
}

// Bytes read plus bytes written; the better of the driver's copy and a kernel's.
StatusOr<Json> MeasureCopy(CudaDevice& device, std::int64_t bytes) {
  cuda::GpuBuffer from(device.gpu()), to(device.gpu());
  NS_RETURN_IF_ERROR(from.Reserve(bytes));
  NS_RETURN_IF_ERROR(to.Reserve(bytes));
  cuda::CudaGpu& gpu = *device.gpu();
  gpu.Note(cudaMemsetAsync(from.at(0), 1, bytes, gpu.stream()), "filling");
  std::vector<double> driver_ms, kernel_ms;
  for (int i = 0; i < 12; ++i) {
    driver_ms.push_back(device.TimeMs([&] {
      gpu.Note(cudaMemcpyAsync(to.at(0), from.at(0), bytes, cudaMemcpyDeviceToDevice, gpu.stream()),
               "copying");
    }));
    kernel_ms.push_back(device.TimeMs(
        [&] { gpu.Note(cuda::LaunchCopy(to.at(0), from.at(0), bytes, gpu.stream()), "copying"); }));
  }
  NS_RETURN_IF_ERROR(device.Health());
  const double moved = 2e-6 * static_cast<double>(bytes);
  const double driver = moved / Percentile(driver_ms, 50);
  const double kernel = moved / Percentile(kernel_ms, 50);
  return Json{{"bytes", bytes},
              {"driver_gb_per_s", driver},
              {"kernel_gb_per_s", kernel},
              {"gb_per_s", std::max(driver, kernel)}};
}

struct Batch {
  std::vector<LookupPlan> plans;
  std::vector<LookupBatch> inputs;  // the same ids
  std::vector<cuda::TableTraffic> traffic;
};

StatusOr<Batch> MakeBatch(const Case& c, const EmbeddingOpSpec& spec, std::uint64_t seed) {
  Batch batch;
  for (std::size_t t = 0; t < spec.tables.size(); ++t) {
    NS_ASSIGN_OR_RETURN(LookupPlan plan,
                        PlanZipfLookups({spec.tables[t].rows, spec.batch_size, c.pooling_factor,
                                         c.weighted, seed * 1000 + t},
                                        c.zipf_exponent));
    LookupBatch lookups = ExpandLookups(plan);
    std::vector<std::int64_t> ids = lookups.ids;
    std::sort(ids.begin(), ids.end());
    const bool pooled = c.pooling_mode != PoolingMode::kNone;
    batch.traffic.push_back(
        {.batch_size = pooled ? spec.batch_size : static_cast<std::int64_t>(ids.size()),
         .ids = static_cast<std::int64_t>(ids.size()),
         .distinct_rows = std::unique(ids.begin(), ids.end()) - ids.begin(),
         .cols = spec.tables[t].cols,
         .weight_bytes = c.type == DataType::kFp32 ? 4 : 2,
         .scale_bytes = c.weighted ? 4 : 0,
         .state_bytes = c.optimizer == Optimizer::kRowwiseAdagrad ? 4 : 0,
         .moment_bytes = c.optimizer == Optimizer::kAdam ? 8 : 0});
    batch.inputs.push_back(std::move(lookups));
    batch.plans.push_back(std::move(plan));
  }
  return batch;
}

template <typename Count>
std::int64_t Sum(const Batch& batch, const Count& count) {
  std::int64_t bytes = 0;
  for (const cuda::TableTraffic& table : batch.traffic) bytes += count(table);
  return bytes;
}

// The caller's time: the calls return when the ids are on the device.
struct InputTimes {
  std::vector<double> copied_ms, generated_ms;

  Status Copy(EmbeddingOp& op, const Batch& batch) {
    const SteadyClock clock;
    std::vector<LookupBatch> inputs = batch.inputs;
    const TimePoint begin = clock.Now();
    NS_RETURN_IF_ERROR(op.SetInputs(std::move(inputs)));
    copied_ms.push_back(MillisecondsBetween(begin, clock.Now()));
    return absl::OkStatus();
  }
  Status Generate(EmbeddingOp& op, const Batch& batch) {
    const SteadyClock clock;
    const TimePoint begin = clock.Now();
    NS_RETURN_IF_ERROR(op.GenerateInputs(batch.plans));
    generated_ms.push_back(MillisecondsBetween(begin, clock.Now()));
    return absl::OkStatus();
  }
};

StatusOr<Json> Measure(CudaDevice& device, const Case& c, const Shape& shape, double copy) {
  EmbeddingOpSpec spec;
  spec.batch_size = BatchSize(c, shape);
  spec.optimizer = c.optimizer;
  std::int64_t rows = 0;
  for (const std::int64_t cols : c.cols) {
    // Narrow tables of that size would have more rows than ids can be generated for in a moment.
    const auto tables = static_cast<std::int64_t>(c.cols.size());
    const std::int64_t bytes = std::min(shape.table_bytes, 32 * shape.table_bytes / tables);
    const std::int64_t table_rows = std::min<std::int64_t>(bytes / 4 / cols, 1 << 24);
    spec.tables.push_back({table_rows, cols, c.pooling_mode, c.type});
    rows += table_rows;
  }
  NS_ASSIGN_OR_RETURN(auto op, device.CreateEmbeddingOp(spec));
  std::vector<Batch> batches;
  for (const std::uint64_t seed : {1, 2}) {
    NS_ASSIGN_OR_RETURN(Batch batch, MakeBatch(c, spec, seed));
    batches.push_back(std::move(batch));
  }
  InputTimes inputs;
  std::vector<double> forward_ms, backward_ms;
  for (int i = 0; i < shape.warmups + shape.iterations; ++i) {
    // Copied ids are the same, and take most of the time where nobody waits for them.
    if (i < shape.warmups) NS_RETURN_IF_ERROR(inputs.Copy(*op, batches[i % 2]));
    NS_RETURN_IF_ERROR(inputs.Generate(*op, batches[i % 2]));
    device.FlushCache();
    const double forward = device.TimeMs([&] { op->Forward(); });
    device.FlushCache();
    const double backward = device.TimeMs([&] { op->Backward(); });
    if (i < shape.warmups) continue;
    forward_ms.push_back(forward);
    backward_ms.push_back(backward);
  }
  NS_RETURN_IF_ERROR(device.Health());
  const Batch& batch = batches[0];
  const int key_bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(rows - 1)));
  Json forward = Times(forward_ms), backward = Times(backward_ms);
  const double f = forward["median_ms"], b = backward["median_ms"];
  forward["distinct"] = Rate(Sum(batch, cuda::DistinctForwardBytes), f, copy);
  forward["nominal"] = Rate(Sum(batch, cuda::NominalForwardBytes), f, copy);
  backward["distinct"] = Rate(Sum(batch, cuda::DistinctBackwardBytes), b, copy);
  backward["nominal"] = Rate(Sum(batch, cuda::NominalBackwardBytes), b, copy);
  backward["sort_bytes"] =
      Sum(batch, [&](const cuda::TableTraffic& t) { return cuda::SortBytes(t, key_bits); });
  return Json{
      {"name", c.name},
      {"cols", c.cols},
      {"weight_dtype", std::string(ToText(c.type))},
      {"optimizer", std::string(ToText(c.optimizer))},
      {"zipf_exponent", c.zipf_exponent},
      {"batch_size", spec.batch_size},
      {"pooling_factor", c.pooling_factor},
      {"pooling_mode", std::string(ToText(c.pooling_mode))},
      {"weighted", c.weighted},
      {"ids", Sum(batch, [](const cuda::TableTraffic& t) { return t.ids; })},
      {"distinct_rows", Sum(batch, [](const cuda::TableTraffic& t) { return t.distinct_rows; })},
      {"ids_copied", Times(inputs.copied_ms)},
      {"ids_generated", Times(inputs.generated_ms)},
      {"forward", forward},
      {"backward", backward}};
}

Status WriteJson(const Json& result, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  std::ofstream file(path + ".part");
  file << result.dump(2) << "\n";
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(path + ".part", path, error);
  if (file && !error) return absl::OkStatus();
  return Unavailable("{} cannot be written", path);
}

Shape ShapeOf(std::string_view option) {
  Shape shape;
  if (option == "--quick") shape.iterations = 10;
  if (option == "--tiny") {
    shape = {.batch_size = 32,
             .most_samples = 32,
             .table_bytes = kMiB / 8,
             .copied_bytes = kMiB,
             .warmups = 1,
             .iterations = 3};
  }
  return shape;
}

Status RunAll(const Shape& shape, const std::set<std::string>& only, const std::string& json_path) {
  NS_RETURN_IF_ERROR(cuda::CountCudaDevices().status());
  NS_ASSIGN_OR_RETURN(auto device, CudaDevice::Create(0, std::make_shared<NoCollectives>()));
  NS_ASSIGN_OR_RETURN(const Json copy, MeasureCopy(*device, shape.copied_bytes));
  Json result = {{"device", device->properties().name},
                 {"details", device->properties().details},
                 {"conditions_before", device->Conditions()},
                 {"copy", copy},
                 {"cases", Json::array()}};
  for (const Case& c : Cases()) {
    if (told_to_stop != 0) break;
    if (!only.empty() && !only.contains(c.name)) continue;
    StatusOr<Json> measured = Measure(*device, c, shape, copy["gb_per_s"]);
    // One that does not fit this device is said, the others go on.
    result["cases"].push_back(measured.ok()
                                  ? *std::move(measured)
                                  : Json{{"name", c.name}, {"error", Message(measured.status())}});
    result["conditions_after"] = device->Conditions();
    NS_RETURN_IF_ERROR(WriteJson(result, json_path));
    std::cerr << c.name << "\n";
    NS_RETURN_IF_ERROR(device->Health());
  }
  PrintGpuKernelTables(result, std::cout);
  return told_to_stop == 0 ? absl::OkStatus() : absl::CancelledError("stopped");
}

}  // namespace
}  // namespace neuroshard

int main(int argc, char** argv) {
  std::string_view option;
  std::string json_path;
  std::set<std::string> only;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--quick" || argument == "--tiny") {
      option = argument;
    } else if (argument == "--json" && i + 1 < argc) {
      json_path = argv[++i];
    } else if (argument == "--only" && i + 1 < argc) {
      std::istringstream names(argv[++i]);
      for (std::string name; std::getline(names, name, ',');) only.insert(name);
    } else {
      std::cerr << "usage: gpu_kernels_bench [--quick|--tiny] [--only CASE,...] [--json FILE]\n";
      return 2;
    }
  }
  std::signal(SIGTERM, [](int) { neuroshard::told_to_stop = 1; });
  const neuroshard::Status status =
      neuroshard::RunAll(neuroshard::ShapeOf(option), only, json_path);
  if (status.ok()) return 0;
  std::cerr << "gpu_kernels_bench: " << neuroshard::Message(status) << "\n";
  return 1;
}
