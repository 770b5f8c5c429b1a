#include "server/cost/measured_rates.h"

#include <cmath>

namespace neuroshard {

std::optional<InputDistRates> MeasuredInputDist::At(int num_ranks, int num_hosts) const {
  if (num_hosts > max_hosts) return std::nullopt;
  const auto above = std::ranges::find_if(
      rates, [&](const InputDistRates& rate) { return rate.num_ranks >= num_ranks; });
  if (above == rates.end()) return std::nullopt;
  if (above->num_ranks == num_ranks) return *above;
  if (above == rates.begin()) return std::nullopt;
  const InputDistRates& low = *(above - 1);
  const auto log_of = [](int ranks) { return std::log(static_cast<double>(ranks)); };
  const double share = (log_of(num_ranks) - log_of(low.num_ranks)) /
                       (log_of(above->num_ranks) - log_of(low.num_ranks));
  const auto between = [&](double InputDistRates::*rate) {
    return std::lerp(low.*rate, (*above).*rate, share);
  };
  return InputDistRates{
      num_ranks, between(&InputDistRates::fixed_ms), between(&InputDistRates::whole_ns_per_byte),
      between(&InputDistRates::cut_ns_per_byte), between(&InputDistRates::lengths_ns_per_byte)};
}

const StepRates& MeasuredSteps::At(int num_ranks) const {
  const auto distance = [&](const StepRates& of) {
    const double ratio = static_cast<double>(of.num_ranks) / num_ranks;
    return std::max(ratio, 1 / ratio);
  };
  return *std::ranges::min_element(rates, {}, distance);
}

}  // namespace neuroshard
