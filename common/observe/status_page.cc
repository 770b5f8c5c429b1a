#include "common/observe/status_page.h"

#include <absl/strings/str_replace.h>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/base/bytes.h"

namespace neuroshard {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kHead = R"(<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
:root{color-scheme:light dark}
body{font:14px/1.5 system-ui,sans-serif;margin:1.5em auto;max-width:90em;padding:0 1em}
h1{font-size:1.4em}h2{font-size:1.1em;margin:1.5em 0 .4em}
dl{display:grid;grid-template-columns:max-content 1fr;gap:0 1em;margin:0}
dt{opacity:.7}dd{margin:0;overflow-wrap:anywhere}
div{overflow-x:auto}table{border-collapse:collapse}
th,td{text-align:left;vertical-align:top;padding:.2em 1em .2em 0;border-bottom:1px solid #8884}
th{font-weight:normal;opacity:.7;white-space:nowrap}
td{font-variant-numeric:tabular-nums;max-width:40em;overflow-wrap:break-word}
td.n{text-align:right}td.n,td:first-child{white-space:nowrap}
</style>
)";

std::string Escaped(std::string_view text) {
  return absl::StrReplaceAll(
      std::string(text),
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

bool IsEmpty(const Json& value) {
  return value.is_null() || value == "" ||
         ((value.is_array() || value.is_object()) && value.empty());
}

bool IsTable(const Json& value) {
  return value.is_array() && !value.empty() && value.front().is_object();
}

// "global_batch_size": "global batch size". Without units that Shown writes.
std::string Named(std::string name) {
  for (const std::string_view unit : {"_unix_ms", "_bytes"}) {
    if (name.ends_with(unit)) name.erase(name.rfind(unit));
  }
  std::replace(name.begin(), name.end(), '_', ' ');
  return Escaped(name);
}

std::string Shown(const std::string& name, const Json& value) {
  if (value.is_number_integer() && name.ends_with("_bytes")) return FormatBytes(value);
  if (value.is_number_integer() && name.ends_with("_unix_ms")) {
    const std::int64_t unix_ms = value;
    // A time that no clock shows stays a number.
    if (unix_ms > 0 && unix_ms < std::int64_t{1} << 42) {
      return fmt::format("{:%F %T} UTC", fmt::gmtime(static_cast<std::time_t>(unix_ms / 1000)));
    }
  }
  if (value.is_number_float()) return fmt::format("{:.4g}", value.get<double>());
  if (value.is_boolean()) return value ? "yes" : "no";
  // A whole SHA-256 is for programs.
  if (value.is_string() && name.ends_with("digest")) {
    return Escaped(value.get_ref<const std::string&>().substr(0, 12));
  }
  if (value.is_string()) return Escaped(value.get_ref<const std::string&>());
  if (!value.is_array()) return Escaped(value.dump());
  std::string list;
  for (const Json& one : value) list += (list.empty() ? "" : ", ") + Shown(name, one);
  return list;
}

std::string Table(const Json& rows) {
  std::vector<std::string> columns;
  for (const Json& row : rows) {
    for (const auto& [name, value] : row.items()) {
      const bool known = std::ranges::find(columns, name) != columns.end();
      if (!known && !IsEmpty(value)) columns.push_back(name);
    }
  }
  std::string html = "<div><table><tr>";
  for (const std::string& name : columns) html += fmt::format("<th>{}</th>", Named(name));
  for (const Json& row : rows) {
    html += "</tr>\n<tr>";
    for (const std::string& name : columns) {
      const Json value = row.value(name, Json());
      html += fmt::format("<td{}>{}</td>", value.is_number() ? " class=n" : "",
                          IsEmpty(value) ? "" : Shown(name, value));
    }
  }
  return html + "</tr></table></div>\n";
}

std::string Sections(const Json& object) {
  std::string values, sections;
  for (const auto& [name, value] : object.items()) {
    if (IsEmpty(value)) continue;
    if (value.is_object()) {
      sections += fmt::format("<h2>{}</h2>\n{}", Named(name), Sections(value));
    } else if (IsTable(value)) {
      sections += fmt::format("<h2>{}</h2>\n{}", Named(name), Table(value));
    } else {
      values += fmt::format("<dt>{}</dt><dd>{}</dd>\n", Named(name), Shown(name, value));
    }
  }
  return (values.empty() ? "" : fmt::format("<dl>\n{}</dl>\n", values)) + sections;
}

}  // namespace

std::string StatusPage(std::string_view title, const std::string& json) {
  const Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  return fmt::format(
      "{}<title>{}</title>\n<h1>{}</h1>\n{}<p><a href=\"metrics\">metrics</a> "
      "<a href=\"healthz\">health</a> <a href=\"readyz\">readiness</a> "
      "<a href=\"status.json\">the same as JSON</a></p>\n",
      kHead, Escaped(title), Escaped(title),
      object.is_object() ? Sections(object) : fmt::format("<pre>{}</pre>\n", Escaped(json)));
}

}  // namespace neuroshard
