// The CPU embedding kernels at another program's command, so that it can run its own kernels in
// turn with ours, on the same ids and weights, and compare what both compute
// (bench/pytorch/embeddings.py).
//
// The first line of the input is a case in JSON: {"batch_size", "optimizer", "learning_rate",
// "epsilon", "tables": [{"rows", "cols", "pooling_factor", "zipf" or "reuse_histogram"}],
// "folder"}. FOLDER gets ids.T and offsets.T (int64), weights.T and gradient (fp32; [batch, columns
// of all tables]) of the machine's byte order; then comes a line of output in JSON about the
// device. Every later line is one of "forward", "backward": done and timed, the answer is
// milliseconds; "flush": the caches, as a worker does before every timed pass; "output": FOLDER
// gets output, the pooled values.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/random.h"
#include "kernels/api/testing/op_contents.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/indices/lookup_generator.h"
#include "kernels/indices/testing/zipf_lookups.h"
#include "kernels/tcp/tcp_backend.h"

namespace neuroshard {
namespace {

using Json = nlohmann::json;

template <typename T>
void WriteArray(const std::string& path, const std::vector<T>& values) {
  std::ofstream file(path, std::ios::binary);
  file.exceptions(std::ios::failbit | std::ios::badbit);
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(T)));
}

class Case {
 public:
  explicit Case(const Json& json)
      : folder_(json.at("folder").get<std::string>()),
        device_(CpuDevice::Create(8 * kGiB, std::make_shared<TcpBackend>(CollectiveOptions{}))
                    .value()) {
    EmbeddingOpSpec spec;
    spec.batch_size = json.at("batch_size");
    spec.optimizer = FromText<Optimizer>(json.at("optimizer").get<std::string>()).value();
    spec.learning_rate = json.at("learning_rate");
    spec.epsilon = json.at("epsilon");
    spec.seed = 1;
    std::vector<LookupBatch> batches;
    std::int64_t output_cols = 0;
    for (const Json& table : json.at("tables")) {
      spec.tables.push_back({table.at("rows"), table.at("cols"), PoolingMode::kSum});
      output_cols += spec.tables.back().cols;
      batches.push_back(ExpandLookups(PlanOf(table, spec.batch_size, batches.size()).value()));
    }
    op_ = device_->CreateEmbeddingOp(spec).value();
    for (std::size_t t = 0; t < batches.size(); ++t) {
      WriteArray(fmt::format("{}/ids.{}", folder_, t), batches[t].ids);
      WriteArray(fmt::format("{}/offsets.{}", folder_, t), batches[t].offsets);
      WriteArray(fmt::format("{}/weights.{}", folder_, t),
                 testing::ContentsOf(*op_)->Weights(static_cast<int>(t)));
    }
    std::vector<float> gradient(spec.batch_size * output_cols);
    Random random(2);
    for (float& value : gradient) value = static_cast<float>(random.UniformReal() - 0.5);
    Check(testing::ContentsOf(*op_)->SetOutputGradient(gradient));
    WriteArray(folder_ + "/gradient", gradient);
    Check(op_->SetInputs(std::move(batches)));
  }

  Json Describe() const {
    const DeviceProperties& properties = device_->properties();
    return {
        {"device", properties.name},
        {"backend", properties.backend},
        {"instruction_set", properties.details.at("instruction_set")},
        {"last_level_cache_bytes", std::stoll(properties.details.at("last_level_cache_bytes"))}};
  }

  void Obey(const std::string& command) {
    if (command == "forward") {
      std::cout << device_->TimeMs([this] { op_->Forward(); }) << std::endl;
    } else if (command == "backward") {
      std::cout << device_->TimeMs([this] { op_->Backward(); }) << std::endl;
    } else if (command == "flush") {
      device_->FlushCache();
      std::cout << 0 << std::endl;
    } else if (command == "output") {
      WriteArray(folder_ + "/output", testing::ContentsOf(*op_)->Output());
      std::cout << 0 << std::endl;
    } else {
      throw std::runtime_error("unknown command: " + command);
    }
  }

 private:
  static StatusOr<LookupPlan> PlanOf(const Json& table, std::int64_t batch_size,
                                     std::size_t index) {
    const LookupSpec spec = {table.at("rows"), batch_size, table.at("pooling_factor"), false,
                             100 + index};
    if (table.contains("zipf")) return PlanZipfLookups(spec, table.at("zipf"));
    return PlanLookups(spec, table.at("reuse_histogram").get<ReuseHistogram>());
  }

  static void Check(const Status& status) {
    if (!status.ok()) throw std::runtime_error(Message(status));
  }

  const std::string folder_;
  const std::unique_ptr<CpuDevice> device_;
  std::unique_ptr<EmbeddingOp> op_;
};

}  // namespace
}  // namespace neuroshard

int main() {
  try {
    std::string line;
    std::getline(std::cin, line);
    neuroshard::Case steps(nlohmann::json::parse(line));
    std::cout << steps.Describe().dump() << std::endl;
    while (std::getline(std::cin, line)) steps.Obey(line);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
