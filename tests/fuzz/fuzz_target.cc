#include "tests/fuzz/fuzz_target.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace neuroshard::fuzz {
namespace {

std::string ContentOf(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

std::vector<FuzzTarget> AllFuzzTargets() {
  return {RequestTextTarget(), PlanTextTarget(),    TableFilesTarget(),  ManifestTarget(),
          TensorFileTarget(),  SweepConfigTarget(), QuantityTarget(),    PlanRequestTarget(),
          EvaluationTarget(),  PredictionTarget(),  MeasurementTarget(), CostDataTarget(),
          StoreTarget(),       AddressTarget()};
}

void Promise(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

std::vector<std::string> SeedsFrom(std::string_view path, std::string_view suffix) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(NEUROSHARD_SOURCE_DIR) / path;
  std::vector<fs::path> files;
  if (fs::is_regular_file(root)) {
    files.push_back(root);
  } else if (fs::is_directory(root)) {
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      if (entry.is_regular_file() && entry.path().string().ends_with(suffix)) {
        files.push_back(entry.path());
      }
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> seeds;
  for (const fs::path& file : files) seeds.push_back(ContentOf(file));
  Promise(!seeds.empty(), std::string("seeds in ") + root.string());
  return seeds;
}

std::string FileWith(std::string_view bytes) {
  static const std::string path = "/dev/shm/neuroshard_fuzz." + std::to_string(::getpid());
  static const bool removed_at_exit = std::atexit([] { std::remove(path.c_str()); }) == 0;
  Promise(removed_at_exit, "the file can be removed at the end");
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  Promise(file.good(), path + " can be written");
  return path;
}

std::vector<std::string> Joined(std::vector<std::string> seeds,
                                const std::vector<std::string>& more) {
  seeds.insert(seeds.end(), more.begin(), more.end());
  return seeds;
}

}  // namespace neuroshard::fuzz
