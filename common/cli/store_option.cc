#include "common/cli/store_option.h"

#include <CLI/CLI.hpp>

namespace neuroshard {

CLI::Option* AddStoreOption(CLI::App& command, std::string& store, const std::string& description) {
  return command.add_option("--store", store, description)
      ->type_name("FILE.db|postgresql://...")
      ->required()
      ->envname("NEUROSHARD_STORE");
}

}  // namespace neuroshard
