// Fixture that runs the commands of neuroshard-pretrain in this process, on stores of made-up
// measurements in a folder that the test removes.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/store/profile_store.h"
#include "server/pretrain/pretrain_commands.h"
#include "server/pretrain/testing/synthetic_records.h"

namespace neuroshard {

class PretrainFixture : public ::testing::Test {
 protected:
  PretrainFixture()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                fmt::format("pretrain-{}-{}", ::getpid(),
                            ::testing::UnitTest::GetInstance()->current_test_info()->name())),
        out_(std::tmpfile()),
        err_(std::tmpfile()) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    context_ = {out_, err_, DisplayMode::kLog, &clock_, &stop_, 1'795'000'000'000};
    train_.store = Path("store.db");
    train_.config = Path("config.yaml");
    train_.model_directory = Path("models/cpu/1");
    train_.format = OutputFormat::kJson;
    Configure(
        "max_epochs: 60, comm: {max_epochs: 25}, table_hidden: [24, 12], representation: 8, "
        "members: 2, held_out_tables: 0");
  }
  ~PretrainFixture() override {
    std::fclose(out_);
    std::fclose(err_);
    std::filesystem::remove_all(folder_);
  }

  void Configure(const std::string& keys) { std::ofstream(train_.config) << "{" << keys << "}\n"; }

  std::string Read(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  // Runs a command and returns what it wrote.
  template <typename Command>
  nlohmann::json Output(Status (*run)(const Command&, const CommandContext&),
                        const Command& command) {
    CommandContext context = context_;
    context.out = std::tmpfile();
    const Status status = run(command, context);
    EXPECT_TRUE(status.ok()) << status;
    const std::string text = Written(context.out);
    std::fclose(context.out);
    return status.ok() ? nlohmann::json::parse(text) : nlohmann::json();
  }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  static TimedSeries Series(double ms) {
    TimedSeries series;
    series.samples_ms = {ms};
    series.median_ms = ms;
    return series;
  }

  void FillStore(const std::vector<ComputeRecord>& compute, const std::vector<CommRecord>& comm) {
    const auto store = *ProfileStore::Open(train_.store, StoreMode::kReadWrite);
    std::vector<ComputeSample> compute_samples;
    for (const auto& record : compute) compute_samples.push_back(record.sample);
    const auto compute_sweep = store->BeginSweep<ComputeSample>({"c", "c", ""}, compute_samples);
    ASSERT_TRUE(compute_sweep.ok()) << compute_sweep.status();
    for (const auto& record : compute) {
      ComputeMeasurement measurement;
      measurement.sample_id = record.sample.sample_id;
      measurement.forward = Series(record.forward_ms);
      measurement.backward = Series(record.backward_ms);
      measurement.environment = record.environment;
      ASSERT_TRUE(store->AddComputeMeasurement(*compute_sweep, measurement).ok());
    }
    std::vector<CommSample> comm_samples;
    for (const auto& record : comm) comm_samples.push_back(record.sample);
    const auto comm_sweep = store->BeginSweep<CommSample>({"m", "m", ""}, comm_samples);
    ASSERT_TRUE(comm_sweep.ok()) << comm_sweep.status();
    for (const auto& record : comm) {
      std::vector<CommMeasurement> measurements;
      for (std::size_t rank = 0; rank < record.cost_ms.size(); ++rank) {
        CommMeasurement measurement;
        measurement.sample_id = record.sample.sample_id;
        measurement.rank = static_cast<int>(rank);
        measurement.series = Series(record.cost_ms[rank]);
        measurement.environment = record.environments[rank];
        measurements.push_back(measurement);
      }
      const Status added =
          store->AddCommMeasurements(*comm_sweep, record.sample.sample_id, measurements);
      ASSERT_TRUE(added.ok()) << added;
    }
  }

  static std::string Written(std::FILE* file) {
    std::fflush(file);
    std::rewind(file);
    std::string text;
    for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) {
      text += static_cast<char>(c);
    }
    return text;
  }

  std::filesystem::path folder_;
  std::FILE* out_;
  std::FILE* err_;
  SteadyClock clock_;
  NeverStop stop_;
  CommandContext context_;
  TrainCommand train_;
};

}  // namespace neuroshard
