// A request with comments, as `neuroshard init` writes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace neuroshard {

// Choices of `neuroshard init`.
struct RequestTemplate {
  int num_hosts = 1;
  int devices_per_host = 8;
  std::string device = {};          // as in HostGroup.device; empty: not stated
  std::int64_t memory_bytes = 0;    // 0: the device's, without one 80 GiB
  std::int64_t embedding_dim = 64;  // of tables whose file does not say
  std::string tables = {};          // entries of `tables` in YAML; empty: two made-up ones
};

// A legal request in YAML. Comments begin with "# "; a line that begins with "#" and no space
// behind it is an option, legal once the "#" is gone.
std::string RequestAsYaml(const RequestTemplate& request);

// Entries for `tables`, of a CSV (common/codec/table_files.h) or of a list of tables in YAML or
// JSON, by itself or below `tables`. Fields are those of v1::Table, or of TorchRec's
// EmbeddingBagConfig: feature_names, data_type, pooling; what else TorchRec has there (init_fn ...)
// is left out. INVALID_ARGUMENT with every fault.
StatusOr<std::string> TablesAsYaml(std::string_view text, std::int64_t embedding_dim);

}  // namespace neuroshard
