#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "server/search/distributed_embeddings/distributed_embeddings_strategy.h"

namespace neuroshard {
namespace {

using ::testing::ElementsAre;

using Widths = std::vector<std::vector<std::int64_t>>;

TEST(SliceColumnsTest, TheFirstSlicesAreOneColumnWider) {
  const std::vector<TableExtent> table = {{100, 7}};
  EXPECT_EQ(SliceColumns(table, 175, 8, 1), (Widths{{2, 2, 2, 1}}));
  EXPECT_EQ(SliceColumns(table, 174, 8, 1), (Widths{{1, 1, 1, 1, 1, 1, 1}}));
  EXPECT_EQ(SliceColumns(table, 174, 3, 1), (Widths{{3, 2, 2}}));
  EXPECT_EQ(SliceColumns(table, 700, 8, 1), (Widths{{7}}));
}

TEST(SliceColumnsTest, WithAGranuleCutsFallOnItAndTheLastSliceEndsRagged) {
  const std::vector<TableExtent> tables = {{100, 30}, {100, 3}, {100, 32}};
  EXPECT_EQ(SliceColumns(tables, 800, 8, 4), (Widths{{8, 8, 8, 6}, {3}, {8, 8, 8, 8}}));
  EXPECT_EQ(SliceColumns(tables, 800, 3, 4), (Widths{{12, 12, 6}, {3}, {12, 12, 8}}));
}

TEST(SliceColumnsTest, FewerTablesThanRanksAreCutByOneThresholdWhichMayOvershoot) {
  const std::vector<TableExtent> tables = {{50, 16}, {100, 16}, {150, 16}};
  const Widths widths = SliceColumns(tables, std::nullopt, 8, 1);
  EXPECT_THAT((std::vector<std::size_t>{widths[0].size(), widths[1].size(), widths[2].size()}),
              ElementsAre(2, 4, 4));
  EXPECT_EQ(SliceColumns(tables, std::nullopt, 3, 1), (Widths{{16}, {16}, {16}}));
}

TEST(SlicingGroupTest, ReplicationIsAskedFirstAndBothAreOffOnOneRank) {
  DistributedEmbeddingsOptions options;
  options.row_slice_threshold_elements = 100;
  options.data_parallel_threshold_elements = 100;
  EXPECT_EQ(SlicingGroupOf({10, 10}, options, 2), SlicingGroup::kReplicated);
  EXPECT_EQ(SlicingGroupOf({101, 1}, options, 2), SlicingGroup::kRowSliced);
  EXPECT_EQ(SlicingGroupOf({101, 1}, options, 1), SlicingGroup::kTableSliced);
  options = {};
  options.row_slice_threshold_elements = 0;
  EXPECT_EQ(SlicingGroupOf({101, 1}, options, 2), SlicingGroup::kTableSliced);
}

TEST(PlaceSlicesTest, SlicesOfATableThatMeetOnARankAreMergedInColumnOrder) {
  const std::vector<TableExtent> tables = {{10, 4}, {1, 4}};
  const Widths widths = {{2, 1, 1}, {4}};
  using Held = std::vector<std::vector<RankColumns>>;
  EXPECT_EQ(PlaceSlices(tables, widths, 2, SlicePlacement::kBasic).holders,
            (Held{{{0, 3}, {1, 1}}, {{1, 4}}}));
  EXPECT_EQ(PlaceSlices(tables, widths, 2, SlicePlacement::kMemoryBalanced).holders,
            (Held{{{0, 2}, {1, 2}}, {{0, 4}}}));
  // One rank gets the slice of 20 elements, the other two of 10; the first has the lesser list and
  // gets table 1 as well, which makes it rank 1.
  EXPECT_EQ(PlaceSlices(tables, widths, 2, SlicePlacement::kMemoryOptimized).holders,
            (Held{{{0, 3}, {1, 1}}, {{1, 4}}}));
}

TEST(PlaceSlicesTest, EveryTableIsTiledByItsHoldersInAscendingOrder) {
  Random random(31);
  for (int i = 0; i < 2000; ++i) {
    std::vector<TableExtent> tables;
    for (std::int64_t t = random.Between(1, 12); t > 0; --t) {
      tables.push_back({random.Between(1, 1000), random.Between(1, 70)});
    }
    const int ranks = static_cast<int>(random.Between(1, 9));
    std::optional<std::int64_t> threshold;
    if (random.Below(2) == 0) threshold = random.Between(1, 20000);
    const std::int64_t granule = random.Below(2) == 0 ? 1 : 4;
    const Widths widths = SliceColumns(tables, threshold, ranks, granule);
    for (const SlicePlacement placement : {SlicePlacement::kBasic, SlicePlacement::kMemoryBalanced,
                                           SlicePlacement::kMemoryOptimized}) {
      const auto held = PlaceSlices(tables, widths, ranks, placement).holders;
      for (std::size_t t = 0; t < tables.size(); ++t) {
        std::int64_t cols = 0;
        int last = -1;
        for (const RankColumns& holder : held[t]) {
          ASSERT_EQ(cols % granule, 0);
          ASSERT_GT(holder.rank, last);
          ASSERT_GT(holder.cols, 0);
          cols += holder.cols;
          last = holder.rank;
        }
        ASSERT_LT(last, ranks);
        ASSERT_EQ(cols, tables[t].cols);
      }
    }
  }
}

// NVIDIA's synthetic models and what the peer's own functions make of them.

struct SyntheticTables {
  std::vector<TableExtent> extents;
  std::vector<double> hotness;  // summed over the inputs that read the table
  std::vector<double> inputs;
};

SyntheticTables ReadModel(const std::string& model) {
  std::ifstream file(std::string(NEUROSHARD_SOURCE_DIR) +
                     "/configs/workloads/sources/synthetic_models.yaml");
  const std::string entry = "- {num_tables:";
  SyntheticTables tables;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.size() > 2 && line[2] != ' ') inside = line == "  " + model + ":";
    const std::size_t begin = line.find(entry);
    if (!inside || begin == std::string::npos) continue;
    int count = 0;
    int list_at = 0;
    TableExtent extent;
    const int read = std::sscanf(
        line.c_str() + begin, "- {num_tables: %d, rows: %" SCNd64 ", width: %" SCNd64 ", nnz: [%n",
        &count, &extent.rows, &extent.cols, &list_at);
    if (read != 3 || list_at == 0) return {};
    std::istringstream list(line.substr(begin + static_cast<std::size_t>(list_at)));
    double hotness = 0;
    double inputs = 0;
    double of_input = 0;
    for (char separator = ','; separator == ',' && list >> of_input; list >> separator) {
      hotness += of_input;
      ++inputs;
    }
    for (int i = 0; i < count; ++i) {
      tables.extents.push_back(extent);
      tables.hotness.push_back(hotness);
      tables.inputs.push_back(inputs);
    }
  }
  return tables;
}

std::string Imbalance(const std::vector<double>& per_rank) {
  const double most = *std::max_element(per_rank.begin(), per_rank.end());
  const double sum = std::accumulate(per_rank.begin(), per_rank.end(), 0.0);
  return fmt::format("{:.2f}", most * static_cast<double>(per_rank.size()) / sum);
}

struct Golden {
  std::string model;
  int ranks;
  std::optional<std::int64_t> threshold;
  SlicePlacement placement;
  std::string tables_per_rank;
  std::string max_gib;  // weights in fp32
  std::string gib_imbalance, gather_imbalance, output_imbalance;
};

TEST(PlaceSlicesTest, TheSyntheticModelsAreSpreadAsThePeerSpreadsThem) {
  constexpr auto kBasic = SlicePlacement::kBasic;
  constexpr auto kBalanced = SlicePlacement::kMemoryBalanced;
  constexpr auto kOptimized = SlicePlacement::kMemoryOptimized;
  const std::optional<std::int64_t> none;
  constexpr std::int64_t kPublished = std::int64_t{1280} * 1048576;  // of its example command
  const std::vector<Golden> goldens = {
      {"tiny", 8, none, kBasic, "6-7", "1.62", "3.09", "1.92", "1.24"},
      {"tiny", 8, none, kBalanced, "6-7", "1.61", "3.08", "1.86", "1.14"},
      {"tiny", 8, none, kOptimized, "1-23", "1.49", "2.85", "1.74", "2.48"},
      {"small", 8, none, kBasic, "13-14", "7.87", "2.39", "1.63", "1.12"},
      {"small", 8, none, kBalanced, "13-14", "7.40", "2.25", "2.52", "1.17"},
      {"small", 8, none, kOptimized, "1-75", "5.96", "1.81", "4.34", "4.43"},
      {"small", 32, none, kBasic, "3-4", "6.44", "7.84", "3.96", "1.63"},
      {"small", 32, none, kBalanced, "3-4", "5.96", "7.25", "3.96", "1.63"},
      {"small", 32, none, kOptimized, "1-5", "5.96", "7.25", "3.84", "1.22"},
      {"medium", 16, none, kBasic, "19-20", "52.7", "4.09", "1.67", "1.13"},
      {"medium", 16, none, kBalanced, "19-20", "52.7", "4.09", "2.17", "1.19"},
      {"medium", 16, none, kOptimized, "1-38", "47.7", "3.70", "1.76", "1.69"},
      {"large", 32, kPublished, kBasic, "21-22", "27.7", "1.14", "1.13", "1.07"},
      {"large", 32, kPublished, kBalanced, "21-22", "24.2", "1.00", "1.13", "1.02"},
      {"large", 32, kPublished, kOptimized, "14-25", "24.2", "1.00", "1.65", "1.24"},
      {"large", 128, kPublished, kBasic, "5-6", "7.20", "1.19", "2.13", "1.34"},
      {"large", 128, kPublished, kBalanced, "5-6", "7.20", "1.19", "2.23", "1.34"},
      {"large", 128, kPublished, kOptimized, "2-19", "7.15", "1.18", "4.36", "3.80"},
      {"jumbo", 128, kPublished, kBasic, "11-12", "29.95", "1.23", "1.68", "1.15"},
      {"jumbo", 128, kPublished, kBalanced, "10-12", "25.6", "1.05", "2.47", "1.15"},
      {"jumbo", 128, kPublished, kOptimized, "6-25", "25.0", "1.03", "2.56", "2.67"},
  };
  for (const Golden& golden : goldens) {
    SCOPED_TRACE(fmt::format("{} on {}, placement {}", golden.model, golden.ranks,
                             static_cast<int>(golden.placement)));
    const SyntheticTables tables = ReadModel(golden.model);
    ASSERT_FALSE(tables.extents.empty());
    const Widths widths = SliceColumns(tables.extents, golden.threshold, golden.ranks, 1);
    const auto held = PlaceSlices(tables.extents, widths, golden.ranks, golden.placement).holders;

    const std::size_t ranks = static_cast<std::size_t>(golden.ranks);
    std::vector<int> counts(ranks, 0);
    std::vector<double> gib(ranks, 0), gather(ranks, 0), output(ranks, 0);
    for (std::size_t t = 0; t < held.size(); ++t) {
      for (const RankColumns& holder : held[t]) {
        const std::size_t r = static_cast<std::size_t>(holder.rank);
        const double cols = static_cast<double>(holder.cols);
        ++counts[r];
        gib[r] += static_cast<double>(tables.extents[t].rows) * cols * 4 / (1 << 30);
        gather[r] += tables.hotness[t] * cols;
        output[r] += tables.inputs[t] * cols;
      }
    }
    const auto [fewest, most] = std::minmax_element(counts.begin(), counts.end());
    const int digits = static_cast<int>(golden.max_gib.size() - golden.max_gib.find('.') - 1);
    EXPECT_EQ(fmt::format("{}-{}", *fewest, *most), golden.tables_per_rank);
    EXPECT_EQ(fmt::format("{:.{}f}", *std::max_element(gib.begin(), gib.end()), digits),
              golden.max_gib);
    EXPECT_EQ(Imbalance(gib), golden.gib_imbalance);
    EXPECT_EQ(Imbalance(gather), golden.gather_imbalance);
    EXPECT_EQ(Imbalance(output), golden.output_imbalance);
  }
}

// What the peer's _maybe_offload does under 8e9 elements a rank: how many tables, summed ids and
// hotness of them. Most tables of a size are not hot; which of them go is decided by the order in
// which a strategy hands them out.
TEST(OffloadedTablesTest, TheSyntheticModelsAreOffloadedAsThePeerOffloadsThem) {
  struct Offloaded {
    std::string model;
    int ranks;
    std::optional<std::int64_t> threshold;
    SlicePlacement placement;
    int slices, tables, ids, hotness;
  };
  constexpr auto kBasic = SlicePlacement::kBasic;
  constexpr auto kBalanced = SlicePlacement::kMemoryBalanced;
  constexpr auto kOptimized = SlicePlacement::kMemoryOptimized;
  const std::optional<std::int64_t> none;
  constexpr std::int64_t kPublished = std::int64_t{1280} * 1048576;
  const std::vector<Offloaded> goldens = {
      {"large", 8, kPublished, kBasic, 120, 106, 58301, 206},
      {"large", 8, kPublished, kBalanced, 120, 106, 47229, 1806},
      {"large", 8, none, kOptimized, 116, 116, 51490, 1816},
      {"large", 16, none, kBalanced, 34, 34, 9625, 1534},
      {"jumbo", 64, kPublished, kBasic, 240, 58, 55665, 258},
      {"jumbo", 64, kPublished, kBalanced, 256, 66, 42549, 3466},
      {"jumbo", 64, kPublished, kOptimized, 256, 66, 34645, 5066},
  };
  for (const Offloaded& golden : goldens) {
    SCOPED_TRACE(fmt::format("{} on {}, placement {}", golden.model, golden.ranks,
                             static_cast<int>(golden.placement)));
    const SyntheticTables tables = ReadModel(golden.model);
    const Widths widths = SliceColumns(tables.extents, golden.threshold, golden.ranks, 1);
    const PlacedSlices placed = PlaceSlices(tables.extents, widths, golden.ranks, golden.placement);
    int slices = 0;
    std::set<int> offloaded;
    for (const auto& of_rank : OffloadedTables(tables.extents, placed, 8'000'000'000)) {
      slices += static_cast<int>(of_rank.size());
      offloaded.insert(of_rank.begin(), of_rank.end());
    }
    double hotness = 0;
    for (const int table : offloaded) hotness += tables.hotness[static_cast<std::size_t>(table)];
    EXPECT_EQ(slices, golden.slices);
    EXPECT_EQ(std::ssize(offloaded), golden.tables);
    EXPECT_EQ(std::accumulate(offloaded.begin(), offloaded.end(), 0), golden.ids);
    EXPECT_EQ(hotness, golden.hotness);
  }
}

}  // namespace
}  // namespace neuroshard
