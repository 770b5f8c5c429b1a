// What casts of exchanged vectors take, as workers measured it.
#pragma once

#include <optional>

#include "common/domain/vocabulary.h"

namespace neuroshard {

// Nanoseconds of a value, for the cast of fp32 before it is sent or that back to fp32 after it came:
// half of what both take together. A type without a rate was not measured. A plain value.
struct MeasuredCasts {
  std::optional<double> fp16_ns_per_value = {};
  std::optional<double> bf16_ns_per_value = {};

  // Of so many casts; none: not measured.
  std::optional<double> Ms(DataType wire_dtype, double values) const {
    constexpr double kNsPerMs = 1e6;
    const std::optional<double> ns = NsPerValue(wire_dtype);
    return ns ? std::optional(values * *ns / kNsPerMs) : std::nullopt;
  }
  std::optional<double> NsPerValue(DataType wire_dtype) const {
    if (wire_dtype == DataType::kFp16) return fp16_ns_per_value;
    return wire_dtype == DataType::kBf16 ? bf16_ns_per_value : std::nullopt;
  }
  bool operator==(const MeasuredCasts&) const = default;
};

}  // namespace neuroshard
