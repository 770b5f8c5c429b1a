// Times of casts of exchanged vectors, as workers measured them.
#pragma once

#include <algorithm>
#include <optional>

#include "common/domain/vocabulary.h"

namespace neuroshard {

// Rates of the casts of one rank's exchange, to one type or back: one for the values that caches
// hold, another for the rest, so the time is convex in the values.
struct CastRates {
  double ns_per_value = 0;  // per value, before sending or after receiving
  double cached_values = 0;
  double ns_per_value_beyond = 0;  // at least ns_per_value

  // Time of all casts of a rank in one exchange, of values sent and received.
  double Ms(double values) const {
    constexpr double kNsPerMs = 1e6;
    const double cached = std::min(values, cached_values);
    return (cached * ns_per_value + (values - cached) * ns_per_value_beyond) / kNsPerMs;
  }
  bool operator==(const CastRates&) const = default;
};

// Rates by the type on the wire, of fp32 vectors; none: not measured.
struct MeasuredCasts {
  std::optional<CastRates> fp16 = {};
  std::optional<CastRates> bf16 = {};

  std::optional<CastRates> Of(DataType wire_dtype) const {
    if (wire_dtype == DataType::kFp16) return fp16;
    return wire_dtype == DataType::kBf16 ? bf16 : std::nullopt;
  }
  bool operator==(const MeasuredCasts&) const = default;
};

}  // namespace neuroshard
