#include "common/codec/measurement_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/base/violations.h"

namespace neuroshard {
namespace {

using testing::HasSubstr;

ComputeSample SomeComputeSample() {
  ComputeSample sample;
  sample.sample_id = "c1";
  MeasuredShard shard;
  shard.table = "t";
  shard.rows = 100;
  shard.cols = 16;
  shard.pooling_factor = 2.5;
  shard.reuse_histogram[3] = 1;
  shard.pooling_mode = PoolingMode::kMean;
  shard.weighted = true;
  sample.shards = {shard, shard};
  sample.shards[1].compute_kernel = ComputeKernel::kFusedUvmCaching;
  sample.shards[1].cache_load_factor = 0.25;
  sample.batch_size = 512;
  sample.optimizer = Optimizer::kRowwiseAdagrad;
  sample.seed = 77;
  return sample;
}

CommSample SomeCommSample() {
  return {"m1", CommDirection::kBackward, {64, 0, 32}, {0, 1.5, 2}, 768, 2};
}

MeasurementEnvironment SomeEnvironment() {
  return {"1.0", "abc", "host", "cpu model", "neuroshard-cpu", {{"os", "Debian"}}, 1234};
}

TimedSeries SomeSeries() { return {{1, 2, 3}, 2, 0.5, StopReason::kMaxTime, 3}; }

TEST(MeasurementCodecTest, EverythingComesBack) {
  const MeasurementSettings settings{0, 2, 7, 0.5, 99, false};
  EXPECT_EQ(*DecodeMeasurementSettings(EncodeMeasurementSettings(settings)), settings);
  EXPECT_EQ(*DecodeComputeSample(EncodeComputeSample(SomeComputeSample())), SomeComputeSample());
  EXPECT_EQ(*DecodeCommSample(EncodeCommSample(SomeCommSample())), SomeCommSample());
  for (const auto& word : kWords<Collective>) {
    CommSample sample = SomeCommSample();
    sample.collective = word.value;
    sample.dim_sums = {64, 64, 64};
    sample.element_bytes = 4;
    EXPECT_EQ(*DecodeCommSample(EncodeCommSample(sample)), sample);
  }
  const ComputeMeasurement compute{"c1",         Outcome::kOk, "",
                                   SomeSeries(), SomeSeries(), SomeEnvironment()};
  EXPECT_EQ(*DecodeComputeMeasurement(EncodeComputeMeasurement(compute)), compute);
  const CommMeasurement comm{"m1", 2, Outcome::kOk, "", SomeSeries(), SomeEnvironment()};
  EXPECT_EQ(*DecodeCommMeasurement(EncodeCommMeasurement(comm)), comm);
}

TEST(MeasurementCodecTest, OutOfMemoryHasNoSeries) {
  ComputeMeasurement measurement;
  measurement.sample_id = "c1";
  measurement.outcome = Outcome::kOutOfMemory;
  measurement.detail = "needs 3 GiB";
  EXPECT_EQ(*DecodeComputeMeasurement(EncodeComputeMeasurement(measurement)), measurement);
  measurement.outcome = Outcome::kOk;
  EXPECT_THAT(Message(DecodeComputeMeasurement(EncodeComputeMeasurement(measurement)).status()),
              HasSubstr("forward.samples_ms: must have at least one entry"));
}

TEST(MeasurementCodecTest, AbsentSettingsAreTheDefaults) {
  EXPECT_EQ(*DecodeMeasurementSettings({}), MeasurementSettings());
  v1::MeasurementSettings few;
  few.set_max_iterations(2);
  EXPECT_EQ(DecodeMeasurementSettings(few)->min_iterations, 2);
  v1::MeasurementSettings many;
  many.set_min_iterations(80);
  EXPECT_EQ(DecodeMeasurementSettings(many)->max_iterations, 80);
}

TEST(MeasurementCodecTest, ListsFaultySettings) {
  v1::MeasurementSettings message;
  message.set_warmup_iterations(-1);
  message.set_min_iterations(10);
  message.set_max_iterations(5);
  message.set_target_relative_error(std::nan(""));
  message.set_max_time_ms(600'001);
  const Status status = DecodeMeasurementSettings(message).status();
  EXPECT_EQ(Violations::FromStatus(status).size(), 4u);
  EXPECT_THAT(Message(status), HasSubstr("min_iterations: must be at most max_iterations = 5"));
}

TEST(MeasurementCodecTest, ListsFaultyComputeSamples) {
  v1::ComputeSample message = EncodeComputeSample(SomeComputeSample());
  message.mutable_shards(1)->set_rows(0);
  message.mutable_shards(1)->set_reuse_histogram(3, 0.5);
  message.set_batch_size(0);
  message.set_optimizer("lion");
  const Status status = DecodeComputeSample(message).status();
  EXPECT_EQ(Violations::FromStatus(status).size(), 4u);
  EXPECT_THAT(Message(status), HasSubstr("shards[1].rows: must be at least 1, got 0"));
  EXPECT_THAT(Message(status),
              HasSubstr("optimizer: must be one of sgd, adagrad, rowwise_adagrad, adam"));
  message.clear_shards();
  EXPECT_THAT(Message(DecodeComputeSample(message).status()),
              HasSubstr("1 to 4096 entries, got 0"));
  message = EncodeComputeSample(SomeComputeSample());
  message.mutable_shards(0)->set_pooling_mode("none");
  message.mutable_shards(0)->set_weighted(true);
  EXPECT_THAT(Message(DecodeComputeSample(message).status()),
              HasSubstr("shards[0].weighted: must not be given for pooling_mode \"none\""));
}

TEST(MeasurementCodecTest, ListsFaultyKernels) {
  v1::ComputeSample message = EncodeComputeSample(SomeComputeSample());
  for (int i = 0; i < 2; ++i) *message.add_shards() = message.shards(i);
  message.mutable_shards(0)->set_compute_kernel("on_tape");
  message.mutable_shards(1)->set_cache_load_factor(1.5);
  message.mutable_shards(2)->set_cache_load_factor(0.5);
  message.mutable_shards(3)->set_cache_load_factor(std::nan(""));
  const Status status = DecodeComputeSample(message).status();
  EXPECT_EQ(Violations::FromStatus(status).size(), 4u) << status;
  message.mutable_shards(0)->set_compute_kernel("offload");
  EXPECT_THAT(Message(DecodeComputeSample(message).status()),
              HasSubstr("shards[0].compute_kernel: must be one of fused, fused_uvm, "
                        "fused_uvm_caching, got \"offload\""));
  for (const char* fault :
       {"shards[0].compute_kernel", "shards[1].cache_load_factor",
        "shards[2].cache_load_factor: is for compute_kernel \"fused_uvm_caching\" alone",
        "shards[3].cache_load_factor"}) {
    EXPECT_THAT(Message(status), HasSubstr(fault));
  }
}

CommSample SomeInputDist() {
  CommSample sample;
  sample.sample_id = "m7i";
  sample.dim_sums = {0, 0, 0};
  sample.batch_size = 768;
  sample.input_dist = InputDistSample{{2, 0, 1}, {3.5, 0, 20}, 4, 0.1, true, 99};
  return sample;
}

TEST(MeasurementCodecTest, DistributionsOfIdsComeBack) {
  EXPECT_EQ(*DecodeCommSample(EncodeCommSample(SomeInputDist())), SomeInputDist());
  const v1::CommSample message = EncodeCommSample(SomeInputDist());
  EXPECT_EQ(message.collective(), "input_dist");
  EXPECT_TRUE(message.direction().empty());
}

TEST(MeasurementCodecTest, ListsFaultyDistributionsOfIds) {
  v1::CommSample message = EncodeCommSample(SomeInputDist());
  message.set_direction("forward");
  message.set_element_bytes(2);
  message.add_start_offsets_ms(1);
  message.set_dim_sums(1, 64);
  v1::InputDistribution& input = *message.mutable_input_distribution();
  input.set_whole_features(0, -1);
  input.set_whole_ids(1, 3);
  input.set_whole_ids(2, std::nan(""));
  input.set_cut_features(4097);
  const std::string said = Message(DecodeCommSample(message).status());
  for (const char* fault :
       {"direction: must be absent for input_dist", "element_bytes: must be absent",
        "start_offsets_ms: must be empty", "dim_sums[1]: must be 0 for input_dist, got 64",
        "input_distribution.whole_features[0]", "input_distribution.whole_ids[1]: must be 0",
        "input_distribution.whole_ids[2]", "input_distribution.cut_features"}) {
    EXPECT_THAT(said, HasSubstr(fault));
  }
  input.add_whole_features(1);
  EXPECT_THAT(Message(DecodeCommSample(message).status()),
              HasSubstr("input_distribution.whole_features: must have as many entries as "
                        "dim_sums, 3, got 4"));
  message.clear_input_distribution();
  EXPECT_THAT(Message(DecodeCommSample(message).status()),
              HasSubstr("input_distribution: must be given for collective input_dist"));
  message = EncodeCommSample(SomeCommSample());
  message.mutable_input_distribution();
  EXPECT_THAT(Message(DecodeCommSample(message).status()),
              HasSubstr("input_distribution: goes with collective input_dist alone"));
  CommSample empty = SomeInputDist();
  empty.input_dist = InputDistSample{{0, 0, 0}, {0, 0, 0}};
  EXPECT_THAT(Message(DecodeCommSample(EncodeCommSample(empty)).status()),
              HasSubstr("must have at least one feature"));
}

TEST(MeasurementCodecTest, ListsFaultyCommSamples) {
  v1::CommSample message = EncodeCommSample(SomeCommSample());
  message.set_direction("sideways");
  message.set_dim_sums(0, -1);
  message.set_start_offsets_ms(1, std::nan(""));
  message.set_batch_size(100);
  const Status status = DecodeCommSample(message).status();
  EXPECT_EQ(Violations::FromStatus(status).size(), 4u);
  EXPECT_THAT(Message(status), HasSubstr("batch_size: must be a multiple of the 3 ranks, got 100"));
  message.mutable_start_offsets_ms()->RemoveLast();
  EXPECT_THAT(Message(DecodeCommSample(message).status()),
              HasSubstr("as many entries as dim_sums"));
}

TEST(MeasurementCodecTest, ARecordFromABrokenWorkerIsRefused) {
  v1::CommMeasurement message =
      EncodeCommMeasurement({"m", 1, Outcome::kOk, "", SomeSeries(), SomeEnvironment()});
  message.mutable_series()->set_median_ms(std::nan(""));
  message.mutable_series()->set_stop_reason("tired");
  message.set_rank(-1);
  EXPECT_EQ(Violations::FromStatus(DecodeCommMeasurement(message).status()).size(), 3u);
  message.set_outcome("exploded");
  EXPECT_THAT(Message(DecodeCommMeasurement(message).status()),
              HasSubstr("outcome: must be one of ok, out_of_memory"));
}

CommSample WithCasts() {
  CommSample sample = SomeCommSample();
  sample.wire_dtype = DataType::kBf16;
  sample.element_bytes = 2;
  return sample;
}

TEST(MeasurementCodecTest, CastsComeBackAndSayTheBytesOfAnElement) {
  v1::CommSample message = EncodeCommSample(WithCasts());
  EXPECT_EQ(*DecodeCommSample(message), WithCasts());
  message.clear_element_bytes();
  EXPECT_EQ(*DecodeCommSample(message), WithCasts());
  EXPECT_TRUE(EncodeCommSample(SomeCommSample()).wire_dtype().empty());
}

TEST(MeasurementCodecTest, CastsAreOfAllToAllsInTwoBytes) {
  v1::CommSample message = EncodeCommSample(WithCasts());
  message.set_element_bytes(4);
  message.set_collective("all_gather");
  const std::string said = Message(DecodeCommSample(message).status());
  EXPECT_THAT(said, HasSubstr("element_bytes: must be absent or 2 for wire_dtype bf16, got 4"));
  EXPECT_THAT(said, HasSubstr("wire_dtype: goes with collective all_to_all alone"));
  message.set_wire_dtype("fp8");
  EXPECT_THAT(Message(DecodeCommSample(message).status()),
              HasSubstr("wire_dtype: must be fp32, fp16 or bf16, got fp8"));
}

// The default is not on the wire: workers of before there was the field are sent what they were.
TEST(MeasurementCodecTest, ACadenceComesBackAndHasNoStartOffsets) {
  EXPECT_TRUE(EncodeCommSample(SomeCommSample()).cadence().empty());
  CommSample sample = SomeCommSample();
  sample.cadence = Cadence::kBackToBack;
  sample.start_offsets_ms.clear();
  v1::CommSample message = EncodeCommSample(sample);
  EXPECT_EQ(*DecodeCommSample(message), sample);
  for (int i = 0; i < message.dim_sums_size(); ++i) message.add_start_offsets_ms(1);
  EXPECT_THAT(Message(DecodeCommSample(message).status()),
              HasSubstr("start_offsets_ms: must be empty for cadence back_to_back"));
  message.set_cadence("stream");
  EXPECT_THAT(Message(DecodeCommSample(message).status()), HasSubstr("cadence: must be one of"));
}

// What a client of before the field sends.
TEST(MeasurementCodecTest, ACollectiveThatIsAbsentIsAnAllToAll) {
  v1::CommSample message = EncodeCommSample(SomeCommSample());
  message.clear_collective();
  EXPECT_EQ(*DecodeCommSample(message), SomeCommSample());
}

TEST(MeasurementCodecTest, CollectivesThatTreatRanksAlikeNeedEqualColumnsAndFp32Sums) {
  CommSample uneven = SomeCommSample();
  uneven.collective = Collective::kReduceScatter;
  const Status status = DecodeCommSample(EncodeCommSample(uneven)).status();
  EXPECT_EQ(Violations::FromStatus(status).size(), 2u);
  EXPECT_THAT(Message(status), HasSubstr("dim_sums: must be the same on every rank"));
  EXPECT_THAT(Message(status), HasSubstr("element_bytes: must be 4 for reduce_scatter"));

  CommSample gather = SomeCommSample();
  gather.collective = Collective::kAllGather;
  gather.dim_sums = {8, 8, 8};
  v1::CommSample message = EncodeCommSample(gather);
  message.clear_direction();  // bytes of any size, in whichever pass
  EXPECT_TRUE(DecodeCommSample(message).ok());
  message.set_collective("broadcast");
  EXPECT_THAT(Message(DecodeCommSample(message).status()), HasSubstr("collective: must be one of"));
}

}  // namespace
}  // namespace neuroshard
