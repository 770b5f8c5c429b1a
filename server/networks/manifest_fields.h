// Fields that several sections of a model's YAML files share: reading with all faults, and writing.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/text/config_reader.h"

namespace neuroshard {

// The end of a text of FAMILY/2.
inline constexpr std::string_view kEndOfText = "...\n";

inline constexpr std::int64_t kMaxLayerWidth = 65536;
inline constexpr std::size_t kMaxLayers = 64;

// Faults of a field go to the reader's list; what cannot be read stays empty.

// A text that is not empty, if it is there.
std::string ReadText(ConfigReader& section, std::string_view key);
// The number of "format", which has to be FAMILY/1 or FAMILY/2; 0 where it is not.
int ReadFormat(ConfigReader& root, std::string_view family);
// A text of format /1 has to end with a line's end, one of /2 with kEndOfText, as no part of it does.
void RequireEnd(ConfigReader& root, int format, std::string_view yaml);
// Has to be there and to be `expected`.
void RequireConstant(ConfigReader& section, std::string_view key, std::string_view expected);
// Has to be 1 to 128 letters, digits, '.', '_' or '-', the first a letter or digit.
std::string ReadName(ConfigReader& section, std::string_view key);
// A required path that stays inside the model's directory: relative, without "..".
std::string ReadFileName(ConfigReader& section, std::string_view key);
// A required list of 2 to kMaxLayers widths from 1 to kMaxLayerWidth; empty when it is none.
std::vector<std::int64_t> ReadLayers(ConfigReader& section, std::string_view key);
// "outputs" of a compute section: {"total_ms"}, where it is absent, or {"forward_ms",
// "backward_ms"}.
std::vector<std::string> ReadOutputs(ConfigReader& section);

// "key: [a, b]"; numbers as the shortest text that reads back the same.
template <typename T>
void EmitList(YAML::Emitter& out, std::string_view key, const std::vector<T>& values) {
  out << YAML::Key << std::string(key) << YAML::Value << YAML::Flow << YAML::BeginSeq;
  for (const T& value : values) out << fmt::format("{}", value);
  out << YAML::EndSeq;
}
template <typename T>
void EmitScalar(YAML::Emitter& out, std::string_view key, const T& value) {
  out << YAML::Key << std::string(key) << YAML::Value << fmt::format("{}", value);
}

}  // namespace neuroshard
