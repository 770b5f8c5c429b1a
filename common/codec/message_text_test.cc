#include "common/codec/message_text.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "common/base/random.h"
#include "common/base/violations.h"
#include "common/codec/request_codec.h"
#include "common/codec/text_file.h"
#include "neuroshard/v1/answers.pb.h"
#include "neuroshard/v1/planner.pb.h"
#include "neuroshard/v1/worker.pb.h"
#include "tests/support/faulty_fields.h"

namespace neuroshard {
namespace {

using google::protobuf::util::MessageDifferencer;
using testing::AllOf;
using testing::HasSubstr;

const std::string kTestdata = std::string(NEUROSHARD_SOURCE_DIR) + "/common/codec/testdata/";

std::string MustRead(const std::string& path) {
  const auto text = ReadTextFile(path);
  EXPECT_TRUE(text.ok()) << Message(text.status());
  return text.ok() ? *text : "";
}

Status ParseYaml(std::string_view text, google::protobuf::Message& message) {
  return ParseMessageText(text, TextFormat::kYaml, &message);
}
Status ParseJson(std::string_view text, google::protobuf::Message& message) {
  return ParseMessageText(text, TextFormat::kJson, &message);
}
template <typename M = v1::ShardPlanRequest>
Status YamlStatus(std::string_view text) {
  M message;
  const Status status = ParseYaml(text, message);
  EXPECT_TRUE(status.ok() || message.ByteSizeLong() == 0) << "not cleared";
  return status;
}
template <typename M = v1::ShardPlanRequest>
Status JsonStatus(std::string_view text) {
  M message;
  const Status status = ParseJson(text, message);
  EXPECT_TRUE(status.ok() || message.ByteSizeLong() == 0) << "not cleared";
  return status;
}

TEST(MessageTextTest, YamlAndJsonAreTheSameRequest) {
  v1::ShardPlanRequest from_yaml, from_json;
  const Status yaml = ParseYaml(MustRead(kTestdata + "request.yaml"), from_yaml);
  ASSERT_TRUE(yaml.ok()) << Message(yaml);
  const std::string golden = MustRead(kTestdata + "request.json");
  ASSERT_TRUE(ParseJson(golden, from_json).ok());

  EXPECT_TRUE(MessageDifferencer::Equals(from_yaml, from_json));
  EXPECT_EQ(MessageToJson(from_yaml) + "\n", golden);
  const auto decoded = DecodePlanRequest(from_yaml, RequestLimits{});
  EXPECT_TRUE(decoded.ok()) << Message(decoded.status());
  EXPECT_EQ(from_yaml.request_id(), "007");
  EXPECT_EQ(from_yaml.tables(0).features(1), "42");
  EXPECT_EQ(from_yaml.tables(1).name(), "true");
  EXPECT_FALSE(from_yaml.tables(1).has_pooling_factor());
}

TEST(MessageTextTest, NoPartOfARequestInJsonIsReadNorOneInYamlThatLacksItsTopology) {
  const std::string json = MustRead(kTestdata + "request.json");
  for (std::size_t bytes = 0; bytes + 2 < json.size(); bytes += 7) {
    EXPECT_FALSE(JsonStatus(std::string_view(json).substr(0, bytes)).ok()) << bytes;
  }
  const std::string tables =
      "tables:\n- {name: a, num_embeddings: 1000, embedding_dim: 8, pooling_factor: 1}\n";
  const std::string yaml =
      tables + "topology:\n  hosts:\n  - {num_devices: 2, memory_bytes: 1000000000}\n";
  for (std::size_t bytes = 0; bytes <= yaml.size(); ++bytes) {
    v1::ShardPlanRequest request;
    const bool read = ParseYaml(yaml.substr(0, bytes), request).ok() &&
                      DecodePlanRequest(request, RequestLimits{}).ok();
    EXPECT_EQ(read, bytes + 1 >= yaml.size()) << yaml.substr(0, bytes);
  }
}

TEST(MessageTextTest, JsonComesBackAndHasDefaults) {
  v1::ShardPlanRequest request, again;
  ASSERT_TRUE(ParseYaml(MustRead(kTestdata + "request.yaml"), request).ok());
  ASSERT_TRUE(ParseJson(MessageToJson(request), again).ok());
  EXPECT_TRUE(MessageDifferencer::Equals(again, request));
  EXPECT_EQ(MessageToJson(v1::Plan()),
            "{\n  \"world_size\": 0,\n  \"local_world_size\": 0,\n  \"tables\": []\n}");
}

TEST(MessageTextTest, NullableFieldsAreNullWhereTheyAreAbsentAndOthersAreLeftOut) {
  v1::Comparison comparison;
  EXPECT_EQ(MessageToJson(comparison),
            "{\n  \"predicted_ms\": null,\n  \"measured_ms\": null,\n"
            "  \"relative_error\": null\n}");
  comparison.set_predicted_ms(0.5);
  v1::Comparison again;
  ASSERT_TRUE(ParseJson(MessageToJson(comparison), again).ok());
  EXPECT_TRUE(MessageDifferencer::Equals(again, comparison));
  v1::ValidatedCollective collective;
  collective.add_measured_ms(1);
  collective.add_measured_ms(std::nan(""));
  EXPECT_EQ(MessageToJson(collective),
            "{\n  \"direction\": null,\n  \"collective\": \"\",\n"
            "  \"measured_ms\": [\n    1.0,\n    null\n  ]\n}");
}

TEST(MessageTextTest, MapsAreSortedAndSpecialNumbersComeBack) {
  v1::MeasurementEnvironment environment;
  (*environment.mutable_properties())["os"] = "Debian \"12\"";
  (*environment.mutable_properties())["cpu"] = "\xE2\x84\xA2";
  EXPECT_THAT(MessageToJson(environment),
              testing::HasSubstr("\"properties\": {\n    \"cpu\": \"\xE2\x84\xA2\",\n"
                                 "    \"os\": \"Debian \\\"12\\\"\"\n  }"));

  v1::TimedSeries series, series_again;
  series.add_samples_ms(std::nan(""));
  series.add_samples_ms(INFINITY);
  series.add_samples_ms(-INFINITY);
  series.add_samples_ms(0.1);
  ASSERT_TRUE(ParseJson(MessageToJson(series), series_again).ok());
  EXPECT_TRUE(std::isnan(series_again.samples_ms(0)));
  EXPECT_EQ(series_again.samples_ms(1), INFINITY);
  EXPECT_EQ(series_again.samples_ms(2), -INFINITY);
  EXPECT_EQ(series_again.samples_ms(3), 0.1);
}

// What users of TorchRec and of other planners write.
TEST(MessageTextTest, FieldsOfOtherProjectsAreTranslated) {
  const auto fault = [](const std::string& yaml) {
    return Violations::FromStatus(YamlStatus(yaml)).front().description;
  };
  EXPECT_EQ(fault("batch_size: 4096"),
            "unknown field; did you mean global_batch_size (of all ranks together)? (line 1)");
  EXPECT_EQ(fault("local_batch_size: 4096"),
            "unknown field; did you mean global_batch_size (of all ranks together)? (line 1)");
  EXPECT_EQ(fault("search: {steps: 9}"), "unknown field; did you mean refine_steps? (line 1)");
  EXPECT_EQ(fault("search: {time_limit: 9}"),
            "unknown field; did you mean time_budget_ms (in milliseconds)? (line 1)");
  EXPECT_EQ(fault("topology: {hosts: [{hbm_cap: 9}]}"),
            "unknown field; did you mean memory_bytes (of one device)? (line 1)");
  EXPECT_EQ(fault("topology: {bandwidths: {inter_host_bw: 9}}"),
            "unknown field; did you mean inter_host_bytes_per_s (in bytes per second)? (line 1)");
  EXPECT_EQ(fault("tables: [{rows: 9}]"), "unknown field; did you mean num_embeddings? (line 1)");
  EXPECT_EQ(fault("constraints: {min_partition: 9}"),
            "unknown field; did you mean min_column_width? (line 1)");
  EXPECT_THAT(fault("tables: [{colour: 9}]"), testing::StartsWith("unknown field; known: name, "));
}

TEST(MessageTextTest, ListsEveryFaultWithItsPath) {
  const Status status = YamlStatus(
      "tables:\n"
      "  - {name: a, num_embedings: 10, embedding_dim: x}\n"
      "  - {name: [a], num_embeddings: 1.5, weighted: yes, weighted: true}\n"
      "  - 7\n"
      "topology: []\n"
      "global_batch_size: 9223372036854775808\n"
      "search: {beam_width: 3e9, seed: -1, max_length: \"ten\"}\n"
      "memory: {reserve_fraction: much}\n"
      "extra: 1\n");
  std::vector<std::string> lines;
  for (const Violation& v : Violations::FromStatus(status)) {
    lines.push_back(v.field + ": " + v.description);
  }
  EXPECT_THAT(
      lines,
      testing::ElementsAre(
          "tables[0].num_embedings: unknown field; did you mean num_embeddings? (line 2)",
          "tables[0].embedding_dim: must be an integer, got \"x\" (line 2)",
          "tables[1].name: must be text, got a list (line 3)",
          "tables[1].num_embeddings: must be an integer, got \"1.5\" (line 3)",
          "tables[1].weighted: must be true or false, got \"yes\" (line 3)",
          "tables[1].weighted: is given twice (line 3)",
          "tables[2]: must be a mapping, got \"7\" (line 4)",
          "topology: must be a mapping, got a list (line 5)",
          "global_batch_size: must be an integer from -9223372036854775808 to 9223372036854775807, "
          "got \"9223372036854775808\" (line 6)",
          "search.beam_width: must be an integer from -2147483648 to 2147483647, got \"3e9\" (line "
          "7)",
          "search.seed: must be an integer from 0 to 18446744073709551615, got \"-1\" (line 7)",
          "search.max_length: must be an integer, got \"ten\" in quotes (line 7)",
          "memory.reserve_fraction: must be a number, got \"much\" (line 8)",
          HasSubstr("extra: unknown field; known: request_id, tables,")));
}

TEST(MessageTextTest, JsonTypesAreChecked) {
  const Status status = JsonStatus(
      R"({"tables": [{"name": 5, "weighted": "true", "num_embeddings": true, "features": "f"}],
          "requestId": "a", "request_id": "b", "topology": null, "search": {"seed": 1e300}})");
  const std::vector<std::string> fields = FaultyFields(status);
  EXPECT_THAT(fields, testing::ElementsAre("tables[0].name", "tables[0].weighted",
                                           "tables[0].num_embeddings", "tables[0].features",
                                           "request_id", "search.seed"));
}

TEST(MessageTextTest, NumbersMayHaveAUnit) {
  v1::ShardPlanRequest request;
  ASSERT_TRUE(ParseYaml("tables: [{num_embeddings: 1_000_000}]\n"
                        "topology: {hosts: [{memory_bytes: 80GiB, device_memory_bytes: [1MB, 2],\n"
                        "    max_host_memory_bytes_per_device: 1TB}],\n"
                        "  bandwidths: {intra_host_bytes_per_s: 450GB/s}}\n"
                        "search: {time_budget_ms: 1.5s}\n",
                        request)
                  .ok());
  EXPECT_EQ(request.tables(0).num_embeddings(), 1'000'000);
  EXPECT_EQ(request.topology().hosts(0).memory_bytes(), std::int64_t{80} << 30);
  EXPECT_EQ(request.topology().hosts(0).device_memory_bytes(0), 1'000'000);
  EXPECT_EQ(request.topology().hosts(0).max_host_memory_bytes_per_device(), 1'000'000'000'000);
  EXPECT_EQ(request.topology().bandwidths().intra_host_bytes_per_s(), 450e9);
  EXPECT_EQ(request.search().time_budget_ms(), 1500);
  ASSERT_TRUE(ParseJson(R"({"memory": {"reserve_bytes": "2GiB"}})", request).ok());
  EXPECT_EQ(request.memory().reserve_bytes(), std::int64_t{2} << 30);
  EXPECT_THAT(Message(YamlStatus("topology: {hosts: [{memory_bytes: 80G}]}\n"
                                 "tables: [{num_embeddings: 1MB}]")),
              AllOf(HasSubstr("memory_bytes: must be an integer (or with a unit: 80GiB, 80GB), got "
                              "\"80G\""),
                    HasSubstr("num_embeddings: must be an integer, got \"1MB\"")));
}

TEST(MessageTextTest, SyntaxErrorsSayWhere) {
  EXPECT_THAT(Message(YamlStatus("a: 1\nb: [1, 2\nc: 3\n")), HasSubstr("line 3"));
  EXPECT_THAT(Message(JsonStatus("{\"tables\": [\n  {\"name\": }\n]}")), HasSubstr("line 2"));
  EXPECT_THAT(Message(JsonStatus("{} {}")), HasSubstr("line 1"));
  EXPECT_THAT(Message(YamlStatus("tables: []\n---\ntables: []\n")), HasSubstr("one YAML document"));
  EXPECT_THAT(Message(YamlStatus("tables: !python/object [1]")), HasSubstr("tag"));
  EXPECT_THAT(Message(YamlStatus("? [a, b]\n: 1\n")), HasSubstr("a key must be a name"));
  for (const char* text : {"", "   \n", "# nothing\n", "null", "[]", "5"}) {
    EXPECT_EQ(YamlStatus(text).code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(JsonStatus(text).code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(MessageTextTest, DepthIsBounded) {
  for (const int depth : {65, 100'000}) {
    const std::string open(static_cast<std::size_t>(depth), '[');
    EXPECT_FALSE(YamlStatus("tables: " + open).ok());
    EXPECT_THAT(Message(JsonStatus("{\"tables\": " + open)), HasSubstr("more than 64 levels"));
  }
  std::string mapping;
  for (int i = 0; i < 65; ++i) mapping += "{a: ";
  EXPECT_THAT(Message(YamlStatus(mapping + "1" + std::string(65, '}'))),
              HasSubstr("more than 64 levels"));
}

TEST(MessageTextTest, AliasesAreExpandedWithinBounds) {
  v1::ShardPlanRequest request;
  const Status status = ParseYaml(
      "tables:\n"
      "  - {name: a, reuse_histogram: &h [0.5, 0.5]}\n"
      "  - {name: b, reuse_histogram: *h}\n",
      request);
  ASSERT_TRUE(status.ok()) << Message(status);
  EXPECT_EQ(request.tables(1).reuse_histogram_size(), 2);

  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 20; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + last;
    for (int k = 1; k < 10; ++k) bomb += ", " + last;
    bomb += "]\n";
  }
  EXPECT_THAT(Message(YamlStatus(bomb)), HasSubstr("values, the most that is read"));

  std::string long_text = "a: &a " + std::string(1 << 20, 'x') + "\nb: [";
  for (int i = 0; i < 1000; ++i) long_text += "*a, ";
  EXPECT_THAT(Message(YamlStatus(long_text + "*a]\n")), HasSubstr("bytes of text"));
  EXPECT_THAT(Message(YamlStatus("a: &a [*a]\n")), HasSubstr("contains it"));
  EXPECT_FALSE(YamlStatus("a: *nowhere\n").ok());
}

TEST(MessageTextTest, TextMustBeUtf8) {
  v1::ShardPlanRequest request;
  EXPECT_TRUE(ParseYaml("request_id: \"\xC3\xA9\"", request).ok());
  EXPECT_EQ(request.request_id(), "\xC3\xA9");
  for (const char* bad : {"\xC3", "\xC0\x80", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\xFF"}) {
    EXPECT_FALSE(JsonStatus("{\"request_id\": \"" + std::string(bad) + "\"}").ok());
    // yaml-cpp replaces what is not UTF-8; either way no broken text gets into a message.
    const Status status = ParseYaml("request_id: \"" + std::string(bad) + "\"", request);
    EXPECT_TRUE(!status.ok() || request.IsInitialized());
    EXPECT_NE(request.request_id(), bad);
  }
}

TEST(MessageTextTest, NotANumberReachesTheDecoder) {
  v1::ShardPlanRequest request;
  ASSERT_TRUE(ParseYaml("tables: [{name: a, num_embeddings: 1, embedding_dim: 4, pooling_factor: "
                        ".nan}]\ntopology: {hosts: [{num_devices: 1, memory_bytes: 1}]}",
                        request)
                  .ok());
  EXPECT_THAT(Message(DecodePlanRequest(request, {}).status()),
              HasSubstr("tables[0].pooling_factor: must be a number from 0 to 1000000, got nan"));
}

TEST(MessageTextTest, FormatFollowsTheName) {
  EXPECT_EQ(TextFormatOfPath("a/b.json"), TextFormat::kJson);
  EXPECT_EQ(TextFormatOfPath("a.json/b.yaml"), TextFormat::kYaml);
  EXPECT_EQ(TextFormatOfPath("plan"), TextFormat::kYaml);
}

TEST(WorkloadsTest, EveryShippedRequestIsARequest) {
  const std::string folder = std::string(NEUROSHARD_SOURCE_DIR) + "/configs/workloads";
  int requests = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".yaml") continue;
    ++requests;
    v1::ShardPlanRequest message;
    const Status parsed = ParseYaml(MustRead(entry.path()), message);
    ASSERT_TRUE(parsed.ok()) << entry.path() << ": " << Message(parsed);
    const auto request = DecodePlanRequest(message, RequestLimits{});
    ASSERT_TRUE(request.ok()) << entry.path() << ": " << Message(request.status());
    EXPECT_TRUE(request->warnings.empty()) << entry.path() << ": " << request->warnings[0];
  }
  EXPECT_GE(requests, 6);
}

// Random damage to valid texts: any answer is fine, as long as there is one and it is text.
TEST(MessageTextFuzzTest, DamagedTextIsAnswered) {
  const std::string yaml = MustRead(kTestdata + "request.yaml");
  const std::string json = MustRead(kTestdata + "request.json");
  const std::string spice = "{}[]:,-&*!?|>'\"#%@`\n\t ~\\\xFF\x80\0x1e.";
  Random random(20231120);
  for (int round = 0; round < 4000; ++round) {
    const bool is_yaml = round % 2 == 0;
    std::string text = is_yaml ? yaml : json;
    for (std::uint64_t edits = 1 + random.Below(6); edits > 0; --edits) {
      const std::size_t at = random.Below(text.size());
      const std::size_t length = random.Below(std::min<std::size_t>(40, text.size() - at) + 1);
      switch (random.Below(4)) {
        case 0:
          text[at] = spice[random.Below(spice.size())];
          break;
        case 1:
          text.erase(at, length);
          break;
        case 2:
          text.insert(at, text.substr(random.Below(text.size()), length));
          break;
        default:
          text.insert(at, 1, spice[random.Below(spice.size())]);
      }
      if (text.empty()) text = " ";
    }
    v1::ShardPlanRequest message;
    const Status status =
        ParseMessageText(text, is_yaml ? TextFormat::kYaml : TextFormat::kJson, &message);
    if (!status.ok()) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_FALSE(Message(status).empty());
      continue;
    }
    const auto request = DecodePlanRequest(message, RequestLimits{});
    if (!request.ok()) continue;
    EXPECT_TRUE(DecodePlanRequest(EncodePlanRequest(*request), RequestLimits{}).ok());
  }
}

}  // namespace
}  // namespace neuroshard
