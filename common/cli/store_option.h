// --store of the commands that need one.
#pragma once

#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace neuroshard {

// A profile store (a file or an address of PostgreSQL), required; NEUROSHARD_STORE stands in for
// it. `store` must outlive the parse.
CLI::Option* AddStoreOption(CLI::App& command, std::string& store, const std::string& description);

}  // namespace neuroshard
