#include "server/networks/model_manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "common/base/violations.h"
#include "server/networks/testing/model_fixture.h"
#include "server/networks/testing/universal_fixture.h"
#include "tests/support/faulty_fields.h"

namespace neuroshard {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using namespace std::string_literals;

// The format of the design document, all keys used.
constexpr std::string_view kWhole = R"(format: neuroshard-cost-model/1
name: rtx2080ti-neuroshard
version: 3
hardware:
  device: RTX 2080 Ti
  backend: fbgemm-cuda
  collective_backend: nccl
conditions:
  global_batch_size: 65536
  weight_dtype: fp32
  optimizer: sgd
compute:
  file: compute.safetensors
  kind: table_sum_mlp
  features: [bin_0, dim, pooling_factor, row]
  transforms: {row: log1p}
  table_layers: [4, 128, 32]
  head_layers: [32, 64, 2]
  outputs: [forward_ms, backward_ms]
forward_comm:
  - file: forward_comm_2.safetensors
    kind: device_count_mlp
    num_devices: 2
    layers: [4, 8, 2]
  - file: forward_comm_4.safetensors
    kind: device_count_mlp
    num_devices: 4
    layers: [8, 128, 64, 32, 16, 4]
backward_comm:
  - file: backward_comm_4.safetensors
    kind: device_count_mlp
    num_devices: 4
    layers: [4, 128, 64, 32, 16, 4]
provenance:
  made_by: a sweep, by hand
  sweep:
    samples: 10
metrics:
  compute:
    kendall_tau: 0.97
    mse: 0.01
)";

NetworkManifest CommOf(const std::string& file, int num_devices,
                       const std::vector<std::int64_t>& layers) {
  NetworkManifest network;
  network.kind = NetworkKind::kDeviceCount;
  network.file = file;
  network.num_devices = num_devices;
  network.layers = layers;
  return network;
}

std::string Replaced(std::string_view from, std::string_view to) {
  std::string text(kWhole);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::vector<Violation> Faults(const std::string& yaml) {
  const auto manifest = ParseModelManifest(yaml);
  EXPECT_TRUE(absl::IsInvalidArgument(manifest.status())) << manifest.status();
  return Violations::FromStatus(manifest.status());
}

// The only fault, as "field: description".
std::string Fault(const std::string& yaml) {
  const auto faults = Faults(yaml);
  EXPECT_EQ(faults.size(), 1U);
  return faults.empty() ? "" : faults[0].field + ": " + faults[0].description;
}

TEST(ModelManifestTest, ReadsEveryKey) {
  const auto manifest = ParseModelManifest(kWhole);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->name, "rtx2080ti-neuroshard");
  EXPECT_EQ(manifest->version, 3);
  EXPECT_EQ(manifest->device, "RTX 2080 Ti");
  EXPECT_EQ(manifest->backend, "fbgemm-cuda");
  EXPECT_EQ(manifest->collective_backend, "nccl");
  EXPECT_EQ(manifest->global_batch_size, 65536);
  EXPECT_EQ(manifest->weight_dtype, "fp32");
  EXPECT_EQ(manifest->optimizer, "sgd");
  EXPECT_THAT(manifest->compute.features, ElementsAre("bin_0", "dim", "pooling_factor", "row"));
  EXPECT_THAT(manifest->compute.transforms, ElementsAre(Pair("row", "log1p")));
  EXPECT_THAT(manifest->compute.layers, ElementsAre(4, 128, 32));
  EXPECT_THAT(manifest->compute.head_layers, ElementsAre(32, 64, 2));
  EXPECT_THAT(manifest->compute.outputs, ElementsAre("forward_ms", "backward_ms"));
  ASSERT_EQ(manifest->forward_comm.size(), 2U);
  EXPECT_EQ(manifest->forward_comm[1],
            CommOf("forward_comm_4.safetensors", 4, {8, 128, 64, 32, 16, 4}));
  EXPECT_THAT(manifest->provenance,
              ElementsAre(Pair("made_by", "a sweep, by hand"), Pair("sweep.samples", "10")));
  EXPECT_THAT(manifest->metrics,
              ElementsAre(Pair("compute.kendall_tau", "0.97"), Pair("compute.mse", "0.01")));
}

// Manifests of before there was the key are of collectives behind a barrier.
TEST(ModelManifestTest, TheCadenceIsABarrierWhereItIsNotStated) {
  EXPECT_EQ(CadenceOf(*ParseModelManifest(kWhole)), "barrier");
  const std::string text = Replaced("  collective_backend: nccl\n",
                                    "  collective_backend: nccl\n"
                                    "  collective_cadence: back_to_back\n");
  const auto manifest = ParseModelManifest(text);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(CadenceOf(*manifest), "back_to_back");
  EXPECT_THAT(*FormatModelManifest(*manifest), HasSubstr("collective_cadence: back_to_back"));
  EXPECT_EQ(CadenceOf(ModelManifest()), "") << "no collectives were measured";
  EXPECT_THAT(Fault(Replaced("nccl\n", "nccl\n  collective_cadence: stream\n")),
              HasSubstr("hardware.collective_cadence: must be one of barrier, back_to_back"));
}

TEST(ModelManifestTest, ModelsTrainedOnRecordsFromBeforeHaveTheBackendNamesOfToday) {
  const auto trained = [](std::string_view backend, std::string_view more) {
    std::string text = Replaced("  backend: fbgemm-cuda\n  collective_backend: nccl\n",
                                fmt::format("  backend: {}\n{}", backend, more));
    text.insert(text.find("  made_by"), "  trained_by: neuroshard-pretrain\n");
    const auto manifest = ParseModelManifest(text);
    EXPECT_TRUE(manifest.ok()) << manifest.status();
    return std::pair(manifest->backend, manifest->collective_backend);
  };
  EXPECT_EQ(trained("cpu", ""), std::pair("neuroshard-cpu"s, "neuroshard-tcp"s));
  EXPECT_EQ(trained("cuda", ""), std::pair("neuroshard-cuda"s, "nccl"s));
  EXPECT_EQ(trained("fbgemm-cpu", "  collective_backend: torch-gloo\n"),
            std::pair("fbgemm-cpu"s, "torch-gloo"s));
  // Of a model that comes from elsewhere nobody knows what "cuda" was.
  const auto converted = ParseModelManifest(
      Replaced("  backend: fbgemm-cuda\n  collective_backend: nccl\n", "  backend: cuda\n"));
  ASSERT_TRUE(converted.ok()) << converted.status();
  EXPECT_EQ(converted->backend, "cuda");
  EXPECT_EQ(converted->collective_backend, "");
}

TEST(ModelManifestTest, WritesTheGoldenText) {
  const auto text = FormatModelManifest(*ParseModelManifest(kWhole));
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, kWhole);
}

TEST(ModelManifestTest, EveryFixtureReadsBackEqual) {
  for (const auto& options : {ModelFixtureOptions{}, ModelFixtureOptions{.device_counts = {}},
                              ModelFixtureOptions{.outputs = {"forward_ms", "backward_ms"}}}) {
    const ModelManifest manifest = MakeModelFixture(options).manifest;
    const auto text = FormatModelManifest(manifest);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(*ParseModelManifest(*text), manifest);
  }
}

TEST(ModelManifestTest, DetailsOfAnyShapeReadBackEqual) {
  ModelManifest manifest = MakeModelFixture({}).manifest;
  manifest.metrics = {{"a", "1"},    {"a.b", "2"},     {"a-b", "3"},
                      {"c.d.e", ""}, {"list[0]", "x"}, {"true", "~"}};
  manifest.provenance = {{"a-b", "3"},
                         {"a.b", "yes: no # not a comment"},
                         {"a.c.d", "\"'\n"},
                         {"a.c.e", "null"},
                         {"host", "{ü}"}};
  const auto text = FormatModelManifest(manifest);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*ParseModelManifest(*text), manifest);
}

TEST(ModelManifestTest, TheSmallestManifest) {
  const auto manifest = ParseModelManifest(
      "format: neuroshard-cost-model/1\nname: a\nversion: 1\ncompute: {file: c.safetensors, "
      "kind: table_sum_mlp, features: [dim], table_layers: [1, 2], head_layers: [2, 1]}\n");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_THAT(manifest->compute.outputs, ElementsAre("total_ms"));
  EXPECT_TRUE(manifest->forward_comm.empty());
  EXPECT_EQ(manifest->global_batch_size, 0);
}

TEST(ModelManifestTest, OneCommNetworkNeedsNoList) {
  const auto manifest = ParseModelManifest(
      Replaced("  - file: backward_comm_4.safetensors\n    kind: device_count_mlp\n    "
               "num_devices: 4\n    layers: [4, 128, 64, 32, 16, 4]",
               "  file: b.safetensors\n  kind: device_count_mlp\n  num_devices: 3\n  "
               "layers: [3, 3]"));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_THAT(manifest->backward_comm, ElementsAre(CommOf("b.safetensors", 3, {3, 3})));
}

TEST(ModelManifestTest, OneFaultAtATime) {
  EXPECT_EQ(Fault(Replaced("neuroshard-cost-model/1", "neuroshard-cost-model/3")),
            "format: must be \"neuroshard-cost-model/1\" or \"neuroshard-cost-model/2\", got "
            "\"neuroshard-cost-model/3\"");
  EXPECT_THAT(Fault(Replaced("name: rtx2080ti-neuroshard", "name: ../etc")),
              HasSubstr("name: must be 1 to 128 letters"));
  EXPECT_EQ(Fault(Replaced("version: 3\n", "")), "version: missing");
  EXPECT_EQ(Fault(Replaced("version: 3", "version: 0")),
            "version: must be in [1, 1000000000], got 0");
  EXPECT_EQ(Fault(Replaced("version: 3", "version: 1.5")),
            "version: must be an integer, got \"1.5\"");
  EXPECT_EQ(Fault(Replaced("hardware:", "colour: red\nhardware:")), "colour: unknown key");
  EXPECT_EQ(Fault(Replaced("version: 3", "version: 3\nversion: 3")), "version: given twice");
  EXPECT_EQ(Fault(Replaced("  backend: fbgemm-cuda", "  gpus: 4")), "hardware.gpus: unknown key");
  EXPECT_THAT(Fault(Replaced("weight_dtype: fp32", "weight_dtype: int3")),
              HasSubstr("conditions.weight_dtype: must be one of fp32, fp16, bf16, fp8, int8, "
                        "int4, int2, got \"int3\""));
  EXPECT_THAT(Fault(Replaced("optimizer: sgd", "optimizer: [sgd]")),
              HasSubstr("conditions.optimizer: must be text, got a list"));
  EXPECT_THAT(Fault(Replaced("size: 65536", "size: -1")), HasSubstr("got -1"));
}

TEST(ModelManifestTest, FaultsOfTheComputeNetwork) {
  EXPECT_EQ(Fault(Replaced("table_sum_mlp", "transformer")),
            "compute.kind: must be \"table_sum_mlp\", got \"transformer\"");
  EXPECT_THAT(Fault(Replaced("bin_0, dim", "bin_99, dim")),
              HasSubstr("compute.features: unknown feature 'bin_99'"));
  EXPECT_THAT(Fault(Replaced("bin_0, dim", "dim, dim")),
              HasSubstr("compute.features: feature 'dim' is listed twice"));
  EXPECT_THAT(Fault(Replaced("{row: log1p}", "{rows: log1p}")), HasSubstr("'rows', which is not"));
  EXPECT_THAT(Fault(Replaced("{row: log1p}", "{row: sqrt}")), HasSubstr("transform 'sqrt'"));
  EXPECT_EQ(Fault(Replaced("[4, 128, 32]", "[20, 128, 32]")),
            "compute.table_layers[0]: must be the number of features, 4, got 20");
  EXPECT_EQ(Fault(Replaced("[32, 64, 2]", "[31, 64, 2]")),
            "compute.head_layers[0]: must be the last width of table_layers, 32, got 31");
  EXPECT_EQ(Fault(Replaced("[32, 64, 2]", "[32, 64, 1]")),
            "compute.head_layers[2]: must be the number of outputs, 2, got 1");
  EXPECT_THAT(Fault(Replaced("[32, 64, 2]", "[32]")),
              HasSubstr("compute.head_layers: must list 2 to 64 widths"));
  EXPECT_EQ(Fault(Replaced("[32, 64, 2]", "[32, -64, 2]")),
            "compute.head_layers[1]: must be in [1, 65536], got -64");
  EXPECT_THAT(Fault(Replaced("[forward_ms, backward_ms]", "[backward_ms, forward_ms]")),
              HasSubstr("compute.outputs: must be [total_ms] or [forward_ms, backward_ms], got "
                        "[backward_ms, forward_ms]"));
  EXPECT_THAT(Fault(Replaced("file: compute.safetensors", "file: ../compute.safetensors")),
              HasSubstr("compute.file: must be a path inside the model's directory"));
  EXPECT_THAT(Fault(Replaced("file: compute.safetensors", "file: /etc/passwd")),
              HasSubstr("compute.file: must be a path inside"));
}

TEST(ModelManifestTest, FaultsOfTheCommunicationNetworks) {
  EXPECT_EQ(Fault(Replaced("[8, 128, 64, 32, 16, 4]", "[4, 128, 64, 32, 16, 4]")),
            "forward_comm[1].layers[0]: must be 8 (dim sums and start offsets of 4 devices), got "
            "4");
  EXPECT_EQ(Fault(Replaced("[4, 128, 64, 32, 16, 4]", "[4, 128, 64, 32, 16, 1]")),
            "backward_comm[0].layers[5]: must be the number of devices, 4, got 1");
  EXPECT_THAT(Fault(Replaced("num_devices: 2\n    layers: [4, 8, 2]",
                             "num_devices: 4\n    layers: [8, 4]")),
              HasSubstr("forward_comm[1].num_devices: 4 has a network already"));
  EXPECT_THAT(Fault(Replaced("num_devices: 2", "num_devices: 1")),
              HasSubstr("forward_comm[0].num_devices: must be in [2, 16384], got 1"));
}

TEST(ModelManifestTest, AllFaultsAtOnce) {
  EXPECT_THAT(Faults("name: 7 up\nversion: x\ncompute: []\nforward_comm: 3\nmetrics: 1\n"),
              UnorderedElementsAre(Violation{"format", "missing"}, Field(&Violation::field, "name"),
                                   Field(&Violation::field, "version"),
                                   Violation{"compute", "must be a mapping, got a list"},
                                   Violation{"forward_comm", "must be a mapping, got \"3\""},
                                   Violation{"metrics", "must be a mapping, got \"1\""}));
}

TEST(ModelManifestTest, DocumentsThatAreNotManifests) {
  EXPECT_THAT(FaultyFields(ParseModelManifest("").status()),
              UnorderedElementsAre("format", "name", "version", "compute"));
  EXPECT_THAT(Message(ParseModelManifest("- 1").status()),
              HasSubstr("must be a mapping of keys to values, got a list"));
  for (const char* text : {"{", "a: b: c", "\xff\xfe\x00", "a: *b", "\t\t- x: ["}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseModelManifest(text).status())) << text;
  }
}

// Nine levels of nine aliases are 400 million entries.
TEST(ModelManifestTest, AliasesThatMultiplyAreCutOff) {
  std::string yaml = "metrics:\n  l0: &l0 [x, x, x, x, x, x, x, x, x]\n";
  for (int level = 1; level < 9; ++level) {
    yaml += fmt::format(
        "  l{0}: &l{0} [*l{1}, *l{1}, *l{1}, *l{1}, *l{1}, *l{1}, *l{1}, *l{1}, "
        "*l{1}]\n",
        level, level - 1);
  }
  EXPECT_THAT(Message(ParseModelManifest(yaml).status()), HasSubstr("more than 200000 values"));
}

TEST(ModelManifestTest, NameAndVersionAreTheDirectorys) {
  const fs::path root = fs::path(::testing::TempDir()) / "model_manifest_directories";
  fs::remove_all(root);
  const fs::path good = root / "rtx2080ti-neuroshard" / "3";
  const fs::path bad = root / "other" / "4";
  for (const fs::path& directory : {good, bad}) {
    fs::create_directories(directory);
    std::ofstream(directory / "model.yaml") << kWhole;
  }
  EXPECT_TRUE(ReadModelManifest(good).ok());
  EXPECT_TRUE(ReadModelManifest(good / "").ok());
  EXPECT_THAT(Message(ReadModelManifest(bad).status()),
              AllOf(HasSubstr("other/4/model.yaml"),
                    HasSubstr("are rtx2080ti-neuroshard/3, the directory is other/4")));
  fs::remove(bad / "model.yaml");
  EXPECT_TRUE(absl::IsNotFound(ReadModelManifest(bad).status()));
}

TEST(ModelManifestTest, WritesOnlyWhatReads) {
  ModelManifest manifest = MakeModelFixture({}).manifest;
  manifest.compute.layers[0] = 3;
  EXPECT_THAT(Message(FormatModelManifest(manifest).status()),
              HasSubstr("compute.table_layers[0]"));
  manifest = MakeModelFixture({}).manifest;
  std::swap(manifest.forward_comm[0], manifest.forward_comm[1]);
  EXPECT_THAT(Message(FormatModelManifest(manifest).status()), HasSubstr("ascending order"));
}

TEST(UniversalManifestTest, IsReadAsItIsWritten) {
  for (const UniversalFixtureOptions& options :
       {UniversalFixtureOptions{}, UniversalFixtureOptions{.has_comm = false},
        UniversalFixtureOptions{
            .outputs = {"total_ms"}, .cache_bytes = 0, .has_intervals = false}}) {
    ModelManifest manifest = MakeUniversalFixture(options).manifest;
    manifest.unusable_reason = "only a test";
    for (const bool distributes : {false, true}) {
      if (distributes) {
        manifest.input_dist = InputDistManifest{{{{2, 0.5, 1, 2.25, 0}, {8, 1.0 / 3, 0, 3, 4}}, 2},
                                                manifest.compute.interval};
        manifest.casts.bf16 = CastRates{1.0 / 3, 1e6, 0.5};
        manifest.steps = MeasuredSteps{{{.num_ranks = 2, .exchange = {1.0 / 3, 2, 0.25}},
                                        {.num_ranks = 16,
                                         .compute_scale = 1.5,
                                         .comm_scale = 0.75,
                                         .forward_share = 0.375,
                                         .input_dist_scale = 2,
                                         .input_dist = {1, 2, 0},
                                         .pipelined_share = 0.5}}};
      }
      const auto text = FormatModelManifest(manifest);
      ASSERT_TRUE(text.ok()) << text.status();
      const auto read = ParseModelManifest(*text);
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(*read, manifest);
    }
  }
}

// Every kind of compute and communication, in bytes that releases wrote.
TEST(UniversalManifestTest, ShippedOnesAreWrittenAsTheyAre) {
  int shipped = 0;
  for (const auto& entry :
       fs::recursive_directory_iterator(fs::path(NEUROSHARD_SOURCE_DIR) / "configs/models")) {
    if (entry.path().filename() != "model.yaml") continue;
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto manifest = ParseModelManifest(text);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    EXPECT_EQ(*FormatModelManifest(*manifest), text) << entry.path();
    ++shipped;
  }
  EXPECT_GE(shipped, 7);
}

TEST(UniversalManifestTest, EveryFaultHasItsPath) {
  ModelManifest manifest = MakeUniversalFixture({}).manifest;
  std::string text = *FormatModelManifest(manifest);
  const auto replace = [&](std::string_view from, std::string_view to) {
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  };
  replace("bin_3,", "bin_2,");
  replace("head_width: 5", "head_width: 0");
  replace("coverage: 0.9", "coverage: 1.5");
  replace("all_reduce:\n      coverage: 0.9", "all_reduce:\n      coverage: 0.8");
  replace("all_to_all_forward:\n      coverage: 0.9\n      factor: 2", "to_all:\n      factor: 2");
  replace("noise_cost_ms: [0.5, 5]", "noise_cost_ms: [5, 5]");
  replace("noise: [0.1, 0.05]", "noise: [0.1]");
  replace("ranks: [2, 8]", "ranks: [8, 2]");
  replace("rank_factors: [3, 4]", "rank_factors: [3]");
  replace("[own_intra, own_inter", "[own_inter, own_intra");
  replace("optimizers: [sgd", "optimizers: [lion");
  replace("min: 2", "min: 9");
  text += "forward_comm: []\nquality: {usable: maybe}\n";
  const std::vector<std::string> fields = FaultyFields(ParseModelManifest(text).status());
  EXPECT_THAT(fields,
              ::testing::IsSupersetOf(
                  {"compute.features[3]", "compute.head_width", "compute.interval.coverage",
                   "compute.interval.noise_cost_ms", "compute.interval.noise", "comm.features",
                   "comm.intervals.all_reduce.coverage", "comm.intervals.all_reduce.ranks",
                   "comm.intervals.all_reduce.rank_factors", "comm.intervals.to_all",
                   "trained_on.optimizers[0]", "trained_on.num_ranks.min", "forward_comm",
                   "quality.usable"}));
}

TEST(UniversalManifestTest, KernelsAreThoseThatWereMeasuredAndThatTheNetworkIsToldOf) {
  ModelManifest manifest = MakeUniversalFixture({}).manifest;
  std::vector<std::string>& kernels = manifest.trained_on->compute_kernels;
  // Every feature, as training names them, and "fused" alone, stated or not.
  EXPECT_TRUE(FormatModelManifest(manifest).ok());
  kernels = {"fused"};
  EXPECT_TRUE(FormatModelManifest(manifest).ok());
  kernels = {"fused", "fused_uvm", "fused_uvm_caching"};
  EXPECT_TRUE(FormatModelManifest(manifest).ok());
  kernels = {"fused", "dense", "offload", "fused_uvm"};
  EXPECT_THAT(FaultyFields(FormatModelManifest(manifest).status()),
              ElementsAre("trained_on.compute_kernels[1]", "trained_on.compute_kernels[2]"));

  kernels = {"fused", "fused_uvm", "fused_uvm_caching"};
  NetworkManifest& compute = manifest.compute;
  std::erase(compute.features, "fused_uvm_caching");
  compute.layers.front() = std::ssize(compute.features);
  EXPECT_THAT(FaultyFields(FormatModelManifest(manifest).status()),
              ElementsAre("trained_on.compute_kernels[2]"));
  std::erase(compute.features, "log_missed_rows");
  compute.layers.front() = std::ssize(compute.features);
  const Status status = FormatModelManifest(manifest).status();
  EXPECT_THAT(FaultyFields(status),
              ElementsAre("trained_on.compute_kernels[1]", "trained_on.compute_kernels[2]",
                          "trained_on.compute_kernels[2]"));
  EXPECT_THAT(Message(status), HasSubstr("fused_uvm needs feature log_missed_rows"));
  kernels = {"fused"};
  EXPECT_TRUE(FormatModelManifest(manifest).ok()) << "as models of before such features";
}

TEST(UniversalManifestTest, FaultsOfTheDistributionOfIdsHaveTheirPaths) {
  ModelManifest manifest = MakeUniversalFixture({}).manifest;
  const std::string text = *FormatModelManifest(manifest);
  EXPECT_THAT(FaultyFields(ParseModelManifest(text + "input_dist: {max_hosts: 0}\n").status()),
              ::testing::UnorderedElementsAre("input_dist.max_hosts", "input_dist.rates",
                                              "input_dist.rates"));
  const std::vector<std::string> fields = FaultyFields(
      ParseModelManifest(text + "input_dist:\n"
                                "  rates:\n"
                                "    - {num_ranks: 4, fixed_ms: -1, whole_ns_per_byte: 1,"
                                " cut_ns_per_byte: .nan, lengths_ns_per_byte: 1}\n"
                                "    - {num_ranks: 4, fixed_ms: 1, whole_ns_per_byte: 1,"
                                " lengths_ns_per_byte: 1, more: 1}\n"
                                "  interval: {coverage: 0.5, factor: 1, noise_cost_ms: [1],"
                                " noise: [0.1]}\n")
          .status());
  EXPECT_THAT(fields, ::testing::IsSupersetOf(
                          {"input_dist.rates[0].fixed_ms", "input_dist.rates[0].cut_ns_per_byte",
                           "input_dist.rates[1].num_ranks", "input_dist.rates[1].cut_ns_per_byte",
                           "input_dist.rates[1].more", "input_dist.interval.coverage"}));
}

TEST(UniversalManifestTest, CastsHaveATypeAndRatesThatRise) {
  const std::string text = *FormatModelManifest(MakeUniversalFixture({}).manifest);
  EXPECT_THAT(FaultyFields(ParseModelManifest(text + "casts: {}\n").status()),
              ::testing::ElementsAre("casts.fp16"));
  const std::string faulty =
      "casts: {int8: {}, fp16: {ns_per_value: -1, cached_values: 1, ns_per_value_beyond: 2}, "
      "bf16: {ns_per_value: 2, ns_per_value_beyond: 1}}\n";
  EXPECT_THAT(FaultyFields(ParseModelManifest(text + faulty).status()),
              ::testing::UnorderedElementsAre("casts.int8", "casts.fp16.ns_per_value",
                                              "casts.bf16.cached_values",
                                              "casts.bf16.ns_per_value_beyond"));
}

TEST(UniversalManifestTest, FaultsOfStepsHaveTheirPaths) {
  const std::string text = *FormatModelManifest(MakeUniversalFixture({}).manifest);
  const std::string of_steps =
      "steps:\n  rates:\n"
      "    - {num_ranks: 4, compute_scale: 0, comm_scale: 1, exchange_ms: {whole_rows: -1,"
      " cut_rows: 1}, forward_share: 1.5, input_dist_scale: 1, input_dist_ms: {whole_rows: 1,"
      " cut_rows: 1, replicas: .inf}, pipelined_share: -1}\n"
      "    - {num_ranks: 2}\n";
  EXPECT_THAT(FaultyFields(ParseModelManifest(text + of_steps).status()),
              ::testing::IsSupersetOf(
                  {"steps.rates[0].compute_scale", "steps.rates[0].exchange_ms.whole_rows",
                   "steps.rates[0].exchange_ms.replicas", "steps.rates[0].forward_share",
                   "steps.rates[0].input_dist_ms.replicas", "steps.rates[0].pipelined_share",
                   "steps.rates[1].num_ranks", "steps.rates[1].exchange_ms"}));
  EXPECT_THAT(FaultyFields(ParseModelManifest(text + "steps: {rates: []}\n").status()),
              ElementsAre("steps.rates"));
}

TEST(UniversalManifestTest, ItsSectionsGoWithItsKindAlone) {
  const auto manifest = ParseModelManifest(std::string(kWhole) +
                                           "trained_on: {}\ncomm: {}\ninput_dist: {}\ncasts: {}\n"
                                           "steps: {rates: []}\n");
  EXPECT_THAT(Message(manifest.status()),
              AllOf(HasSubstr("trained_on: goes with"), HasSubstr("input_dist: goes with"),
                    HasSubstr("casts: goes with"), HasSubstr("comm: goes with"),
                    HasSubstr("steps: goes with")));
}

TEST(TorchRecManifestTest, IsReadAsItIsWritten) {
  ModelManifest manifest;
  manifest.name = "mine";
  manifest.version = 1;
  KernelCoefficients entry = {ShardingType::kRowWise, ComputeKernel::kFusedUvm, 1e9, 1.0 / 3 + 1e9};
  entry.of.backward = {1, 2.5, 0, 1e-5};
  entry.of.backward_fixed_ms = 0.25;
  entry.of.block_penalty = true;
  manifest.torchrec = TorchRecComputeManifest{{{}, entry}};
  manifest.torchrec->coefficients[0].bytes_per_s = 1;
  manifest.torchrec->coefficients[0].cached_bytes_per_s = 1e18;
  const auto text = FormatModelManifest(manifest);
  ASSERT_TRUE(text.ok()) << text.status();
  const auto read = ParseModelManifest(*text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, manifest);
}

TEST(TorchRecManifestTest, EveryFaultHasItsPath) {
  const std::string head = "format: neuroshard-cost-model/1\nname: m\nversion: 1\ncompute:\n";
  const std::string numbers =
      "bytes_per_s: 1, cached_bytes_per_s: 1, forward: {ids: 1, lookup: 1, output: 1, rows: 0}, "
      "backward: {ids: 0, lookup: 0, output: 0, rows: 0}, backward_of_forward: 2, "
      "weighted_backward: 1, weighted_gradient: 1, min_lookup_cols: 0, block_penalty: false}\n";
  const std::string entry = "    - {sharding_type: table_wise, compute_kernel: fused, " + numbers;
  const auto fields = [&](const std::string& rest) {
    return FaultyFields(ParseModelManifest(head + "  kind: torchrec\n" + rest).status());
  };
  EXPECT_THAT(fields("  coefficients:\n" + entry), ElementsAre());
  EXPECT_THAT(fields(""), Contains("compute.coefficients"));
  EXPECT_THAT(fields("  coefficients: []\n"), ElementsAre("compute.coefficients"));
  EXPECT_THAT(fields("  coefficients:\n" + entry + entry),
              ElementsAre("compute.coefficients[1].compute_kernel"));
  EXPECT_THAT(
      fields(
          "  file: x\n  coefficients:\n"
          "    - {sharding_type: tables, compute_kernel: fused, forward: {ids: -1, lookup: .nan, "
          "output: 1}, forward_fixed_ms: -1, more: 1}\n"),
      ::testing::IsSupersetOf(
          {"compute.file", "compute.coefficients[0].sharding_type",
           "compute.coefficients[0].bytes_per_s", "compute.coefficients[0].forward.ids",
           "compute.coefficients[0].forward.lookup", "compute.coefficients[0].forward.rows",
           "compute.coefficients[0].backward", "compute.coefficients[0].forward_fixed_ms",
           "compute.coefficients[0].block_penalty", "compute.coefficients[0].more"}));
  EXPECT_THAT(fields("  coefficients:\n" + entry +
                     "comm: {}\nforward_comm: []\ntrained_on: {}\nsteps: {}\n"),
              UnorderedElementsAre("comm", "forward_comm", "trained_on", "steps"));
}

}  // namespace
}  // namespace neuroshard
