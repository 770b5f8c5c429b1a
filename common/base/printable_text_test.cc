#include "common/base/printable_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/base/random.h"

namespace neuroshard {
namespace {

TEST(PrintableTextTest, KnowsUtf8) {
  for (const char* text : {"", "plain", "Größe", "\u20ac", "\U0001F600", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(IsUtf8(text)) << text;
  }
  for (const char* text :
       {"\xFF", "\x80", "a\xC3", "\xC0\xAF", "\xE0\x80\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80",
        "\xF0\x80\x80\x80", "\xE2\x82", "\xF8\x88\x80\x80\x80"}) {
    EXPECT_FALSE(IsUtf8(text)) << text;
  }
}

TEST(PrintableTextTest, ReplacesWhatCannotBeShown) {
  EXPECT_EQ(Printable("Größe 7", 100), "Größe 7");
  EXPECT_EQ(Printable("a\nb\x7F\xFF\xC3", 100), "a?b???");
  EXPECT_EQ(Printable(std::string_view("\0x", 2), 100), "?x");
  EXPECT_EQ(Printable("abcdef", 6), "abcdef");
  EXPECT_EQ(Printable("abcdef", 5), "abcde...");
  EXPECT_EQ(Printable("öö", 1), "ö...");
  EXPECT_EQ(Quoted("x\n\xFF"), "\"x\\x0a?\"");
  EXPECT_EQ(Quoted(std::string(70, 'a')), fmt::format("\"{:a<60}\"... (70 bytes)", ""));
}

TEST(PrintableTextTest, IsAlwaysUtf8AndUnchangedWhenItCanBe) {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (std::uint64_t i = random.Below(20); i > 0; --i) {
      text += static_cast<char>(random.Below(256));
    }
    EXPECT_TRUE(IsUtf8(Printable(text, 10)));
    EXPECT_EQ(Printable(Printable(text, 100), 100), Printable(text, 100));
  }
}

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
