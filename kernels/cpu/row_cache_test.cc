#include "kernels/cpu/row_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "common/base/random.h"

namespace neuroshard {
namespace {

// The same cache, said naively: a map of rows to the batch that used them last, set by set.
class NaiveCache {
 public:
  explicit NaiveCache(const RowCache& like) : like_(like), sets_(like.slots() / RowCache::kWays) {}

  // Rows that came, and those that went for each.
  std::map<std::int64_t, std::int64_t> Use(const std::set<std::int64_t>& rows) {
    ++batch_;
    std::map<std::int64_t, std::int64_t> replaced;
    counts.distinct_rows += std::ssize(rows);
    std::set<std::int64_t> missing;
    for (const std::int64_t row : rows) {
      std::map<std::int64_t, std::int64_t>& used = sets_[like_.SetOf(row)];
      if (const auto found = used.find(row); found != used.end()) {
        found->second = batch_;
      } else {
        missing.insert(row);
      }
    }
    counts.missed_rows += std::ssize(missing);
    for (const std::int64_t row : missing) {
      std::map<std::int64_t, std::int64_t>& used = sets_[like_.SetOf(row)];
      std::int64_t evicted = RowCache::kNoRow;
      if (std::ssize(used) == RowCache::kWays) {
        std::int64_t oldest = batch_;
        for (const auto& [held, last] : used) oldest = std::min(oldest, last);
        if (oldest == batch_) continue;
        // Of several, the one in the first slot: only the cache knows slots.
        for (const std::int64_t held : like_.slot_rows()) {
          const auto found = used.find(held);
          if (found == used.end() || found->second != oldest) continue;
          if (evicted == RowCache::kNoRow) evicted = held;
        }
        used.erase(evicted);
      }
      used[row] = batch_;
      replaced[row] = evicted;
    }
    return replaced;
  }

  bool Holds(std::int64_t row) const { return sets_[like_.SetOf(row)].contains(row); }

  CacheCounts counts;

 private:
  const RowCache& like_;
  std::vector<std::map<std::int64_t, std::int64_t>> sets_;
  std::int64_t batch_ = 0;
};

TEST(RowCacheTest, RandomTracesAgreeWithANaiveCache) {
  Random random(31);
  for (int trial = 0; trial < 30; ++trial) {
    const std::int64_t rows = random.Between(1, 2000);
    const double load_factor = 0.02 + 0.98 * random.UniformReal();
    RowCache cache(CacheSlots(rows, load_factor));
    NaiveCache naive(cache);
    std::vector<std::uint64_t> places, missing, spare;
    for (int batch = 0; batch < 25; ++batch) {
      std::vector<std::int64_t> ids(random.Between(0, 600));
      for (std::int64_t& id : ids) {  // some rows are hot
        id = random.Below(2) == 0 ? random.Between(0, rows - 1) : random.Below((rows + 9) / 10);
      }
      const std::vector<std::int64_t> before(cache.slot_rows().begin(), cache.slot_rows().end());
      // Before the cache is used: ties go by the slots as they are then.
      const auto expected = naive.Use({ids.begin(), ids.end()});
      places.assign(ids.size(), 0);
      missing.assign(ids.size(), 0);
      spare.assign(ids.size(), 0);
      std::map<std::int64_t, std::int64_t> replaced;
      cache.Use(ids, places, missing, spare, 11,
                [&](std::int64_t slot, std::int64_t evicted, std::int64_t row) {
                  EXPECT_EQ(before[slot], evicted) << "a slot was used twice for one batch";
                  replaced[row] = evicted;
                });
      ASSERT_EQ(replaced, expected);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto place = static_cast<std::int64_t>(places[i]);
        if (naive.Holds(ids[i])) {
          ASSERT_LT(place, cache.slots());
          ASSERT_EQ(cache.slot_rows()[place], ids[i]);
          ASSERT_EQ(cache.SetOf(ids[i]), place / RowCache::kWays);
        } else {
          ASSERT_EQ(place, cache.slots() + ids[i]);
        }
      }
      ASSERT_EQ(cache.counts().distinct_rows, naive.counts.distinct_rows);
      ASSERT_EQ(cache.counts().missed_rows, naive.counts.missed_rows);
      ASSERT_EQ(cache.counts().free_slots,
                std::count(cache.slot_rows().begin(), cache.slot_rows().end(), RowCache::kNoRow));
    }
  }
}

TEST(RowCacheTest, SlotsAreWholeSets) {
  EXPECT_EQ(CacheSlots(1, 1e-9), 32);
  EXPECT_EQ(CacheSlots(1000, 0.1), 128);
  EXPECT_EQ(CacheSlots(1000, 1.0), 1024);
}

}  // namespace
}  // namespace neuroshard
