// Samples as a worker gets them, records as a client gets them. The first byte chooses the message.
#include "common/codec/measurement_codec.h"
#include "tests/fuzz/fuzz_target.h"

namespace neuroshard::fuzz {
namespace {

template <typename Message, typename Decode, typename Encode>
void ReadBack(std::string_view bytes, Decode decode, Encode encode) {
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  const auto value = decode(message);
  if (!value.ok()) return;
  // As messages: records may hold NaN, which is not equal to itself.
  const auto again = decode(encode(*value));
  Promise(again.ok(), "what was decoded is decoded again");
  Promise(encode(*value).SerializeAsString() == encode(*again).SerializeAsString(),
          "encoding is the inverse of decoding");
}

void ReadMeasurement(std::string_view input) {
  if (input.empty()) return;
  const std::string_view bytes = input.substr(1);
  switch (input[0]) {
    case 's':
      return ReadBack<v1::MeasurementSettings>(bytes, DecodeMeasurementSettings,
                                               EncodeMeasurementSettings);
    case 'c':
      return ReadBack<v1::ComputeSample>(bytes, DecodeComputeSample, EncodeComputeSample);
    case 'm':
      return ReadBack<v1::CommSample>(bytes, DecodeCommSample, EncodeCommSample);
    case 'C':
      return ReadBack<v1::ComputeMeasurement>(bytes, DecodeComputeMeasurement,
                                              EncodeComputeMeasurement);
    case 'M':
      return ReadBack<v1::CommMeasurement>(bytes, DecodeCommMeasurement, EncodeCommMeasurement);
    default:
      return;
  }
}

std::vector<std::string> MeasurementSeeds() {
  ComputeSample compute;
  compute.sample_id = "a";
  compute.shards.resize(2);
  for (MeasuredShard& shard : compute.shards) {
    shard.rows = 1000;
    shard.cols = 16;
    shard.pooling_factor = 3;
  }
  CommSample comm;
  comm.sample_id = "b";
  comm.dim_sums = {64, 32};
  comm.start_offsets_ms = {0, 1.5};
  ComputeMeasurement computed;
  computed.sample_id = "a";
  CommMeasurement exchanged;
  exchanged.sample_id = "b";
  return {"s" + EncodeMeasurementSettings({}).SerializeAsString(),
          "c" + EncodeComputeSample(compute).SerializeAsString(),
          "m" + EncodeCommSample(comm).SerializeAsString(),
          "C" + EncodeComputeMeasurement(computed).SerializeAsString(),
          "M" + EncodeCommMeasurement(exchanged).SerializeAsString()};
}

}  // namespace

FuzzTarget MeasurementTarget() { return {"measurement", ReadMeasurement, MeasurementSeeds}; }

}  // namespace neuroshard::fuzz
