#include "server/pretrain/torchscript/torchscript_import.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/api/module.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "common/base/random.h"
#include "server/cost/neural/neural_cost_model.h"
#include "server/models/model_manifest.h"

namespace neuroshard {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Modules as a team would save them, without Python: Linear layers l0, l1, ... and any forward.
class ScriptedModule {
 public:
  // `widths` from input to output.
  ScriptedModule(const std::vector<std::int64_t>& widths, std::uint64_t seed)
      : unit_(std::make_shared<torch::jit::CompilationUnit>()),
        module_(c10::QualifiedName("__torch__.CostNetwork"), unit_) {
    Random random(seed);
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      torch::jit::Module layer(c10::QualifiedName(fmt::format("__torch__.Linear{}", i)), unit_);
      layer.register_parameter("weight", Uniform(random, {widths[i + 1], widths[i]}), false);
      layer.register_parameter("bias", Uniform(random, {widths[i + 1]}), false);
      module_.register_module(fmt::format("l{}", i), layer);
      layers_.push_back(layer);
    }
  }

  ScriptedModule& Forward(const std::string& text) {
    module_.define(text);
    return *this;
  }
  ScriptedModule& Normalise(float mean, float std) {
    const auto columns = layers_.front().attr("weight").toTensor().size(1);
    module_.register_buffer("feature_mean", at::full({columns}, mean));
    module_.register_buffer("feature_std", at::full({columns}, std));
    return *this;
  }
  at::Tensor Weight(std::size_t layer) { return layers_[layer].attr("weight").toTensor(); }
  torch::jit::Module& module() { return module_; }
  void Save(const std::string& path) { module_.save(path); }

 private:
  static at::Tensor Uniform(Random& random, std::vector<std::int64_t> shape) {
    at::Tensor tensor = at::empty(shape, at::kFloat);
    for (std::int64_t i = 0; i < tensor.numel(); ++i) {
      tensor.data_ptr<float>()[i] = static_cast<float>(random.UniformReal() - 0.45);
    }
    return tensor;
  }

  std::shared_ptr<torch::jit::CompilationUnit> unit_;
  torch::jit::Module module_;
  std::vector<torch::jit::Module> layers_;
};

// Two layers, the sum (over dimension -2: with and without a dimension for the batch), two layers.
constexpr char kSumForward[] = R"(
def forward(self, x):
    x = torch.relu(torch.linear(x, self.l0.weight, self.l0.bias))
    x = torch.relu(torch.linear(x, self.l1.weight, self.l1.bias)).sum(-2)
    x = torch.relu(torch.linear(x, self.l2.weight, self.l2.bias))
    return torch.linear(x, self.l3.weight, self.l3.bias)
)";
constexpr char kCommForward[] = R"(
def forward(self, x):
    x = torch.relu(torch.linear(x, self.l0.weight, self.l0.bias))
    return torch.linear(x, self.l1.weight, self.l1.bias)
)";

class TorchScriptImportTest : public testing::Test {
 protected:
  TorchScriptImportTest()
      : folder_(fs::path(testing::TempDir()) /
                fmt::format("torchscript-{}-{}", ::getpid(),
                            testing::UnitTest::GetInstance()->current_test_info()->name())),
        out_(std::tmpfile()) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    context_ = {out_, out_, ProgressStyle::kLines, nullptr, nullptr, 1'795'000'000'000};
    command_.compute = Path("compute.pt");
    command_.statistics = Path("statistics.json");
    command_.features = {"dim", "row", "pooling_factor"};
    command_.log1p = {"row"};
    command_.model_directory = Path("models/ours/1");
    command_.batch_size = 4096;
    command_.weight_dtype = "fp16";
    WriteStatistics(R"({"compute": {"feature_means": [64, 12, 8], "feature_stds": [50, 3, 9.5]}})");
    Compute().Forward(kSumForward).Save(command_.compute);
  }
  ~TorchScriptImportTest() override {
    std::fclose(out_);
    fs::remove_all(folder_);
  }

  // As wide everywhere as it can be: shapes do not tell where the sum is.
  static ScriptedModule Compute() { return {{3, 6, 6, 6, 1}, 5}; }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  void WriteStatistics(const std::string& text) { std::ofstream(Path("statistics.json")) << text; }
  Status Import() { return RunImportTorchScript(command_, context_); }
  ModelManifest Manifest() const { return *ReadModelManifest(command_.model_directory); }

  void ExpectRefused(const testing::Matcher<std::string>& message) {
    const Status status = Import();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(Message(status), message);
    EXPECT_FALSE(fs::exists(Path("models")));
  }

  fs::path folder_;
  std::FILE* out_;
  CommandContext context_;
  ImportTorchScriptCommand command_;
};

TEST_F(TorchScriptImportTest, WhatIsServedIsWhatTheModuleComputes) {
  ScriptedModule forward({4, 9, 2}, 1);
  forward.Forward(kCommForward).Save(Path("forward.pt"));
  ScriptedModule backward({2, 5, 2}, 2);
  backward.Forward(kCommForward).Save(Path("backward.pt"));
  command_.forward_comm = {{2, Path("forward.pt")}};
  command_.backward_comm = {{2, Path("backward.pt")}};
  WriteStatistics(R"({"compute": {"feature_means": [64, 12, 8], "feature_stds": [50, 3, 9.5]},
    "forward_comm": {"2": {"feature_means": 100, "feature_stds": 40}},
    "backward_comm": {"2": {"feature_means": [90, 110], "feature_stds": 10}}})");
  const Status status = Import();
  ASSERT_TRUE(status.ok()) << status;
  const ModelManifest manifest = Manifest();
  EXPECT_EQ(manifest.compute.table_layers, (std::vector<std::int64_t>{3, 6, 6}));
  EXPECT_EQ(manifest.compute.head_layers, (std::vector<std::int64_t>{6, 6, 1}));
  EXPECT_EQ(manifest.global_batch_size, 4096);
  EXPECT_EQ(manifest.weight_dtype, "fp16");
  EXPECT_EQ(manifest.provenance.at("forward_comm.2.file"), "forward.pt");

  const auto model = LoadNeuralCostModel(manifest, command_.model_directory);
  ASSERT_TRUE(model.ok()) << model.status();
  ShardFeatures shards[2];
  shards[0].cols = 128;
  shards[0].rows = shards[0].table_rows = 1'000'000;
  shards[0].pooling_factor = 20;
  shards[1].cols = 16;
  shards[1].rows = shards[1].table_rows = 5000;
  shards[1].pooling_factor = 1;
  const auto width = static_cast<std::size_t>((*model)->representation_width());
  std::vector<float> phi(2 * width);
  std::vector<CommLoad> loads(2);
  PricingConditions conditions;
  conditions.num_ranks = 2;
  (*model)->Represent(conditions, shards, phi, loads);
  for (std::size_t i = 0; i < width; ++i) phi[i] += phi[width + i];
  ComputeCost cost;
  (*model)->ComputeCosts(std::span(phi).first(width), std::span(&cost, 1));
  at::Tensor inputs = at::empty({2, 3}, at::kFloat);
  for (int i = 0; i < 2; ++i) {
    inputs[i][0] = (static_cast<double>(shards[i].cols) - 64) / 50;
    inputs[i][1] = (std::log1p(static_cast<double>(shards[i].rows)) - 12) / 3;
    inputs[i][2] = (shards[i].pooling_factor - 8) / 9.5;
  }
  ScriptedModule compute = Compute();
  compute.Forward(kSumForward);
  const float expected = compute.module().forward({inputs}).toTensor().item<float>();
  EXPECT_GT(expected, 0.1);
  EXPECT_NEAR(cost.total_ms, expected, 1e-5 * expected);
}

TEST_F(TorchScriptImportTest, ModulesThatNormaliseNeedNoStatistics) {
  command_.statistics.clear();
  ScriptedModule module = Compute();
  module.Normalise(1000, 20).Forward(R"(
def forward(self, shards: List[Tensor]):
    sums = []
    for x in shards:
        x = (x - self.feature_mean) / self.feature_std
        x = torch.relu(torch.linear(x, self.l0.weight, self.l0.bias))
        sums.append(x.sum(0))
    x = torch.relu(torch.linear(torch.stack(sums), self.l1.weight, self.l1.bias))
    x = torch.relu(torch.linear(x, self.l2.weight, self.l2.bias))
    return torch.relu(torch.linear(x, self.l3.weight, self.l3.bias))
)");
  module.Save(command_.compute);
  const Status status = Import();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Manifest().compute.table_layers, (std::vector<std::int64_t>{3, 6}));
  command_.statistics = Path("statistics.json");
  command_.model_directory = Path("models/ours/2");
  EXPECT_THAT(Message(Import()), HasSubstr("stated twice"));
}

TEST_F(TorchScriptImportTest, AVersionIsReplacedWhenAskedTo) {
  ASSERT_TRUE(Import().ok());
  EXPECT_EQ(Import().code(), absl::StatusCode::kAlreadyExists);
  command_.existing = ExistingVersion::kReplace;
  command_.batch_size = 512;
  const Status status = Import();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(Manifest().global_batch_size, 512);
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(Path("models/ours"))) {
    left.push_back(entry.path().filename());
  }
  EXPECT_THAT(left, testing::ElementsAre("1"));
}

TEST_F(TorchScriptImportTest, AModuleThatComputesSomethingElseIsRefused) {
  const std::pair<const char*, const char*> changes[] = {
      {".sum(-2)", ".mean(-2)"}, {"relu(", "tanh("}, {"return torch", "return 1.001 * torch"}};
  for (const auto& [from, to] : changes) {
    std::string text = kSumForward;
    text.replace(text.find(from), std::string(from).size(), to);
    Compute().Forward(text).Save(command_.compute);
    ExpectRefused(AllOf(HasSubstr("compute.pt"), HasSubstr("computes something else"),
                        HasSubstr("random rows is")));
  }
  Compute().Forward(kSumForward).Save(command_.compute);
  command_.table_layers = 1;
  ExpectRefused(HasSubstr("the sum over rows after 1 of them"));
}

TEST_F(TorchScriptImportTest, AllFaultsOfAllFilesAreNamed) {
  ScriptedModule compute({3, 6, 6, 5, 1}, 5);
  compute.Weight(1)[2][3] = std::numeric_limits<float>::quiet_NaN();
  compute.module().register_parameter("scale", at::ones({1}), false);
  compute.Forward(kSumForward).Save(command_.compute);
  ScriptedModule comm({5, 6, 4}, 5);
  comm.Forward(kCommForward).Save(Path("forward.pt"));
  std::ofstream(Path("text.pt")) << "no archive";
  command_.forward_comm = {{2, Path("forward.pt")}, {4, Path("none.pt")}};
  command_.backward_comm = {{8, Path("text.pt")}};
  WriteStatistics(R"({"compute": {"feature_means": 0, "feature_stds": 1},
                      "forward_comm": {"2": {"feature_means": [0, 0], "feature_stds": 0}},
                      "backward_comm": {"16": {"feature_means": 0, "feature_stds": 1}}})");
  ExpectRefused(
      AllOf(HasSubstr("compute.pt: l1.weight: value 15 is nan"), HasSubstr("compute.pt: scale"),
            HasSubstr("forward.pt: l0.weight: 5 inputs, 4 before it"),
            HasSubstr("forward.pt: l1.weight: 4 outputs of the network, must be 2"),
            HasSubstr("forward.pt: feature_means: 2 values, must be 4"),
            HasSubstr("forward.pt: feature_stds: value 0 is 0"), HasSubstr("none.pt: no such file"),
            HasSubstr("text.pt: cannot be read as a TorchScript archive"),
            HasSubstr("backward_comm.16: no such network")));
}

TEST_F(TorchScriptImportTest, WhatCannotBeToldOrRunIsRefused) {
  WriteStatistics("{}");
  ExpectRefused(HasSubstr("statistics: none"));
  WriteStatistics("[");
  ExpectRefused(HasSubstr("not a JSON object"));
  WriteStatistics(R"({"compute": {"feature_means": 0, "feature_stds": 1}})");
  Compute().Forward("def forward(self, x, y):\n    return x\n").Save(command_.compute);
  ExpectRefused(HasSubstr("forward fails"));
  ScriptedModule dead = Compute();
  dead.Weight(3).fill_(0);
  dead.Forward(kSumForward).Save(command_.compute);
  ExpectRefused(testing::AnyOf(HasSubstr("say which"), HasSubstr("no cost above 0")));
}

}  // namespace
}  // namespace neuroshard
