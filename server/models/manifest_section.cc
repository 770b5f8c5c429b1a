#include "server/models/manifest_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <utility>

#include "common/base/printable_text.h"

namespace neuroshard {
namespace {

std::optional<std::int64_t> IntegerFromText(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string Shown(const YAML::Node& node) {
  if (node.IsMap()) return "a mapping";
  if (node.IsSequence()) return "a list";
  return node.IsScalar() ? Quoted(node.Scalar()) : "nothing";
}

ManifestSection::ManifestSection(const YAML::Node& node, std::string path,
                                 std::initializer_list<std::string_view> known,
                                 Violations& violations)
    : path_(std::move(path)), violations_(violations) {
  if (!node.IsMap()) {
    violations_.Add(path_.empty() ? "model.yaml" : path_,
                    fmt::format("must be a mapping, got {}", Shown(node)));
    return;
  }
  for (const auto& item : node) {
    if (!item.first.IsScalar()) {
      violations_.Add(path_, "has a key that is not a plain word");
      continue;
    }
    const std::string key = item.first.Scalar();
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      constexpr std::size_t kMaxKeyBytes = 80;
      violations_.Add(Path(Printable(key, kMaxKeyBytes)), "unknown key");
    } else if (!values_.emplace(key, item.second).second) {
      violations_.Add(Path(key), "stated twice");
    }
  }
  valid_ = true;
}

std::string ManifestSection::Path(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

void ManifestSection::Fault(std::string_view key, std::string description) const {
  violations_.Add(Path(key), std::move(description));
}

const YAML::Node* ManifestSection::Find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

const YAML::Node* ManifestSection::Require(const std::string& key) const {
  const YAML::Node* node = Find(key);
  if (node == nullptr && valid_) Fault(key, "missing");
  return node;
}

std::string ManifestSection::Text(const std::string& key) const { return TextOf(key, Find(key)); }

std::string ManifestSection::RequiredText(const std::string& key) const {
  return TextOf(key, Require(key));
}

std::string ManifestSection::TextOf(const std::string& key, const YAML::Node* node) const {
  if (node == nullptr) return "";
  if (!node->IsScalar() || node->Scalar().empty()) {
    Fault(key, fmt::format("must be a non-empty text, got {}", Shown(*node)));
    return "";
  }
  return node->Scalar();
}

void ManifestSection::Constant(const std::string& key, std::string_view expected) const {
  const YAML::Node* node = Require(key);
  if (node != nullptr && !(node->IsScalar() && node->Scalar() == expected)) {
    Fault(key, fmt::format("must be \"{}\", got {}", expected, Shown(*node)));
  }
}

std::int64_t ManifestSection::Integer(const std::string& key, std::int64_t low,
                                      std::int64_t high) const {
  const YAML::Node* node = Find(key);
  return node == nullptr ? 0 : IntegerIn(*node, Path(key), low, high);
}

std::int64_t ManifestSection::RequiredInteger(const std::string& key, std::int64_t low,
                                              std::int64_t high) const {
  const YAML::Node* node = Require(key);
  return node == nullptr ? 0 : IntegerIn(*node, Path(key), low, high);
}

double ManifestSection::Number(const std::string& key, double low, double high,
                               double absent) const {
  const YAML::Node* node = Find(key);
  return node == nullptr ? absent : NumberIn(*node, Path(key), low, high);
}

double ManifestSection::RequiredNumber(const std::string& key, double low, double high) const {
  const YAML::Node* node = Require(key);
  return node == nullptr ? low : NumberIn(*node, Path(key), low, high);
}

std::vector<double> ManifestSection::RequiredNumbers(const std::string& key, double low,
                                                     double high) const {
  std::vector<double> numbers;
  const YAML::Node* node = Require(key);
  if (node == nullptr) return numbers;
  ForEach(key, *node, [&](const YAML::Node& item, const std::string& path) {
    numbers.push_back(NumberIn(item, path, low, high));
  });
  return numbers;
}

std::vector<std::string> ManifestSection::Texts(const std::string& key,
                                                const YAML::Node& node) const {
  std::vector<std::string> texts;
  ForEach(key, node, [&](const YAML::Node& item, const std::string& path) {
    if (!item.IsScalar()) {
      violations_.Add(path, fmt::format("must be a text, got {}", Shown(item)));
    }
    texts.push_back(item.IsScalar() ? item.Scalar() : "");
  });
  return texts;
}

std::vector<std::int64_t> ManifestSection::Layers(const std::string& key) const {
  std::vector<std::int64_t> layers;
  const YAML::Node* node = Require(key);
  if (node == nullptr) return layers;
  ForEach(key, *node, [&](const YAML::Node& item, const std::string& path) {
    layers.push_back(IntegerIn(item, path, 1, kMaxLayerWidth));
  });
  if (node->IsSequence() && (layers.size() < 2 || layers.size() > kMaxLayers)) {
    Fault(key, fmt::format("must list 2 to {} widths from input to output, got {}", kMaxLayers,
                           layers.size()));
    layers.clear();
  }
  return layers;
}

std::string ManifestSection::File(const std::string& key) const {
  const std::string text = RequiredText(key);
  if (text.empty()) return text;
  const std::filesystem::path path(text);
  const bool climbs = std::find(path.begin(), path.end(), "..") != path.end();
  if (path.is_absolute() || climbs || text.find('\0') != std::string::npos) {
    Fault(key, fmt::format("must be a path inside the model's directory, got {}", Quoted(text)));
  }
  return text;
}

std::int64_t ManifestSection::IntegerIn(const YAML::Node& node, const std::string& path,
                                        std::int64_t low, std::int64_t high) const {
  const auto value = node.IsScalar() ? IntegerFromText(node.Scalar()) : std::nullopt;
  if (!value || *value < low || *value > high) {
    violations_.Add(
        path, fmt::format("must be an integer from {} to {}, got {}", low, high, Shown(node)));
    return 0;
  }
  return *value;
}

double ManifestSection::NumberIn(const YAML::Node& node, const std::string& path, double low,
                                 double high) const {
  double value = 0;
  bool ok = node.IsScalar();
  if (ok) {
    const std::string& text = node.Scalar();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    ok = error == std::errc() && end == text.data() + text.size() && value >= low && value <= high;
  }
  if (ok) return value;
  violations_.Add(path,
                  fmt::format("must be a number from {} to {}, got {}", low, high, Shown(node)));
  return low;
}

template <typename Visit>
void ManifestSection::ForEach(const std::string& key, const YAML::Node& node, Visit visit) const {
  if (!node.IsSequence()) {
    Fault(key, fmt::format("must be a list, got {}", Shown(node)));
    return;
  }
  for (std::size_t i = 0; i < node.size(); ++i) {
    visit(node[i], fmt::format("{}[{}]", Path(key), i));
  }
}

}  // namespace neuroshard
