#include "common/text/quantity.h"

#include <gtest/gtest.h>

namespace neuroshard {
namespace {

TEST(QuantityTest, IsInTheUnitThatTheFieldsNameEndsIn) {
  const struct {
    const char* text;
    const char* field;
    const char* plain;
  } cases[] = {
      {"80GiB", "memory_bytes", "85899345920"},
      {"80 GB", "memory_bytes", "80000000000"},
      {"1.5TiB", "memory_bytes", "1649267441664"},
      {"0.1kB", "memory_bytes", "100"},
      {"0.3B", "memory_bytes", "0"},
      {"-1KiB", "memory_bytes", "-1024"},
      {"+1KiB", "memory_bytes", "1024"},
      {"1_024MiB", "memory_bytes", "1073741824"},
      {"8PiB", "memory_bytes", "9007199254740992"},
      {"9007199254740993B", "memory_bytes", "9007199254740993"},
      {"1e3kB", "memory_bytes", "1000000"},
      {"512MiB", "memory_gib", "0.5"},
      {"450GB/s", "intra_host_bytes_per_s", "450000000000"},
      {"1h", "timeout_ms", "3600000"},
      {"90s", "timeout_s", "90"},
      {"2min", "timeout_s", "120"},
      {"2m", "timeout_s", "120"},
      {"7d", "timeout_s", "604800"},
      {"0.1s", "timeout_ms", "100"},
      {"1.5ms", "timeout_ms", "1.5"},
      {"250us", "timeout_ms", "0.25"},
      {"3us", "latency_us", "3"},
      {"1_000_000", "num_embeddings", "1000000"},
      {"1_000.5", "pooling_factor", "1000.5"},
  };
  for (const auto& c : cases) EXPECT_EQ(PlainNumber(c.text, c.field), c.plain) << c.text;
}

TEST(QuantityTest, LeavesEverythingElseAsItIs) {
  for (const char* text :
       {"",   "80", "8e9",  "80.", "GiB", "80GiB/s", "80 gib", "80G", "1h",    "80GiBx",
        "_1", "1_", "1__0", "-",   ".",   "-GiB",    "infGiB", "nan", "0x10B", "1e9999B"}) {
    EXPECT_EQ(PlainNumber(text, "memory_bytes"), std::nullopt) << text;
  }
  EXPECT_EQ(PlainNumber("80GiB", "timeout_ms"), std::nullopt);
  EXPECT_EQ(PlainNumber("1e308s", "timeout_ms"), std::nullopt);  // of no double
  EXPECT_EQ(PlainNumber("80GiB", "num_embeddings"), std::nullopt);
  EXPECT_EQ(PlainNumber("80GB", "intra_host_bytes_per_s"), std::nullopt);
  EXPECT_EQ(PlainNumber(std::string(1'000'000, '1') + "B", "memory_bytes"), std::nullopt);
}

TEST(QuantityTest, AHintSaysWhichUnitsThereAre) {
  EXPECT_EQ(UnitHint("memory_bytes"), " (or with a unit: 80GiB, 80GB)");
  EXPECT_EQ(UnitHint("num_embeddings"), "");
}

}  // namespace
}  // namespace neuroshard
