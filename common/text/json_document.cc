// The one place that knows nlohmann's parser. Its SAX interface is used: the DOM drops duplicate
// keys and has no bounds.
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/text/text_value.h"

namespace neuroshard {
namespace {

class JsonTreeBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  TextValue Take() { return std::move(root_); }
  const Status& status() const { return status_; }

  bool null() override { return Leaf(TextValue::Kind::kNull, ""); }
  bool boolean(bool value) override {
    return Leaf(TextValue::Kind::kBool, value ? "true" : "false");
  }
  bool number_integer(number_integer_t value) override {
    return Leaf(TextValue::Kind::kNumber, fmt::to_string(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return Leaf(TextValue::Kind::kNumber, fmt::to_string(value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return Leaf(TextValue::Kind::kNumber, text);
  }
  bool string(string_t& value) override { return Leaf(TextValue::Kind::kText, std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Open(TextValue::Kind::kMapping); }
  bool key(string_t& name) override {
    if (!Accept(budget_.TakeValues(0, name.size()))) return false;
    open_.back().keys.push_back(std::move(name));
    return true;
  }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override { return Open(TextValue::Kind::kSequence); }
  bool end_array() override { return Close(); }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 2, column 3: ..."
    std::string message = error.what();
    if (const std::size_t end = message.find("] "); end != std::string::npos) {
      message.erase(0, end + 2);
    }
    constexpr std::string_view kPrefix = "parse error at ";
    if (message.starts_with(kPrefix)) message.erase(0, kPrefix.size());
    status_ = absl::InvalidArgumentError(message);
    return false;
  }

 private:
  bool Accept(const Status& status) {
    if (!status.ok()) status_ = status;
    return status.ok();
  }

  bool Leaf(TextValue::Kind kind, std::string text) {
    if (!Accept(budget_.TakeValues(1, text.size()))) return false;
    TextValue value;
    value.kind = kind;
    value.text = std::move(text);
    Place(std::move(value));
    return true;
  }

  bool Open(TextValue::Kind kind) {
    if (!Accept(budget_.TakeValues(1, 0)) ||
        !Accept(TextBudget::CheckDepth(static_cast<int>(open_.size()) + 1))) {
      return false;
    }
    open_.emplace_back().kind = kind;
    return true;
  }

  bool Close() {
    TextValue closed = std::move(open_.back());
    open_.pop_back();
    Place(std::move(closed));
    return true;
  }

  void Place(TextValue value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else {
      open_.back().items.push_back(std::move(value));
    }
  }

  TextBudget budget_;
  std::vector<TextValue> open_;
  TextValue root_;
  Status status_;
};

}  // namespace

StatusOr<TextValue> ParseJsonDocument(std::string_view text) {
  try {
    JsonTreeBuilder builder;
    if (nlohmann::json::sax_parse(text, &builder)) return builder.Take();
    if (!builder.status().ok()) return builder.status();
    return InvalidArgument("not readable as JSON");
  } catch (const std::exception& error) {
    return InvalidArgument("not readable as JSON: {}", error.what());
  }
}

}  // namespace neuroshard
