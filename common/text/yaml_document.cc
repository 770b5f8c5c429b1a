// The one place that knows yaml-cpp's parser. Its events are used instead of its nodes: nodes share
// what aliases refer to, so that a few lines can stand for billions of values, and they lose line
// numbers of keys.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <exception>
#include <istream>
#include <map>
#include <optional>
#include <streambuf>
#include <utility>

#include "common/base/printable_text.h"
#include "common/text/text_value.h"

namespace neuroshard {
namespace {

// Thrown through yaml-cpp to stop it, caught in ParseYamlDocument.
struct Refusal : std::exception {
  Refusal(const YAML::Mark& mark, std::string what_is_wrong)
      : line(mark.line + 1), column(mark.column + 1), reason(std::move(what_is_wrong)) {}
  const char* what() const noexcept override { return reason.c_str(); }

  int line;
  int column;
  std::string reason;
};

// What a subtree costs when an alias copies it.
struct Extent {
  std::size_t values = 0;
  std::size_t bytes = 0;
  int depth = 0;

  void Add(const Extent& child) {
    values += child.values;
    bytes += child.bytes;
    depth = std::max(depth, child.depth + 1);
  }
};

class YamlTreeBuilder final : public YAML::EventHandler {
 public:
  explicit YamlTreeBuilder(std::size_t max_values) : budget_(max_values) {}

  TextValue Take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Leaf(mark, anchor, TextValue::Kind::kNull, "");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    Leaf(mark, anchor, KindOfTag(mark, tag), value);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, TextValue::Kind::kSequence);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, TextValue::Kind::kMapping);
  }
  void OnMapEnd() override { Close(); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) throw Refusal(mark, "alias of a value that contains it");
    const auto& [value, extent] = found->second;
    Require(mark, budget_.TakeValues(extent.values, extent.bytes));
    Require(mark, TextBudget::CheckDepth(static_cast<int>(open_.size()) + extent.depth));
    Place(mark, TextValue(value), extent);
  }

 private:
  struct OpenValue {
    TextValue value;
    YAML::anchor_t anchor;
    YAML::Mark mark;
    Extent extent;
    std::optional<std::string> key;  // of a mapping: read, its value not yet
  };

  static void Require(const YAML::Mark& mark, const Status& status) {
    if (!status.ok()) throw Refusal(mark, Message(status));
  }

  static TextValue::Kind KindOfTag(const YAML::Mark& mark, const std::string& tag) {
    if (tag == "?" || tag.empty()) return TextValue::Kind::kPlain;
    if (tag == "!" || tag == "tag:yaml.org,2002:str") return TextValue::Kind::kText;
    if (tag == "tag:yaml.org,2002:int" || tag == "tag:yaml.org,2002:float" ||
        tag == "tag:yaml.org,2002:bool") {
      return TextValue::Kind::kPlain;
    }
    throw Refusal(mark, fmt::format("tag {} is not supported", Quoted(tag)));
  }

  void Leaf(const YAML::Mark& mark, YAML::anchor_t anchor, TextValue::Kind kind,
            const std::string& text) {
    Require(mark, budget_.TakeValues(1, text.size()));
    TextValue value;
    value.kind = kind;
    value.line = mark.line + 1;
    value.text = text;
    Finish(mark, anchor, std::move(value), {1, text.size(), 0});
  }

  void Open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            TextValue::Kind kind) {
    if (!tag.empty() && tag != "?" && tag != "!" && tag != "tag:yaml.org,2002:seq" &&
        tag != "tag:yaml.org,2002:map") {
      throw Refusal(mark, fmt::format("tag {} is not supported", Quoted(tag)));
    }
    Require(mark, budget_.TakeValues(1, 0));
    Require(mark, TextBudget::CheckDepth(static_cast<int>(open_.size()) + 1));
    OpenValue open{{}, anchor, mark, {1, 0, 0}, std::nullopt};
    open.value.kind = kind;
    open.value.line = mark.line + 1;
    open_.push_back(std::move(open));
  }

  void Close() {
    OpenValue closed = std::move(open_.back());
    open_.pop_back();
    Finish(closed.mark, closed.anchor, std::move(closed.value), closed.extent);
  }

  void Finish(const YAML::Mark& mark, YAML::anchor_t anchor, TextValue value,
              const Extent& extent) {
    if (anchor != YAML::NullAnchor) {
      // The copy kept for aliases takes memory like any other value.
      Require(mark, budget_.TakeValues(extent.values, extent.bytes));
      anchors_[anchor] = {value, extent};
    }
    Place(mark, std::move(value), extent);
  }

  void Place(const YAML::Mark& mark, TextValue value, const Extent& extent) {
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    OpenValue& parent = open_.back();
    parent.extent.Add(extent);
    if (parent.value.kind == TextValue::Kind::kMapping) {
      if (!parent.key) {
        if (!value.items.empty() || value.kind == TextValue::Kind::kSequence ||
            value.kind == TextValue::Kind::kMapping) {
          throw Refusal(mark, "a key must be a name");
        }
        parent.key = std::move(value.text);
        return;
      }
      parent.value.keys.push_back(*std::move(parent.key));
      parent.key.reset();
    }
    parent.value.items.push_back(std::move(value));
  }

  TextBudget budget_;
  std::vector<OpenValue> open_;
  std::map<YAML::anchor_t, std::pair<TextValue, Extent>> anchors_;
  TextValue root_;
};

// Reads a string_view in place.
class ViewBuffer final : public std::streambuf {
 public:
  explicit ViewBuffer(std::string_view text) {
    char* begin =
        const_cast<char*>(text.data());  // streambuf's get area is not const, but only read
    setg(begin, begin, begin + text.size());
  }
};

}  // namespace

StatusOr<TextValue> ParseYamlDocument(std::string_view text, std::size_t max_values) {
  try {
    ViewBuffer buffer(text);
    std::istream stream(&buffer);
    YAML::Parser parser(stream);
    YamlTreeBuilder builder(max_values);
    if (!parser.HandleNextDocument(builder)) return TextValue();
    YamlTreeBuilder rest(max_values);
    if (parser.HandleNextDocument(rest)) {
      return InvalidArgument("there must be one YAML document, got several (a line of only ---)");
    }
    return builder.Take();
  } catch (const Refusal& refusal) {
    return InvalidArgument("line {}, column {}: {}", refusal.line, refusal.column, refusal.reason);
  } catch (const YAML::Exception& error) {
    return InvalidArgument("line {}, column {}: {}", error.mark.line + 1, error.mark.column + 1,
                           error.msg);
  } catch (const std::exception& error) {
    return InvalidArgument("not readable as YAML: {}", error.what());
  }
}

}  // namespace neuroshard
