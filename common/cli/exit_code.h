// Exit codes of all our programs.
#pragma once

namespace neuroshard {

inline constexpr int kExitSuccess = 0;
// What was asked for was not done: no plan, an illegal one, a file or a server that cannot be used.
inline constexpr int kExitFailure = 1;
// The command line, the environment or the program's own configuration is wrong; nothing was begun.
inline constexpr int kExitUsage = 2;
// A sweep, a validation or a training that SIGINT or SIGTERM stopped; as shells report a process
// that SIGINT ended.
inline constexpr int kExitInterrupted = 130;

inline constexpr char kExitCodesText[] =
    "Exit codes: 0 success; 1 failure; 2 wrong command line, environment or configuration; 130 "
    "interrupted.";

}  // namespace neuroshard
