#include "server/networks/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "common/base/random.h"

namespace neuroshard {
namespace {

using ::testing::HasSubstr;

// A file around any header and data, right or wrong.
std::string File(const std::string& header, const std::string& data = "") {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

TensorFile Example() {
  TensorFile file;
  file.tensors["layer.0.weight"] = {{2, 3}, {1, -2, 3.5F, 0, 1e-30F, 6e20F}};
  file.tensors["layer.0.bias"] = {{2}, {0.25F, -0.0F}};
  file.tensors["scalar"] = {{}, {7}};
  file.tensors["none"] = {{0, 4}, {}};
  file.metadata = {{"made_by", "a test"}};
  return file;
}

std::string Refusal(const std::string& bytes, const TensorReadOptions& options = {}) {
  const auto file = ParseTensorFile(bytes, "x.safetensors", options);
  if (file.ok()) return "accepted";
  EXPECT_TRUE(absl::IsInvalidArgument(file.status()));
  EXPECT_THAT(Message(file.status()), ::testing::StartsWith("x.safetensors: "));
  return Message(file.status());
}

TEST(SafetensorsTest, ReadsBackWhatItWrote) {
  const auto bytes = FormatTensorFile(Example());
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto file = ParseTensorFile(*bytes, "x");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*file, Example());
}

TEST(SafetensorsTest, TheBytesAreTheFormats) {
  TensorFile file;
  file.tensors["b"] = {{1}, {2}};
  file.tensors["a"] = {{1, 2}, {0, 1}};
  const std::string header = R"({"a":{"data_offsets":[0,8],"dtype":"F32","shape":[1,2]},)"
                             R"("b":{"data_offsets":[8,12],"dtype":"F32","shape":[1]}})";
  const std::string padding((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(*FormatTensorFile(file), File(header + padding, Bytes<float>({0, 1, 2})));
  EXPECT_EQ((header + padding).size() % 8, 0U);
}

TEST(SafetensorsTest, ReadsTheOtherFloatTypes) {
  const auto file =
      ParseTensorFile(File(R"({"d":{"dtype":"F64","shape":[2],"data_offsets":[0,16]},)"
                           R"("h":{"dtype":"F16","shape":[5],"data_offsets":[16,26]},)"
                           R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[26,30]}})",
                           Bytes<double>({0.1, -3}) +
                               Bytes<std::uint16_t>({0x3C00, 0xC100, 0x0001, 0x7BFF, 0x8000}) +
                               Bytes<std::uint16_t>({0x3F80, 0xC040})),
                      "x");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->tensors.at("d").values, (std::vector<float>{0.1F, -3}));
  EXPECT_EQ(file->tensors.at("h").values,
            (std::vector<float>{1, -2.5F, std::ldexp(1.0F, -24), 65504, -0.0F}));
  EXPECT_EQ(file->tensors.at("b").values, (std::vector<float>{1, -3}));
}

TEST(SafetensorsTest, HeaderLengthsThatLie) {
  EXPECT_THAT(Refusal(""), HasSubstr("0 bytes, too short"));
  EXPECT_THAT(Refusal("1234567"), HasSubstr("too short"));
  std::string file = File("{}");
  file[0] = 3;
  EXPECT_THAT(Refusal(file), HasSubstr("header length 3 is past the end"));
  file = File("{}");
  std::memset(file.data(), 0xFF, 8);
  EXPECT_THAT(Refusal(file), HasSubstr("header length 18446744073709551615 is over the limit"));
  EXPECT_THAT(Refusal(File(std::string(100, ' ')), {.max_header_bytes = 99}),
              HasSubstr("header length 100 is over the limit of 99 bytes"));
}

TEST(SafetensorsTest, HeadersThatAreNotOne) {
  EXPECT_THAT(Refusal(File("")), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal(File("{")), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal(File("{}{}")), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal(File(std::string(100000, '['))), HasSubstr("not valid JSON"));
  EXPECT_THAT(Refusal(File("[]")), HasSubstr("not a JSON object"));
  EXPECT_THAT(Refusal(File(R"({"a":{}, "a":{}})")), HasSubstr("key \"a\" twice"));
  EXPECT_THAT(Refusal(File(R"({"a":{"shape":[0],"shape":[0]}})")),
              HasSubstr("key \"shape\" twice"));
  EXPECT_THAT(Refusal(File(R"({"__metadata__":[]})")), HasSubstr("__metadata__ is not an object"));
  EXPECT_THAT(Refusal(File(R"({"__metadata__":{"k":1}})")), HasSubstr("\"k\" is not a string"));
  EXPECT_EQ(Refusal(File("{}")), "accepted");
}

TEST(SafetensorsTest, TensorsThatDisagreeWithThemselves) {
  const std::string data(16, '\0');
  const auto refusal = [&](const std::string& tensor) {
    return Refusal(File("{\"w\":" + tensor + "}", data));
  };
  EXPECT_THAT(refusal("3"), HasSubstr("tensor \"w\": is not an object"));
  EXPECT_THAT(refusal(R"({"dtype":"F32","shape":[4]})"), HasSubstr("must have dtype, shape"));
  EXPECT_THAT(refusal(R"({"dtype":"F32","shape":[4],"data_offsets":[0,16],"x":1})"),
              HasSubstr("unknown key \"x\""));
  EXPECT_THAT(refusal(R"({"dtype":"I64","shape":[2],"data_offsets":[0,16]})"),
              HasSubstr("dtype \"I64\" is not one of"));
  EXPECT_THAT(refusal(R"({"dtype":"F32","shape":4,"data_offsets":[0,16]})"),
              HasSubstr("shape is not a list"));
  EXPECT_THAT(refusal(R"({"dtype":"F32","shape":[-4],"data_offsets":[0,16]})"),
              HasSubstr("shape has -4,"));
  EXPECT_THAT(refusal(R"({"dtype":"F32","shape":[4.0],"data_offsets":[0,16]})"),
              HasSubstr("shape has 4.0,"));
  EXPECT_THAT(refusal(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,4],"data_offsets":[0,16]})"),
              HasSubstr("9 dimensions"));
  EXPECT_THAT(refusal(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]})"),
              HasSubstr("shape overflows"));
  EXPECT_THAT(refusal(R"({"dtype":"F32","shape":[4611686018427387905],"data_offsets":[0,4]})"),
              HasSubstr("its shape has"));  // times 4 bytes is 4, modulo 2^64
  EXPECT_THAT(refusal(R"({"dtype":"F32","shape":[4],"data_offsets":[0,20]})"),
              HasSubstr("not within the 16 bytes"));
  EXPECT_THAT(refusal(R"({"dtype":"F32","shape":[4],"data_offsets":[16,0]})"),
              HasSubstr("not within"));
  EXPECT_THAT(refusal(R"({"dtype":"F32","shape":[4],"data_offsets":[-16,0]})"),
              HasSubstr("two integers of at least 0"));
  EXPECT_THAT(refusal(R"({"dtype":"F32","shape":[3],"data_offsets":[0,16]})"),
              HasSubstr("hold 16 bytes, its shape has 3 values of 4 bytes"));
  EXPECT_EQ(refusal(R"({"dtype":"F32","shape":[4],"data_offsets":[0,16]})"), "accepted");
}

// Deep enough to overflow the stack of anything that recurses into it.
TEST(SafetensorsTest, DeeplyNestedValuesAreRefused) {
  const std::string deep = std::string(300'000, '[') + std::string(300'000, ']');
  EXPECT_THAT(Refusal(File("{\"w\":" + deep + "}")), HasSubstr("is not an object"));
  EXPECT_THAT(Refusal(File("{\"__metadata__\":{\"k\":" + deep + "}}")), HasSubstr("not a string"));
  EXPECT_THAT(Refusal(File("{\"w\":{\"dtype\":" + deep + ",\"shape\":[],\"data_offsets\":[0,0]}}")),
              HasSubstr("dtype a list is not one of"));
  EXPECT_THAT(
      Refusal(File("{\"w\":{\"dtype\":\"F32\",\"shape\":[" + deep + "],\"data_offsets\":[0,0]}}")),
      HasSubstr("shape has a list,"));
}

TEST(SafetensorsTest, DataIsCoveredOnce) {
  const auto two = [](const std::string& first, const std::string& second) {
    const std::string tensor = R"({"dtype":"F32","shape":[2],"data_offsets":)";
    return File("{\"a\":" + tensor + first + "},\"b\":" + tensor + second + "}}",
                std::string(16, '\0'));
  };
  EXPECT_EQ(Refusal(two("[0,8]", "[8,16]")), "accepted");
  EXPECT_EQ(Refusal(two("[8,16]", "[0,8]")), "accepted");
  EXPECT_THAT(Refusal(two("[0,8]", "[4,12]")), HasSubstr("tensor \"b\": starts at byte 4"));
  EXPECT_THAT(Refusal(two("[0,8]", "[0,8]")), HasSubstr("tensor \"b\": starts at byte 0"));
  EXPECT_THAT(Refusal(two("[4,12]", "[8,16]")), HasSubstr("tensor \"a\": starts at byte 4"));
  EXPECT_THAT(Refusal(two("[0,8]", "[8,16]") + "tail"), HasSubstr("4 bytes follow"));
}

TEST(SafetensorsTest, NonFiniteValuesOnlyWhenAskedFor) {
  TensorFile file;
  for (const float value : {NAN, INFINITY, -INFINITY}) {
    file.tensors["w"] = {{2}, {1, value}};
    const std::string bytes = *FormatTensorFile(file);
    EXPECT_THAT(Refusal(bytes), HasSubstr("tensor \"w\": value 1 is"));
    EXPECT_EQ(Refusal(bytes, {.non_finite = NonFinite::kKeep}), "accepted");
  }
  // A double that is finite, but not as a float.
  EXPECT_THAT(Refusal(File(R"({"w":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})",
                           Bytes<double>({1e300}))),
              HasSubstr("value 0 is inf"));
}

TEST(SafetensorsTest, HostileNamesDoNotReachTheLog) {
  EXPECT_THAT(Refusal(File(R"({"a\nb":{}})")), HasSubstr("tensor \"a\\x0ab\": its name must"));
  EXPECT_THAT(Refusal(File("{\"" + std::string(5000, 'n') + "\":{}}")).size(), ::testing::Lt(300U));
}

TEST(SafetensorsTest, TruncatedAnywhereIsRefused) {
  const std::string bytes = *FormatTensorFile(Example());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_NE(Refusal(bytes.substr(0, length)), "accepted") << length;
  }
}

// Flipped bytes either leave a file that still reads (other numbers or names), or are refused:
// never a crash, under asan too.
TEST(SafetensorsTest, FlippedBytesNeverCrash) {
  const std::string valid = *FormatTensorFile(Example());
  Random random(11);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = valid;
    const int flips = static_cast<int>(random.Between(1, 4));
    for (int i = 0; i < flips; ++i) {
      bytes[random.Below(bytes.size())] = static_cast<char>(random.Below(256));
    }
    if (random.Below(4) == 0) bytes.resize(random.Below(bytes.size()));
    const auto file = ParseTensorFile(bytes, "x");
    if (!file.ok()) continue;
    ++accepted;
    for (const auto& [name, tensor] : file->tensors) {
      std::int64_t count = 1;
      for (const std::int64_t extent : tensor.shape) count *= extent;
      ASSERT_EQ(static_cast<std::size_t>(count), tensor.values.size());
    }
  }
  EXPECT_GT(accepted, 0);
}

TEST(SafetensorsTest, WritesOnlyWhatReads) {
  TensorFile file;
  file.tensors["w"] = {{3}, {1, 2}};
  EXPECT_TRUE(absl::IsInvalidArgument(FormatTensorFile(file).status()));
  file.tensors["w"] = {{-1, -2}, {1, 2}};
  EXPECT_TRUE(absl::IsInvalidArgument(FormatTensorFile(file).status()));
  file.tensors.clear();
  file.tensors["__metadata__"] = {{1}, {1}};
  EXPECT_TRUE(absl::IsInvalidArgument(FormatTensorFile(file).status()));
  file.tensors.clear();
  file.tensors["a\nb"] = {{1}, {1}};
  EXPECT_TRUE(absl::IsInvalidArgument(FormatTensorFile(file).status()));
}

TEST(SafetensorsTest, FilesAreNamedInErrors) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "safetensors_test.safetensors";
  ASSERT_TRUE(WriteTensorFile(path, Example()).ok());
  EXPECT_EQ(*ReadTensorFile(path), Example());
  EXPECT_THAT(Message(ReadTensorFile(path, {.max_file_bytes = 10}).status()),
              ::testing::AllOf(HasSubstr(path.string()), HasSubstr("more than the limit of 10")));
  std::filesystem::remove(path);
  EXPECT_TRUE(absl::IsNotFound(ReadTensorFile(path).status()));
}

}  // namespace
}  // namespace neuroshard
