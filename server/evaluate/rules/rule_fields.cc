#include "server/evaluate/rules/rule_fields.h"

#include <fmt/format.h>

#include <type_traits>

#include "server/evaluate/rules/list_text.h"

namespace neuroshard {
namespace {

using Says = std::string (*)(const TableRule&);

template <auto field>
bool IsSet(const TableRule& rule) {
  using Field = std::remove_cvref_t<decltype(rule.*field)>;
  if constexpr (std::is_arithmetic_v<Field>) {
    return rule.*field != 0;
  } else if constexpr (requires(const Field& value) { value.has_value(); }) {
    return (rule.*field).has_value();
  } else {
    return !(rule.*field).empty();
  }
}

template <auto field>
void Copy(const TableRule& from, TableRule& to) {
  to.*field = from.*field;
}

template <auto field>
constexpr RuleField FieldOf(std::string_view name, Says says) {
  return {name, &IsSet<field>, says, &Copy<field>};
}

constexpr RuleField kFields[] = {
    FieldOf<&TableRule::sharding_types>(
        "sharding_types",
        [](const TableRule& rule) { return "only " + ListText(rule.sharding_types); }),
    FieldOf<&TableRule::compute_kernels>(
        "compute_kernels",
        [](const TableRule& rule) { return "only kernel " + ListText(rule.compute_kernels); }),
    FieldOf<&TableRule::ranks>(
        "ranks", [](const TableRule& rule) { return "only ranks " + ListText(rule.ranks); }),
    FieldOf<&TableRule::forbidden_ranks>(
        "forbidden_ranks",
        [](const TableRule& rule) { return "not ranks " + ListText(rule.forbidden_ranks); }),
    FieldOf<&TableRule::hosts>(
        "hosts", [](const TableRule& rule) { return "only hosts " + ListText(rule.hosts); }),
    FieldOf<&TableRule::forbidden_hosts>(
        "forbidden_hosts",
        [](const TableRule& rule) { return "not hosts " + ListText(rule.forbidden_hosts); }),
    FieldOf<&TableRule::max_shards>(
        "max_shards",
        [](const TableRule& rule) { return fmt::format("at most {} shards", rule.max_shards); }),
    FieldOf<&TableRule::min_column_width>("min_column_width",
                                          [](const TableRule& rule) {
                                            return fmt::format("at least {} columns a shard",
                                                               rule.min_column_width);
                                          }),
    FieldOf<&TableRule::distinct_ranks>(
        "distinct_ranks", [](const TableRule&) { return std::string("shards on distinct ranks"); }),
    FieldOf<&TableRule::cache_load_factor>("cache_load_factor",
                                           [](const TableRule& rule) {
                                             return fmt::format("a cache of {} of the rows",
                                                                rule.cache_load_factor);
                                           }),
    FieldOf<&TableRule::row_multiple>("row_multiple",
                                      [](const TableRule& rule) {
                                        return fmt::format("rows in buckets of {}",
                                                           rule.row_multiple);
                                      }),
    FieldOf<&TableRule::row_proportion>("row_proportion",
                                        [](const TableRule& rule) {
                                          return fmt::format("rows in proportion to {}",
                                                             ToText(*rule.row_proportion));
                                        }),
};

}  // namespace

std::span<const RuleField> RuleFields() { return kFields; }

}  // namespace neuroshard
