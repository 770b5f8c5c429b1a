#include "common/codec/fingerprint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

namespace neuroshard {
namespace {

PlanRequest SomeRequest() {
  PlanRequest request;
  for (const char* name : {"c", "a", "b"}) {
    Table table;
    table.name = name;
    table.module = "m";
    table.num_embeddings = 1000;
    table.embedding_dim = 64;
    table.reuse_histogram[2] = 1;
    table.features = {"f", "g"};
    request.tables.push_back(table);
  }
  request.topology.devices = {{0, 100}, {0, 100}};
  return request;
}

std::string Fingerprint(const PlanRequest& request) {
  return RequestFingerprint(request, "model", 3);
}

// SHA-256 of a canonical form that must not drift: replicas of different versions compare
// fingerprints.
TEST(FingerprintTest, IsStable) {
  EXPECT_EQ(Fingerprint(SomeRequest()),
            "e6a8161a9a869b033e650dd08e7273a135b8bdccfa4a01c76af8b47a02759fc4");
}

TEST(FingerprintTest, DoesNotDependOnTableOrder) {
  PlanRequest request = SomeRequest();
  const std::string expected = Fingerprint(request);
  std::sort(request.tables.begin(), request.tables.end(),
            [](const Table& a, const Table& b) { return a.name < b.name; });
  do {
    EXPECT_EQ(Fingerprint(request), expected);
  } while (std::next_permutation(request.tables.begin(), request.tables.end(),
                                 [](const Table& a, const Table& b) { return a.name < b.name; }));
}

TEST(FingerprintTest, DoesNotDependOnWhoAsks) {
  PlanRequest request = SomeRequest();
  const std::string expected = Fingerprint(request);
  request.request_id = "other";
  request.warnings = {"assumed"};
  request.cost_model = {"model", 0};
  EXPECT_EQ(Fingerprint(request), expected);
}

TEST(FingerprintTest, DependsOnEverythingElse) {
  using Change = std::function<void(PlanRequest&)>;
  const std::vector<Change> changes = {
      [](PlanRequest& r) { r.tables[1].name = "a2"; },
      [](PlanRequest& r) { r.tables[1].module = "m2"; },
      [](PlanRequest& r) { r.tables[1].num_embeddings = 1001; },
      [](PlanRequest& r) { r.tables[1].embedding_dim = 32; },
      [](PlanRequest& r) { r.tables[1].pooling_factor = 1.5; },
      [](PlanRequest& r) {
        std::swap(r.tables[1].reuse_histogram[2], r.tables[1].reuse_histogram[3]);
      },
      [](PlanRequest& r) { r.tables[1].weight_dtype = DataType::kBf16; },
      [](PlanRequest& r) { r.tables[1].pooling_mode = PoolingMode::kMean; },
      [](PlanRequest& r) { r.tables[1].weighted = true; },
      [](PlanRequest& r) { r.tables[1].features = {"fg"}; },
      [](PlanRequest& r) {
        r.tables[1].features = {"f", "h"};
      },
      [](PlanRequest& r) { r.tables.pop_back(); },
      [](PlanRequest& r) { r.topology.devices[1].host = 1; },
      [](PlanRequest& r) { r.topology.devices[1].memory_bytes = 101; },
      [](PlanRequest& r) { r.topology.devices.pop_back(); },
      [](PlanRequest& r) { r.global_batch_size = 1024; },
      [](PlanRequest& r) { r.optimizer = Optimizer::kAdam; },
      [](PlanRequest& r) { r.memory.rule = MemoryRule::kWeightsOnly; },
      [](PlanRequest& r) { r.memory.reserve_fraction = 0.1; },
      [](PlanRequest& r) { r.memory.reserve_bytes = 1; },
      [](PlanRequest& r) { r.search.strategy = "random"; },
      [](PlanRequest& r) { r.search.beam_width = 4; },
      [](PlanRequest& r) { r.search.num_candidates = 11; },
      [](PlanRequest& r) { r.search.max_length = 11; },
      [](PlanRequest& r) { r.search.search_steps = 12; },
      [](PlanRequest& r) { r.search.time_budget = std::chrono::milliseconds(0); },
      [](PlanRequest& r) { r.search.time_budget = std::chrono::milliseconds(5); },
      [](PlanRequest& r) { r.search.seed = 1; },
  };
  std::set<std::string> seen = {Fingerprint(SomeRequest()),
                                RequestFingerprint(SomeRequest(), "model2", 3),
                                RequestFingerprint(SomeRequest(), "model", 4)};
  for (std::size_t i = 0; i < changes.size(); ++i) {
    PlanRequest request = SomeRequest();
    changes[i](request);
    EXPECT_TRUE(seen.insert(Fingerprint(request)).second) << "change " << i;
  }
  EXPECT_EQ(seen.size(), changes.size() + 3);
}

}  // namespace
}  // namespace neuroshard
