#include "client/stub/model_reference.h"

#include <charconv>
#include <cstddef>

namespace neuroshard {

StatusOr<CostModelRef> ParseModelReference(const std::string& text) {
  const std::size_t slash = text.find('/');
  CostModelRef model{text.substr(0, slash), 0};
  if (model.name.empty()) return InvalidArgument("a model has a name, got \"{}\"", text);
  if (slash == std::string::npos) return model;
  const char* begin = text.data() + slash + 1;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, model.version);
  if (error != std::errc() || stop != end || model.version < 1) {
    return InvalidArgument("a model is NAME or NAME/VERSION, got \"{}\"", text);
  }
  return model;
}

std::string ModelReferenceText(const CostModelRef& model) {
  return model.version == 0 ? model.name : fmt::format("{}/{}", model.name, model.version);
}

v1::CostModelRef EncodeModelReference(const CostModelRef& model) {
  v1::CostModelRef message;
  message.set_name(model.name);
  if (model.version != 0) message.set_version(model.version);
  return message;
}

}  // namespace neuroshard
