#include "worker/measure/input_distribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "kernels/tcp/testing/tcp_group_fixture.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::Group;
using ::neuroshard::testing::StatusIs;
using ::testing::HasSubstr;

CommSample Sample(const std::vector<std::int64_t>& whole_features, std::int64_t cut_features,
                  bool weighted) {
  CommSample sample;
  sample.dim_sums.resize(whole_features.size(), 0);
  sample.batch_size = 5 * std::ssize(whole_features);
  InputDistSample input;
  input.whole_features = whole_features;
  for (const std::int64_t features : whole_features) {
    input.whole_ids.push_back(2.7 * static_cast<double>(features));
  }
  input.cut_features = cut_features;
  input.cut_ids = 3.3 * static_cast<double>(cut_features);
  input.weighted = weighted;
  input.seed = 17;
  sample.input_dist = input;
  return sample;
}

// What `rank` has to get, bag by bag: the definition, without offsets or permutations.
IdBatch Expected(const std::vector<std::unique_ptr<InputDistribution>>& senders,
                 const CommSample& sample, std::size_t rank) {
  const auto bags = static_cast<std::size_t>(sample.batch_size) / senders.size();
  const InputDistSample& input = *sample.input_dist;
  IdBatch expected;
  // One bag of a batch: its ids that pass, less `first_row`.
  const auto add = [&](const IdBatch& from, std::size_t bag, std::int64_t first_row,
                       std::int64_t rows) {
    std::size_t id = 0;
    for (std::size_t b = 0; b < bag; ++b) id += static_cast<std::size_t>(from.lengths[b]);
    expected.lengths.push_back(0);
    for (std::int64_t i = 0; i < from.lengths[bag]; ++i, ++id) {
      if (from.ids[id] < first_row || from.ids[id] >= first_row + rows) continue;
      ++expected.lengths.back();
      expected.ids.push_back(from.ids[id] - first_row);
      if (input.weighted) expected.weights.push_back(from.weights[id]);
    }
  };
  // The loader deals whole features to ranks in turn, as long as they have any left.
  std::vector<std::size_t> own;
  std::vector<std::int64_t> left = input.whole_features;
  std::size_t feature = 0;
  for (bool any = true; any;) {
    any = false;
    for (std::size_t r = 0; r < left.size(); ++r) {
      if (left[r]-- <= 0) continue;
      any = true;
      if (r == rank) own.push_back(feature);
      ++feature;
    }
  }
  for (const std::size_t of_rank : own) {
    for (const auto& sender : senders) {
      for (std::size_t b = 0; b < bags; ++b) {
        add(sender->whole(), of_rank * bags + b, 0, InputDistribution::kTableRows);
      }
    }
  }
  for (std::int64_t cut = 0; cut < input.cut_features; ++cut) {
    for (const auto& sender : senders) {
      const std::int64_t rows = sender->block_rows();
      for (std::size_t b = 0; b < bags; ++b) {
        add(sender->cut(), static_cast<std::size_t>(cut) * bags + b,
            static_cast<std::int64_t>(rank) * rows, rows);
      }
    }
  }
  return expected;
}

TEST(InputDistributionTest, EveryRankGetsTheIdsOfItsTablesAndRows) {
  for (const bool weighted : {false, true}) {
    for (const std::vector<std::int64_t>& whole :
         {std::vector<std::int64_t>{2, 3}, {0, 0}, {0, 4}, {3, 0, 1}}) {
      for (const std::int64_t cut : {0, 2}) {
        const CommSample sample = Sample(whole, cut, weighted);
        Group group(static_cast<int>(whole.size()));
        std::vector<std::unique_ptr<InputDistribution>> ranks(whole.size());
        group.ForEach([&](int rank) {
          auto& own = ranks[static_cast<std::size_t>(rank)];
          own = std::make_unique<InputDistribution>(group[rank], sample, NeverStop());
          EXPECT_TRUE(own->ExchangeSizes().ok());
          EXPECT_TRUE(own->Reserve().ok());
          EXPECT_TRUE(own->Run().ok());
          EXPECT_TRUE(own->Run().ok()) << "again, in the same buffers";
        });
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
          SCOPED_TRACE(fmt::format("rank {} of {}, {} cut features", rank, whole.size(), cut));
          const IdBatch expected = Expected(ranks, sample, rank);
          EXPECT_EQ(ranks[rank]->received().lengths, expected.lengths);
          EXPECT_EQ(ranks[rank]->received().ids, expected.ids);
          EXPECT_EQ(ranks[rank]->received().weights, expected.weights);
        }
      }
    }
  }
}

// Sums of what hostile peers say would overflow, and less than that would take all memory.
TEST(InputDistributionTest, ARankThatSaysMoreThanItCanHaveEndsIt) {
  const CommSample sample = Sample({1, 1}, 1, false);
  for (const std::int64_t said : {std::int64_t{1} << 62, INT64_MAX - 7, std::int64_t{-8},
                                  std::int64_t{3}, std::int64_t{8} * (5 * (5 + 7) + 1)}) {
    Group group(2);
    Status status;
    group.ForEach([&](int rank) {
      if (rank == 0) {
        status = InputDistribution(group[rank], sample, NeverStop()).ExchangeSizes();
        return;
      }
      const Exchange sizes{{8, 8}, {8, 8}};
      EXPECT_TRUE(group[rank].Reserve(sizes).ok());
      std::memcpy(group[rank].SendBuffer().data(), &said, sizeof(said));
      EXPECT_TRUE(group[rank].Run(sizes).ok());
    });
    EXPECT_THAT(status,
                StatusIs(absl::StatusCode::kAborted,
                         HasSubstr(fmt::format("rank 1 sends {} bytes of ids, the sample lets it "
                                               "have at most 480",
                                               said))));
  }
}

class StopAtOnce final : public StopSignal {
 public:
  bool ShouldStop() const override { return true; }
};

TEST(InputDistributionTest, DrawingStops) {
  const CommSample sample = Sample({4, 1}, 3, true);
  Group group(2);
  const InputDistribution stopped(group[0], sample, StopAtOnce());
  EXPECT_FALSE(stopped.whole().ids.empty());
  EXPECT_THAT(stopped.whole().ids, ::testing::Each(0));
  EXPECT_THAT(stopped.cut().weights, ::testing::Each(0));
}

TEST(InputDistributionTest, DrawsAboutAsManyIdsAsTheSampleSays) {
  CommSample sample = Sample({40, 10}, 30, false);
  sample.batch_size = 800;
  Group group(2);
  const InputDistribution one(group[0], sample, NeverStop());
  EXPECT_NEAR(static_cast<double>(one.whole().ids.size()), 50 * 2.7 * 400, 2000);
  EXPECT_NEAR(static_cast<double>(one.cut().ids.size()), 30 * 3.3 * 400, 2000);
}

// A peer that says other sizes than before would write where nothing was reserved.
TEST(InputDistributionTest, ARankThatSendsOtherSizesThanBeforeEndsIt) {
  const CommSample sample = Sample({1, 1}, 1, false);
  CommSample other = sample;
  other.input_dist->seed = 18;
  Group group(2);
  Status status;
  group.ForEach([&](int rank) {
    InputDistribution own(group[rank], sample, NeverStop());
    EXPECT_TRUE(own.ExchangeSizes().ok());
    EXPECT_TRUE(own.Reserve().ok());
    if (rank == 0) {
      status = own.Run();
      return;
    }
    InputDistribution hostile(group[rank], other, NeverStop());
    Status ignored = hostile.ExchangeSizes();
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, HasSubstr("before it sent")));
}

}  // namespace
}  // namespace neuroshard
