#include "common/config/config_reader.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "common/base/in_file.h"
#include "common/base/violations.h"

namespace neuroshard {
namespace {

std::string Shown(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar: {
      constexpr std::size_t kMaxShownBytes = 80;
      const std::string& text = node.Scalar();
      return text.size() <= kMaxShownBytes
                 ? fmt::format("\"{}\"", text)
                 : fmt::format("\"{}...\"", text.substr(0, kMaxShownBytes));
    }
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Map:
      return "a mapping";
    default:
      return "nothing";
  }
}

template <typename T>
bool Parse(const YAML::Node& node, T* value) {
  if (!node.IsScalar()) return false;
  return YAML::convert<T>::decode(node, *value);
}

bool InRange(double value, const RealRange& range) {
  return value >= range.min && value <= range.max;
}

std::string Describe(const IntegerRange& range) {
  constexpr IntegerRange kAll;
  if (range.max == kAll.max) return fmt::format("must be at least {}", range.min);
  if (range.min == kAll.min) return fmt::format("must be at most {}", range.max);
  return fmt::format("must be in [{}, {}]", range.min, range.max);
}

std::string Describe(const RealRange& range) {
  if (std::isinf(range.min) && std::isinf(range.max)) return "must be a number";
  if (std::isinf(range.max)) return fmt::format("must be at least {}", range.min);
  if (std::isinf(range.min)) return fmt::format("must be at most {}", range.max);
  return fmt::format("must be in [{}, {}]", range.min, range.max);
}

}  // namespace

struct ConfigReader::Mapping {
  std::string prefix;  // "" or "rpc." or "models[2]."
  std::vector<std::pair<std::string, YAML::Node>> entries;
  std::set<std::string, std::less<>> read;

  const YAML::Node* Find(std::string_view key) {
    for (const auto& [name, node] : entries) {
      if (name == key) {
        read.insert(std::string(key));
        // An explicit null ("key:" or "key: ~") is the same as no key.
        return node.IsNull() ? nullptr : &node;
      }
    }
    return nullptr;
  }
};

struct ConfigReader::Document {
  std::string source;
  Violations violations;
  std::vector<std::shared_ptr<Mapping>> mappings;

  std::shared_ptr<Mapping> AddMapping(const YAML::Node& node, const std::string& prefix) {
    auto mapping = std::make_shared<Mapping>();
    mapping->prefix = prefix;
    std::set<std::string> names;
    for (const auto& entry : node) {
      const std::string name = entry.first.IsScalar() ? entry.first.Scalar() : "?";
      if (!entry.first.IsScalar()) {
        violations.Add(prefix + name, "a key must be a plain word");
      } else if (!names.insert(name).second) {
        violations.Add(prefix + name, "given twice");
      }
      mapping->entries.emplace_back(name, entry.second);
    }
    mappings.push_back(mapping);
    return mapping;
  }
};

ConfigReader::ConfigReader(std::shared_ptr<Document> document, std::shared_ptr<Mapping> mapping)
    : document_(std::move(document)), mapping_(std::move(mapping)) {}

StatusOr<ConfigReader> ConfigReader::FromFile(const std::string& path) {
  std::error_code error;
  const auto kind = std::filesystem::status(path, error);
  if (!std::filesystem::exists(kind)) return NotFound("{}: no such file", path);
  if (std::filesystem::is_directory(kind)) return InvalidArgument("{}: is a directory", path);
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file.is_open() || file.bad()) {
    return InvalidArgument("{}: cannot be read: {}", path, std::strerror(errno));
  }
  return FromText(text.str(), path);
}

StatusOr<ConfigReader> ConfigReader::FromText(const std::string& text, const std::string& source) {
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.size() > 1) {
      return InvalidArgument("{}: must hold one YAML document, got {}", source, documents.size());
    }
    const YAML::Node root = documents.empty() ? YAML::Node() : documents.front();
    if (!root.IsMap() && !root.IsNull()) {
      return InvalidArgument("{}: must be a mapping of keys to values, got {}", source,
                             Shown(root));
    }
    auto document = std::make_shared<Document>();
    document->source = source;
    auto mapping = document->AddMapping(root, "");
    return ConfigReader(std::move(document), std::move(mapping));
  } catch (const YAML::Exception& error) {
    return InvalidArgument("{}:{}:{}: {}", source, error.mark.line + 1, error.mark.column + 1,
                           error.msg);
  }
}

bool ConfigReader::Has(std::string_view key) const { return mapping_->Find(key) != nullptr; }

bool ConfigReader::IsList(std::string_view key) const {
  const YAML::Node* node = mapping_->Find(key);
  return node != nullptr && node->IsSequence();
}

bool ConfigReader::IsMapping(std::string_view key) const {
  const YAML::Node* node = mapping_->Find(key);
  return node != nullptr && node->IsMap();
}

template <typename T>
void ConfigReader::ReadScalar(std::string_view key, std::string_view type, T* value) {
  const YAML::Node* node = mapping_->Find(key);
  if (node == nullptr) return;
  if (T parsed{}; Parse(*node, &parsed)) {
    *value = parsed;
  } else {
    AddViolation(key, fmt::format("must be {}, got {}", type, Shown(*node)));
  }
}

template <typename T, typename Check>
void ConfigReader::ReadList(std::string_view key, std::string_view type, std::vector<T>* values,
                            const Check& fault_of) {
  const YAML::Node* node = mapping_->Find(key);
  if (node == nullptr) return;
  if (!node->IsSequence()) {
    AddViolation(key, fmt::format("must be a list, got {}", Shown(*node)));
    return;
  }
  std::vector<T> parsed(node->size());
  for (std::size_t i = 0; i < parsed.size(); ++i) {
    T element{};
    const std::string fault = Parse((*node)[i], &element)
                                  ? fault_of(element)
                                  : fmt::format("must be {}, got {}", type, Shown((*node)[i]));
    if (!fault.empty()) AddViolation(fmt::format("{}[{}]", key, i), fault);
    parsed[i] = element;
  }
  *values = std::move(parsed);
}

void ConfigReader::Read(std::string_view key, std::int64_t* value, IntegerRange range) {
  std::int64_t parsed = *value;
  ReadScalar(key, "an integer", &parsed);
  if (parsed == *value) return;  // absent, not an integer, or the default written out
  if (parsed < range.min || parsed > range.max) {
    AddViolation(key, fmt::format("{}, got {}", Describe(range), parsed));
    return;
  }
  *value = parsed;
}

void ConfigReader::Read(std::string_view key, int* value, IntegerRange range) {
  std::int64_t wide = *value;
  range.min = std::max<std::int64_t>(range.min, std::numeric_limits<int>::min());
  range.max = std::min<std::int64_t>(range.max, std::numeric_limits<int>::max());
  Read(key, &wide, range);
  *value = static_cast<int>(wide);
}

void ConfigReader::Read(std::string_view key, std::uint64_t* value) {
  std::int64_t wide = -1;
  Read(key, &wide, {0, std::numeric_limits<std::int64_t>::max()});
  if (wide >= 0) *value = static_cast<std::uint64_t>(wide);
}

void ConfigReader::Read(std::string_view key, double* value, RealRange range) {
  const YAML::Node* node = mapping_->Find(key);
  if (node == nullptr) return;
  double parsed = *value;
  if (!Parse(*node, &parsed)) {
    AddViolation(key, fmt::format("must be a number, got {}", Shown(*node)));
  } else if (!InRange(parsed, range)) {
    AddViolation(key, fmt::format("{}, got {}", Describe(range), parsed));
  } else {
    *value = parsed;
  }
}

void ConfigReader::Read(std::string_view key, bool* value) {
  ReadScalar(key, "true or false", value);
}

void ConfigReader::Read(std::string_view key, std::string* value) {
  ReadScalar(key, "text", value);
}

void ConfigReader::Read(std::string_view key, std::vector<std::string>* values) {
  ReadList(key, "text", values, [](const std::string&) { return std::string(); });
}

void ConfigReader::Read(std::string_view key, std::vector<std::int64_t>* values,
                        IntegerRange range) {
  ReadList(key, "an integer", values, [&](std::int64_t value) {
    if (value >= range.min && value <= range.max) return std::string();
    return fmt::format("{}, got {}", Describe(range), value);
  });
}

void ConfigReader::Read(std::string_view key, std::vector<double>* values, RealRange range) {
  ReadList(key, "a number", values, [&](double value) {
    return InRange(value, range) ? std::string()
                                 : fmt::format("{}, got {}", Describe(range), value);
  });
}

void ConfigReader::Read(std::string_view key, std::vector<bool>* values) {
  ReadList(key, "true or false", values, [](bool) { return std::string(); });
}

ConfigReader ConfigReader::Section(std::string_view key) {
  const YAML::Node* node = mapping_->Find(key);
  if (node != nullptr && !node->IsMap()) {
    AddViolation(key, fmt::format("must be a mapping, got {}", Shown(*node)));
    node = nullptr;
  }
  const std::string prefix = fmt::format("{}{}.", mapping_->prefix, key);
  return ConfigReader(document_,
                      document_->AddMapping(node == nullptr ? YAML::Node() : *node, prefix));
}

std::vector<ConfigReader> ConfigReader::Sections(std::string_view key) {
  std::vector<ConfigReader> sections;
  const YAML::Node* node = mapping_->Find(key);
  if (node == nullptr) return sections;
  if (!node->IsSequence()) {
    AddViolation(key, fmt::format("must be a list of mappings, got {}", Shown(*node)));
    return sections;
  }
  for (std::size_t i = 0; i < node->size(); ++i) {
    const YAML::Node element = (*node)[i];
    const std::string path = fmt::format("{}[{}]", key, i);
    if (!element.IsMap()) {
      AddViolation(path, fmt::format("must be a mapping, got {}", Shown(element)));
      continue;
    }
    sections.push_back(ConfigReader(
        document_, document_->AddMapping(element, fmt::format("{}{}.", mapping_->prefix, path))));
  }
  return sections;
}

void ConfigReader::AddViolation(std::string_view key, std::string description) {
  document_->violations.Add(fmt::format("{}{}", mapping_->prefix, key), std::move(description));
}

Status ConfigReader::Finish() {
  for (const auto& mapping : document_->mappings) {
    for (const auto& [name, node] : mapping->entries) {
      if (mapping->read.contains(name)) continue;
      document_->violations.Add(mapping->prefix + name, "unknown key");
    }
  }
  return InFile(document_->source, document_->violations.ToStatus());
}

}  // namespace neuroshard
