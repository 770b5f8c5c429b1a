#include "worker/measure/quantized_exchange.h"

#include <cstdint>
#include <numeric>
#include <utility>

#include "kernels/api/wire_casts.h"
#include "worker/measure/exchange_counts.h"

namespace neuroshard {
namespace {

constexpr std::size_t kWireBytes = sizeof(std::uint16_t);

std::size_t ValuesIn(const std::vector<std::int64_t>& bytes) {
  return static_cast<std::size_t>(std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0})) /
         kWireBytes;
}

// Ordinary numbers that differ from rank to rank and from value to value.
std::vector<float> ValuesOf(int rank, std::size_t count) {
  constexpr std::size_t kPeriod = 1021;
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(rank + 1) + static_cast<float>(i % kPeriod) / kPeriod;
  }
  return values;
}

}  // namespace

QuantizedExchange::QuantizedExchange(Communicator& communicator, const CommSample& sample,
                                     const Clock& clock)
    : communicator_(communicator),
      clock_(clock),
      wire_dtype_(sample.wire_dtype),
      counts_(ExchangeOf(sample, communicator.rank())),
      values_(ValuesOf(communicator.rank(), ValuesIn(counts_.send_bytes))),
      received_(ValuesIn(counts_.receive_bytes)) {}

Status QuantizedExchange::Reserve() { return communicator_.Reserve(counts_); }

Status QuantizedExchange::Run() {
  const TimePoint start = clock_.Now();
  const std::span<std::byte> send = communicator_.SendBuffer();
  CastToWire(wire_dtype_, values_, {reinterpret_cast<std::uint16_t*>(send.data()), values_.size()});
  const TimePoint cast = clock_.Now();
  NS_RETURN_IF_ERROR(communicator_.Run(counts_));
  const TimePoint came = clock_.Now();
  const std::span<const std::byte> receive = std::as_const(communicator_).ReceiveBuffer();
  CastFromWire(wire_dtype_,
               {reinterpret_cast<const std::uint16_t*>(receive.data()), received_.size()},
               received_);
  casts_ms_.push_back(MillisecondsBetween(start, cast) + MillisecondsBetween(came, clock_.Now()));
  return absl::OkStatus();
}

}  // namespace neuroshard
