// The command line of `neuroshard-pretrain import-torchscript`.
#pragma once

#include <CLI/CLI.hpp>

#include "server/pretrain/torchscript/torchscript_import.h"

namespace neuroshard {

// Adds the subcommand; parsing fills `command`, which must outlive `app`. Without `--format`.
CLI::App* AddImportTorchScript(CLI::App& app, ImportTorchScriptCommand& command);

}  // namespace neuroshard
