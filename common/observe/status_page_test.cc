#include "common/observe/status_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace neuroshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(StatusPageTest, ValuesAreListedAndListsOfObjectsAreTables) {
  const std::string page = StatusPage("planner", R"({
    "version": "1.2", "digest": "0123456789abcdef", "memory_bytes": 3221225472, "now_unix_ms": 1700000000123, "none": "",
    "ranks": [1, 2, 4], "draining": true,
    "models": {"loaded": [{"name": "a", "share": 0.12345, "poor": ""}, {"name": "b", "version": 3}],
               "refused": []}})");
  EXPECT_THAT(
      page,
      AllOf(HasSubstr("<title>planner</title>"),
            HasSubstr("<dt>version</dt><dd>1.2</dd>\n<dt>digest</dt><dd>0123456789ab</dd>"),
            HasSubstr("<dt>memory</dt><dd>3.00 GiB</dd>"),
            HasSubstr("<dt>now</dt><dd>2023-11-14 22:13:20 UTC</dd>"),
            HasSubstr("<dt>ranks</dt><dd>1, 2, 4</dd>"), HasSubstr("<dt>draining</dt><dd>yes</dd>"),
            HasSubstr("<h2>models</h2>\n<h2>loaded</h2>")));
  EXPECT_THAT(page, HasSubstr("<th>name</th><th>share</th><th>version</th></tr>\n"
                              "<tr><td>a</td><td class=n>0.1235</td><td></td></tr>\n"
                              "<tr><td>b</td><td></td><td class=n>3</td></tr>"));
  EXPECT_THAT(page,
              AllOf(Not(HasSubstr("<dt>none")), Not(HasSubstr("poor")), Not(HasSubstr("refused"))));
}

// Names of tables, models and callers are whatever somebody sent.
TEST(StatusPageTest, TextsAreNoMarkup) {
  const std::string bad = R"(<script>x</script>&\"')";
  const std::string shown = "&lt;script&gt;x&lt;/script&gt;&amp;&quot;&#39;";
  const std::string page = StatusPage(
      "<b>", R"({"a": ")" + bad + R"(", "l": [")" + bad + R"("], "<i>": 1, "o": {"x": {")" + bad +
                 R"(": "v"}}, "t": [{"c": ")" + bad + R"(", "<u>": {"y": ")" + bad + R"("}}]})");
  for (const char* markup : {"<script", "<b>", "<i>", "<u>"}) {
    EXPECT_THAT(page, Not(HasSubstr(markup)));
  }
  EXPECT_THAT(page, AllOf(HasSubstr("<dd>" + shown + "</dd>"), HasSubstr("<td>" + shown + "</td>"),
                          HasSubstr("<dt>" + shown + "</dt>"), HasSubstr("<h1>&lt;b&gt;</h1>")));
}

TEST(StatusPageTest, OtherTextsAreShownAsTheyAre) {
  EXPECT_THAT(StatusPage("x", "{cut <"), HasSubstr("<pre>{cut &lt;</pre>"));
  EXPECT_THAT(StatusPage("x", "[1]"), HasSubstr("<pre>[1]</pre>"));
  EXPECT_THAT(
      StatusPage("x", R"({"t_unix_ms": -5, "u_unix_ms": 9223372036854775807, "b_bytes": -1})"),
      AllOf(HasSubstr("<dd>-5</dd>"), HasSubstr("<dd>9223372036854775807</dd>")));
}

}  // namespace
}  // namespace neuroshard
