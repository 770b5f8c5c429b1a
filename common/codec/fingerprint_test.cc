#include "common/codec/fingerprint.h"

#include <gmock/gmock.h>
#include <google/protobuf/message.h>
#include <neuroshard/v1/planner.pb.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/base/sha256.h"
#include "common/codec/request_codec.h"

namespace neuroshard {
namespace {

PlanRequest SomeRequest() {
  PlanRequest request;
  for (const char* name : {"c", "a", "b"}) {
    Table table;
    table.name = name;
    table.module = "m";
    table.num_embeddings = 1000;
    table.embedding_dim = 64;
    table.reuse_histogram[2] = 1;
    table.features = {"f", "g"};
    request.tables.push_back(table);
  }
  request.topology.devices = {{0, 100}, {0, 100}};
  return request;
}

std::string Fingerprint(const PlanRequest& request) {
  return RequestFingerprint(request, "model", 3);
}

using Change = std::function<void(PlanRequest&)>;

// One rule, changed.
Change Rule(const std::function<void(TableRule&)>& change) {
  return [change](PlanRequest& request) {
    TableRule rule;
    rule.tables = {0, 2};
    change(rule);
    request.constraints.tables = {rule};
  };
}

// A migration from two tables, changed.
Change Previous(const std::function<void(Migration&)>& change) {
  return [change](PlanRequest& request) {
    Migration& migration = request.migration.emplace();
    migration.previous.world_size = 2;
    for (const char* name : {"c", "a"}) {
      migration.previous.tables.push_back(
          {name, "m", ShardingType::kTableWise, ComputeKernel::kFused, {{0, 1000, 0, 64, 1}}});
    }
    change(migration);
  };
}

// SHA-256 of a canonical form that must not drift: replicas of different versions compare
// fingerprints.
TEST(FingerprintTest, IsStable) {
  EXPECT_EQ(Fingerprint(SomeRequest()),
            "289d792fd1092c7aea59157d4ef3e5c739fa0d7cc8592249633b8297dc571f24");
}

TEST(FingerprintTest, DoesNotDependOnTableOrder) {
  std::vector<std::string> order = {"a", "b", "c"};
  std::set<std::string> seen;
  do {
    PlanRequest request = SomeRequest();
    Previous([](Migration&) {})(request);
    const auto index = [&](const std::string& name) {
      return static_cast<int>(std::find(order.begin(), order.end(), name) - order.begin());
    };
    std::sort(request.tables.begin(), request.tables.end(),
              [&](const Table& a, const Table& b) { return index(a.name) < index(b.name); });
    std::sort(
        request.migration->previous.tables.begin(), request.migration->previous.tables.end(),
        [&](const TablePlan& a, const TablePlan& b) { return index(a.name) < index(b.name); });
    // Rules and groups about the same tables, wherever these stand.
    TableRule rule;
    rule.tables = {index("a"), index("c")};
    std::sort(rule.tables.begin(), rule.tables.end());
    rule.max_shards = 2;
    request.constraints.tables = {rule};
    request.constraints.separate = {{rule.tables, GroupLevel::kHost}};
    seen.insert(Fingerprint(request));
  } while (std::next_permutation(order.begin(), order.end()));
  EXPECT_EQ(seen.size(), 1u);
}

TEST(FingerprintTest, DoesNotDependOnWhoAsks) {
  PlanRequest request = SomeRequest();
  const std::string expected = Fingerprint(request);
  request.request_id = "other";
  request.warnings = {"assumed"};
  request.search.explain = true;
  request.cost_model = {"model", 0};
  EXPECT_EQ(Fingerprint(request), expected);
}

TEST(FingerprintTest, DependsOnEverythingElse) {
  const std::vector<Change> changes = {
      [](PlanRequest& r) { r.tables[1].name = "a2"; },
      [](PlanRequest& r) { r.tables[1].module = "m2"; },
      [](PlanRequest& r) { r.tables[1].num_embeddings = 1001; },
      [](PlanRequest& r) { r.tables[1].embedding_dim = 32; },
      [](PlanRequest& r) { r.tables[1].pooling_factor = 1.5; },
      [](PlanRequest& r) {
        std::swap(r.tables[1].reuse_histogram[2], r.tables[1].reuse_histogram[3]);
      },
      [](PlanRequest& r) { r.tables[1].weight_dtype = DataType::kBf16; },
      [](PlanRequest& r) { r.tables[1].pooling_mode = PoolingMode::kMean; },
      [](PlanRequest& r) { r.tables[1].weighted = true; },
      [](PlanRequest& r) { r.tables[1].features = {"fg"}; },
      [](PlanRequest& r) {
        r.tables[1].features = {"f", "h"};
      },
      [](PlanRequest& r) { r.tables[1].kind = TableKind::kEmbedding; },
      [](PlanRequest& r) { r.tables[2].kind = TableKind::kEmbedding; },
      [](PlanRequest& r) {
        r.tables[1].pooling_factors = {0.25, 0.75};
      },
      [](PlanRequest& r) {
        r.tables[1].batch_pooling_factors = {0.25, 0.75};
      },
      [](PlanRequest& r) { r.tables[1].hot_row_blocks = true; },
      [](PlanRequest& r) { r.search.objective = PlanObjective::kMeanOfMax; },
      [](PlanRequest& r) { r.pipeline_type = PipelineType::kNone; },
      [](PlanRequest& r) { r.pipeline_type = PipelineType::kTrainPrefetchSparseDist; },
      [](PlanRequest& r) { r.tables.pop_back(); },
      [](PlanRequest& r) { r.topology.devices[1].host = 1; },
      [](PlanRequest& r) { r.topology.devices[1].memory_bytes = 101; },
      [](PlanRequest& r) { r.topology.devices.pop_back(); },
      [](PlanRequest& r) { r.global_batch_size = 1024; },
      [](PlanRequest& r) { r.optimizer = Optimizer::kAdam; },
      [](PlanRequest& r) { r.memory.rule = MemoryRule::kWeightsOnly; },
      [](PlanRequest& r) { r.memory.reserve_fraction = 0.1; },
      [](PlanRequest& r) { r.memory.reserve_bytes = 1; },
      [](PlanRequest& r) { r.search.strategy = "random"; },
      [](PlanRequest& r) { r.search.beam_width = 4; },
      [](PlanRequest& r) { r.search.num_candidates = 11; },
      [](PlanRequest& r) { r.search.max_length = 11; },
      [](PlanRequest& r) { r.search.search_steps = 12; },
      [](PlanRequest& r) { r.search.time_budget = std::chrono::milliseconds(0); },
      [](PlanRequest& r) { r.search.time_budget = std::chrono::milliseconds(5); },
      [](PlanRequest& r) { r.search.seed = 1; },
      [](PlanRequest& r) { r.search.max_threads = 2; },
      [](PlanRequest& r) { r.search.refine_steps = 0; },
      [](PlanRequest& r) { r.search.refine_steps = 1; },
      [](PlanRequest& r) { r.search.distributed_embeddings.column_slice_threshold_elements = 1; },
      [](PlanRequest& r) { r.search.distributed_embeddings.row_slice_threshold_elements = 1; },
      [](PlanRequest& r) { r.search.distributed_embeddings.data_parallel_threshold_elements = 1; },
      [](PlanRequest& r) { r.search.hugectr.bandwidth_ratio = 7; },
      [](PlanRequest& r) { r.search.hugectr.work_ratio = 7; },
      [](PlanRequest& r) { r.search.hugectr.data_parallel_threshold_gb = 7; },
      [](PlanRequest& r) { r.search.hugectr.iterations = 7; },
      [](PlanRequest& r) { r.search.hugectr.hierarchical = true; },
      [](PlanRequest& r) { r.topology.bandwidths.device_memory_bytes_per_s = 1e9; },
      [](PlanRequest& r) { r.topology.bandwidths.intra_host_bytes_per_s = 1e9; },
      [](PlanRequest& r) { r.topology.bandwidths.inter_host_bytes_per_s = 1e9; },
      [](PlanRequest& r) { r.constraints.sharding_types = {ShardingType::kRowWise}; },
      [](PlanRequest& r) { r.constraints.max_shards_per_rank = 3; },
      [](PlanRequest& r) { r.constraints.max_tables_per_rank = 3; },
      [](PlanRequest& r) { r.constraints.max_shards_per_table = 3; },
      [](PlanRequest& r) { r.constraints.min_column_width = 3; },
      [](PlanRequest& r) { r.constraints.column_rule = ColumnRule::kTorchRec; },
      [](PlanRequest& r) {
        r.constraints.colocate = {{{0, 1}, GroupLevel::kRank}};
      },
      [](PlanRequest& r) {
        r.constraints.colocate = {{{0, 2}, GroupLevel::kRank}};
      },
      [](PlanRequest& r) {
        r.constraints.colocate = {{{0, 1}, GroupLevel::kHost}};
      },
      [](PlanRequest& r) {
        r.constraints.separate = {{{0, 1}, GroupLevel::kRank}};
      },
      Rule([](TableRule&) {}),
      Rule([](TableRule& rule) { rule.tables = {1}; }),
      Rule([](TableRule& rule) { rule.sharding_types = {ShardingType::kRowWise}; }),
      Rule([](TableRule& rule) { rule.compute_kernels = {ComputeKernel::kFused}; }),
      Rule([](TableRule& rule) { rule.ranks = {1}; }),
      Rule([](TableRule& rule) { rule.forbidden_ranks = {1}; }),
      Rule([](TableRule& rule) { rule.hosts = {1}; }),
      Rule([](TableRule& rule) { rule.forbidden_hosts = {1}; }),
      Rule([](TableRule& rule) { rule.max_shards = 1; }),
      Rule([](TableRule& rule) { rule.min_column_width = 1; }),
      Rule([](TableRule& rule) { rule.distinct_ranks = true; }),
      Rule([](TableRule& rule) { rule.cache_load_factor = 0.5; }),
      Rule([](TableRule& rule) { rule.row_multiple = 1; }),
      Rule([](TableRule& rule) { rule.row_proportion = RowProportion::kMemory; }),
      Rule([](TableRule& rule) { rule.row_proportion = RowProportion::kSpeed; }),
      [](PlanRequest& r) { r.tables[0].output_dtype = DataType::kFp32; },
      [](PlanRequest& r) { r.tables[1].output_dtype = DataType::kFp32; },
      [](PlanRequest& r) { r.tables[0].num_poolings = {2}; },
      [](PlanRequest& r) { r.tables[0].feature_batch_sizes = {2}; },
      [](PlanRequest& r) { r.topology.host_memory_bytes = {5}; },
      [](PlanRequest& r) { r.topology.ssd_bytes = {5}; },
      [](PlanRequest& r) { r.topology.devices[0].max_ssd_bytes = 5; },
      [](PlanRequest& r) { r.topology.bandwidths.ssd_bytes_per_s = 5; },
      [](PlanRequest& r) { r.tables[0].max_l1_cache_bytes = 0; },
      [](PlanRequest& r) { r.tables[0].max_l1_cache_bytes = 5; },
      [](PlanRequest& r) { r.tables[0].l2_cache_bytes = 5; },
      [](PlanRequest& r) { r.tables[0].allocated_rows = 1 << 20; },
      [](PlanRequest& r) { r.tables[0].extra_bytes_per_row = 5; },
      [](PlanRequest& r) { r.topology.devices[0].max_host_memory_bytes = 5; },
      [](PlanRequest& r) { r.topology.bandwidths.host_to_device_bytes_per_s = 5; },
      [](PlanRequest& r) { r.topology.bandwidths.host_memory_bytes_per_s = 5; },
      [](PlanRequest& r) { r.search.distributed_embeddings.gpu_embedding_size_elements = 5; },
      [](PlanRequest& r) { r.topology.pod_size = 2; },
      [](PlanRequest& r) { r.topology.devices[0].compute_speed = 2; },
      [](PlanRequest& r) { r.pipeline_type = PipelineType::kTrainSparseDist; },
      [](PlanRequest& r) { r.quantized_comms.forward_dtype = DataType::kFp32; },
      [](PlanRequest& r) { r.quantized_comms.backward_dtype = DataType::kFp32; },
      Previous([](Migration& m) { m.only_types = {ShardingType::kTableWise}; }),
      Previous([](Migration& m) { m.only_types = {ShardingType::kColumnWise}; }),
      Previous([](Migration& m) { m.previous.tables[0].cache_load_factor = 0.5; }),
      Previous([](Migration&) {}),
      Previous([](Migration& m) { m.budget_bytes = 0; }),
      Previous([](Migration& m) { m.price_ms_per_gib = 1; }),
      Previous([](Migration& m) { m.previous.world_size = 3; }),
      Previous([](Migration& m) { m.previous.tables.pop_back(); }),
      Previous([](Migration& m) { m.previous.tables[0].name = "b"; }),
      Previous([](Migration& m) { m.previous.tables[0].module = "n"; }),
      Previous([](Migration& m) { m.previous.tables[0].shards[0].rank = 0; }),
      Previous([](Migration& m) { m.previous.tables[0].shards[0].row_offset = 1; }),
      Previous([](Migration& m) { m.previous.tables[0].sharding_type = ShardingType::kGridShard; }),
      Previous([](Migration& m) { m.previous.tables[0].compute_kernel = ComputeKernel::kDense; }),
      [](PlanRequest& r) { r.tables[0].optimizer = Optimizer::kSgd; },
      [](PlanRequest& r) { r.tables[1].optimizer = Optimizer::kAdam; },
      [](PlanRequest& r) { r.search.effort = SearchEffort::kThorough; },
      [](PlanRequest& r) {
        r.search.goals = {{}, {PlanMeasure::kMaxMemory}};
      },
      [](PlanRequest& r) {
        r.search.goals = {{PlanMeasure::kCost, 0.1}, {PlanMeasure::kMaxMemory}};
      },
      [](PlanRequest& r) {
        r.search.goals = {{}, {PlanMeasure::kCutTables}};
      },
      [](PlanRequest& r) { r.tables[0].stash_weights = true; },
      [](PlanRequest& r) { r.tables[1].stash_weights = true; },
      [](PlanRequest& r) { r.memory.dense_bytes = 5; },
  };
  std::set<std::string> seen = {Fingerprint(SomeRequest()),
                                RequestFingerprint(SomeRequest(), "model2", 3),
                                RequestFingerprint(SomeRequest(), "model", 4),
                                RequestFingerprint(SomeRequest(), "model", 3, {}, "00ff"),
                                RequestFingerprint(SomeRequest(), "model", 3, {}, "00fe")};
  std::string in_order;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    PlanRequest request = SomeRequest();
    changes[i](request);
    in_order += Fingerprint(request);
    EXPECT_TRUE(seen.insert(Fingerprint(request)).second) << "change " << i;
  }
  EXPECT_EQ(seen.size(), changes.size() + 5);
  // None of them may become another one. What is added goes to the end.
  constexpr std::size_t kPinned = 110;
  EXPECT_EQ(Sha256Hex(in_order.substr(0, kPinned * 64)),
            "55ca1ba0f6501142a7bea16bcde506033f26d5ee635bb80f8cd0671fb2be4a56");
}

// Each in its own way and all at once, since positions and order count too.
TEST(FingerprintTest, AllFieldsTogetherAreStable) {
  PlanRequest r = SomeRequest();
  Previous([](Migration& m) {
    m.only_types = {ShardingType::kTableWise, ShardingType::kColumnWise};
    m.budget_bytes = 7;
    m.price_ms_per_gib = 0.5;
    m.previous.tables[0].cache_load_factor = 0.5;
    m.previous.tables[1].cache_load_factor = 0.25;
  })(r);
  for (Table& table : r.tables) {
    table.embedding_dim = 4096;
    table.pooling_factors = {0.25, 0.75};
    table.kind = table.name == "b" ? TableKind::kEmbedding : TableKind::kEmbeddingBag;
    table.output_dtype = DataType::kFp16;
    table.num_poolings = {2, 3};
    table.feature_batch_sizes = {5, 6};
    table.batch_pooling_factors = {0.5, 1.5};
    table.hot_row_blocks = true;
    table.max_l1_cache_bytes = 0;
    table.l2_cache_bytes = 8;
    table.allocated_rows = 9;
    table.extra_bytes_per_row = 10;
  }
  Topology& topology = r.topology;
  for (Device& device : topology.devices) {
    device.name = "l4";
    device.max_host_memory_bytes = 11;
    device.max_ssd_bytes = 12;
    device.compute_speed = 0.5;
  }
  topology.bandwidths = {1e9, 2e9, 3e9, 4e9, 5e9, 6e9};
  topology.fabric = Fabric{"links", {5, 1e9}, {12, 1e9}};
  topology.compute_device = ComputeDevice::kCpu;
  topology.host_memory_bytes = {13, 14};
  topology.ssd_bytes = {15, 16};
  topology.pod_size = 2;
  r.pipeline_type = PipelineType::kTrainSparseDist;
  r.quantized_comms = {DataType::kFp16, DataType::kBf16};
  TableRule rule;
  rule.tables = {0, 2};
  rule.sharding_types = {ShardingType::kRowWise, ShardingType::kTableWise};
  rule.compute_kernels = {ComputeKernel::kFused};
  rule.ranks = {0, 1};
  rule.forbidden_hosts = {1};
  rule.distinct_ranks = true;
  rule.cache_load_factor = 0.5;
  rule.row_multiple = 4;
  rule.row_proportion = RowProportion::kSpeed;
  r.constraints.tables = {rule, rule};
  r.constraints.colocate = {{{0, 1}, GroupLevel::kHost}};
  r.constraints.sharding_types = {ShardingType::kRowWise, ShardingType::kTableWise};
  r.search.seed = 0x8000000000000001;
  r.search.time_budget = std::chrono::milliseconds(1500);
  r.search.objective = PlanObjective::kMeanOfMax;
  r.search.distributed_embeddings = {17, 18, 19, 20};
  const std::vector<DeviceCostModel> models = {{"l4", {"other", 2, "0f"}}};
  EXPECT_EQ(RequestFingerprint(r, "model", 3, models, "00ff"),
            "5c279129a3204a618caef971b8665b8837e021d1270cd587dde971c7a4ff39cc");
}

TEST(FingerprintTest, RanksCountByTheModelOfTheirDevice) {
  PlanRequest request = SomeRequest();
  for (Device& device : request.topology.devices) device.name = "h100-sxm";
  const std::string plain = Fingerprint(request);
  request.device_cost_models = {{"h100-sxm", {"model", 3}}};
  EXPECT_EQ(RequestFingerprint(request, "model", 3), plain) << "the request's own";
  request.device_cost_models = {{"h100-sxm", {"other", 0}}};
  std::set<std::string> seen = {plain, Fingerprint(request)};
  for (const int version : {1, 2}) {
    const std::vector<DeviceCostModel> resolved = {{"h100-sxm", {"other", version}}};
    seen.insert(RequestFingerprint(request, "model", 3, resolved));
  }
  EXPECT_EQ(seen.size(), 4U);
  const std::vector<DeviceCostModel> other_device = {{"l4", {"other", 1}}};
  EXPECT_EQ(RequestFingerprint(request, "model", 3, other_device), plain) << "of no rank";
}

// Calls visit(path, set) for every scalar field below `message`, also of messages that it does not
// have; set(n) gives the field its n-th candidate, false beyond the last.
using Visit = std::function<void(const std::string& path, const std::function<bool(std::size_t)>&)>;
void ForEachField(google::protobuf::Message& message, const std::string& path, const Visit& visit) {
  using google::protobuf::FieldDescriptor;
  static const std::vector<double> kNumbers = {1, 2, 3, 4, 7, 64, 1000, 0.25, 0.5, 1 << 20, 1e9};
  static const std::vector<std::string> kTexts = {"a",           "b",
                                                  "l4",          "cpu",
                                                  "cuda",        "fp16",
                                                  "fp32",        "mean",
                                                  "none",        "embedding",
                                                  "sgd",         "adam",
                                                  "size_greedy", "mean_of_max",
                                                  "torchrec",    "weights_only",
                                                  "host",        "rank",
                                                  "table_wise",  "row_wise",
                                                  "fused",       "fused_uvm",
                                                  "memory",      "train_sparse_dist",
                                                  "analytic",    "0123456789abcdef"};
  const auto* reflection = message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    const std::string here = path + field->name();
    const bool repeated = field->is_repeated();
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      const bool there = repeated ? reflection->FieldSize(message, field) > 0
                                  : reflection->HasField(message, field);
      google::protobuf::Message* inner =
          !repeated ? reflection->MutableMessage(&message, field)
          : there   ? reflection->MutableRepeatedMessage(&message, field, 0)
                    : reflection->AddMessage(&message, field);
      ForEachField(*inner, here + ".", visit);
      if (!there) reflection->ClearField(&message, field);
      continue;
    }
    const auto put = [&]<typename T>(T value, auto set_one, auto add) {
      repeated ? (reflection->*add)(&message, field, value)
               : (reflection->*set_one)(&message, field, value);
      return true;
    };
    using Reflection = google::protobuf::Reflection;
    const std::unique_ptr<google::protobuf::Message> saved(message.New());
    saved->CopyFrom(message);
    visit(here, [&](std::size_t n) {
      reflection->ClearField(&message, field);
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        return n < kTexts.size() && put(kTexts[n], &Reflection::SetString, &Reflection::AddString);
      }
      if (n >= kNumbers.size()) return false;
      const bool real = field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE;
      const double value =
          real ? kNumbers[n]
               : std::ceil(kNumbers[n]) - (repeated ? 1 : 0);  // lists are of ranks and hosts
      switch (field->cpp_type()) {
        case FieldDescriptor::CPPTYPE_INT32:
          return put(static_cast<std::int32_t>(value), &Reflection::SetInt32,
                     &Reflection::AddInt32);
        case FieldDescriptor::CPPTYPE_INT64:
          return put(static_cast<std::int64_t>(value), &Reflection::SetInt64,
                     &Reflection::AddInt64);
        case FieldDescriptor::CPPTYPE_UINT64:
          return put(static_cast<std::uint64_t>(value), &Reflection::SetUInt64,
                     &Reflection::AddUInt64);
        case FieldDescriptor::CPPTYPE_DOUBLE:
          return put(value, &Reflection::SetDouble, &Reflection::AddDouble);
        case FieldDescriptor::CPPTYPE_BOOL:
          return put(n == 0, &Reflection::SetBool, &Reflection::AddBool);
        default:
          ADD_FAILURE() << here << ": a field of a type that this test does not set";
          return false;
      }
    });
    reflection->SwapFields(&message, saved.get(), {field});
  }
}

// Whatever the decoder takes as another request has another fingerprint, but for what is listed.
TEST(FingerprintTest, EveryFieldOfARequestCounts) {
  v1::ShardPlanRequest request;
  for (const char* name : {"a", "b"}) {
    v1::Table& table = *request.add_tables();
    table.set_name(name);
    table.set_num_embeddings(1000);
    table.set_embedding_dim(4096);  // too wide for kernels of CUDA
    table.set_pooling_factor(2);
  }
  v1::HostGroup& host = *request.mutable_topology()->add_hosts();
  host.set_num_devices(4);
  host.set_memory_bytes(std::int64_t{1} << 40);
  host.set_host_memory_bytes(std::int64_t{1} << 40);
  host.set_ssd_bytes(std::int64_t{1} << 40);
  auto& rule = *request.mutable_constraints()->add_tables();
  rule.add_tables("a");
  rule.set_max_shards(6);
  v1::Plan& previous = *request.mutable_migration()->mutable_previous();
  previous.set_world_size(4);
  v1::TablePlan& in_place = *previous.add_tables();
  in_place.set_name("a");
  in_place.set_sharding_type("table_wise");
  in_place.set_compute_kernel("fused");
  v1::Shard& shard = *in_place.add_shards();
  shard.set_rows(1000);
  shard.set_cols(4096);
  const auto plain = DecodePlanRequest(request, {});
  ASSERT_TRUE(plain.ok()) << plain.status();
  // Those that no plan depends on, and the name of a model, which a fingerprint has as it answered.
  const std::set<std::string> exempt = {"request_id", "search.explain", "cost_model.name",
                                        "cost_model.version", "cost_model.digest"};
  std::set<std::string> untried;
  int tried = 0;
  v1::ShardPlanRequest changed = request;
  ForEachField(changed, "",
               [&](const std::string& path, const std::function<bool(std::size_t)>& set) {
                 bool any = false;
                 for (std::size_t n = 0; set(n); ++n) {
                   auto decoded = DecodePlanRequest(changed, {});
                   if (!decoded.ok()) continue;
                   decoded->warnings = plain->warnings;
                   if (*decoded == *plain) continue;
                   any = true;
                   EXPECT_EQ(Fingerprint(*decoded) == Fingerprint(*plain), exempt.contains(path))
                       << path << ", candidate " << n;
                 }
                 any ? void(++tried) : void(untried.insert(path));
               });
  // None of the candidates is legal there beside the rest; DependsOnEverythingElse has them.
  EXPECT_THAT(
      untried,
      ::testing::UnorderedElementsAre(
          "constraints.colocate.level", "constraints.colocate.tables", "constraints.separate.level",
          "constraints.separate.tables", "cost_model.digest",
          "device_cost_models.cost_model.digest", "device_cost_models.cost_model.name",
          "device_cost_models.cost_model.version", "device_cost_models.device",
          "migration.previous.tables.cache_load_factor", "migration.previous.tables.kind",
          "migration.previous.tables.module", "migration.previous.tables.sharding_type",
          "migration.previous.tables.shards.col_offset",
          "migration.previous.tables.shards.row_offset", "search.effort", "search.goals.measure",
          "search.goals.tolerance", "search.objective", "tables.feature_batch_sizes", "tables.name",
          "tables.num_poolings", "tables.pooling_factors", "tables.reuse_histogram",
          "topology.bandwidths.nic_bytes_per_s", "topology.bandwidths.ranks_per_nic",
          "topology.hosts.device_memory_bytes", "topology.pod_size"));
  EXPECT_GT(tried, 90);
}

TEST(FingerprintTest, TablesOfOneNameAreToldApartByTheirModules) {
  PlanRequest request = SomeRequest();
  for (Table& table : request.tables) table.module = table.name;
  for (Table& table : request.tables) table.name = "t";
  TableRule& rule = request.constraints.tables.emplace_back();
  rule.tables = {0};
  rule.max_shards = 1;
  PlanRequest reordered = request;
  std::swap(reordered.tables[0], reordered.tables[2]);
  EXPECT_NE(Fingerprint(request), Fingerprint(reordered)) << "the rule is about another table";
  reordered.constraints.tables[0].tables = {2};
  EXPECT_EQ(Fingerprint(request), Fingerprint(reordered));
}

TEST(FingerprintTest, FiguresOfNamedDevicesCountAndTheirNamesDoNot) {
  PlanRequest request = SomeRequest();
  for (Device& device : request.topology.devices) device.name = "some-device";
  EXPECT_EQ(Fingerprint(request), Fingerprint(SomeRequest()));
  request.topology.fabric = Fabric{"links", {5, 1e9}, {12, 1e9}};
  std::set<std::string> seen = {Fingerprint(SomeRequest()), Fingerprint(request)};
  request.topology.fabric->intra_host.latency_us = 6;
  seen.insert(Fingerprint(request));
  request.topology.fabric->inter_host.latency_us = 6;
  seen.insert(Fingerprint(request));
  EXPECT_EQ(seen.size(), 4U);
  request.topology.bandwidths.device_memory_bytes_per_s += 1;
  EXPECT_TRUE(seen.insert(Fingerprint(request)).second);
}

}  // namespace
}  // namespace neuroshard
