#include "common/base/wrapped_text.h"

#include <gtest/gtest.h>

namespace neuroshard {
namespace {

TEST(WrappedTextTest, NoLineIsLongerThanTheColumns) {
  EXPECT_EQ(Wrapped("", 10, 2), "");
  EXPECT_EQ(Wrapped("one two", 10, 2), "one two");
  EXPECT_EQ(Wrapped("one two three", 9, 2, 2), "one two\n  three");
  EXPECT_EQ(Wrapped("one two", 7, 2), "one two");
  EXPECT_EQ(Wrapped("one two", 8, 2, 2), "one\n  two");
  EXPECT_EQ(Wrapped("one two\n\nthree four\n", 7, 2), "one two\n\nthree\n  four\n");
  EXPECT_EQ(Wrapped("a\nb c", 3, 0), "a\nb c");
  EXPECT_EQ(Wrapped("a  b", 9, 0), "a  b");
  EXPECT_EQ(Wrapped("unbreakably-long word", 5, 1), "unbreakably-long\n word");
}

TEST(WrappedTextTest, CountsCharactersNotBytes) {
  EXPECT_EQ(Wrapped("\xC3\xA4\xC3\xA4 \xC3\xB6\xC3\xB6", 5, 0),
            "\xC3\xA4\xC3\xA4 \xC3\xB6\xC3\xB6");
}

}  // namespace
}  // namespace neuroshard
