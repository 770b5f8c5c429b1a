#include "server/networks/manifest_fields.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "common/base/printable_text.h"

namespace neuroshard {
namespace {

constexpr std::size_t kMaxLayers = 64;
constexpr std::size_t kMaxNameBytes = 128;
constexpr std::size_t kMaxDetails = 10'000;

using Texts = std::map<std::string, std::string>;

// A key that is a value and also the start of another's path cannot be a mapping.
bool CanNest(const Texts& details) {
  for (const auto& [key, value] : details) {
    for (std::size_t dot = key.find('.'); dot != std::string::npos; dot = key.find('.', dot + 1)) {
      if (details.contains(key.substr(0, dot))) return false;
    }
  }
  return true;
}

// The entries whose keys start with `prefix`, as one mapping; a level for each dot after it.
void EmitNested(YAML::Emitter& out, const Texts& details, const std::string& prefix) {
  out << YAML::BeginMap;
  std::string written;
  for (auto it = details.lower_bound(prefix); it != details.end() && it->first.starts_with(prefix);
       ++it) {
    const std::string rest = it->first.substr(prefix.size());
    const std::size_t dot = rest.find('.');
    const std::string key = rest.substr(0, dot);
    if (dot == std::string::npos) {
      out << YAML::Key << key << YAML::Value << it->second;
    } else if (key + "." != written) {
      written = key + ".";
      out << YAML::Key << key << YAML::Value;
      EmitNested(out, details, prefix + written);
    }
  }
  out << YAML::EndMap;
}

}  // namespace

bool IsModelName(std::string_view name) {
  const auto is_plain = [](unsigned char c) { return std::isalnum(c) != 0; };
  return !name.empty() && name.size() <= kMaxNameBytes && is_plain(name.front()) &&
         std::ranges::all_of(
             name, [&](char c) { return is_plain(c) || c == '.' || c == '_' || c == '-'; });
}

StatusOr<std::string> ManifestFields::Write(const Description& describe) {
  YAML::Emitter out;
  ManifestFields fields(nullptr, "", &out, false);
  describe(fields);
  fields.End();
  if (!out.good()) return Internal("YAML cannot be written: {}", out.GetLastError());
  return std::string(out.c_str()) + "\n";
}

void ManifestFields::Begin() {
  if (begun_) return;
  begun_ = true;
  if (parent_ != nullptr) parent_->StartValue(key_);
  if (flow_) *out_ << YAML::Flow;
  *out_ << YAML::BeginMap;
}

void ManifestFields::End() {
  if (begun_) *out_ << YAML::EndMap;
}

YAML::Emitter& ManifestFields::StartValue(std::string_view key) {
  Begin();
  return *out_ << YAML::Key << std::string(key) << YAML::Value;
}

void ManifestFields::Text(std::string_view key, std::string* value, Presence presence) {
  if (!reads()) {
    if (!value->empty()) Emit(key, *value);
    return;
  }
  if (presence == Presence::kRequired) reader_->Require({key});
  reader_->Read(key, value);
  if (value->empty() && reader_->Has(key) && !reader_->IsList(key) && !reader_->IsMapping(key)) {
    reader_->AddViolation(key, "must not be empty");
  }
}

void ManifestFields::Constant(std::string_view key, std::string_view expected) {
  std::string text(expected);
  if (!reads()) return Emit(key, text);
  reader_->Require({key});
  reader_->Read(key, &text);
  if (text == expected) return;
  reader_->AddViolation(key, "must be \"{}\", got {}", expected, Quoted(text));
}

void ManifestFields::Format(std::string_view family, int* number) {
  if (!reads()) return Emit("format", fmt::format("{}/{}", family, *number));
  *number = 0;
  reader_->Require({"format"});
  if (!reader_->Has("format")) return;
  std::string text = fmt::format("{}/1", family);  // stays where it is a fault that it is no text
  reader_->Read("format", &text);
  for (const int known : {1, 2}) {
    if (text == fmt::format("{}/{}", family, known)) *number = known;
  }
  if (*number != 0) return;
  reader_->AddViolation("format", "must be \"{0}/1\" or \"{0}/2\", got {1}", family, Quoted(text));
}

void ManifestFields::Name(std::string_view key, std::string* value) {
  Text(key, value, Presence::kRequired);
  if (!reads() || value->empty() || IsModelName(*value)) return;
  reader_->AddViolation(
      key, "must be 1 to {} letters, digits, '.', '_' or '-', the first a letter or digit, got {}",
      kMaxNameBytes, Quoted(*value));
}

void ManifestFields::FileName(std::string_view key, std::string* value) {
  Text(key, value, Presence::kRequired);
  const std::filesystem::path path(*value);
  const bool climbs = std::ranges::find(path, "..") != path.end();
  if (reads() && (path.is_absolute() || climbs || value->find('\0') != std::string::npos)) {
    reader_->AddViolation(key, "must be a path inside the model's directory, got {}",
                          Quoted(*value));
  }
}

void ManifestFields::Flag(std::string_view key, bool* value) {
  if (!reads()) return Emit(key, fmt::format("{}", *value));
  reader_->Require({key});
  reader_->Read(key, value);
}

template <typename T, typename... Range>
void ManifestFields::OneList(std::string_view key, std::vector<T>* values, Presence presence,
                             Range... range) {
  if (reads()) {
    if (presence == Presence::kRequired) reader_->Require({key});
    reader_->Read(key, values, range...);
  } else if (presence == Presence::kRequired || !values->empty()) {
    StartValue(key) << YAML::Flow << YAML::BeginSeq;
    for (const T& value : *values) *out_ << fmt::format("{}", value);
    *out_ << YAML::EndSeq;
  }
}

void ManifestFields::List(std::string_view key, std::vector<std::string>* values,
                          Presence presence) {
  OneList(key, values, presence);
}

void ManifestFields::List(std::string_view key, std::vector<std::int64_t>* values,
                          IntegerRange range, Presence presence) {
  OneList(key, values, presence, range);
}

void ManifestFields::List(std::string_view key, std::vector<double>* values, RealRange range,
                          Presence presence) {
  OneList(key, values, presence, range);
}

void ManifestFields::KnownTexts(std::string_view key, std::vector<std::string>* values,
                                std::span<const std::string_view> known, Presence presence) {
  List(key, values, presence);
  for (std::size_t i = 0; reads() && i < values->size(); ++i) {
    const std::string& text = (*values)[i];
    if (std::ranges::find(known, text) != known.end()) continue;
    reader_->AddViolation(fmt::format("{}[{}]", key, i), "must be one of {}, got {}",
                          fmt::join(known, ", "), Quoted(text));
  }
}

void ManifestFields::Layers(std::string_view key, std::vector<std::int64_t>* layers) {
  List(key, layers, {1, kMaxLayerWidth}, Presence::kRequired);
  if (!reads() || !reader_->IsList(key)) return;
  if (layers->size() >= 2 && layers->size() <= kMaxLayers) return;
  reader_->AddViolation(key, "must list 2 to {} widths from input to output, got {}", kMaxLayers,
                        layers->size());
  layers->clear();
}

void ManifestFields::Outputs(std::vector<std::string>* outputs) {
  const std::vector<std::string> total = {"total_ms"};
  const std::vector<std::string> split = {"forward_ms", "backward_ms"};
  List("outputs", outputs, Presence::kOptional);
  if (!reads() || *outputs == total || *outputs == split) return;
  reader_->AddViolation("outputs", "must be [total_ms] or [forward_ms, backward_ms], got [{}]",
                        fmt::join(*outputs, ", "));
}

void ManifestFields::Map(std::string_view key, Texts* values) {
  if (reads()) {
    reader_->Read(key, values);
  } else if (!values->empty()) {
    StartValue(key) << YAML::Flow << *values;
  }
}

void ManifestFields::Details(std::string_view key, Texts* values) {
  if (reads()) return reader_->ReadFlattened(key, kMaxDetails, values);
  if (values->empty()) return;
  YAML::Emitter& out = StartValue(key);
  if (CanNest(*values)) return EmitNested(out, *values, "");
  out << *values;
}

void ManifestFields::Nested(std::string_view key, bool even_empty, bool flow,
                            const Description& describe) {
  if (reads()) {
    if (auto section = reader_->SectionIfGiven(key)) {
      ManifestFields fields(*std::move(section));
      describe(fields);
    }
    return;
  }
  ManifestFields fields(this, key, out_, flow);
  if (even_empty) fields.Begin();
  describe(fields);
  fields.End();
}

void ManifestFields::Section(std::string_view key, Presence presence, const Description& describe) {
  const bool required = presence == Presence::kRequired;
  if (reads() && required) reader_->Require({key});
  Nested(key, required, false, describe);
}

void ManifestFields::FlowSection(std::string_view key, const Description& describe) {
  Nested(key, false, true, describe);
}

bool ManifestFields::IsKind(std::string_view kind, bool written) {
  if (!reads()) return written;
  std::string stated;
  if (!reader_->IsList("kind") && !reader_->IsMapping("kind")) reader_->Read("kind", &stated);
  return stated == kind;
}

void RequireEnd(ConfigReader& root, int format, std::string_view yaml) {
  if (format == 2 && !yaml.ends_with(fmt::format("\n{}", kEndOfText))) {
    root.AddViolation("format", "the text is cut: of this format, the last line is \"...\"");
  } else if (!yaml.ends_with('\n')) {
    root.AddViolation("format", "the text is cut: its last line has no end");
  }
}

}  // namespace neuroshard
