#include "client/stub/model_reference.h"

#include <gmock/gmock.h>

#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using testing::StatusIs;

TEST(ModelReferenceTest, IsANameWithOrWithoutAVersion) {
  EXPECT_EQ(*ParseModelReference("cpu"), (CostModelRef{"cpu", 0}));
  EXPECT_EQ(*ParseModelReference("cpu/12"), (CostModelRef{"cpu", 12}));
  for (const char* text : {"cpu", "cpu/12"}) {
    EXPECT_EQ(ModelReferenceText(*ParseModelReference(text)), text);
  }
  EXPECT_EQ(EncodeModelReference({"cpu", 12}).version(), 12);
  for (const char* bad : {"", "/1", "cpu/", "cpu/0", "cpu/-1", "cpu/1x", "cpu/99999999999"}) {
    EXPECT_THAT(ParseModelReference(bad), StatusIs(absl::StatusCode::kInvalidArgument)) << bad;
  }
}

}  // namespace
}  // namespace neuroshard
