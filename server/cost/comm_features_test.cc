#include "server/cost/comm_features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "common/base/random.h"

namespace neuroshard {
namespace {

struct Rows {
  std::vector<CommFeatureRow> rows;
  std::vector<double> wait_ms;

  double At(std::size_t rank, std::string_view name) const {
    const auto names = CommFeatureNames();
    const auto found = std::find(names.begin(), names.end(), name);
    return rows[rank][static_cast<std::size_t>(found - names.begin())];
  }
};

Rows RowsOf(const CommLayout& layout, CollectiveKind kind, const std::vector<double>& bytes,
            const std::vector<double>& offsets) {
  Rows all;
  all.rows.resize(layout.num_ranks());
  all.wait_ms.resize(layout.num_ranks());
  CommFeaturesOf(layout, kind, bytes, offsets, all.rows, all.wait_ms);
  return all;
}

TEST(CommFeaturesTest, AreWhatTheirNamesSay) {
  // Ranks 0 and 1 on one host, 2 on another.
  const CommLayout layout(3, {{0, 2}, {2, 1}});
  const Rows rows = RowsOf(layout, CollectiveKind::kReduceScatter, {300, 600, 1200}, {1, 4, 2});
  const std::map<std::string, double> bytes_of_rank_1 = {
      {"own_intra", 600.0 / 3},
      {"own_inter", 600.0 / 3},
      {"peer_intra", 300.0 / 3},
      {"peer_inter", 1200.0 / 3},
      {"host_inter", 900.0 / 3},
      {"mean", 700.0 * 2 / 3},
      {"rms", std::sqrt((9e4 + 36e4 + 144e4) / 3) * 2 / 3},
      {"max", 1200.0 * 2 / 3},
      {"max_host_inter", 1200.0 * 2 / 3}};
  for (const auto& [name, bytes] : bytes_of_rank_1) {
    EXPECT_NEAR(rows.At(1, name), std::log(1024 + bytes), 1e-12) << name;
  }
  const std::map<std::string, double> ms_of_rank_2 = {{"wait", 2},
                                                      {"mean_wait", 4 - 7.0 / 3},
                                                      {"own_offset", 1},
                                                      {"max_offset", 3},
                                                      {"last_alone", 2}};
  for (const auto& [name, ms] : ms_of_rank_2) {
    EXPECT_NEAR(rows.At(2, name), std::log(1 + 10 * ms), 1e-12) << name;
  }
  EXPECT_EQ(rows.wait_ms, (std::vector<double>{3, 0, 2}));
  EXPECT_NEAR(rows.At(0, "log_ranks"), std::log(3.0), 1e-12);
  EXPECT_NEAR(rows.At(0, "log_local_ranks"), std::log(2.0), 1e-12);
  EXPECT_EQ(rows.At(2, "log_local_ranks"), 0);
  EXPECT_NEAR(rows.At(2, "log_hosts"), std::log(2.0), 1e-12);
  EXPECT_EQ(rows.At(0, "collective_reduce_scatter"), 1);
  EXPECT_EQ(rows.At(0, "collective_all_to_all_forward"), 0);
  EXPECT_EQ(CollectiveFromName("all_reduce"), CollectiveKind::kAllReduce);
  EXPECT_EQ(CollectiveName(CollectiveKind::kAllGather), "all_gather");
  EXPECT_EQ(CollectiveFromName("gather"), std::nullopt);
}

TEST(CommFeaturesTest, OneHostHasNothingToSendElsewhereAndNobodyWaitsWithoutOffsets) {
  const Rows rows = RowsOf(CommLayout(2, {}), CollectiveKind::kAllToAllForward, {0.1, 0.3}, {});
  for (const char* name : {"own_inter", "peer_inter", "host_inter", "max_host_inter"}) {
    EXPECT_EQ(rows.At(0, name), std::log(1024.0)) << name;
  }
  for (const char* name : {"wait", "mean_wait", "own_offset", "max_offset", "last_alone"}) {
    EXPECT_EQ(rows.At(1, name), 0) << name;
  }
}

TEST(CommFeaturesTest, NoRisingFeatureFallsWhenAnyRankHasMoreBytes) {
  Random random(3);
  const CommLayout layout(6, {{0, 3}, {3, 1}, {4, 2}});
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<double> bytes(6);
    for (double& v : bytes) v = static_cast<double>(random.Below(1 << 24));
    const Rows before = RowsOf(layout, CollectiveKind::kAllToAllBackward, bytes, {});
    bytes[random.Below(6)] += 1e5;
    const Rows after = RowsOf(layout, CollectiveKind::kAllToAllBackward, bytes, {});
    for (std::size_t rank = 0; rank < 6; ++rank) {
      for (std::size_t f = 0; f < kMonotoneCommFeatures; ++f) {
        EXPECT_GE(after.rows[rank][f], before.rows[rank][f] - 1e-12) << CommFeatureNames()[f];
      }
    }
  }
}

}  // namespace
}  // namespace neuroshard
