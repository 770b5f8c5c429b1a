// What gpu_kernels_bench measured, as tables in Markdown; pure.
#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>

namespace neuroshard {

// Prints from the document of gpu_kernels_bench the bandwidth of copying, every case as a ratio to
// it, and what the kernels should reach on an H200 beside what they do.
void PrintGpuKernelTables(const nlohmann::ordered_json& result, std::ostream& out);

}  // namespace neuroshard
