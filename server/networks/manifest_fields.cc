#include "server/networks/manifest_fields.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "common/base/printable_text.h"

namespace neuroshard {

std::string ReadText(ConfigReader& section, std::string_view key) {
  std::string text;
  section.Read(key, &text);
  if (text.empty() && section.Has(key) && !section.IsList(key) && !section.IsMapping(key)) {
    section.AddViolation(key, "must not be empty");
  }
  return text;
}

int ReadFormat(ConfigReader& root, std::string_view family) {
  root.Require({"format"});
  if (!root.Has("format")) return 0;
  std::string text = fmt::format("{}/1", family);  // stays where it is a fault that it is no text
  root.Read("format", &text);
  for (const int number : {1, 2}) {
    if (text == fmt::format("{}/{}", family, number)) return number;
  }
  root.AddViolation("format",
                    fmt::format("must be \"{0}/1\" or \"{0}/2\", got {1}", family, Quoted(text)));
  return 0;
}

void RequireEnd(ConfigReader& root, int format, std::string_view yaml) {
  if (format == 2 && !yaml.ends_with(fmt::format("\n{}", kEndOfText))) {
    root.AddViolation("format", "the text is cut: of this format, the last line is \"...\"");
  } else if (!yaml.ends_with('\n')) {
    root.AddViolation("format", "the text is cut: its last line has no end");
  }
}

void RequireConstant(ConfigReader& section, std::string_view key, std::string_view expected) {
  section.Require({key});
  if (!section.Has(key)) return;
  std::string text(expected);
  section.Read(key, &text);
  if (text != expected) {
    section.AddViolation(key, fmt::format("must be \"{}\", got {}", expected, Quoted(text)));
  }
}

std::string ReadName(ConfigReader& section, std::string_view key) {
  constexpr std::size_t kMaxNameBytes = 128;
  section.Require({key});
  const std::string name = ReadText(section, key);
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
  };
  if (!name.empty() &&
      (name.size() > kMaxNameBytes || std::isalnum(static_cast<unsigned char>(name.front())) == 0 ||
       !std::all_of(name.begin(), name.end(), allowed))) {
    section.AddViolation(
        key, fmt::format("must be 1 to {} letters, digits, '.', '_' or '-', the first a letter or "
                         "digit, got {}",
                         kMaxNameBytes, Quoted(name)));
  }
  return name;
}

std::string ReadFileName(ConfigReader& section, std::string_view key) {
  section.Require({key});
  const std::string text = ReadText(section, key);
  const std::filesystem::path path(text);
  const bool climbs = std::find(path.begin(), path.end(), "..") != path.end();
  if (path.is_absolute() || climbs || text.find('\0') != std::string::npos) {
    section.AddViolation(
        key, fmt::format("must be a path inside the model's directory, got {}", Quoted(text)));
  }
  return text;
}

std::vector<std::int64_t> ReadLayers(ConfigReader& section, std::string_view key) {
  std::vector<std::int64_t> layers;
  section.Require({key});
  section.Read(key, &layers, {1, kMaxLayerWidth});
  if (section.IsList(key) && (layers.size() < 2 || layers.size() > kMaxLayers)) {
    section.AddViolation(key, fmt::format("must list 2 to {} widths from input to output, got {}",
                                          kMaxLayers, layers.size()));
    layers.clear();
  }
  return layers;
}

std::vector<std::string> ReadOutputs(ConfigReader& section) {
  const std::vector<std::string> total = {"total_ms"};
  const std::vector<std::string> split = {"forward_ms", "backward_ms"};
  std::vector<std::string> outputs = total;
  section.Read("outputs", &outputs);
  if (outputs == total || outputs == split) return outputs;
  section.AddViolation("outputs",
                       fmt::format("must be [total_ms] or [forward_ms, backward_ms], got [{}]",
                                   fmt::join(outputs, ", ")));
  return outputs;
}

}  // namespace neuroshard
