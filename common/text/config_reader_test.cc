#include "common/text/config_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>

#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::IsOk;
using ::neuroshard::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

ConfigReader Reader(const std::string& text) {
  auto reader = ConfigReader::FromText(text, "test.yaml");
  EXPECT_THAT(reader, IsOk());
  return *reader;
}

TEST(ConfigReaderTest, OverridesWhatTheFileNamesAndLeavesTheRest) {
  ConfigReader reader = Reader(R"(
listen: 0.0.0.0:1
rpc: {max_in_flight: 7, reserve: 0.5, verbose: true}
names: [a, b]
counts: [1, 2]
seed: 9
)");
  std::string listen = "x";
  std::string untouched = "default";
  reader.Read("listen", &listen);
  reader.Read("untouched", &untouched);
  ConfigReader rpc = reader.Section("rpc");
  int max_in_flight = 0;
  double reserve = 0;
  bool verbose = false;
  rpc.Read("max_in_flight", &max_in_flight, {1, 10});
  rpc.Read("reserve", &reserve, {0, 1});
  rpc.Read("verbose", &verbose);
  std::vector<std::string> names;
  std::vector<std::int64_t> counts;
  std::uint64_t seed = 0;
  reader.Read("names", &names);
  reader.Read("counts", &counts, {1, 2});
  reader.Read("seed", &seed);

  EXPECT_THAT(reader.Finish(), IsOk());
  EXPECT_EQ(listen, "0.0.0.0:1");
  EXPECT_EQ(untouched, "default");
  EXPECT_EQ(max_in_flight, 7);
  EXPECT_EQ(reserve, 0.5);
  EXPECT_TRUE(verbose);
  EXPECT_THAT(names, ElementsAre("a", "b"));
  EXPECT_THAT(counts, ElementsAre(1, 2));
  EXPECT_EQ(seed, 9u);
}

TEST(ConfigReaderTest, ListsOfWordsAndBooleansAndKeysOfSeveralForms) {
  ConfigReader reader = Reader(R"(
dtypes: [bf16, fp31, fp32]
untouched:
flags: [true, false, 3]
either: {a: 1}
)");
  std::vector<DataType> dtypes;
  std::vector<DataType> untouched = {DataType::kFp16};
  std::vector<bool> flags;
  reader.ReadWords("dtypes", &dtypes);
  reader.ReadWords("untouched", &untouched);
  reader.Read("flags", &flags);
  EXPECT_TRUE(reader.IsList("dtypes"));
  EXPECT_FALSE(reader.IsList("either"));
  EXPECT_TRUE(reader.IsMapping("either"));
  EXPECT_FALSE(reader.IsMapping("untouched"));
  std::int64_t a = 0;
  reader.Section("either").Read("a", &a);
  EXPECT_THAT(untouched, ElementsAre(DataType::kFp16));
  EXPECT_THAT(reader.Finish(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("dtypes[1]: must be one of fp32, fp16, bf16, fp8, int8, "
                                       "int4, int2, got \"fp31\""),
                             HasSubstr("flags[2]"), Not(HasSubstr("dtypes[0]")))));
}

TEST(ConfigReaderTest, ListsEveryFaultWithItsPathAndValue) {
  ConfigReader reader = Reader(R"(
lisen: typo
rpc: {max_in_flight: 0, drain_grace_ms: soon, extra: 1, share: .nan}
names: {not: a list}
counts: [1, x, 99]
dtype: fp31
rpc2: 3
)");
  ConfigReader rpc = reader.Section("rpc");
  int max_in_flight = 5;
  std::int64_t grace_ms = 6;
  double share = 0.25;
  rpc.Read("max_in_flight", &max_in_flight, {1, 10});
  rpc.Read("drain_grace_ms", &grace_ms);
  rpc.Read("share", &share, {0, 1});
  std::vector<std::string> names;
  std::vector<std::int64_t> counts;
  reader.Read("names", &names);
  reader.Read("counts", &counts, {1, 10});
  DataType dtype = DataType::kFp32;
  reader.ReadWord("dtype", &dtype);
  reader.Section("rpc2");

  EXPECT_THAT(
      reader.Finish(),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          AllOf(HasSubstr("test.yaml: "), HasSubstr("lisen: unknown key"),
                HasSubstr("rpc.max_in_flight: must be in [1, 10], got 0"),
                HasSubstr("rpc.drain_grace_ms: must be an integer (or with a unit: 500ms, 90s, "
                          "1h), got \"soon\""),
                HasSubstr("rpc.extra: unknown key"), HasSubstr("rpc.share: must be in"),
                HasSubstr("names: must be a list, got a mapping"),
                HasSubstr("counts[1]: must be an integer, got \"x\""),
                HasSubstr("counts[2]: must be in [1, 10], got 99"),
                Not(HasSubstr("counts[1]: must be in")),
                HasSubstr(
                    "dtype: must be one of fp32, fp16, bf16, fp8, int8, int4, int2, got \"fp31\""),
                HasSubstr("rpc2: must be a mapping, got \"3\""))));
  EXPECT_EQ(max_in_flight, 5);
  EXPECT_EQ(grace_ms, 6);
  EXPECT_EQ(share, 0.25);
}

TEST(ConfigReaderTest, AMisspeltKeyIsToldWhichWasMeant) {
  ConfigReader reader = Reader("lisen: typo");
  std::string listen;
  reader.Read("listen", &listen);
  EXPECT_THAT(reader.Finish(), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("lisen: unknown key; did you mean listen?")));
}

TEST(ConfigReaderTest, NumbersMayHaveAUnit) {
  ConfigReader reader =
      Reader("max_message_bytes: 64MiB\ngrace_ms: 1.5s\nlatency_us: 2ms\nsizes_bytes: [1kB, 2]\n");
  std::int64_t bytes = 0;
  int grace_ms = 0;
  double latency_us = 0;
  std::vector<std::int64_t> sizes;
  reader.Read("max_message_bytes", &bytes);
  reader.Read("grace_ms", &grace_ms, {0, 2000});
  reader.Read("latency_us", &latency_us);
  reader.Read("sizes_bytes", &sizes);
  EXPECT_THAT(reader.Finish(), IsOk());
  EXPECT_EQ(bytes, std::int64_t{64} << 20);
  EXPECT_EQ(grace_ms, 1500);
  EXPECT_EQ(latency_us, 2000);
  EXPECT_THAT(sizes, ElementsAre(1000, 2));
}

TEST(ConfigReaderTest, ReadsListsOfSections) {
  ConfigReader reader = Reader("workers: [{port: 1}, {port: 2, prot: 3}, 4]");
  std::vector<std::int64_t> ports;
  for (ConfigReader& worker : reader.Sections("workers")) {
    std::int64_t port = 0;
    worker.Read("port", &port);
    ports.push_back(port);
  }
  EXPECT_THAT(ports, ElementsAre(1, 2));
  EXPECT_THAT(reader.Finish(), StatusIs(absl::StatusCode::kInvalidArgument,
                                        AllOf(HasSubstr("workers[1].prot: unknown key"),
                                              HasSubstr("workers[2]: must be a mapping"))));
}

TEST(ConfigReaderTest, RequiredKeysOptionalSectionsAndMappings) {
  ConfigReader reader = Reader("a: 1\nb:\nlink: {x: 2}\nother: 3\nwords: {p: q, r: [s]}\n");
  reader.Require({"a", "b", "c"});
  std::int64_t a = 5;
  reader.Read("a", &a, {2, 9});  // out of range: the default stays
  EXPECT_EQ(a, 5);
  EXPECT_THAT(reader.keys(), ElementsAre("a", "b", "link", "other", "words"));
  auto link = reader.SectionIfGiven("link");
  ASSERT_TRUE(link.has_value());
  std::int64_t x = 0;
  link->Read("x", &x);
  EXPECT_EQ(x, 2);
  EXPECT_FALSE(reader.SectionIfGiven("c").has_value());
  EXPECT_FALSE(reader.SectionIfGiven("other").has_value());
  std::map<std::string, std::string> words;
  reader.Read("words", &words);
  EXPECT_EQ(words["p"], "q");
  EXPECT_THAT(reader.Finish(), StatusIs(absl::StatusCode::kInvalidArgument,
                                        AllOf(HasSubstr("b: missing"), HasSubstr("c: missing"),
                                              HasSubstr("a: must be in [2, 9], got 1"),
                                              HasSubstr("other: must be a mapping, got \"3\""),
                                              HasSubstr("words.r: must be text, got a list"))));
}

TEST(ConfigReaderTest, FlattensMappingsOfAnyShapeWithinBounds) {
  const std::string text = "m: {a: {b: 1, c: [x, {d: }]}, 'a.b': 2, e: 3}\n";
  ConfigReader reader = Reader(text);
  std::map<std::string, std::string> values;
  reader.ReadFlattened("m", 100, &values);
  EXPECT_THAT(values, ElementsAre(Pair("a.b", "1"), Pair("a.c[0]", "x"), Pair("a.c[1].d", ""),
                                  Pair("e", "3")));
  EXPECT_THAT(reader.Finish(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("m.a.b: given twice")));
  ConfigReader few = Reader(text);
  few.ReadFlattened("m", 3, &values);
  EXPECT_THAT(few.Finish(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("m: has more than 3 values")));
}

// Seven levels of nine aliases are 5 million values.
TEST(ConfigReaderTest, RefusesAliasesThatMultiply) {
  std::string text = "l0: &l0 [x, x, x, x, x, x, x, x, x]\n";
  for (int level = 1; level < 7; ++level) {
    text +=
        fmt::format("l{0}: &l{0} [*l{1}, *l{1}, *l{1}, *l{1}, *l{1}, *l{1}, *l{1}, *l{1}, *l{1}]\n",
                    level, level - 1);
  }
  EXPECT_THAT(ConfigReader::FromText(text, "f"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than 200000 values")));
}

TEST(ConfigReaderTest, RefusesWhatIsNotOneMapping) {
  EXPECT_THAT(ConfigReader::FromText("- a\n- b\n", "f"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("must be a mapping")));
  EXPECT_THAT(ConfigReader::FromText("a: 1\n---\nb: 2\n", "f"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("one YAML document")));
  EXPECT_THAT(ConfigReader::FromText("a: [1\nb: 2", "f"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("f: line 2")));
  ConfigReader twice = Reader("a: 1\na: 2\n");
  std::int64_t a = 0;
  twice.Read("a", &a);
  EXPECT_THAT(twice.Finish(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a: given twice")));
}

TEST(ConfigReaderTest, EmptyFileIsAllDefaults) {
  ConfigReader reader = Reader("# nothing but a comment\n");
  EXPECT_FALSE(reader.Has("a"));
  EXPECT_THAT(reader.Finish(), IsOk());
  ConfigReader null_value = Reader("a:\n");
  std::string a = "default";
  null_value.Read("a", &a);
  EXPECT_THAT(null_value.Finish(), IsOk());
  EXPECT_EQ(a, "default");
}

TEST(ConfigReaderTest, NamesTheFileThatIsMissingOrADirectory) {
  EXPECT_THAT(ConfigReader::FromFile("/no/such/file.yaml"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/no/such/file.yaml")));
  EXPECT_THAT(ConfigReader::FromFile(::testing::TempDir()), Not(IsOk()));
}

TEST(ConfigReaderTest, ReadsFiles) {
  const std::string path = ::testing::TempDir() + "/config_reader_test.yaml";
  std::ofstream(path) << "a: 5\n";
  NS_ASSERT_OK_AND_ASSIGN(ConfigReader reader, ConfigReader::FromFile(path));
  std::int64_t a = 0;
  reader.Read("a", &a);
  EXPECT_THAT(reader.Finish(), IsOk());
  EXPECT_EQ(a, 5);
}

}  // namespace
}  // namespace neuroshard
