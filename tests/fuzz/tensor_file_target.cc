// safetensors, and what a model's files have to be.
#include "server/networks/network_tensors.h"
#include "server/networks/safetensors.h"
#include "server/networks/testing/model_fixture.h"
#include "tests/fuzz/fuzz_target.h"

namespace neuroshard::fuzz {
namespace {

void ReadTensors(std::string_view input) {
  static const auto* const expected =
      new std::vector<TensorSpec>(NetworkTensors(MakeModelFixture({}).manifest.compute));
  (void)ParseTensorFile(input, "fuzz", {.non_finite = NonFinite::kKeep});
  const auto file = ParseTensorFile(input, "fuzz");
  if (!file.ok()) return;
  (void)CheckNetworkTensors(*expected, *file, "fuzz");
  const auto bytes = FormatTensorFile(*file);
  Promise(bytes.ok(), "tensors that are read can be written");
  const auto again = ParseTensorFile(*bytes, "fuzz");
  Promise(again.ok() && *again == *file, "FormatTensorFile keeps every value");
}

std::vector<std::string> TensorSeeds() {
  std::vector<std::string> seeds;
  for (const auto& [name, file] :
       MakeModelFixture({.table_hidden = {2}, .head_hidden = {2}}).files) {
    seeds.push_back(*FormatTensorFile(file));
  }
  seeds.push_back(*FormatTensorFile({{{"scalar", {{}, {1}}}, {"none", {{0}, {}}}}, {{"k", "v"}}}));
  // Types that are converted.
  for (const auto& [type, bytes] :
       {std::pair("F64", 8), std::pair("F16", 2), std::pair("BF16", 2)}) {
    const std::string header = std::string(R"({"a":{"dtype":")") + type +
                               R"(","shape":[2],"data_offsets":[0,)" + std::to_string(2 * bytes) +
                               "]}}";
    std::string length(8, '\0');
    length[0] = static_cast<char>(header.size());
    seeds.push_back(length + header + std::string(static_cast<std::size_t>(2 * bytes), '\1'));
  }
  return seeds;
}

}  // namespace

FuzzTarget TensorFileTarget() { return {"tensor_file", ReadTensors, TensorSeeds}; }

}  // namespace neuroshard::fuzz
