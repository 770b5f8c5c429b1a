#include "client/cli/document_kind.h"

#include <algorithm>
#include <string>

#include "common/base/printable_text.h"
#include "common/text/text_value.h"

namespace neuroshard {
namespace {

const TextValue* Find(const TextValue& mapping, std::string_view key) {
  const auto found = std::find(mapping.keys.begin(), mapping.keys.end(), key);
  return found == mapping.keys.end()
             ? nullptr
             : &mapping.items[static_cast<std::size_t>(found - mapping.keys.begin())];
}

bool Has(const TextValue& mapping, std::string_view key) { return Find(mapping, key) != nullptr; }

// What a document is, in words; empty: not known. By keys that only this kind has.
std::string Describe(const TextValue& document, DocumentKind wanted) {
  if (const TextValue* format = Find(document, "format")) {
    if (format->text.starts_with("neuroshard-cost-model/")) return "a cost model's model.yaml";
    if (format->text.starts_with("neuroshard-")) {
      return fmt::format("a plan in the form {}, which only its own readers take",
                         Quoted(format->text));
    }
  }
  if (Has(document, "plan") || Has(document, "world_size"))
    return wanted == DocumentKind::kPlan ? "" : "a plan";
  if (Has(document, "legal")) return "an answer of `neuroshard evaluate`";
  if (Has(document, "embedding_cost") && Has(document, "ranks")) {
    return "an answer of `neuroshard validate`";
  }
  if (Has(document, "kind") && Has(document, "num_samples")) return "a sweep's configuration";
  if (Has(document, "listen") || Has(document, "metrics_listen")) return "a server's configuration";
  if (Has(document, "topologies")) {
    return wanted == DocumentKind::kWhatIf ? ""
                                           : "a list of topologies for `neuroshard plan --what-if`";
  }
  if (Has(document, "sets")) return "a question of `neuroshard predict compute`";
  if (Has(document, "topology") || Has(document, "global_batch_size")) {
    return wanted == DocumentKind::kRequest ? "" : "a request";
  }
  return "";
}

const char* Wanted(DocumentKind kind) {
  switch (kind) {
    case DocumentKind::kRequest:
      return "a request";
    case DocumentKind::kPlan:
      return "a plan, as `neuroshard plan --format json` writes it,";
    case DocumentKind::kWhatIf:
      return "a list of topologies";
  }
  return "";
}

bool LooksLikeCsv(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  return line.find(',') != std::string_view::npos &&
         line.find_first_of(":{[#") == std::string_view::npos;
}

}  // namespace

Status OtherDocument(std::string_view text, DocumentKind wanted) {
  std::string what;
  if (text.starts_with("SQLite format 3")) {
    what = "a database, a profile store perhaps";
  } else {
    // YAML is nearly JSON, but its errors are not about what was meant.
    auto document = ParseJsonDocument(text);
    if (!document.ok()) document = ParseYamlDocument(text);
    if (document.ok()) what = Describe(*document, wanted);
    if (what.empty() && LooksLikeCsv(text)) {
      what = wanted == DocumentKind::kRequest
                 ? "a CSV, of tables perhaps (`neuroshard init --tables` makes a request of it)"
                 : "a CSV";
    }
  }
  if (what.empty()) return absl::OkStatus();
  return InvalidArgument("this is {}; {} is wanted here", what, Wanted(wanted));
}

}  // namespace neuroshard
