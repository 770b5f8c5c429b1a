// Byte counts for people.
#pragma once

#include <cstdint>
#include <string>

namespace neuroshard {

inline constexpr std::int64_t kKiB = 1024;
inline constexpr std::int64_t kMiB = 1024 * kKiB;
inline constexpr std::int64_t kGiB = 1024 * kMiB;

// "512 B", "1.50 GiB".
std::string FormatBytes(std::int64_t bytes);

}  // namespace neuroshard
