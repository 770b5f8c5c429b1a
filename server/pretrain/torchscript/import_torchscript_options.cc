#include "server/pretrain/torchscript/import_torchscript_options.h"

#include <charconv>
#include <map>
#include <string>
#include <vector>

namespace neuroshard {
namespace {

// "D=FILE" into `networks`.
void AddCommNetwork(const std::string& option, const std::string& text,
                    std::map<int, std::string>& networks) {
  const std::size_t equals = text.find('=');
  int devices = 0;
  const char* end = text.data() + (equals == std::string::npos ? 0 : equals);
  const auto parsed = std::from_chars(text.data(), end, devices);
  if (parsed.ec != std::errc() || parsed.ptr != end || devices < 2 || equals + 1 == text.size()) {
    throw CLI::ValidationError(option, text + ": must be D=FILE, D the number of devices (2 on)");
  }
  if (!networks.emplace(devices, text.substr(equals + 1)).second) {
    throw CLI::ValidationError(option, text + ": a second file for this number of devices");
  }
}

}  // namespace

CLI::App* AddImportTorchScript(CLI::App& app, ImportTorchScriptCommand& command) {
  auto* import = app.add_subcommand(
      "import-torchscript",
      "Make a cost model of networks that torch.jit.save wrote. Such files are programs, and they "
      "are run to check the import: import only files that you trust");
  import->add_option("--compute", command.compute, "Network of the compute cost (FILE.pt)")
      ->required();
  const auto add_comm = [import](const char* option, std::map<int, std::string>& networks,
                                 const char* text) {
    import
        ->add_option_function<std::vector<std::string>>(
            option,
            [option, &networks](const std::vector<std::string>& values) {
              for (const std::string& value : values) AddCommNetwork(option, value, networks);
            },
            text)
        ->type_name("D=FILE");
};
add_comm("--forward-comm", command.forward_comm,
         "Network of forward all-to-alls of D devices; may be repeated");
add_comm("--backward-comm", command.backward_comm, "The same, backward");
import->add_option("--statistics", command.statistics,
                   "Mean and deviation of the inputs (FILE.json), for modules that take them "
                   "normalised; others have buffers feature_mean and feature_std");
import
    ->add_option("--features", command.features,
                 "Input columns of the compute network (default: the release's 20)")
    ->delimiter(',');
import->add_option("--log1p", command.log1p, "Features that it takes as ln(1 + x)")->delimiter(',');
import->add_option("--outputs", command.outputs, "total_ms (default), or forward_ms,backward_ms")
    ->delimiter(',');
import->add_option("--table-layers", command.table_layers,
                   "Linear layers before the sum over shards (default: found by running it)");
import->add_option("--out", command.model_directory, "ROOT/NAME/VERSION to write")->required();
  import->add_flag_callback(
      "--overwrite", [&command] { command.existing = ExistingVersion::kReplace;
  },
      "Replace the version");
  import->add_option("--batch-size", command.batch_size, "Global batch size it is for")
      ->check(CLI::PositiveNumber);
  import->add_option("--weight-dtype", command.weight_dtype, "fp32, fp16 or bf16");
  import->add_option("--optimizer", command.optimizer, "sgd, adagrad, rowwise_adagrad or adam");
  import->add_option("--device", command.device, "Device it was measured on, as workers call it");
  import->add_option("--backend", command.backend, "Whose kernels were timed, e.g. fbgemm-cuda");
  import->add_option("--collective-backend", command.collective_backend,
                     "Whose collectives were timed, e.g. nccl");
  return import;
  }

  }  // namespace neuroshard
