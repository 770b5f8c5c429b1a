// Sweeps and training, as their YAML files say them.
#include "client/sweep/sweep_config.h"
#include "server/pretrain/data/training_config.h"
#include "tests/fuzz/fuzz_target.h"

namespace neuroshard::fuzz {
namespace {

void ReadConfig(std::string_view input) {
  const auto sweep = ParseSweepConfig(std::string(input), "fuzz.yaml");
  if (sweep.ok()) Promise(SweepHash(*sweep, "").size() == 64, "a sweep has a hash");
  auto reader = ConfigReader::FromText(std::string(input), "fuzz.yaml");
  if (!reader.ok()) return;
  const auto training = ReadTrainingConfig(*std::move(reader));
  if (training.ok()) (void)DescribeTrainingConfig(*training);
}

std::vector<std::string> ConfigSeeds() {
  std::vector<std::string> seeds = SeedsFrom("configs/sweeps", ".yaml");
  for (const char* file : {"configs/pretrain.yaml", "configs/pretrain_cpu_comm.yaml"}) {
    seeds = Joined(std::move(seeds), SeedsFrom(file, ""));
  }
  return seeds;
}

}  // namespace

FuzzTarget SweepConfigTarget() { return {"sweep_config", ReadConfig, ConfigSeeds}; }

}  // namespace neuroshard::fuzz
