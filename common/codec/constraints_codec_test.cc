#include "common/codec/constraints_codec.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/codec/message_text.h"
#include "common/codec/request_codec.h"
#include "tests/support/faulty_fields.h"

namespace neuroshard {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// Tables a, b, c on two hosts of four ranks.
v1::ShardPlanRequest RequestWith(const std::string& constraints) {
  v1::ShardPlanRequest request;
  const Status status = ParseMessageText(
      "tables:\n"
      "- {name: a, num_embeddings: 10, embedding_dim: 8, pooling_factor: 1, zipf_exponent: 1}\n"
      "- {name: b, num_embeddings: 10, embedding_dim: 8, pooling_factor: 1, zipf_exponent: 1}\n"
      "- {name: c, num_embeddings: 10, embedding_dim: 8, pooling_factor: 1, zipf_exponent: 1}\n"
      "topology: {hosts: [{count: 2, num_devices: 4, memory_bytes: 1000000}]}\n" +
          constraints,
      TextFormat::kYaml, &request);
  EXPECT_TRUE(status.ok()) << Message(status);
  return request;
}

StatusOr<PlanRequest> DecodeRequest(const v1::ShardPlanRequest& message) {
  return DecodePlanRequest(message, RequestLimits{});
}

TEST(ConstraintsCodecTest, NamesBecomeIndicesAndListsAreSorted) {
  const auto request = DecodeRequest(RequestWith(R"(
constraints:
  sharding_types: [row_wise, table_wise]
  tables:
  - {tables: [c, a], sharding_types: [grid_shard, data_parallel], compute_kernels: [dense, fused],
     ranks: [7, 0], forbidden_ranks: [3, 0], hosts: [1, 0], forbidden_hosts: [1], max_shards: 2,
     min_column_width: 16, distinct_ranks: true, cache_load_factor: 0.5, row_multiple: 5,
     row_proportion: speed}
  colocate: [{tables: [b, a]}]
  separate: [{tables: [c, b], level: host}]
  max_shards_per_rank: 9
  max_tables_per_rank: 8
  max_shards_per_table: 7
  min_column_width: 12
  column_rule: torchrec
)"));
  ASSERT_TRUE(request.ok()) << Message(request.status());
  Constraints expected;
  expected.sharding_types = {ShardingType::kTableWise, ShardingType::kRowWise};
  expected.tables = {{{0, 2},
                      {ShardingType::kGridShard, ShardingType::kDataParallel},
                      {ComputeKernel::kFused, ComputeKernel::kDense},
                      {0, 7},
                      {0, 3},
                      {0, 1},
                      {1},
                      2,
                      16,
                      true,
                      0.5,
                      5,
                      RowProportion::kSpeed}};
  expected.colocate = {{{0, 1}, GroupLevel::kRank}};
  expected.separate = {{{1, 2}, GroupLevel::kHost}};
  expected.max_shards_per_rank = 9;
  expected.max_tables_per_rank = 8;
  expected.max_shards_per_table = 7;
  expected.min_column_width = 12;
  expected.column_rule = ColumnRule::kTorchRec;
  EXPECT_EQ(request->constraints, expected);
}

TEST(ConstraintsCodecTest, AbsentIsNoDemand) {
  EXPECT_TRUE(DecodeRequest(RequestWith(""))->constraints.empty());
  EXPECT_TRUE(DecodeRequest(RequestWith("constraints: {}"))->constraints.empty());
}

TEST(ConstraintsCodecTest, ContradictionsAreThePlannersToProve) {
  EXPECT_TRUE(
      DecodeRequest(RequestWith("constraints: {tables: [{tables: [a], ranks: [1], "
                                "forbidden_ranks: [1]}, {tables: [a], ranks: [2]}], "
                                "colocate: [{tables: [a, b]}], separate: [{tables: [a, b]}]}"))
          .ok());
}

TEST(ConstraintsCodecTest, EveryFaultIsNamedAtOnce) {
  const Status status = DecodeRequest(RequestWith(R"(
constraints:
  sharding_types: [diagonal, row_wise, row_wise]
  tables:
  - {tables: [a], max_shards: 1}
  - {tables: [z, a, "", a], ranks: [8, -1, 2, 2], hosts: [2], sharding_types: [table_wise, rows]}
  - {max_shards: -1, compute_kernels: [uvm]}
  - {tables: [b]}
  - {tables: [b], row_multiple: 20}
  - {tables: [a, b], row_multiple: -5}
  - {tables: [a], row_proportion: size}
  colocate: [{tables: [a]}]
  separate: [{tables: [a, a], level: rack}]
  max_shards_per_rank: -2
  min_column_width: 65537
  column_rule: odd
)"))
                            .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const auto fault = [](const std::string& field, const std::string& text) {
    return AllOf(Field(&Violation::field, "constraints" + field),
                 Field(&Violation::description, HasSubstr(text)));
  };
  EXPECT_THAT(
      Violations::FromStatus(status),
      UnorderedElementsAre(
          fault(".sharding_types[0]", "must be one of table_wise, column_wise, row_wise"),
          fault(".sharding_types[2]", "is given twice, first at sharding_types[1]"),
          fault(".tables[1].tables[0]", "names no table of the request, got \"z\""),
          fault(".tables[1].tables[2]", "names no table of the request, got \"\""),
          fault(".tables[1].tables[3]", "is given twice, first at tables[1]"),
          fault(".tables[1].ranks[0]", "must be from 0 to 7, what the topology has, got 8"),
          fault(".tables[1].ranks[1]", "must be from 0 to 7, what the topology has, got -1"),
          fault(".tables[1].ranks[3]", "is given twice, first at ranks[2]"),
          fault(".tables[1].hosts[0]", "must be from 0 to 1, what the topology has, got 2"),
          fault(".tables[1].sharding_types[1]", "got \"rows\""),
          fault(".tables[2].tables", "must name at least one table"),
          fault(".tables[2].max_shards", "must be at least 0, got -1"),
          fault(".tables[2].compute_kernels[0]", "must be one of fused, dense"),
          fault(".tables[4].row_multiple", "must divide the 10 rows of 'b', got 20"),
          fault(".tables[5].row_multiple", "must be at least 0, got -5"),
          fault(".tables[6].row_proportion", "must be one of memory, speed, got \"size\""),
          fault(".tables[3]", "demands nothing: give sharding_types"),
          fault(".colocate[0].tables", "must name at least two tables, got 1"),
          fault(".separate[0].tables[1]", "is given twice, first at tables[0]"),
          fault(".separate[0].level", "must be one of rank, host, got \"rack\""),
          fault(".max_shards_per_rank", "must be at least 0, got -2"),
          fault(".min_column_width", "must be at most 65536, got 65537"),
          fault(".column_rule", "must be one of any, torchrec, got \"odd\"")));
}

TEST(ConstraintsCodecTest, AProportionThatLeavesRowsEvenIsAWarning) {
  const auto warnings = [](const std::string& rule, const std::string& second_host) {
    v1::ShardPlanRequest request =
        RequestWith("constraints: {tables: [{tables: [a], " + rule + "}]}");
    v1::HostGroup& host = *request.mutable_topology()->add_hosts();
    host.set_num_devices(2);
    host.set_memory_bytes(second_host == "small" ? 500000 : 1000000);
    if (second_host == "fast") host.set_compute_speed(2);
    std::vector<std::string> found = DecodeRequest(request)->warnings;
    std::erase_if(found, [](const std::string& warning) {
      return !warning.starts_with("constraints.tables[0].row_proportion ");
    });
    return found;
  };
  const auto says = [](const std::string& text) { return ElementsAre(HasSubstr(text)); };
  EXPECT_THAT(warnings("row_proportion: memory", "like"),
              says("gives even blocks: all devices have as much memory"));
  EXPECT_THAT(warnings("row_proportion: memory", "fast"), says("gives even blocks"));
  EXPECT_THAT(warnings("row_proportion: speed", "small"),
              says("gives even blocks: all hosts have one compute_speed"));
  EXPECT_THAT(warnings("row_proportion: speed, sharding_types: [table_wise]", "fast"),
              says("changes nothing: sharding_types lists none that cuts rows"));
  EXPECT_THAT(warnings("row_proportion: memory", "small"), IsEmpty());
  EXPECT_THAT(warnings("row_proportion: speed, sharding_types: [table_wise, row_wise]", "fast"),
              IsEmpty());
}

// Tables a, b, c on a host with SSDs and one without.
v1::ShardPlanRequest SsdRequestWith(const std::string& constraints) {
  v1::ShardPlanRequest request = RequestWith(constraints);
  v1::Topology& topology = *request.mutable_topology();
  topology.mutable_hosts(0)->set_count(1);
  *topology.add_hosts() = topology.hosts(0);
  topology.mutable_hosts(0)->set_ssd_bytes(1 << 30);
  request.set_optimizer("adam");
  return request;
}

TEST(ConstraintsCodecTest, KeyValueIsForHostsWithSsdsAndTablesThatFbgemmHasThere) {
  v1::ShardPlanRequest message = SsdRequestWith(R"(
constraints:
  tables:
  - {tables: [a, b, c], compute_kernels: [fused, key_value]}
  - {tables: [a], compute_kernels: [key_value], forbidden_hosts: [0]}
  - {tables: [b], compute_kernels: [key_value], hosts: [1]}
  - {tables: [c], compute_kernels: [key_value], ranks: [3, 4]}
  - {tables: [c], compute_kernels: [fused, key_value], ranks: [5], cache_load_factor: 1.5}
)");
  message.mutable_tables(0)->set_weight_dtype("fp16");
  message.mutable_tables(1)->set_weight_dtype("bf16");
  message.mutable_tables(2)->set_l2_cache_bytes(320);
  const auto request = DecodeRequest(message);
  ASSERT_FALSE(request.ok());
  const std::string text(request.status().message());
  for (const char* fault : {
           "constraints.tables[0].compute_kernels[1]: is key_value, which FBGEMM has for fp32 and "
           "fp16; 'b' is bf16",
           "constraints.tables[0].compute_kernels[1]: is key_value, and no host has memory "
           "(topology.hosts[].host_memory_bytes) for the l2_cache_bytes of 'c'",
           "constraints.tables[1].compute_kernels[0]: is key_value, and no host that the rule "
           "leaves "
           "has SSDs (topology.hosts[].ssd_bytes)",
           "constraints.tables[2].compute_kernels[0]: is key_value, and no host that",
           "constraints.tables[4].compute_kernels[1]: is key_value, and no host that",
           "constraints.tables[4].cache_load_factor: must be more than 0 and at most 1, got 1.5",
       }) {
    EXPECT_THAT(text, HasSubstr(fault));
  }
  EXPECT_THAT(text, testing::Not(HasSubstr("tables[3].compute_kernels[0]: is key_value, and no "
                                           "host that")));
  message.mutable_tables(1)->clear_weight_dtype();
  message.mutable_tables(2)->clear_l2_cache_bytes();
  message.mutable_constraints()->mutable_tables()->DeleteSubrange(1, 2);
  message.mutable_constraints()->mutable_tables()->RemoveLast();
  EXPECT_TRUE(DecodeRequest(message).ok());
}

TEST(ConstraintsCodecTest, RanksAndHostsThatAreNoneAreHeldAgainstNoKernel) {
  for (const char* list : {"ranks", "hosts"}) {
    const Status status = DecodeRequest(SsdRequestWith(fmt::format(R"(
constraints:
  tables:
  - {{tables: [a], compute_kernels: [key_value], {}: [99]}}
)",
                                                                   list)))
                              .status();
    EXPECT_THAT(
        Violations::FromStatus(status),
        ElementsAre(Field(&Violation::field, fmt::format("constraints.tables[0].{}[0]", list))));
  }
}

TEST(ConstraintsCodecTest, WhatChangesNothingOnSsdOrCannotBeTrainedThereIsWarnedAbout) {
  v1::ShardPlanRequest message = SsdRequestWith(R"(
constraints:
  tables:
  - {tables: [a], compute_kernels: [fused, key_value], cache_load_factor: 0.5}
  - {tables: [b], compute_kernels: [fused], cache_load_factor: 0.5}
)");
  message.mutable_tables(0)->set_max_l1_cache_bytes(64);
  message.mutable_tables(1)->set_max_l1_cache_bytes(64);
  message.mutable_topology()->mutable_hosts(1)->set_host_memory_bytes(1 << 20);
  message.mutable_tables(2)->set_l2_cache_bytes(64);
  EXPECT_THAT(DecodeRequest(message)->warnings,
              ElementsAre("constraints.tables[1].cache_load_factor changes nothing: "
                          "compute_kernels lists no kernel with a cache",
                          "tables[1].max_l1_cache_bytes counts for key_value alone, which no rule "
                          "lists for the table",
                          "tables[2].l2_cache_bytes counts for key_value alone, which no rule "
                          "lists for the table"));
  message.set_optimizer("sgd");
  EXPECT_THAT(DecodeRequest(message)->warnings,
              testing::Contains("constraints.tables[0].compute_kernels lists key_value, which "
                                "FBGEMM trains with rowwise_adagrad, partial_rowwise_adam and adam "
                                "alone; the tables' optimizer is sgd"));
}

TEST(ConstraintsCodecTest, RanksAreNotHeldAgainstAFaultyTopology) {
  v1::ShardPlanRequest request = RequestWith("constraints: {tables: [{tables: [a], ranks: [9]}]}");
  request.mutable_topology()->add_hosts()->set_num_devices(2);  // no memory
  EXPECT_THAT(Violations::FromStatus(DecodeRequest(request).status()),
              ElementsAre(Field(&Violation::field, "topology.hosts[1].memory_bytes")));
}

TEST(ConstraintsCodecTest, TheNumberOfEntriesIsLimited) {
  const v1::ShardPlanRequest request =
      RequestWith("constraints: {tables: [{tables: [a, b], ranks: [1, 2]}]}");
  EXPECT_EQ(CountConstraintEntries(request.constraints()), 5);
  EXPECT_TRUE(DecodePlanRequest(request, {.max_constraint_entries = 5}).ok());
  const Status status = DecodePlanRequest(request, {.max_constraint_entries = 4}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("have 5 entries"), HasSubstr("at most 4")));
}

// Whatever the lists hold, decoding says what is wrong or gives what the domain promises, and comes
// back from its message unchanged.
TEST(ConstraintsCodecTest, RandomConstraintsAreRefusedOrComeBack) {
  Random random(20231121);
  const std::vector<std::string> names = {"a", "b", "c", "", "d"};
  const std::vector<std::string> types = {"table_wise", "row_wise", "data_parallel", "x", ""};
  const auto some = [&](int most, const std::function<void()>& add) {
    for (std::int64_t n = random.Between(0, most); n > 0; --n) add();
  };
  // Mostly what is legal, so that some requests are.
  const auto name = [&] { return names[random.Below(random.Below(8) == 0 ? names.size() : 3)]; };
  const auto type = [&] { return types[random.Below(random.Below(8) == 0 ? types.size() : 3)]; };
  const auto index = [&](int count) {
    return static_cast<int>(random.Below(10) == 0 ? random.Between(-1, count)
                                                  : random.Between(0, count - 1));
  };
  int legal = 0;
  for (int round = 0; round < 2000; ++round) {
    v1::ShardPlanRequest request = RequestWith("");
    v1::Constraints& constraints = *request.mutable_constraints();
    some(1, [&] { constraints.add_sharding_types(type()); });
    some(2, [&] {
      v1::TableRule& rule = *constraints.add_tables();
      rule.add_tables(name());
      some(1, [&] { rule.add_tables(name()); });
      some(2, [&] { rule.add_sharding_types(type()); });
      some(2, [&] { rule.add_ranks(index(8)); });
      some(2, [&] { rule.add_forbidden_hosts(index(2)); });
      rule.set_max_shards(static_cast<int>(random.Between(random.Below(9) == 0 ? -1 : 0, 3)));
      rule.set_distinct_ranks(random.Below(2) == 0);
    });
    some(1, [&] {
      v1::TableGroup& group = *constraints.add_separate();
      some(3, [&] { group.add_tables(name()); });
    });
    const auto decoded = DecodeRequest(request);
    if (!decoded.ok()) {
      ASSERT_FALSE(Violations::FromStatus(decoded.status()).empty());
      continue;
    }
    ++legal;
    for (const TableRule& rule : decoded->constraints.tables) {
      ASSERT_FALSE(rule.tables.empty());
      for (const std::vector<int>* list : {&rule.tables, &rule.ranks, &rule.forbidden_hosts}) {
        ASSERT_EQ(std::adjacent_find(list->begin(), list->end(), std::greater_equal<int>()),
                  list->end());
      }
    }
    const auto again = DecodeRequest(EncodePlanRequest(*decoded));
    ASSERT_TRUE(again.ok()) << Message(again.status());
    ASSERT_EQ(*again, *decoded);
  }
  EXPECT_GT(legal, 200);
  EXPECT_LT(legal, 1800);
}

TEST(MigrationCodecTest, ThePreviousPlanMayBeForOtherTablesAndRanks) {
  const v1::ShardPlanRequest message = RequestWith(R"(
migration:
  previous: {world_size: 99, tables: [
    {name: gone, sharding_type: row_wise_subset, compute_kernel: fused,
     shards: [{rows: 2, cols: 4, rank: 50}, {row_offset: 2, rows: 0, cols: 4, rank: 98}]},
    {name: a, module: m, sharding_type: column_wise, compute_kernel: fused,
     shards: [{rows: 9, cols: 6, rank: 4}, {rows: 9, col_offset: 6, cols: 3, rank: 4}]}]}
  budget_bytes: 0
  price_ms_per_gib: 0.5
  only_types: [column_wise, table_wise]
)");
  const auto request = DecodeRequest(message);
  ASSERT_TRUE(request.ok()) << Message(request.status());
  ASSERT_TRUE(request->migration.has_value());
  EXPECT_EQ(request->migration->budget_bytes, 0);
  EXPECT_EQ(request->migration->price_ms_per_gib, 0.5);
  EXPECT_EQ(request->migration->previous.tables[0].shards[1].rank, 98);
  EXPECT_THAT(request->migration->only_types,
              ElementsAre(ShardingType::kTableWise, ShardingType::kColumnWise));
  const auto again = DecodeRequest(EncodePlanRequest(*request));
  ASSERT_TRUE(again.ok()) << Message(again.status());
  EXPECT_EQ(*again, *request);
}

TEST(MigrationCodecTest, FaultsHaveTheirPlace) {
  const auto fields = [](const std::string& migration) {
    return FaultyFields(DecodeRequest(RequestWith("migration: " + migration)).status());
  };
  EXPECT_THAT(fields("{budget_bytes: -1, price_ms_per_gib: .nan, "
                     "only_types: [table_wise, x, table_wise]}"),
              UnorderedElementsAre("migration.previous", "migration.budget_bytes",
                                   "migration.price_ms_per_gib", "migration.only_types[1]",
                                   "migration.only_types[2]"));
  EXPECT_THAT(
      fields("{previous: {tables: [{name: a, sharding_type: table_wise, compute_kernel: fused}, "
             "{name: a, sharding_type: x, compute_kernel: fused, shards: [{rows: -1}]}]}}"),
      UnorderedElementsAre("migration.previous.tables[0].shards",
                           "migration.previous.tables[1].name",
                           "migration.previous.tables[1].sharding_type",
                           "migration.previous.tables[1].shards[0].rows"));
}

TEST(MigrationCodecTest, ADamagedPreviousPlanIsRefusedWithAllItsFaults) {
  const auto fields = [](const std::string& previous) {
    return FaultyFields(
        DecodeRequest(RequestWith("migration: {previous: " + previous + "}")).status());
  };
  EXPECT_THAT(fields("{}"), ElementsAre("migration.previous"));
  EXPECT_THAT(fields("{world_size: 4, tables: ["
                     "{name: p, sharding_type: column_wise, compute_kernel: fused, shards: "
                     "[{rows: 9, cols: 16}, {rows: 9, col_offset: 12, cols: 4}, "
                     "{rows: 9, col_offset: 20, cols: 4}]}, "
                     "{name: q, sharding_type: row_wise, compute_kernel: fused, shards: "
                     "[{rows: 9, cols: 4, rank: 2}]}, "
                     "{name: a, module: m, kind: embedding, sharding_type: table_wise, "
                     "compute_kernel: fused, shards: [{rows: 9, cols: 4}]}]}"),
              UnorderedElementsAre("migration.previous.tables[0].shards[1].col_offset",
                                   "migration.previous.tables[0].shards",
                                   "migration.previous.tables[1].shards",
                                   "migration.previous.tables[2].kind"));
}

TEST(MigrationCodecTest, ThePreviousPlanIsLimited) {
  const v1::ShardPlanRequest request = RequestWith(
      "migration: {previous: {tables: [{name: a, sharding_type: table_wise, compute_kernel: fused, "
      "shards: [{}, {}]}]}}");
  const Status status = DecodePlanRequest(request, {.max_plan_shards = 1}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("migration.previous.tables"), HasSubstr("2 shards"),
                                     HasSubstr("at most 1")));
}

}  // namespace
}  // namespace neuroshard
