#include "bench/gpu_kernels_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "common/base/bytes.h"

namespace neuroshard {
namespace {

using Json = nlohmann::ordered_json;

// A figure beside what it should be at least. NaN where a case is missing.
struct Target {
  std::string what;
  double value;
  double at_least;
};

std::vector<Target> Targets(const Json& result) {
  const auto figure = [&](const std::string& name, const char* pass, const char* of) -> double {
    for (const Json& one : result["cases"]) {
      if (one["name"] != name || !one.contains(pass)) continue;
      return of == nullptr ? one[pass]["median_ms"].get<double>()
                           : one[pass][of]["of_copy"].get<double>();
    }
    return std::numeric_limits<double>::quiet_NaN();
  };
  const auto forward = [&](const std::string& name) { return figure(name, "forward", "distinct"); };
  const double best =
      std::max({forward("dim32_uniform"), forward("dim64_uniform"), forward("dim128_uniform")});
  std::vector<Target> targets;
  for (const auto& [dim, at_least] : {std::pair(128, 0.8), std::pair(32, 0.6)}) {
    const std::string uniform = fmt::format("dim{}_uniform", dim);
    const std::string zipf = fmt::format("dim{}_zipf1.1", dim);
    const auto add = [&, dim = dim](const char* pass, const char* what, double value,
                                    double target) {
      targets.push_back({fmt::format("{}, dim {}{}", pass, dim, what), value, target});
    };
    add("forward", ": of copying", forward(uniform), at_least);
    add("forward", ", fp16: of copying", forward(uniform + "_fp16"), at_least);
    add("forward", ", bf16: of copying", forward(uniform + "_bf16"), at_least);
    add("backward", ", row-wise Adagrad: of copying", figure(uniform, "backward", "distinct"), 0.4);
    for (const char* pass : {"forward", "backward"}) {
      add(pass, ": speed with Zipf 1.1 to uniform",
          figure(uniform, pass, nullptr) / figure(zipf, pass, nullptr), 1);
    }
  }
  targets.push_back({"forward, dims 4 to 256 in one launch: of the best single dim",
                     forward("mixed4..256_uniform") / best, 0.85});
  return targets;
}

}  // namespace

void PrintGpuKernelTables(const nlohmann::ordered_json& result, std::ostream& out) {
  const Json& copy = result["copy"];
  out << fmt::format(
      "Copying {}: {:.0f} GB/s by the driver, {:.0f} by a kernel (bytes read plus written).\n\n",
      FormatBytes(copy["bytes"].get<std::int64_t>()), copy["driver_gb_per_s"].get<double>(),
      copy["kernel_gb_per_s"].get<double>());
  out << "| case | batch | forward ms | of copying | nominal | backward ms | of copying | nominal "
         "| ids copied ms | ids made ms |\n|---|---|---|---|---|---|---|---|---|---|\n";
  for (const Json& one : result["cases"]) {
    if (one.contains("error")) {
      out << fmt::format("| {} | {} |\n", one["name"].get<std::string>(),
                         one["error"].get<std::string>());
      continue;
    }
    out << fmt::format("| {} | {} ", one["name"].get<std::string>(),
                       one["batch_size"].get<std::int64_t>());
    for (const char* pass : {"forward", "backward"}) {
      out << fmt::format("| {:.3f} | {:.2f} | {:.2f} ", one[pass]["median_ms"].get<double>(),
                         one[pass]["distinct"]["of_copy"].get<double>(),
                         one[pass]["nominal"]["of_copy"].get<double>());
    }
    out << fmt::format("| {:.2f} | {:.2f} |\n", one["ids_copied"]["median_ms"].get<double>(),
                       one["ids_generated"]["median_ms"].get<double>());
  }
  out << "\n| target | measured | at least | |\n|---|---|---|---|\n";
  for (const Target& target : Targets(result)) {
    const char* const verdict = std::isnan(target.value)          ? "NOT MEASURED"
                                : target.value >= target.at_least ? "met"
                                                                  : "MISSED";
    out << fmt::format("| {} | {:.2f} | {} | {} |\n", target.what, target.value, target.at_least,
                       verdict);
  }
}

}  // namespace neuroshard
