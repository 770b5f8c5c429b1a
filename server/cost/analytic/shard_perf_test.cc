// The golden vectors of TorchRec's own tests of its planner, and a few that its code gave for two
// hosts.
#include "server/cost/analytic/shard_perf.h"

#include <gtest/gtest.h>

namespace neuroshard {
namespace {

constexpr double kGiB = 1 << 30;
constexpr MemoryBandwidths kMemory = {.device_bytes_per_ms = 897 * kGiB / 1000,
                                      .host_to_device_bytes_per_ms = 32 * kGiB / 1000};
constexpr CommElementBytes kFp32Wire;
constexpr double kTolerance = 1e-12;  // relative

CommTopology Links(double ranks, double ranks_per_host) {
  return {ranks, ranks_per_host, 600 * kGiB / 1000, 12.5 * kGiB / 1000};
}

double Bandwidth(ComputeKernel kernel) { return KernelBandwidth(kernel, kMemory, 0.2, false); }

void ExpectNear(double actual, double expected) {
  EXPECT_NEAR(actual, expected, kTolerance * expected);
}

void ExpectPerf(const ShardPerf& perf, double forward_compute_ms, double forward_comm_ms,
                double backward_compute_ms, double backward_comm_ms) {
  ExpectNear(perf.forward_compute_ms, forward_compute_ms);
  ExpectNear(perf.forward_comm_ms, forward_comm_ms);
  ExpectNear(perf.backward_compute_ms, backward_compute_ms);
  ExpectNear(perf.backward_comm_ms, backward_comm_ms);
}

// Two ranks on a host, 512 samples each, one id a sample, 100 x 10 in fp32.
constexpr ShardWork kSmall = {.ids = 512, .vectors = 512, .rows = 100, .cols = 10};

TEST(ShardPerfTest, OneHostByTypeAndKernel) {
  const CommTopology links = Links(2, 2);
  constexpr double kComm = 6.357828776041667e-05;
  ExpectPerf(DataParallelPerf(kSmall, links, Bandwidth(ComputeKernel::kDense)),
             9.356002212235228e-05, 0, 0.00018712004424470456, 0.000225593945387348);
  ExpectPerf(TableWisePerf(kSmall, kFp32Wire, links, Bandwidth(ComputeKernel::kFused)),
             0.000327460077428233, kComm, 0.000654920154856466, kComm);
  ExpectPerf(TableWisePerf(kSmall, kFp32Wire, links, Bandwidth(ComputeKernel::kFusedUvm)),
             0.09179115295410156, kComm, 0.18358230590820312, kComm);
  ExpectPerf(TableWisePerf(kSmall, kFp32Wire, links, Bandwidth(ComputeKernel::kFusedUvmCaching)),
             0.01432837509527439, kComm, 0.02865675019054878, kComm);
  ExpectPerf(RowWisePerf(kSmall, 2, kFp32Wire, links, Bandwidth(ComputeKernel::kFused)),
             6.804365245261984e-05, kComm, 0.0001360873049052397, 0.00016798276699240525);
  ExpectPerf(TableRowWisePerf(kSmall, 2, kFp32Wire, links, Bandwidth(ComputeKernel::kFused)),
             6.804365245261984e-05, kComm, 0.0001360873049052397, 0.00016798276699240525);
  ExpectPerf(RowWisePerf(kSmall, 2, kFp32Wire, links, Bandwidth(ComputeKernel::kFusedUvmCaching)),
             0.0029773246951219513, kComm, 0.0059546493902439025, 0.004631910866838161);
}

// 5.44, 2.63 and 0.80 ms in TorchEasyRec's measurement that the shares were fitted to.
TEST(ShardPerfTest, DynamicTablesAreAsFastAsWasFitted) {
  const auto slower = [](ComputeKernel kernel, double share) {
    return kMemory.device_bytes_per_ms / 10 / KernelBandwidth(kernel, kMemory, share, true);
  };
  for (const double share : {0.1, 0.5, 0.9}) {
    EXPECT_NEAR(slower(ComputeKernel::kDynamicHybrid, share), 5.44 / 0.80, 0.3);
    EXPECT_NEAR(slower(ComputeKernel::kDynamicCaching, share), 2.63 / 0.80, 0.15);
  }
  for (const ComputeKernel kernel :
       {ComputeKernel::kDynamicHybrid, ComputeKernel::kDynamicCaching}) {
    EXPECT_EQ(slower(kernel, 1), 1);
    EXPECT_LT(slower(kernel, 0.9), slower(kernel, 0.1));
  }
}

TEST(ShardPerfTest, WireElementsMayBeSmallerThanTheTables) {
  constexpr CommElementBytes kFp8Wire = {1, 1, 2, 2};
  const double fused = Bandwidth(ComputeKernel::kFused);
  ExpectNear(TableWisePerf(kSmall, kFp8Wire, Links(2, 2), fused).total_ms(), 0.000846718200207288);
  ExpectNear(RowWisePerf(kSmall, 2, kFp8Wire, Links(2, 2), fused).total_ms(),
             0.0002561205605599394);
}

// Sequences: a vector an id instead of one a sample, and all-to-all instead of reduce-scatter.
TEST(ShardPerfTest, SequencesAreOneVectorAnId) {
  constexpr ShardWork kSequence = {.ids = 512, .vectors = 512, .rows = 128, .cols = 32};
  ShardWork row_wise = kSequence;
  row_wise.unpooled = true;
  ShardWork more_rows = kSequence;
  more_rows.rows = 256;
  const double fused = Bandwidth(ComputeKernel::kFused);
  ExpectNear(TableWisePerf(kSequence, kFp32Wire, Links(2, 2), fused).total_ms(),
             0.001880471390093715);
  ExpectNear(RowWisePerf(row_wise, 2, kFp32Wire, Links(2, 2), fused).total_ms(),
             0.0007915177871551004);
  ExpectNear(DataParallelPerf(more_rows, Links(2, 2), Bandwidth(ComputeKernel::kDense)).total_ms(),
             0.0026901057997143255);
}

// INT8 inference is the forward half; TorchRec pads rows of 10 bytes to 16.
TEST(ShardPerfTest, InferenceIsTheForwardHalf) {
  constexpr ShardWork kInt8 = {
      .ids = 512, .vectors = 512, .rows = 100, .cols = 16, .element_bytes = 1};
  constexpr CommElementBytes kInt8Wire = {1, 1, 1, 1};
  const double fused = Bandwidth(ComputeKernel::kFused);
  const ShardPerf table_wise = TableWisePerf(kInt8, kInt8Wire, Links(2, 2), fused);
  ExpectNear(table_wise.forward_compute_ms + table_wise.forward_comm_ms, 0.0001296231579222408);
  const ShardPerf row_wise = RowWisePerf(kInt8, 2, kInt8Wire, Links(2, 2), fused);
  ExpectNear(row_wise.forward_compute_ms + row_wise.forward_comm_ms, 5.5200413052187844e-05);
}

TEST(ShardPerfTest, TwoHosts) {
  const CommTopology links = Links(16, 8);
  const double fused = Bandwidth(ComputeKernel::kFused);
  constexpr ShardWork kTable = {.ids = 4096 * 20, .vectors = 4096, .rows = 1'000'000, .cols = 128};
  ShardWork half = kTable;
  half.cols = 64;
  ExpectPerf(TableWisePerf(kTable, kFp32Wire, links, fused), 0.7424923355629878, 2.5,
             1.4849846711259755, 2.5);
  ExpectPerf(TableWisePerf(half, kFp32Wire, links, fused), 0.4331931089743589, 1.25,
             0.8663862179487178, 1.25);
  ExpectPerf(RowWisePerf(kTable, 16, kFp32Wire, links, fused), 0.07906672414994426, 2.5,
             0.1581334482998885, 2.585528149386845);
  ExpectPerf(TableRowWisePerf(kTable, 8, kFp32Wire, links, fused), 0.12329509824414715,
             0.3645833333333333, 0.2465901964882943, 0.45011148272017837);
  ExpectPerf(TableRowWisePerf(half, 8, kFp32Wire, links, fused), 0.062327985646599776,
             0.18229166666666666, 0.12465597129319955, 0.22505574136008918);
  ExpectPerf(DataParallelPerf(kTable, links, Bandwidth(ComputeKernel::kDense)), 0.09281154194537347,
             0, 0.18562308389074694, 16.95509605450242);
}

// (8192 x 2 + 131072 + 40960) x 1.75 / bandwidth forward; backward 2 x that and 1.1 x that again.
TEST(ShardPerfTest, WeightsOfIdsCostInputAndABackwardPass) {
  ShardWork weighted = kSmall;
  weighted.weighted = true;
  const ShardPerf perf =
      TableWisePerf(weighted, kFp32Wire, Links(2, 2), Bandwidth(ComputeKernel::kFused));
  ExpectNear(perf.forward_compute_ms, 188416 * 1.75 / (897 * kGiB / 1000));
  ExpectNear(perf.backward_compute_ms, 3.1 * perf.forward_compute_ms);
}

TEST(ShardPerfTest, MoreThanTwoHostsReduceTwice) {
  const double dense = Bandwidth(ComputeKernel::kDense);
  const double table_bytes = 100 * 10 * 4;
  const double elementwise_ms = table_bytes * 9.22 / dense;
  const auto all_reduce_ms = [&](double ranks) {
    return DataParallelPerf(kSmall, Links(ranks, 2), dense).backward_comm_ms - elementwise_ms;
  };
  EXPECT_NEAR(all_reduce_ms(4), table_bytes * 1.5 / (25 * kGiB / 1000), 1e-15);
  EXPECT_NEAR(all_reduce_ms(6), 2 * all_reduce_ms(4), 1e-15);
}

// Of k holders each gets a k-th of the ids and the same partial sums.
TEST(ShardPerfTest, FewerHoldersLookUpMoreAndSendTheSame) {
  const double fused = Bandwidth(ComputeKernel::kFused);
  const ShardPerf all = RowWisePerf(kSmall, 8, kFp32Wire, Links(8, 4), fused);
  const ShardPerf two = RowWisePerf(kSmall, 2, kFp32Wire, Links(8, 4), fused);
  EXPECT_EQ(all.forward_comm_ms, two.forward_comm_ms);
  EXPECT_EQ(all.backward_comm_ms, two.backward_comm_ms);
  ExpectNear(two.forward_compute_ms, (512 * 4 * (8.0 + 40) + 512 * 8 * 40) / fused);
  ExpectNear(all.forward_compute_ms, (512 * (8.0 + 40) + 512 * 8 * 40) / fused);
}

}  // namespace
}  // namespace neuroshard
