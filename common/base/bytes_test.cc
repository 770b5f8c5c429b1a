#include "common/base/bytes.h"

#include <gtest/gtest.h>

namespace neuroshard {
namespace {

TEST(FormatBytesTest, PicksTheUnit) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.50 KiB");
  EXPECT_EQ(FormatBytes(80 * kGiB), "80.00 GiB");
}

}  // namespace
}  // namespace neuroshard
