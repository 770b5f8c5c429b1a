#include "server/pretrain/report/model_quality.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace neuroshard {
namespace {

constexpr std::int64_t kSamplesOfAQualityWarning = 10;

}  // namespace

std::string UnusableReason(const TrainingOutcome& outcome, double min_compute_tau) {
  const auto compute = std::find_if(outcome.reports.begin(), outcome.reports.end(),
                                    [](const NetworkReport& r) { return r.key == "compute"; });
  // Compute that was not learned anew is judged already.
  if (compute == outcome.reports.end()) return "";
  if (compute->held_out.samples < kSamplesOfAQualityWarning) return "";
  const auto [least, greatest] =
      std::minmax_element(compute->predicted_ms.begin(), compute->predicted_ms.end());
  if (*least == *greatest) return "its compute costs do not depend on the shards";
  const double tau = compute->held_out.kendall_tau;
  if (!std::isfinite(tau)) return "all held-out compute samples cost the same";
  const auto n = static_cast<double>(compute->held_out.samples);
  if (tau + std::sqrt(2 * (1 - tau * tau) / n) >= min_compute_tau) return "";
  return fmt::format(
      "Kendall tau of compute on {} held-out samples is {:.3f}, clearly below {:.3g}",
      compute->held_out.samples, tau, min_compute_tau);
}

}  // namespace neuroshard
