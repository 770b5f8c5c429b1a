// libFuzzer over one target: neuroshard-fuzz --target=NAME [libFuzzer's options] [CORPUS...].
// `--target=NAME --write-seeds=DIR` writes the target's seeds and ends; `--list` names all targets.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/fuzz/fuzz_target.h"

namespace {

// Whatever fails before fuzzing starts.
[[noreturn]] void Refuse(const std::string& why) {
  std::fprintf(stderr, "neuroshard-fuzz: %s\n", why.c_str());
  std::exit(2);
}

neuroshard::fuzz::FuzzTarget target;  // chosen by the command line; libFuzzer has no other way

void WriteSeeds(const std::string& folder) {
  int number = 0;
  for (const std::string& seed : target.seeds()) {
    std::ofstream file(folder + "/seed_" + std::to_string(number++), std::ios::binary);
    file.write(seed.data(), static_cast<std::streamsize>(seed.size()));
    file.close();
    if (!file.good()) Refuse("cannot write to " + folder);
  }
  std::exit(0);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  const std::string kTarget = "--target=";
  const std::string kSeeds = "--write-seeds=";
  std::string folder;
  for (int i = 1; i < *argc; ++i) {
    const std::string option = (*argv)[i];
    if (option == "--list") {
      for (const auto& each : neuroshard::fuzz::AllFuzzTargets()) {
        std::printf("%s\n", std::string(each.name).c_str());
      }
      std::exit(0);
    }
    if (option.starts_with(kSeeds)) folder = option.substr(kSeeds.size());
    if (!option.starts_with(kTarget)) continue;
    for (const auto& each : neuroshard::fuzz::AllFuzzTargets()) {
      if (each.name == option.substr(kTarget.size())) target = each;
    }
  }
  if (target.run == nullptr) Refuse("--target=NAME is missing, or no name that --list prints");
  if (!folder.empty()) WriteSeeds(folder);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  target.run({reinterpret_cast<const char*>(data), size});
  return 0;
}
