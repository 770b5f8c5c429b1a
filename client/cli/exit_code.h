// Exit codes of the process.
#pragma once

namespace neuroshard {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
// A sweep or a validation that SIGINT or SIGTERM stopped; as shells report a process that SIGINT
// ended.
inline constexpr int kExitInterrupted = 130;

}  // namespace neuroshard
