#include "kernels/api/input_dist_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/random.h"

namespace neuroshard {
namespace {

using ::testing::ElementsAre;
using Bag = std::vector<std::pair<std::int64_t, float>>;  // ids with weights

// Rows of bags both ways: flat as kernels have them, and as lists of lists.
struct RandomRows {
  std::vector<std::int64_t> lengths;
  std::vector<std::int64_t> ids;
  std::vector<float> weights;
  std::vector<std::vector<Bag>> rows;
};

RandomRows DrawRows(std::size_t num_rows, std::int64_t num_bags, std::int64_t table_rows,
                    Random& random) {
  RandomRows drawn;
  drawn.rows.resize(num_rows);
  for (std::vector<Bag>& row : drawn.rows) {
    for (std::int64_t b = 0; b < num_bags; ++b) {
      Bag bag;
      for (std::int64_t left = random.Between(0, 4); left > 0; --left) {
        bag.emplace_back(random.Between(0, table_rows - 1),
                         static_cast<float>(random.UniformReal()));
        drawn.ids.push_back(bag.back().first);
        drawn.weights.push_back(bag.back().second);
      }
      drawn.lengths.push_back(std::ssize(bag));
      row.push_back(std::move(bag));
    }
  }
  return drawn;
}

TEST(JaggedRowsTest, PermutesRowsWithTheirBags) {
  Random random(7);
  for (int round = 0; round < 50; ++round) {
    const std::int64_t num_bags = random.Between(1, 5);
    const RandomRows drawn = DrawRows(6, num_bags, 100, random);
    // A row twice, and one not at all.
    std::vector<std::size_t> order = {0, 1, 2, 3, 4, 4};
    random.Shuffle(order);
    std::vector<std::int64_t> lengths;
    std::vector<std::int64_t> ids;
    for (const std::size_t row : order) {
      for (const Bag& bag : drawn.rows[row]) {
        lengths.push_back(std::ssize(bag));
        for (const auto& [id, weight] : bag) ids.push_back(id);
      }
    }
    std::vector<std::int64_t> out_lengths(lengths.size());
    PermuteLengths(drawn.lengths, num_bags, order, out_lengths);
    EXPECT_EQ(out_lengths, lengths);
    std::vector<std::int64_t> out_ids(ids.size());
    EXPECT_EQ(
        PermuteValues<std::int64_t>(drawn.ids, RowBegins(drawn.lengths, num_bags), order, out_ids),
        std::ssize(ids));
    EXPECT_EQ(out_ids, ids);
  }
}

TEST(BucketizeTest, GivesEachBlockItsIdsOfEveryBagInOrder) {
  Random random(11);
  for (int round = 0; round < 50; ++round) {
    const std::int64_t block_rows = random.Between(1, 9);
    const std::int64_t num_blocks = random.Between(1, 5);
    const RandomRows drawn = DrawRows(3, random.Between(1, 4), block_rows * num_blocks, random);
    std::vector<std::int64_t> lengths;  // the oracle: block by block, bag by bag
    std::vector<std::int64_t> ids;
    std::vector<float> weights;
    std::vector<std::int64_t> begins;
    for (std::int64_t block = 0; block < num_blocks; ++block) {
      begins.push_back(std::ssize(ids));
      for (const std::vector<Bag>& row : drawn.rows) {
        for (const Bag& bag : row) {
          lengths.push_back(0);
          for (const auto& [id, weight] : bag) {
            if (id < block * block_rows || id >= (block + 1) * block_rows) continue;
            ++lengths.back();
            ids.push_back(id - block * block_rows);
            weights.push_back(weight);
          }
        }
      }
    }
    std::vector<std::int64_t> out_lengths(lengths.size(), -1);
    CountInBlocks(block_rows, drawn.lengths, drawn.ids, out_lengths);
    EXPECT_EQ(out_lengths, lengths);
    std::vector<std::int64_t> out_ids(ids.size());
    std::vector<float> out_weights(weights.size());
    MoveToBlocks(block_rows, drawn.ids, drawn.weights, {begins, out_ids, begins, out_weights});
    EXPECT_EQ(out_ids, ids);
    EXPECT_EQ(out_weights, weights);
    std::fill(out_ids.begin(), out_ids.end(), -1);
    MoveToBlocks(block_rows, drawn.ids, {}, {begins, out_ids, {}, {}});
    EXPECT_EQ(out_ids, ids) << "without weights";
  }
}

TEST(JaggedRowsTest, RowsWithoutIdsBeginWhereTheNextOneDoes) {
  const std::vector<std::int64_t> lengths = {0, 0, 2, 1, 0, 0};
  EXPECT_THAT(RowBegins(lengths, 2), ElementsAre(0, 0, 3, 3));
}

}  // namespace
}  // namespace neuroshard
