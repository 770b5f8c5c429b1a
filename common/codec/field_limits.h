// The largest values that more than one codec takes, quoted in their errors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace neuroshard {

// Rows of a table, and any offset or extent of a shard: what is added up or multiplied by a row's
// bytes behind the codec stays far from the end of int64.
inline constexpr std::int64_t kMaxExtent = std::int64_t{1} << 48;
inline constexpr std::int64_t kMaxDim = 65536;
inline constexpr double kMaxPoolingFactor = 1e6;
// Longest name of a table or module.
inline constexpr std::size_t kMaxNameBytes = 512;
inline constexpr std::size_t kMaxRequestIdBytes = 128;
inline constexpr std::size_t kMaxModelNameBytes = 128;
// Cores that a search may ask for; a server may give fewer.
inline constexpr std::int64_t kMaxSearchThreads = 1024;
// Samples of a global batch.
inline constexpr std::int64_t kMaxBatch = std::int64_t{1} << 30;

}  // namespace neuroshard
