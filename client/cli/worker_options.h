// --workers of the commands that measure.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace neuroshard {

// A list of HOST:PORT, required; it must outlive the parse.
CLI::Option* AddWorkersOption(CLI::App& command, std::vector<std::string>& workers);

// A usage error (throws CLI::ValidationError) when an address is listed twice: its devices would be
// used as if there were twice as many.
void CheckDistinctWorkers(const std::vector<std::string>& workers);

}  // namespace neuroshard
