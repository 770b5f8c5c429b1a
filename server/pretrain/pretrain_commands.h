// The commands of neuroshard-pretrain. Each writes its result to `out` and everything else to
// `err`.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/base/stop_signal.h"
#include "common/cli/progress_display.h"
#include "server/networks/model_directory.h"
#include "server/pretrain/data/cost_data_import.h"

namespace neuroshard {

enum class OutputFormat { kTable, kJson };

// Outputs, clock and stop signal of a command.
struct CommandContext {
  std::FILE* out = nullptr;
  std::FILE* err = nullptr;
  DisplayMode progress = DisplayMode::kLog;
  const Clock* clock = nullptr;
  const StopSignal* stop = nullptr;
  std::int64_t now_unix_ms = 0;  // for the date in provenance
};

struct TrainCommand {
  std::string store;
  std::string config;  // empty: the default preset
  std::string model_directory;
  ExistingVersion existing = ExistingVersion::kRefuse;
  std::optional<std::int64_t> batch_size;  // learn from samples of this batch size only
  std::string resume_from;   // directory of a universal model to go on from; empty: from the start
  std::string replay_store;  // what that model was trained on, to be learned again; empty: nothing
  // File of configs/fabrics that prices communication where there are no measurements of it; empty:
  // none, or that of the model to go on from.
  std::string fabric;
  OutputFormat format = OutputFormat::kTable;
};

struct ImportCommand : CostDataSource {
  std::string store;
  OutputFormat format = OutputFormat::kTable;
};

// Compares a model with the measurements of a store: `evaluate` and `drift`.
struct CompareCommand {
  std::string model_directory;
  std::string store;
  OutputFormat format = OutputFormat::kTable;
};

struct ServeCommand {
  std::string model_directory;
  std::optional<double> share;  // of the requests; none: all of them, and no rollout
  bool force = false;           // in spite of the ReasonsAgainst the model
};

Status RunTrain(const TrainCommand& command, const CommandContext& context);
Status RunImport(const ImportCommand& command, const CommandContext& context);
Status RunEvaluate(const CompareCommand& command, const CommandContext& context);
// Writes drift.yaml beside the model's model.yaml.
Status RunDrift(const CompareCommand& command, const CommandContext& context);
// Writes channel.yaml beside the model's versions. With a share the version that serves now keeps
// the rest. FAILED_PRECONDITION where no channel says which version that is, and where there are
// ReasonsAgainst the model.
Status RunServe(const ServeCommand& command, const CommandContext& context);

}  // namespace neuroshard
