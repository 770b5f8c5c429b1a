// Requests as people write them. The first byte chooses YAML or JSON.
#include <google/protobuf/util/message_differencer.h>

#include "common/codec/message_text.h"
#include "common/codec/request_codec.h"
#include "neuroshard/v1/planner.pb.h"
#include "tests/fuzz/fuzz_target.h"

namespace neuroshard::fuzz {
namespace {

void ReadRequest(std::string_view input) {
  if (input.empty()) return;
  const TextFormat format = input[0] == 'j' ? TextFormat::kJson : TextFormat::kYaml;
  v1::ShardPlanRequest message;
  if (!ParseMessageText(input.substr(1), format, &message).ok()) {
    Promise(message.ByteSizeLong() == 0, "a message that is not read is left cleared");
    (void)ReadMessageText(input.substr(1), format, &message);
    (void)DecodePlanRequest(message, {});
    return;
  }
  const auto request = DecodePlanRequest(message, {});
  // Text of a message reads back as the same message. NaN is not equal to itself, and no decoded
  // request has one.
  if (!request.ok()) return;
  v1::ShardPlanRequest again;
  Promise(ParseMessageText(MessageToJson(message), TextFormat::kJson, &again).ok(),
          "MessageToJson writes what ParseMessageText reads");
  Promise(google::protobuf::util::MessageDifferencer::Equals(message, again),
          "MessageToJson keeps every value");
  if (!request->warnings.empty()) return;
  const auto decoded_again = DecodePlanRequest(EncodePlanRequest(*request), {});
  Promise(decoded_again.ok() && *decoded_again == *request, "EncodePlanRequest is the inverse");
}

std::vector<std::string> RequestSeeds() {
  std::vector<std::string> seeds;
  for (const char* folder : {"configs/workloads", "common/codec/testdata"}) {
    for (const std::string& text : SeedsFrom(folder, ".yaml")) seeds.push_back("y" + text);
  }
  for (const std::string& text : SeedsFrom("common/codec/testdata", ".json")) {
    seeds.push_back("j" + text);
  }
  return seeds;
}

}  // namespace

FuzzTarget RequestTextTarget() { return {"request_text", ReadRequest, RequestSeeds}; }

}  // namespace neuroshard::fuzz
