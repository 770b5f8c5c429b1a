// Bus bandwidth of NCCL's collectives between all GPUs of this host, as nccl-tests defines it: the
// time of the slowest rank, from its own start to its own completion, everything included that the
// device does. Prints a table in Markdown; GB = 1e9 bytes.
//
//   gpu_collectives_bench [--small]
//
// --small: without the exchanges of more than 1 MiB.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "kernels/api/collective.h"
#include "kernels/api/statistics.h"
#include "kernels/api/testing/bus_bytes.h"
#include "kernels/cuda/cuda_gpu.h"
#include "kernels/nccl/nccl_backend.h"

namespace neuroshard {
namespace {

constexpr int kWarmups = 5, kIterations = 20;

struct Row {
  Collective collective = Collective::kAllToAll;
  std::int64_t bytes = 0;  // of the larger buffer, a multiple of 64 a rank
  std::vector<double> ms;  // of the slowest rank
};

std::vector<Row> Rows(int ranks, std::int64_t most_bytes) {
  std::vector<Row> rows;
  for (const Collective collective : {Collective::kAllToAll, Collective::kReduceScatter,
                                      Collective::kAllGather, Collective::kAllReduce}) {
    for (const std::int64_t bytes : {kMiB, 16 * kMiB, 256 * kMiB}) {
      if (bytes > most_bytes) continue;
      rows.push_back({collective, bytes / (64 * ranks) * 64 * ranks, {}});
    }
  }
  return rows;
}

Status Measure(Communicator& rank, Row& row) {
  const std::int64_t block = row.bytes / rank.world_size();
  const std::vector<std::int64_t> even(rank.world_size(), block);
  const bool all_to_all = row.collective == Collective::kAllToAll;
  const SteadyClock clock;
  for (int i = 0; i < kWarmups + kIterations; ++i) {
    NS_ASSIGN_OR_RETURN(const TimePoint start, rank.Meet(clock));
    rank.StartNextWhen(start - clock.Now(), [&] { std::this_thread::sleep_until(start); });
    NS_RETURN_IF_ERROR(all_to_all ? rank.Run({even, even})
                                  : rank.Run({.collective = row.collective, .block_bytes = block}));
    NS_ASSIGN_OR_RETURN(const double slowest, rank.Max(*rank.LastExchangeMs()));
    if (i >= kWarmups) row.ms.push_back(slowest);
  }
  return absl::OkStatus();
}

// `step` on all ranks at the same time; waits for all. The first error in their order.
Status ForEachRank(int ranks, const std::function<Status(int rank)>& step) {
  std::vector<Status> ended(ranks);
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] { ended[rank] = step(rank); });
    }
  }
  for (const Status& status : ended) NS_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

Status RunAll(std::int64_t most_bytes) {
  NS_ASSIGN_OR_RETURN(const int ranks, cuda::CountCudaDevices());
  NS_ASSIGN_OR_RETURN(const auto library, NcclLibrary::Load());
  std::vector<std::unique_ptr<PendingCommunicator>> pending;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < ranks; ++rank) {
    NS_ASSIGN_OR_RETURN(
        auto opened,
        NcclBackend(library, rank).Open({rank, ranks, std::chrono::milliseconds(30000)}));
    addresses.push_back(opened->address());
    pending.push_back(std::move(opened));
  }
  // Each step ends on all ranks before the next begins: what allocates would wait for exchanges of
  // the others (NcclCommunicator). Every rank has rows of its own; all have the same times.
  std::vector<std::unique_ptr<Communicator>> group(ranks);
  std::vector<std::vector<Row>> rows(ranks, Rows(ranks, most_bytes));
  NS_RETURN_IF_ERROR(ForEachRank(ranks, [&](int rank) -> Status {
    NS_ASSIGN_OR_RETURN(group[rank], pending[rank]->Connect(addresses));
    return absl::OkStatus();
  }));
  pending.clear();
  NS_RETURN_IF_ERROR(ForEachRank(ranks, [&](int rank) -> Status {
    std::int64_t block = 0;
    for (const Row& row : rows[rank]) block = std::max(block, row.bytes / ranks);
    return group[rank]->Reserve({.collective = Collective::kAllReduce, .block_bytes = block});
  }));
  const Status measured = ForEachRank(ranks, [&](int rank) -> Status {
    for (Row& row : rows[rank]) NS_RETURN_IF_ERROR(Measure(*group[rank], row));
    return absl::OkStatus();
  });
  NS_RETURN_IF_ERROR(measured);

  std::cout << fmt::format("NCCL {}, {} GPUs{}\n\n", library->Version(), ranks,
                           ranks == 1 ? ": nothing travels, the bus bandwidth is 0" : "")
            << "| collective | MiB | median ms | GB/s | bus GB/s |\n|---|---|---|---|---|\n";
  for (const Row& row : rows[0]) {
    const double ms = Percentile(row.ms, 50), gb_per_s = static_cast<double>(row.bytes) / ms * 1e-6;
    const double bus = BusBytes(row.collective, {row.bytes, row.bytes}, ranks) / ms * 1e-6;
    std::cout << fmt::format("| {} | {} | {:.3f} | {:.1f} | {:.1f} |\n", ToText(row.collective),
                             row.bytes / kMiB, ms, gb_per_s, bus);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace neuroshard

int main(int argc, char** argv) {
  const bool small = argc == 2 && std::string_view(argv[1]) == "--small";
  if (argc > 1 && !small) {
    std::cerr << "usage: gpu_collectives_bench [--small]\n";
    return 2;
  }
  const neuroshard::Status status =
      neuroshard::RunAll(small ? neuroshard::kMiB : 256 * neuroshard::kMiB);
  if (status.ok()) return 0;
  std::cerr << "gpu_collectives_bench: " << neuroshard::Message(status) << "\n";
  return 1;
}
