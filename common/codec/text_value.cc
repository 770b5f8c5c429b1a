#include "common/codec/text_value.h"

#include "common/codec/message_text.h"

namespace neuroshard {

Status TextBudget::TakeValues(std::size_t values, std::size_t bytes) {
  values_ += values;
  bytes_ += bytes;
  if (values_ > kMaxTextValues) {
    return InvalidArgument("has more than {} values, the most that is read", kMaxTextValues);
  }
  if (bytes_ > kMaxTextBytes) {
    return InvalidArgument("has more than {} bytes of text, the most that is read", kMaxTextBytes);
  }
  return absl::OkStatus();
}

Status TextBudget::CheckDepth(int depth) {
  if (depth > kMaxTextDepth) {
    return InvalidArgument("is nested more than {} levels deep", kMaxTextDepth);
  }
  return absl::OkStatus();
}

}  // namespace neuroshard
