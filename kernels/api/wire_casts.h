// Casts of vectors to the type in which an exchange sends them, and back.
#pragma once

#include <cstdint>
#include <span>

#include "common/domain/vocabulary.h"

namespace neuroshard {

// wire[i] = values[i] as `dtype` (IsWireCast), rounded to the nearest, ties to even; a value beyond
// the largest becomes infinite, NaN stays NaN. As many of both.
void CastToWire(DataType dtype, std::span<const float> values, std::span<std::uint16_t> wire);

// values[i] = wire[i], exact.
void CastFromWire(DataType dtype, std::span<const std::uint16_t> wire, std::span<float> values);

}  // namespace neuroshard
