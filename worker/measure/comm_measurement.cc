#include "worker/measure/comm_measurement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "common/base/bytes.h"
#include "common/base/hash.h"
#include "kernels/api/statistics.h"
#include "worker/measure/exchange_counts.h"
#include "worker/measure/input_distribution.h"
#include "worker/measure/quantized_exchange.h"

namespace neuroshard {
namespace {

using namespace std::chrono_literals;

// What a rank wants to do at an iteration boundary. The group does the largest action of all ranks.
enum class NextAction { kDone = 0, kContinue = 1, kOutOfTime = 2, kStop = 3 };

StatusOr<NextAction> Agree(Communicator& communicator, NextAction action) {
  NS_ASSIGN_OR_RETURN(const double agreed, communicator.Max(static_cast<double>(action)));
  return static_cast<NextAction>(static_cast<int>(agreed));
}

// FNV-1a, cut to what a double holds exactly.
double Fingerprint(const CommSample& sample, const MeasurementSettings& settings) {
  std::string text =
      fmt::format("{}|{}|{}|{}|{}|{}|{}", sample.sample_id, ToText(sample.direction),
                  fmt::join(sample.dim_sums, ","), fmt::join(sample.start_offsets_ms, ","),
                  sample.batch_size, sample.element_bytes, DescribeSettings(settings));
  // Only then, so that workers of before there were others agree on an all-to-all.
  if (sample.collective != Collective::kAllToAll) {
    text += fmt::format("|{}", ToText(sample.collective));
  }
  if (const auto& input = sample.input_dist) {
    text += fmt::format("|{}|{}|{}|{}|{}|{}|{}", kInputDistWord,
                        fmt::join(input->whole_features, ","), fmt::join(input->whole_ids, ","),
                        input->cut_features, input->cut_ids, input->weighted, input->seed);
  }
  if (sample.cadence != Cadence::kBarrier) text += fmt::format("|{}", ToText(sample.cadence));
  if (sample.casts()) text += fmt::format("|{}", ToText(sample.wire_dtype));
  return static_cast<double>(Fnv1a(text) >> 12);
}

Status CheckAllRanksMeasureTheSame(Communicator& communicator, double fingerprint) {
  NS_ASSIGN_OR_RETURN(const double largest, communicator.Max(fingerprint));
  NS_ASSIGN_OR_RETURN(const double smallest_negated, communicator.Max(-fingerprint));
  if (largest != -smallest_negated) {
    return FailedPrecondition("the ranks of the group were given different samples or settings");
  }
  return absl::OkStatus();
}

// What the rank does in its own memory around its exchanges; none for most samples.
struct HostSteps {
  std::optional<InputDistribution> input_dist;
  std::optional<QuantizedExchange> quantized;
};

// OK when this rank's buffers are there, those of distributed ids apart from what the ranks tell
// each other; RESOURCE_EXHAUSTED when they do not fit.
Status ReserveBuffers(Communicator& communicator, const DeviceProperties& device,
                      const CommSample& sample, const Clock& clock, const StopSignal& stop,
                      HostSteps& steps) {
  const double bytes = TotalExchangeBytes(sample, communicator.rank());
  if (bytes > static_cast<double>(device.memory_bytes)) {
    return ResourceExhausted("rank {} exchanges {:.0f} bytes, its device has {}",
                             communicator.rank(), bytes, FormatBytes(device.memory_bytes));
  }
  try {
    if (sample.input_dist) {
      steps.input_dist.emplace(communicator, sample, stop);
      return absl::OkStatus();
    }
    if (sample.casts()) {
      return steps.quantized.emplace(communicator, sample, clock).Reserve();
    }
    return communicator.Reserve(ExchangeOf(sample, communicator.rank()));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("rank {}: the host has no memory left for {:.0f} bytes of buffers",
                             communicator.rank(), bytes);
  }
}

std::chrono::nanoseconds StartOffset(const CommSample& sample, int rank) {
  const std::vector<double>& offsets = sample.start_offsets_ms;
  if (offsets.empty()) return std::chrono::nanoseconds(0);
  const double offset_ms = offsets[rank] - *std::ranges::min_element(offsets);
  return std::chrono::nanoseconds(static_cast<std::int64_t>(offset_ms * 1e6));
}

// The rank's part in what the sample measures, once.
std::function<Status()> StepOf(Communicator& communicator, const CommSample& sample,
                               HostSteps& steps) {
  if (steps.input_dist) return [&] { return steps.input_dist->Run(); };
  if (steps.quantized) return [&] { return steps.quantized->Run(); };
  return [&communicator, exchange = ExchangeOf(sample, communicator.rank())] {
    return communicator.Run(exchange);
  };
}

// Room for the ids that the rank receives.
Status ReserveIds(const Communicator& communicator, InputDistribution& input_dist) {
  try {
    return input_dist.Reserve();
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("rank {}: the host has no memory left for its ids",
                             communicator.rank());
  }
}

// As many iterations of cadence back_to_back as a trainer has collectives in a pass; more would
// make a stop wait.
constexpr int kRowIterations = 8;

StatusOr<TimedSeries> RunIterations(Communicator& communicator, const CommSample& sample,
                                    const std::function<Status()>& step,
                                    const MeasurementSettings& settings, const Timekeeper& time,
                                    const StopSignal& stop) {
  const std::chrono::nanoseconds offset = StartOffset(sample, communicator.rank());
  StoppingRule rule(settings);  // this rank goes on while that of another one is not satisfied
  double spent_ms = 0;          // in timed iterations, waiting included

  const auto action = [&] {
    if (stop.ShouldStop()) return NextAction::kStop;
    if (rule.Finished() && rule.reason() != StopReason::kMaxTime) return NextAction::kDone;
    const bool enough = static_cast<int>(rule.samples_ms().size()) >= settings.min_iterations;
    return enough && spent_ms >= static_cast<double>(settings.max_time_ms) ? NextAction::kOutOfTime
                                                                           : NextAction::kContinue;
  };
  const bool in_rows = sample.cadence == Cadence::kBackToBack;
  for (int i = 0;;) {
    NS_ASSIGN_OR_RETURN(const NextAction agreed, Agree(communicator, action()));
    if (agreed == NextAction::kStop) return absl::CancelledError("stopped while measuring");
    if (agreed != NextAction::kContinue) break;

    NS_ASSIGN_OR_RETURN(const TimePoint together, communicator.Meet(time));
    const int left = settings.warmup_iterations + settings.max_iterations - i;
    const int end_of_row = i + (in_rows ? std::clamp(left, 1, kRowIterations) : 1);
    TimePoint before = together;
    for (bool first = true; i < end_of_row; first = false) {
      TimePoint start = before;
      communicator.StartNextWhen(first ? together + offset - time.Now() : 0ns, [&] {
        if (first) time.WaitUntil(together + offset, stop);
        start = time.Now();
      });
      NS_RETURN_IF_ERROR(step());
      const TimePoint end = time.Now();
      const double took_ms = MillisecondsBetween(std::exchange(before, end), end);
      if ((in_rows && first) || i++ < settings.warmup_iterations) continue;

      NS_RETURN_IF_ERROR(rule.AddMeasurementMs(
          communicator.LastExchangeMs().value_or(MillisecondsBetween(start, end))));
      spent_ms += took_ms;
    }
  }
  return Summarize(rule.samples_ms(), rule.reason(), settings.warmup_iterations);
}

}  // namespace

StatusOr<CommMeasurement> MeasureComm(Communicator& communicator, const DeviceProperties& device,
                                      const CommSample& sample, const MeasurementSettings& settings,
                                      const RecordStamp& stamp, const Timekeeper& time,
                                      const StopSignal& stop) {
  NS_RETURN_IF_ERROR(CheckAllRanksMeasureTheSame(communicator, Fingerprint(sample, settings)));
  CommMeasurement record;
  record.sample_id = sample.sample_id;
  record.rank = communicator.rank();

  HostSteps steps;
  Status reserved = ReserveBuffers(communicator, device, sample, time, stop, steps);
  if (!reserved.ok() && !absl::IsResourceExhausted(reserved)) return reserved;
  NS_ASSIGN_OR_RETURN(double ranks_out_of_memory, communicator.Max(reserved.ok() ? 0 : 1));
  if (ranks_out_of_memory == 0 && steps.input_dist) {
    NS_RETURN_IF_ERROR(steps.input_dist->ExchangeSizes());
    reserved = ReserveIds(communicator, *steps.input_dist);
    if (!reserved.ok() && !absl::IsResourceExhausted(reserved)) return reserved;
    NS_ASSIGN_OR_RETURN(ranks_out_of_memory, communicator.Max(reserved.ok() ? 0 : 1));
  }
  if (ranks_out_of_memory > 0) {
    record.outcome = Outcome::kOutOfMemory;
    record.detail =
        reserved.ok() ? "another rank of the group ran out of memory" : Message(reserved);
  } else {
    NS_ASSIGN_OR_RETURN(record.series,
                        RunIterations(communicator, sample, StepOf(communicator, sample, steps),
                                      settings, time, stop));
  }
  std::map<std::string, std::string> properties = {
      {"collective", std::string(CollectiveWord(sample))},
      {std::string(kCollectiveBackendProperty), device.collective_backend},
      {std::string(kCadenceProperty), std::string(ToText(sample.cadence))},
      {"world_size", std::to_string(communicator.world_size())}};
  properties.merge(communicator.Network());
  if (steps.quantized) {
    properties.emplace(kWireDtypeProperty, ToText(sample.wire_dtype));
    const std::span<const double> casts_ms = steps.quantized->casts_ms();
    const auto warmups = static_cast<std::size_t>(settings.warmup_iterations);
    if (casts_ms.size() > warmups) {
      properties.emplace(kCastsProperty, fmt::format("{}", Median(casts_ms.subspan(warmups))));
    }
  }
  record.environment = stamp.Make(device, settings, properties);
  return record;
}

}  // namespace neuroshard
