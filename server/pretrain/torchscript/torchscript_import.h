// `neuroshard-pretrain import-torchscript`: networks that were trained in PyTorch become a cost
// model of the repository.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "server/pretrain/model_publication.h"
#include "server/pretrain/pretrain_commands.h"

namespace neuroshard {

struct ImportTorchScriptCommand {
  std::string compute;                      // TorchScript archives
  std::map<int, std::string> forward_comm;  // by number of devices
  std::map<int, std::string> backward_comm;
  std::string statistics;             // JSON; may be empty where modules normalise
  std::vector<std::string> features;  // empty: the release's 20, in its order
  std::vector<std::string> log1p;     // features that the network takes as ln(1 + x)
  std::vector<std::string> outputs = {"total_ms"};
  std::optional<int> table_layers;  // Linear layers before the sum; absent: found
  std::string model_directory;      // ROOT/NAME/VERSION
  ExistingVersion existing = ExistingVersion::kRefuse;
  std::int64_t batch_size = 0;  // 0, and empty texts: not stated
  std::string weight_dtype;
  std::string optimizer;
  std::string device;
  std::string backend;
  std::string collective_backend;
  OutputFormat format = OutputFormat::kTable;
};

// Checks everything before it writes anything; INVALID_ARGUMENT lists the faults of all files, each
// with its file. The model appears complete or not at all; a replaced one is exchanged in one step.
Status RunImportTorchScript(const ImportTorchScriptCommand& command, const CommandContext& context);

}  // namespace neuroshard
