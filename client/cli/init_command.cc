#include "client/cli/init_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "client/cli/command_options.h"
#include "client/cli/commands.h"
#include "common/base/bytes.h"
#include "common/base/in_file.h"
#include "common/base/violations.h"
#include "common/cli/option_values.h"
#include "common/codec/message_text.h"
#include "common/codec/table_files.h"
#include "common/codec/text_file.h"
#include "common/devices/device_table.h"
#include "common/text/text_value.h"
#include "neuroshard/v1/planner.pb.h"

namespace neuroshard {
namespace {

struct InitOptions {
  std::string tables_file;
  RequestTemplate request;
  std::string out_file;
};

StatusOr<int> RunInit(const InitOptions& options, const Console& console) {
  // What somebody has edited is not written over.
  if (!options.out_file.empty() && options.out_file != "-" &&
      std::filesystem::exists(options.out_file)) {
    return FailedPrecondition("{} exists already", options.out_file);
  }
  RequestTemplate request = options.request;
  if (!options.tables_file.empty()) {
    NS_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(options.tables_file));
    auto tables = TablesAsYaml(text, options.request.embedding_dim);
    if (!tables.ok()) return InFile(options.tables_file, tables.status());
    request.tables = *std::move(tables);
  }
  return WriteResult(console, options.out_file, RequestAsYaml(request));
}

constexpr char kSomeTables[] =
    R"(  - {name: users, num_embeddings: 40_000_000, embedding_dim: 128, pooling_factor: 3}
  - {name: goods, num_embeddings: 500_000, embedding_dim: 32, pooling_factor: 20, zipf_exponent: 1.05}
)";

// Fields of EmbeddingBagConfig and EmbeddingConfig that say nothing about sharding.
const std::set<std::string_view> kLeftOut = {"init_fn",
                                             "weight_init_max",
                                             "weight_init_min",
                                             "init_max",
                                             "init_min",
                                             "input_dim",
                                             "need_pos",
                                             "use_virtual_table",
                                             "num_embeddings_post_pruning",
                                             "total_num_buckets",
                                             "virtual_table_eviction_policy"};

// "DataType.FP32" and "PoolingType.SUM" as a request has them.
std::string InLowerCase(std::string text) {
  text.erase(0, text.rfind('.') + 1);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// A scalar that YAML and JSON both read back.
std::string Scalar(const TextValue& value) {
  const bool plain = !value.text.empty() && std::ranges::all_of(value.text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-' || c == '+';
  });
  if (plain && value.text.front() != '-') return value.text;
  if (value.kind == TextValue::Kind::kNumber) return value.text;
  return nlohmann::json(value.text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string Value(const TextValue& value) {
  if (value.kind != TextValue::Kind::kSequence) return Scalar(value);
  const std::vector<std::string> items = Mapped<std::string>(value.items, Scalar);
  return fmt::format("[{}]", fmt::join(items, ", "));
}

// One entry, its fields under our names.
std::string Entry(const TextValue& table, std::int64_t embedding_dim) {
  std::vector<std::string> fields;
  bool has_dim = false;
  for (std::size_t i = 0; i < table.items.size(); ++i) {
    const std::string& key = table.keys[i];
    const TextValue& value = table.items[i];
    if (kLeftOut.contains(key) || value.kind == TextValue::Kind::kNull) continue;
    has_dim = has_dim || key == "embedding_dim";
    if (key == "feature_names") {
      fields.push_back("features: " + Value(value));
    } else if (key == "data_type") {
      fields.push_back("weight_dtype: " + InLowerCase(value.text));
    } else if (key == "pooling") {
      fields.push_back("pooling_mode: " + InLowerCase(value.text));
    } else {
      fields.push_back(key + ": " + Value(value));
    }
  }
  if (!has_dim) fields.push_back(fmt::format("embedding_dim: {}", embedding_dim));
  return fmt::format("  - {{{}}}\n", fmt::join(fields, ", "));
}

StatusOr<std::string> EntriesOfCsv(std::string_view text, std::int64_t embedding_dim) {
  NS_ASSIGN_OR_RETURN(const std::vector<Table> tables, ParseTableCsv(text));
  std::string entries;
  for (const Table& table : tables) {
    entries += fmt::format(
        "  - {{name: {}, num_embeddings: {}, embedding_dim: {}, pooling_factor: {}, "
        "reuse_histogram: [{}]}}\n",
        table.name, table.num_embeddings, embedding_dim, table.pooling_factor,
        fmt::join(table.reuse_histogram, ", "));
  }
  return entries;
}

// What a device is and has, as fields of a host.
std::string DeviceFields(const RequestTemplate& request) {
  std::string fields;
  if (!request.device.empty()) fields = ", device: " + request.device;
  if (request.memory_bytes == 0 && !request.device.empty()) return fields;
  const std::int64_t bytes = request.memory_bytes == 0 ? 80 * kGiB : request.memory_bytes;
  return fields + (bytes % kGiB == 0 ? fmt::format(", memory_bytes: {}GiB", bytes / kGiB)
                                     : fmt::format(", memory_bytes: {}", bytes));
}

}  // namespace

void AddInitCommand(CLI::App& app, const Console& console, int* exit_code) {
  const auto options = std::make_shared<InitOptions>();
  CLI::App* command =
      app.add_subcommand("init", "Write a request with comments, to be filled in and planned");
  command
      ->add_option("--tables", options->tables_file,
                   "Tables to put in: a CSV of neuroshard-dataset-statistics, or a list in YAML or "
                   "JSON with a table's fields or TorchRec's (EmbeddingBagConfig); -: stdin")
      ->type_name("FILE");
  InRange(command->add_option("--embedding-dim", options->request.embedding_dim,
                              "Columns of tables whose file does not say"),
          std::int64_t{1}, std::int64_t{65'536})
      ->capture_default_str();
  InRange(command->add_option("--hosts", options->request.num_hosts, "Hosts"), 1, 16'384)
      ->capture_default_str();
  InRange(command->add_option("--devices", options->request.devices_per_host, "Devices of a host"),
          1, 16'384)
      ->capture_default_str();
  command
      ->add_option("--device", options->request.device,
                   "What the devices are, as `neuroshard devices` lists them: brings memory, "
                   "bandwidths and links")
      ->type_name("NAME")
      ->check([](const std::string& name) {
        return FindDevice(name) == nullptr ? DescribeUnknownDevice(name) : "";
      });
  InRange(command->add_option("--memory-bytes", options->request.memory_bytes,
                              "Memory of a device; default: the named device's, else 80GiB"),
          std::int64_t{1}, std::int64_t{1} << 50);
  command->add_option("--out", options->out_file, "Write to this new file instead of stdout");
  WhenChosen(*command, options, RunInit, console, exit_code);
}

StatusOr<std::string> TablesAsYaml(std::string_view text, std::int64_t embedding_dim) {
  if (text.starts_with("index,")) return EntriesOfCsv(text, embedding_dim);
  auto document = ParseJsonDocument(text);
  if (!document.ok()) {
    // The faults of a text that is neither are those of YAML, which say more.
    NS_ASSIGN_OR_RETURN(TextValue yaml, ParseYamlDocument(text));
    document = std::move(yaml);
  }
  const TextValue* list = document->Find("tables");
  if (list == nullptr) list = &*document;
  if (list->kind != TextValue::Kind::kSequence || list->items.empty()) {
    return InvalidArgument("must be a CSV that begins with \"index,\", or a list of tables, got {}",
                           Shown(*list));
  }
  Violations faults;
  std::string entries;
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    const TextValue& table = list->items[i];
    if (table.kind == TextValue::Kind::kMapping) {
      entries += Entry(table, embedding_dim);
    } else {
      faults.Add(fmt::format("tables[{}]", i), "must be a mapping, got " + Shown(table));
    }
  }
  NS_RETURN_IF_ERROR(faults.ToStatus());
  // What is written is read back: a field that a request does not have is named as there.
  v1::ShardPlanRequest request;
  NS_RETURN_IF_ERROR(ParseMessageText("tables:\n" + entries, TextFormat::kYaml, &request));
  return entries;
}

std::string RequestAsYaml(const RequestTemplate& request) {
  return fmt::format(
      R"(# A request for `neuroshard plan THIS_FILE`. proto/neuroshard/v1/planner.proto has every field.
# Numbers may have a unit (80GiB, 80GB, 1.5s) and `_` between digits.

# Samples of one training step, over all devices together.
global_batch_size: 65_536
# sgd, adagrad, rowwise_adagrad or adam: how much state a table has besides its weights.
optimizer: rowwise_adagrad

# Hosts that are alike are one entry. memory_bytes is what a device has for embeddings. `device:
# h100-sxm` in its place brings memory, bandwidths and links (`neuroshard init --device`); `neuroshard
# devices` lists the names.
topology:
  hosts:
    - {{count: {}, num_devices: {}{}}}
# Links that differ from the device's: bytes per second of a rank within its host, of a network card,
# and how many ranks of a host share a card.
#  bandwidths: {{intra_host_bytes_per_s: 300e9, nic_bytes_per_s: 50e9, ranks_per_nic: {}}}

# What a device's memory must hold: full (weights, optimizer state, ids, activations), weights_only,
# or torchrec (TorchRec's estimate). Besides, a share that is kept free.
#memory: {{rule: full, reserve_fraction: 0.1}}

# Default: one that was measured on the hosts' device, else analytic, TorchRec's formulas. `neuroshard
# models list` shows what there is. CPUs' answer where topology says `compute_device: cpu`.
#cost_model: {{name: analytic}}

# refine: a first plan in milliseconds, then local search. The same seed gives the same plan.
#search: {{strategy: refine, seed: 1}}

# pooling_factor: mean ids a sample looks up in the table. reuse_histogram or zipf_exponent: how often
# ids repeat. weight_dtype: fp32, fp16 or bf16.
tables:
{}
# What plans must obey; proto/neuroshard/v1/constraints.proto has the rest.
#constraints: {{sharding_types: [table_wise, column_wise, row_wise]}}
)",
      request.num_hosts, request.devices_per_host, DeviceFields(request),
      std::min(2, request.devices_per_host), request.tables.empty() ? kSomeTables : request.tables);
}

}  // namespace neuroshard
