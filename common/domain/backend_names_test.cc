#include "common/domain/backend_names.h"

#include <gtest/gtest.h>

namespace neuroshard {
namespace {

TEST(BackendNamesTest, OldNamesMeanTheBackendsOfThisProject) {
  EXPECT_EQ(BackendNameToday("cpu"), "neuroshard-cpu");
  EXPECT_EQ(BackendNameToday("cuda"), "neuroshard-cuda");
  EXPECT_EQ(BackendNameToday("gloo"), "neuroshard-tcp");
  for (const auto name : {kNeuroshardCpu, kNeuroshardCuda, kNeuroshardTcp, kNccl}) {
    EXPECT_EQ(BackendNameToday(name), name);
  }
  EXPECT_EQ(BackendNameToday("fbgemm-cpu"), "fbgemm-cpu");
  EXPECT_EQ(BackendNameToday(""), "");
}

TEST(BackendNamesTest, RecordsFromBefore) {
  MeasurementEnvironment environment;
  environment.backend = "cpu";
  environment.properties = {{"collective_backend", "gloo"}, {"gloo", "0.5.0"}};
  UseBackendNamesOfToday(environment);
  EXPECT_EQ(environment.backend, "neuroshard-cpu");
  EXPECT_EQ(CollectiveBackendOf(environment), "neuroshard-tcp");
  EXPECT_EQ(environment.properties.at("gloo"), "0.5.0");  // the library's version

  MeasurementEnvironment imported;  // says nothing
  UseBackendNamesOfToday(imported);
  EXPECT_EQ(imported, MeasurementEnvironment());
  EXPECT_EQ(CollectiveBackendOf(imported), "");
}

}  // namespace
}  // namespace neuroshard
