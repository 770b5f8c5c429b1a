#include <gmock/gmock.h>

#include "common/base/random.h"
#include "server/search/conflict/proof_parts.h"

namespace neuroshard {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

TEST(TransportTest, SuppliersThatShareTooLittleAreNamed) {
  const std::vector<int> first = {0};
  const std::vector<int> both = {0, 1};
  const std::vector<int> none;
  EXPECT_EQ(FindOverfull({{3, &first}, {4, &both}}, {5, 2}, 100), std::nullopt);
  EXPECT_THAT(FindOverfull({{3, &first}, {4, &both}}, {5, 1}, 100), Optional(ElementsAre(0, 1)));
  EXPECT_THAT(FindOverfull({{6, &first}, {1, &both}}, {5, 9}, 100), Optional(ElementsAre(0)));
  EXPECT_THAT(FindOverfull({{2, &both}, {1, &none}}, {5, 9}, 100), Optional(ElementsAre(1)));
  EXPECT_THAT(FindOverfull({{3, &both}}, {5, 9}, 1), Optional(ElementsAre(0)));
  EXPECT_EQ(FindOverfull({}, {5, -9}, 1), std::nullopt);
}

TEST(TransportTest, HugeAmountsDoNotOverflow) {
  const std::vector<int> both = {0, 1};
  constexpr std::int64_t kHuge = std::int64_t{1} << 61;
  EXPECT_EQ(FindOverfull({{kHuge, &both}, {kHuge, &both}}, {kHuge, kHuge}, kHuge), std::nullopt);
  EXPECT_THAT(FindOverfull({{kHuge, &both}, {kHuge, &both}}, {kHuge, kHuge - 1}, kHuge),
              Optional(ElementsAre(0, 1)));
}

// Hall: without a limit a pair, there is a way exactly if no subset of suppliers wants more than
// its sinks have.
TEST(TransportTest, AgreesWithHallsCondition) {
  Random random(11);
  int overfull = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::vector<int>> sinks(static_cast<std::size_t>(random.Between(1, 5)));
    std::vector<std::int64_t> room(static_cast<std::size_t>(random.Between(1, 4)));
    for (std::int64_t& r : room) r = random.Between(0, 6);
    std::vector<Supplier> suppliers;
    for (auto& of : sinks) {
      for (std::size_t s = 0; s < room.size(); ++s) {
        if (random.Below(2) == 0) of.push_back(static_cast<int>(s));
      }
      suppliers.push_back({random.Between(0, 5), &of});
    }
    const auto fits = [&](unsigned subset) {
      std::int64_t supply = 0;
      std::vector<bool> reached(room.size());
      for (std::size_t k = 0; k < suppliers.size(); ++k) {
        if ((subset >> k & 1) == 0) continue;
        supply += suppliers[k].supply;
        for (const int s : sinks[k]) reached[static_cast<std::size_t>(s)] = true;
      }
      for (std::size_t s = 0; s < room.size(); ++s) supply -= reached[s] ? room[s] : 0;
      return supply <= 0;
    };
    bool all_fit = true;
    for (unsigned subset = 1; subset < 1U << suppliers.size(); ++subset) {
      all_fit = all_fit && fits(subset);
    }
    const auto stuck = FindOverfull(suppliers, room, 1000);
    ASSERT_EQ(stuck.has_value(), !all_fit);
    if (!stuck.has_value()) continue;
    ++overfull;
    unsigned subset = 0;
    for (const std::size_t k : *stuck) subset |= 1U << k;
    EXPECT_FALSE(fits(subset));
  }
  EXPECT_GT(overfull, 200);
}

}  // namespace
}  // namespace neuroshard
