#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/store/profile_store.h"

namespace neuroshard {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(NoPostgresTest, AnAddressIsRefusedAndNotRepeated) {
  const Status status =
      ProfileStore::Open("postgresql://me:swordfish@localhost/db", StoreMode::kReadWrite).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(Message(status), HasSubstr("without PostgreSQL"));
  EXPECT_THAT(Message(status), Not(HasSubstr("swordfish")));
}

}  // namespace
}  // namespace neuroshard
