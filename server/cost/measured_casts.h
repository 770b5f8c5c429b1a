// What casts of exchanged vectors take, as workers measured it.
#pragma once

#include <algorithm>
#include <optional>

#include "common/domain/vocabulary.h"

namespace neuroshard {

// The casts of one rank's exchange to one type, or back from it: a rate for as many values as caches
// hold, and another for those beyond. Convex in the values. A plain value.
struct CastRates {
  double ns_per_value = 0;  // of a value before it is sent or after it came
  double cached_values = 0;
  double ns_per_value_beyond = 0;  // at least ns_per_value

  // Of all casts of a rank in one exchange, those of values sent and of values received.
  double Ms(double values) const {
    constexpr double kNsPerMs = 1e6;
    const double cached = std::min(values, cached_values);
    return (cached * ns_per_value + (values - cached) * ns_per_value_beyond) / kNsPerMs;
  }
  bool operator==(const CastRates&) const = default;
};

// By the type on the wire; none: not measured. Vectors are fp32. A plain value.
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
