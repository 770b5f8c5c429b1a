// Which targets of the GPU kernels the report calls met, missed or not measured, of figures that are
// made up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "bench/gpu_kernels_report.h"

namespace neuroshard {
namespace {

using Json = nlohmann::ordered_json;

Json Pass(double of_copy, double median_ms) {
  return {{"median_ms", median_ms},
          {"distinct", {{"of_copy", of_copy}}},
          {"nominal", {{"of_copy", of_copy}}}};
}

Json Case(const std::string& name, const Json& forward, const Json& backward) {
  return {{"name", name},
          {"batch_size", 8192},
          {"forward", forward},
          {"backward", backward},
          {"ids_copied", {{"median_ms", 1.0}}},
          {"ids_generated", {{"median_ms", 1.0}}}};
}

// The verdict on a target, by how its line begins.
std::string Verdict(const Json& cases, const std::string& target) {
  const Json result = {
      {"copy", {{"bytes", 1 << 30}, {"driver_gb_per_s", 2500.0}, {"kernel_gb_per_s", 2600.0}}},
      {"cases", cases}};
  std::stringstream printed;
  PrintGpuKernelTables(result, printed);
  for (std::string line; std::getline(printed, line);) {
    if (!line.starts_with("| " + target + " |")) continue;
    line.resize(line.size() - 2);
    return line.substr(line.rfind("| ") + 2);
  }
  return "no such target";
}

TEST(KernelTargetsTest, AShareOfCopyingIsMetFromTheTargetOn) {
  const auto one = [](const std::string& name, double forward, double backward) {
    return Json::array({Case(name, Pass(forward, 1), Pass(backward, 1))});
  };
  for (const std::string type : {"", "_fp16", "_bf16"}) {
    const std::string of = type.empty() ? ": of copying" : ", " + type.substr(1) + ": of copying";
    EXPECT_EQ(Verdict(one("dim128_uniform" + type, 0.8, 0), "forward, dim 128" + of), "met");
    EXPECT_EQ(Verdict(one("dim128_uniform" + type, 0.799, 0), "forward, dim 128" + of), "MISSED");
    EXPECT_EQ(Verdict(one("dim32_uniform" + type, 0.6, 0), "forward, dim 32" + of), "met");
    EXPECT_EQ(Verdict(one("dim32_uniform" + type, 0.599, 0), "forward, dim 32" + of), "MISSED");
  }
  for (const std::string dim : {"128", "32"}) {
    const std::string target = "backward, dim " + dim + ", row-wise Adagrad: of copying";
    EXPECT_EQ(Verdict(one("dim" + dim + "_uniform", 0, 0.4), target), "met");
    EXPECT_EQ(Verdict(one("dim" + dim + "_uniform", 0, 0.399), target), "MISSED");
  }
}

TEST(KernelTargetsTest, SkewedIdsMayNotBeSlower) {
  for (const std::string dim : {"128", "32"}) {
    for (const double zipf_ms : {1.0, 1.01}) {
      const std::string name = "dim" + dim;
      const Json cases =
          Json::array({Case(name + "_uniform", Pass(1, 1), Pass(1, 1)),
                       Case(name + "_zipf1.1", Pass(1, zipf_ms), Pass(1, 2 - zipf_ms))});
      const std::string what = ", dim " + dim + ": speed with Zipf 1.1 to uniform";
      EXPECT_EQ(Verdict(cases, "forward" + what), zipf_ms > 1 ? "MISSED" : "met");
      EXPECT_EQ(Verdict(cases, "backward" + what), "met");
    }
  }
}

TEST(KernelTargetsTest, WhatIsMissingIsNotMet) {
  const Json failed = Json::array({{{"name", "dim128_uniform"}, {"error", "does not fit"}}});
  for (const Json& cases : {Json::array(), failed}) {
    EXPECT_EQ(Verdict(cases, "forward, dim 128: of copying"), "NOT MEASURED");
    EXPECT_EQ(Verdict(cases, "backward, dim 128: speed with Zipf 1.1 to uniform"), "NOT MEASURED");
    EXPECT_EQ(Verdict(cases, "forward, dims 4 to 256 in one launch: of the best single dim"),
              "NOT MEASURED");
  }
}

}  // namespace
}  // namespace neuroshard
