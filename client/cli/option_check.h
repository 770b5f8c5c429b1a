// Checks of the command line itself, which fail with exit code 2.
#pragma once

#include <string>

namespace neuroshard {

// Empty when `text` is HOST:PORT with a port in [1, 65535] ("[::1]:50051" for IPv6); otherwise what
// is wrong. For CLI::Option::check.
std::string CheckAddress(const std::string& text);

// The same for an address of replicas (client/stub/replicas.h): HOST:PORT,HOST:PORT,...
std::string CheckReplicaAddress(const std::string& text);

}  // namespace neuroshard
