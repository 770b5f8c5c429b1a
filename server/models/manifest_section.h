// One mapping of a manifest, read key by key, with every fault on one list.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/violations.h"

namespace neuroshard {

// "'value'", "a list", "a mapping" or "nothing", for messages.
std::string Shown(const YAML::Node& node);

// A mapping with a closed set of keys. Each reader adds what is wrong to `violations`, with the
// key's path, and then returns a neutral value (empty, 0), so that reading goes on. May throw
// YAML::Exception.
class ManifestSection {
 public:
  static constexpr std::int64_t kMaxLayerWidth = 65536;
  static constexpr std::size_t kMaxLayers = 64;

  // Faults: not a mapping, keys outside `known`, keys stated twice. `path` is empty for the whole
  // document. `violations` outlives this.
  ManifestSection(const YAML::Node& node, std::string path,
                  std::initializer_list<std::string_view> known, Violations& violations);

  // False when it is no mapping; then nothing is found and nothing is missing.
  bool valid() const { return valid_; }

  std::string Path(std::string_view key) const;
  void Fault(std::string_view key, std::string description) const;

  // The value of a key; null when it is absent, for Require a fault.
  const YAML::Node* Find(const std::string& key) const;
  const YAML::Node* Require(const std::string& key) const;

  // A text that is not empty.
  std::string Text(const std::string& key) const;
  std::string RequiredText(const std::string& key) const;
  // A required text that has to be `expected`.
  void Constant(const std::string& key, std::string_view expected) const;
  // In [low, high].
  std::int64_t Integer(const std::string& key, std::int64_t low, std::int64_t high) const;
  std::int64_t RequiredInteger(const std::string& key, std::int64_t low, std::int64_t high) const;
  // Finite, in [low, high]; `absent` where there is none.
  double Number(const std::string& key, double low, double high, double absent) const;
  double RequiredNumber(const std::string& key, double low, double high) const;
  std::vector<double> RequiredNumbers(const std::string& key, double low, double high) const;
  std::vector<std::string> Texts(const std::string& key, const YAML::Node& node) const;
  // A required list of 2 to kMaxLayers widths from 1 to kMaxLayerWidth; empty when their number is
  // wrong.
  std::vector<std::int64_t> Layers(const std::string& key) const;
  // A required path that stays inside the model's directory: relative, without "..".
  std::string File(const std::string& key) const;

 private:
  std::string TextOf(const std::string& key, const YAML::Node* node) const;
  std::int64_t IntegerIn(const YAML::Node& node, const std::string& path, std::int64_t low,
                         std::int64_t high) const;
  double NumberIn(const YAML::Node& node, const std::string& path, double low, double high) const;
  template <typename Visit>
  void ForEach(const std::string& key, const YAML::Node& node, Visit visit) const;

  std::string path_;
  Violations& violations_;
  std::map<std::string, YAML::Node> values_;
  bool valid_ = false;
};

}  // namespace neuroshard
