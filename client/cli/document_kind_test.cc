#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cli/input_file.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;

TEST(DocumentKindTest, SaysWhatADocumentIs) {
  const struct {
    const char* text;
    DocumentKind wanted;
    const char* what;
  } cases[] = {
      {"# comment\ntables: []\ntopology: {}\n", DocumentKind::kPlan,
       "this is a request; a plan, as"},
      {R"({"plan": {"world_size": 2}, "cost": {}})", DocumentKind::kRequest,
       "this is a plan; a request is wanted here"},
      {R"({"world_size": 2, "tables": []})", DocumentKind::kRequest, "this is a plan;"},
      {R"({"plan": {"": {"users": {"ranks": [0]}}}})", DocumentKind::kRequest, "this is a plan;"},
      {R"({"format": "neuroshard-hugectr/1"})", DocumentKind::kPlan,
       "a plan in the form \"neuroshard-hugectr/1\""},
      {"format: neuroshard-cost-model/1\n", DocumentKind::kRequest, "a cost model's model.yaml"},
      {"kind: comm\nnum_samples: 3\n", DocumentKind::kRequest, "a sweep's configuration"},
      {"metrics_listen: ''\n", DocumentKind::kRequest, "a server's configuration"},
      {"index,row,pooling_factor\n0,1,2\n", DocumentKind::kRequest,
       "this is a CSV, of tables perhaps"},
      {"SQLite format 3", DocumentKind::kRequest, "a profile store perhaps"},
      {R"({"legal": true})", DocumentKind::kPlan, "an answer of `neuroshard evaluate`"},
      {R"({"ranks": [], "embedding_cost": {}})", DocumentKind::kPlan,
       "an answer of `neuroshard validate`"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(Message(OtherDocument(c.text, c.wanted)), HasSubstr(c.what)) << c.text;
  }
}

TEST(DocumentKindTest, SaysNothingOfWhatIsWantedOrNotKnown) {
  for (const char* text : {"", "tables: []", "[1, 2]", "{", "tables: [}", "plan"}) {
    EXPECT_THAT(OtherDocument(text, DocumentKind::kRequest), IsOk()) << text;
  }
  EXPECT_THAT(OtherDocument("topology: {}", DocumentKind::kRequest), IsOk());
  EXPECT_THAT(OtherDocument(R"({"world_size": "x"})", DocumentKind::kPlan), IsOk());
  EXPECT_THAT(OtherDocument(R"({"plan": {"world_size": "x"}})", DocumentKind::kPlan), IsOk());
}

}  // namespace
}  // namespace neuroshard
