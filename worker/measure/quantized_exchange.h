// One rank's part in an all-to-all whose values are cast.
#pragma once

#include <span>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/domain/measurement.h"
#include "kernels/api/collective.h"

namespace neuroshard {

// As TorchRec's quantized_comm codecs of fp16 and bf16 exchange pooled vectors or their gradients:
// fp32 values are cast to sample.wire_dtype into what is sent, and cast back into fp32 ones when
// they came. Vectors lie for the exchange as lookups write them, so nothing is copied besides.
//
// Same thread contract as the communicator, which must outlive it and whose buffers it uses. The
// sample passed CheckCommSample and has an IsWireCast.
class QuantizedExchange {
 public:
  // Makes the values that the rank has. No call of the communicator.
  QuantizedExchange(Communicator& communicator, const CommSample& sample, const Clock& clock);

  // Room for all of it. RESOURCE_EXHAUSTED when it does not fit.
  Status Reserve();
  // Casts, exchanges and casts back, after Reserve. Every rank at the same time; an error breaks
  // the group.
  Status Run();

  // What came in the last run, peers in rank order.
  std::span<const float> received() const { return received_; }
  // What both casts of each run took.
  const std::vector<double>& casts_ms() const { return casts_ms_; }

 private:
  Communicator& communicator_;
  const Clock& clock_;
  const DataType wire_dtype_;
  const Exchange counts_;  // bytes on the wire
  std::vector<float> values_;
  std::vector<float> received_;
  std::vector<double> casts_ms_;
};

}  // namespace neuroshard
