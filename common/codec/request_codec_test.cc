#include "common/codec/request_codec.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "common/base/violations.h"
#include "common/codec/fingerprint.h"
#include "common/codec/message_text.h"
#include "common/codec/text_file.h"
#include "common/devices/device_table.h"
#include "common/domain/testing/reuse_histograms.h"
#include "tests/support/faulty_fields.h"

namespace neuroshard {
namespace {

using testing::AllOf;
using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

void SetHistogram(v1::Table& table, double first, double last) {
  table.clear_reuse_histogram();
  for (int bin = 0; bin < kReuseBins; ++bin) table.add_reuse_histogram(0);
  table.set_reuse_histogram(0, first);
  table.set_reuse_histogram(kReuseBins - 1, last);
}

v1::ShardPlanRequest GoodRequest(int num_tables = 3) {
  v1::ShardPlanRequest request;
  for (int i = 0; i < num_tables; ++i) {
    v1::Table& table = *request.add_tables();
    table.set_name("table_" + std::to_string(i));
    table.set_num_embeddings(1000 + i);
    table.set_embedding_dim(64);
    table.set_pooling_factor(2.5);
    SetHistogram(table, 0.25, 0.75);
  }
  v1::HostGroup& hosts = *request.mutable_topology()->add_hosts();
  hosts.set_num_devices(4);
  hosts.set_memory_bytes(1 << 30);
  return request;
}

std::int64_t ThreadCpuMs() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

StatusOr<PlanRequest> Decode(const v1::ShardPlanRequest& message) {
  return DecodePlanRequest(message, RequestLimits{});
}

TEST(DecodePlanRequestTest, AbsentFieldsGetTheDocumentedDefaults) {
  const auto request = Decode(GoodRequest());
  ASSERT_TRUE(request.ok()) << Message(request.status());
  EXPECT_EQ(request->global_batch_size, 65536);
  EXPECT_EQ(request->optimizer, Optimizer::kSgd);
  EXPECT_EQ(request->memory, MemoryModel());
  EXPECT_EQ(request->cost_model, CostModelRef());
  EXPECT_EQ(request->search, SearchOptions());
  EXPECT_EQ(request->topology.bandwidths, Bandwidths());
  EXPECT_FALSE(request->migration.has_value());
  EXPECT_EQ(request->topology.devices.size(), 4u);
  EXPECT_EQ(request->tables[1].weight_dtype, DataType::kFp32);
  EXPECT_THAT(request->warnings, IsEmpty());
}

// One fault in a good request and the violation it must give.
struct Fault {
  std::string field;
  std::string description;  // a part of it
  std::function<void(v1::ShardPlanRequest&)> make;
};

std::vector<Fault> TableFaults() {
  const auto table = [](auto change) {
    return [change](v1::ShardPlanRequest& request) { change(*request.mutable_tables(1)); };
  };
  return {
      {"tables[1].name", "must not be empty", table([](v1::Table& t) { t.clear_name(); })},
      {"tables[1].name", "at most 512 bytes, got 513",
       table([](v1::Table& t) { t.set_name(std::string(513, 'x')); })},
      {"tables[1].name", "control characters",
       table([](v1::Table& t) { t.set_name(std::string("a\0b", 3)); })},
      {"tables[1].name", "must be unique, got \"table_0\", which is also tables[0].name",
       table([](v1::Table& t) { t.set_name("table_0"); })},
      {"tables[1].num_embeddings", "must be at least 1, got 0",
       table([](v1::Table& t) { t.clear_num_embeddings(); })},
      {"tables[1].num_embeddings", "must be at most 281474976710656",
       table([](v1::Table& t) { t.set_num_embeddings(std::numeric_limits<std::int64_t>::max()); })},
      {"tables[1].embedding_dim", "must be at least 1, got -4",
       table([](v1::Table& t) { t.set_embedding_dim(-4); })},
      {"tables[1].embedding_dim", "must be at most 65536, got 65537",
       table([](v1::Table& t) { t.set_embedding_dim(65537); })},
      {"tables[1].pooling_factor", "must be at least 0, got -0.5",
       table([](v1::Table& t) { t.set_pooling_factor(-0.5); })},
      {"tables[1].pooling_factor", "got nan",
       table([](v1::Table& t) { t.set_pooling_factor(kNan); })},
      {"tables[1].pooling_factor", "must be at most 1000000, got inf",
       table([](v1::Table& t) { t.set_pooling_factor(kInfinity); })},
      {"tables[1].reuse_histogram", "must have 17 entries, got 18",
       table([](v1::Table& t) { t.add_reuse_histogram(0); })},
      {"tables[1].reuse_histogram", "must sum to 1 (within 0.001), got 1.25",
       table([](v1::Table& t) { SetHistogram(t, 0.5, 0.75); })},
      {"tables[1].reuse_histogram", "must sum to 1 (within 0.001), got 0",
       table([](v1::Table& t) { SetHistogram(t, 0, 0); })},
      {"tables[1].reuse_histogram[16]", "must be at least 0, got -0.1",
       table([](v1::Table& t) { SetHistogram(t, 1, -0.1); })},
      {"tables[1].reuse_histogram[0]", "got nan",
       table([](v1::Table& t) { SetHistogram(t, kNan, 1); })},
      {"tables[1].zipf_exponent", "together with reuse_histogram",
       table([](v1::Table& t) { t.set_zipf_exponent(1); })},
      {"tables[1].zipf_exponent", "must be at most 4, got 4.5", table([](v1::Table& t) {
         t.clear_reuse_histogram();
         t.set_zipf_exponent(4.5);
       })},
      {"tables[1].output_dtype",
       "must be one of fp32, fp16, bf16, fp8, int8, int4, int2, got \"fp64\"",
       table([](v1::Table& t) { t.set_output_dtype("fp64"); })},
      {"tables[1].num_poolings", "must have as many entries as features, 0, got 1",
       table([](v1::Table& t) { t.add_num_poolings(1); })},
      {"tables[1].num_poolings[0]", "must be at least 0, got -1", table([](v1::Table& t) {
         t.add_features("f");
         t.add_num_poolings(-1);
       })},
      {"tables[1].feature_batch_sizes[0]", "must be at least 1, got 0", table([](v1::Table& t) {
         t.add_features("f");
         t.add_feature_batch_sizes(0);
       })},
      {"tables[1].weight_dtype",
       "must be one of fp32, fp16, bf16, fp8, int8, int4, int2, got \"int3\"",
       table([](v1::Table& t) { t.set_weight_dtype("int3"); })},
      {"tables[1].pooling_mode", "must be one of sum, mean, got \"SUM\"",
       table([](v1::Table& t) { t.set_pooling_mode("SUM"); })},
      {"tables[1].batch_pooling_factors[1]", "must be at least 0, got -1", table([](v1::Table& t) {
         t.add_batch_pooling_factors(1);
         t.add_batch_pooling_factors(-1);
       })},
      {"tables[1].batch_pooling_factors", "must have at most 256 entries, got 257",
       table([](v1::Table& t) { t.mutable_batch_pooling_factors()->Resize(257, 1); })},
      {"tables[2].batch_pooling_factors",
       "must have as many entries as those of the tables before, 2, got 1",
       [](v1::ShardPlanRequest& r) {
         r.mutable_tables(1)->mutable_batch_pooling_factors()->Resize(2, 1);
         r.mutable_tables(2)->add_batch_pooling_factors(1);
       }},
      {"tables[1].pooling_mode", "must be one of sum, mean, got \"none\"",
       table([](v1::Table& t) { t.set_pooling_mode("none"); })},
      {"tables[1].features[0]", "must not be empty",
       table([](v1::Table& t) { t.add_features(""); })},
      {"tables[1].features[2]", "is given twice, first at features[0]", table([](v1::Table& t) {
         for (const char* feature : {"g", "h", "g"}) t.add_features(feature);
       })},
      {"tables[1].module", "at most 512",
       table([](v1::Table& t) { t.set_module(std::string(600, 'm')); })},
  };
}

std::vector<Fault> OtherFaults() {
  using Request = v1::ShardPlanRequest;
  const auto host = [](auto change) {
    return [change](Request& request) { change(*request.mutable_topology()->mutable_hosts(0)); };
  };
  const auto search = [](auto change) {
    return [change](Request& request) { change(*request.mutable_search()); };
  };
  const auto device_model = [](const char* device, const char* model) {
    return [=](Request& request) {
      v1::DeviceCostModel& entry = *request.add_device_cost_models();
      entry.set_device(device);
      entry.mutable_cost_model()->set_name(model);
    };
  };
  return {
      {"tables", "at least one", [](Request& r) { r.clear_tables(); }},
      {"topology.hosts", "at least one", [](Request& r) { r.clear_topology(); }},
      {"topology.hosts[0].count", "must be at least 1, got 0",
       host([](v1::HostGroup& h) { h.set_count(0); })},
      {"topology.hosts[0].num_devices", "must be at least 1, got 0",
       host([](v1::HostGroup& h) { h.clear_num_devices(); })},
      {"topology.hosts[0].num_devices", "must be at most 1024, got 1025",
       host([](v1::HostGroup& h) { h.set_num_devices(1025); })},
      {"topology.hosts[0].memory_bytes", "must be at least 1, got -1",
       host([](v1::HostGroup& h) { h.set_memory_bytes(-1); })},
      {"topology.hosts[0].device_memory_bytes", "num_devices = 4 entries, got 1",
       host([](v1::HostGroup& h) { h.add_device_memory_bytes(1); })},
      {"topology.hosts[0].device_memory_bytes[2]", "must be at least 1, got 0",
       host([](v1::HostGroup& h) {
         for (const int bytes : {5, 5, 0, 5}) h.add_device_memory_bytes(bytes);
       })},
      {"device_cost_models[0].device",
       "must be a device of topology.hosts, which name none, got h100-sxm",
       device_model("h100-sxm", "m")},
      {"device_cost_models[0].device", "must not be empty", device_model("", "m")},
      {"device_cost_models[0].device", "h100", device_model("h1000", "m")},
      {"device_cost_models[0].cost_model.name", "must not be empty",
       [=](Request& r) {
         device_model("h100-sxm", "")(r);
         r.mutable_topology()->mutable_hosts(0)->set_device("h100-sxm");
       }},
      {"device_cost_models[1].device", "h100-sxm has a cost model already",
       [=](Request& r) {
         device_model("h100-sxm", "m")(r);
         device_model("NVIDIA H100 80GB HBM3", "n")(r);
         r.mutable_topology()->mutable_hosts(0)->set_device("h100-sxm");
       }},
      {"device_cost_models[0].cost_model.version", "must be at least 0, got -1",
       [=](Request& r) {
         device_model("h100-sxm", "m")(r);
         r.mutable_topology()->mutable_hosts(0)->set_device("h100-sxm");
         r.mutable_device_cost_models(0)->mutable_cost_model()->set_version(-1);
       }},
      {"topology.hosts[0].compute_speed", "must be at least 0.001, got 0",
       host([](v1::HostGroup& h) { h.set_compute_speed(0); })},
      {"topology.hosts[0].host_memory_bytes", "must be at least 0, got -1",
       host([](v1::HostGroup& h) { h.set_host_memory_bytes(-1); })},
      {"topology.hosts[0].max_host_memory_bytes_per_device", "must be at most 1125899906842624",
       host([](v1::HostGroup& h) {
         h.set_host_memory_bytes(1);
         h.set_max_host_memory_bytes_per_device(std::int64_t{1} << 51);
       })},
      {"topology.hosts[0].max_host_memory_bytes_per_device", "needs host_memory_bytes, got 5",
       host([](v1::HostGroup& h) { h.set_max_host_memory_bytes_per_device(5); })},
      {"topology.bandwidths.host_to_device_bytes_per_s", "must be at least 1000000, got 5",
       [](Request& r) {
         r.mutable_topology()->mutable_bandwidths()->set_host_to_device_bytes_per_s(5);
       }},
      {"topology.bandwidths.host_memory_bytes_per_s", "must be at least 1000000, got 5",
       [](Request& r) {
         r.mutable_topology()->mutable_bandwidths()->set_host_memory_bytes_per_s(5);
       }},
      {"topology.hosts[0].ssd_bytes", "must be at least 0, got -1",
       host([](v1::HostGroup& h) { h.set_ssd_bytes(-1); })},
      {"topology.hosts[0].max_ssd_bytes_per_device", "needs ssd_bytes, got 5",
       host([](v1::HostGroup& h) { h.set_max_ssd_bytes_per_device(5); })},
      {"topology.bandwidths.ssd_bytes_per_s", "must be at least 1000000, got 5",
       [](Request& r) { r.mutable_topology()->mutable_bandwidths()->set_ssd_bytes_per_s(5); }},
      {"tables[0].max_l1_cache_bytes", "must be at least 0, got -1",
       [](Request& r) { r.mutable_tables(0)->set_max_l1_cache_bytes(-1); }},
      {"tables[0].allocated_rows", "must be at least 1000, got 999",
       [](Request& r) {
         r.mutable_tables(0)->set_num_embeddings(1000);
         r.mutable_tables(0)->set_allocated_rows(999);
       }},
      {"tables[0].extra_bytes_per_row", "must be at most 65536, got 65537",
       [](Request& r) { r.mutable_tables(0)->set_extra_bytes_per_row(65537); }},
      {"tables[0].l2_cache_bytes", "must be at least 0, got -1",
       [](Request& r) { r.mutable_tables(0)->set_l2_cache_bytes(-1); }},
      {"tables[0].l2_cache_bytes", "of the table, got 1125899906842624",
       [](Request& r) { r.mutable_tables(0)->set_l2_cache_bytes(std::int64_t{1} << 50); }},
      {"constraints.tables[0].compute_kernels[1]",
       "is key_value, and no host that the rule leaves has SSDs (topology.hosts[].ssd_bytes)",
       [](Request& r) {
         v1::TableRule& rule = *r.mutable_constraints()->add_tables();
         rule.add_tables(r.tables(0).name());
         rule.add_compute_kernels("fused");
         rule.add_compute_kernels("key_value");
       }},
      {"search.distributed_embeddings.gpu_embedding_size_elements", "must be at least 1, got 0",
       [](Request& r) {
         r.mutable_search()->mutable_distributed_embeddings()->set_gpu_embedding_size_elements(0);
       }},
      {"topology.pod_size", "must be at most 1, got 2",
       [](Request& r) { r.mutable_topology()->set_pod_size(2); }},
      {"topology.pod_size", "must divide the number of hosts, 3, got 2",
       [](Request& r) {
         r.mutable_topology()->mutable_hosts(0)->set_count(3);
         r.mutable_topology()->set_pod_size(2);
       }},
      {"pipeline_type", "must be one of none, train_sparse_dist, train_prefetch_sparse_dist",
       [](Request& r) { r.set_pipeline_type("prefetch"); }},
      {"quantized_comms.forward_dtype",
       "must be one of fp32, fp16, bf16, fp8, int8, int4, int2, got \"fp4\"",
       [](Request& r) { r.mutable_quantized_comms()->set_forward_dtype("fp4"); }},
      {"quantized_comms.backward_dtype", "must be fp32, fp16, bf16, fp8 or int8, got int4",
       [](Request& r) { r.mutable_quantized_comms()->set_backward_dtype("int4"); }},
      {"constraints.tables[0].cache_load_factor", "must be more than 0 and at most 1, got 0",
       [](Request& r) {
         v1::TableRule& rule = *r.mutable_constraints()->add_tables();
         rule.add_tables(r.tables(0).name());
         rule.set_cache_load_factor(0);
       }},
      {"request_id", "at most 128", [](Request& r) { r.set_request_id(std::string(129, 'r')); }},
      {"request_id", "control characters", [](Request& r) { r.set_request_id("a\nlevel=error"); }},
      {"global_batch_size", "must be at least 1, got 0",
       [](Request& r) { r.set_global_batch_size(0); }},
      {"global_batch_size", "must be at most 1073741824",
       [](Request& r) { r.set_global_batch_size(std::int64_t{1} << 31); }},
      {"optimizer",
       "must be one of sgd, adagrad, rowwise_adagrad, adam, partial_rowwise_adam, lamb, lars_sgd, "
       "none, got \"lion\"",
       [](Request& r) { r.set_optimizer("lion"); }},
      {"memory.rule", "must be one of full, weights_only, torchrec, got \"none\"",
       [](Request& r) { r.mutable_memory()->set_rule("none"); }},
      {"memory.rule", "must be one of full, weights_only, torchrec, got \"none\"",
       [](Request& r) {
         r.mutable_memory()->set_rule("none");
         r.mutable_memory()->set_reserve_bytes((1 << 30) + 1);  // of no rule
       }},
      {"memory.reserve_fraction", "less than 1, got 1",
       [](Request& r) { r.mutable_memory()->set_reserve_fraction(1); }},
      {"memory.reserve_fraction", "got nan",
       [](Request& r) { r.mutable_memory()->set_reserve_fraction(kNan); }},
      {"memory.reserve_bytes", "must be at least 0, got -5",
       [](Request& r) { r.mutable_memory()->set_reserve_bytes(-5); }},
      {"memory.reserve_bytes",
       "keeps 1073741825 bytes (1.00 GiB) free of each device, and the largest has 1073741824 (",
       [](Request& r) { r.mutable_memory()->set_reserve_bytes((1 << 30) + 1); }},
      {"memory.reserve_bytes", "with reserve_fraction, and the largest has 1073741824 ",
       [](Request& r) {
         v1::HostGroup& small = *r.mutable_topology()->add_hosts();
         small.set_num_devices(4);
         small.set_memory_bytes(1000);
         r.mutable_memory()->set_reserve_fraction(0.5);
         r.mutable_memory()->set_reserve_bytes((1 << 29) + 1);
       }},
      {"memory.dense_bytes", "must be at least 0, got -1",
       [](Request& r) { r.mutable_memory()->set_dense_bytes(-1); }},
      {"memory.dense_bytes",
       "must be at most 1073741823, which the reserve leaves of the largest device's 1073741824, "
       "got 1073741824",
       [](Request& r) {
         r.mutable_memory()->set_reserve_bytes(1);
         r.mutable_memory()->set_dense_bytes(1 << 30);
       }},
      {"cost_model.version", "must be at least 0, got -1",
       [](Request& r) { r.mutable_cost_model()->set_version(-1); }},
      {"search.strategy", "must be one of refine, neuroshard, ",
       search([](v1::SearchOptions& s) { s.set_strategy("refined"); })},
      {"search.beam_width", "must be at least 1, got 0",
       search([](v1::SearchOptions& s) { s.set_beam_width(0); })},
      {"search.num_candidates", "must be at most 1000, got 1001",
       search([](v1::SearchOptions& s) { s.set_num_candidates(1001); })},
      {"search.max_length", "must be at least 0, got -1",
       search([](v1::SearchOptions& s) { s.set_max_length(-1); })},
      {"search.search_steps", "must be at most 101, got 102",
       search([](v1::SearchOptions& s) { s.set_search_steps(102); })},
      {"search.time_budget_ms", "must be at least 0, got -1",
       search([](v1::SearchOptions& s) { s.set_time_budget_ms(-1); })},
      {"search.max_threads", "must be at least 1, got 0",
       search([](v1::SearchOptions& s) { s.set_max_threads(0); })},
      {"search.refine_steps", "must be at least 0, got -1",
       search([](v1::SearchOptions& s) { s.set_refine_steps(-1); })},
      {"search.effort", "must be one of default, quick, thorough, got \"much\"",
       search([](v1::SearchOptions& s) { s.set_effort("much"); })},
      {"search.goals", "must be none, or 2 to 6: cost and what comes after it, got 1",
       search([](v1::SearchOptions& s) { s.add_goals()->set_measure("cost"); })},
      {"search.goals[0].measure", "the first must be cost", search([](v1::SearchOptions& s) {
         s.add_goals()->set_measure("max_memory");
         s.add_goals()->set_measure("cut_tables");
       })},
      {"search.goals[2].measure", "'max_memory' is a goal already",
       search([](v1::SearchOptions& s) {
         s.add_goals()->set_measure("cost");
         s.add_goals()->set_measure("max_memory");
         s.add_goals()->set_measure("max_memory");
       })},
      {"search.goals[1].tolerance", "must be at least 0, got -1", search([](v1::SearchOptions& s) {
         s.add_goals()->set_measure("cost");
         s.add_goals()->set_measure("max_memory");
         s.mutable_goals(1)->set_tolerance(-1);
       })},
      {"search.goals[1].measure",
       "'moved_bytes' needs a plan in place: the request has no migration",
       search([](v1::SearchOptions& s) {
         s.add_goals()->set_measure("cost");
         s.add_goals()->set_measure("moved_bytes");
       })},
      {"search.goals[1].measure",
       "'max_stash' needs tables to stash: none has stash_weights, and there is no "
       "memory.dense_bytes",
       search([](v1::SearchOptions& s) {
         s.add_goals()->set_measure("cost");
         s.add_goals()->set_measure("max_stash");
       })},
      {"search.goals", "are for the strategy 'refine' with the objective 'max_of_means'",
       search([](v1::SearchOptions& s) {
         s.add_goals()->set_measure("cost");
         s.add_goals()->set_measure("cut_tables");
         s.set_strategy("neuroshard");
       })},
      {"search.objective", "must be one of max_of_means, mean_of_max, got \"max\"",
       search([](v1::SearchOptions& s) { s.set_objective("max"); })},
      {"search.objective", "mean_of_max needs batches: no table has batch_pooling_factors",
       search([](v1::SearchOptions& s) { s.set_objective("mean_of_max"); })},
      {"search.objective", "'random' does not know mean_of_max; 'refine' does",
       [](Request& r) {
         r.mutable_tables(0)->add_batch_pooling_factors(1);
         r.mutable_search()->set_objective("mean_of_max");
         r.mutable_search()->set_strategy("random");
       }},
      {"search.distributed_embeddings.row_slice_threshold_elements", "must be at least 1, got 0",
       search([](v1::SearchOptions& s) {
         s.mutable_distributed_embeddings()->set_row_slice_threshold_elements(0);
       })},
      {"search.hugectr.work_ratio", "must be at least 1e-06, got 0",
       search([](v1::SearchOptions& s) { s.mutable_hugectr()->set_work_ratio(0); })},
      {"search.hugectr.data_parallel_threshold_gb", "got nan", search([](v1::SearchOptions& s) {
         s.mutable_hugectr()->set_data_parallel_threshold_gb(kNan);
       })},
      {"search.hugectr.iterations", "must be at least 1, got -1",
       search([](v1::SearchOptions& s) { s.mutable_hugectr()->set_iterations(-1); })},
      {"topology.bandwidths.intra_host_bytes_per_s", "must be at least 1000000, got 0",
       [](Request& r) {
         r.mutable_topology()->mutable_bandwidths()->set_intra_host_bytes_per_s(0);
       }},
      {"topology.bandwidths.inter_host_bytes_per_s", "got nan",
       [](Request& r) {
         r.mutable_topology()->mutable_bandwidths()->set_inter_host_bytes_per_s(kNan);
       }},
  };
}

void ExpectEachFault(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    v1::ShardPlanRequest message = GoodRequest();
    fault.make(message);
    const Status status = Decode(message).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << fault.field;
    EXPECT_THAT(Violations::FromStatus(status),
                ElementsAre(testing::AllOf(
                    testing::Field(&Violation::field, fault.field),
                    testing::Field(&Violation::description, HasSubstr(fault.description)))))
        << fault.field << ": " << fault.description;
  }
}

TEST(DecodePlanRequestTest, NamesEachTableFault) { ExpectEachFault(TableFaults()); }
TEST(DecodePlanRequestTest, NamesEachOtherFault) { ExpectEachFault(OtherFaults()); }

TEST(DecodePlanRequestTest, ReportsAllFaultsAtOnce) {
  v1::ShardPlanRequest message = GoodRequest();
  message.mutable_tables(0)->set_embedding_dim(-4);
  message.mutable_tables(2)->set_pooling_factor(kNan);
  message.mutable_topology()->mutable_hosts(0)->clear_num_devices();
  message.set_optimizer("lion");
  EXPECT_EQ(Violations::FromStatus(Decode(message).status()).size(), 4u);
}

TEST(DecodePlanRequestTest, AnErrorIsAlwaysText) {
  v1::ShardPlanRequest message = GoodRequest();
  // Two-byte characters, so that a cut at a fixed byte would split one.
  std::string optimizer = "x";
  for (int i = 0; i < 1000; ++i) optimizer += "\xC3\xA9";
  message.set_optimizer(optimizer);
  const std::string text = Message(Decode(message).status());
  EXPECT_LT(text.size(), 300u);
  EXPECT_THAT(text, HasSubstr("\xC3\xA9\"... (2001 bytes)"));
}

TEST(DecodePlanRequestTest, LimitsAreQuoted) {
  v1::ShardPlanRequest message = GoodRequest(4);
  const Status tables = DecodePlanRequest(message, {.max_tables = 3}).status();
  EXPECT_EQ(tables.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(tables), HasSubstr("has 4 tables, this server takes at most 3"));
  message.mutable_search()->set_max_threads(9);
  const Status threads = DecodePlanRequest(message, {.max_search_threads = 8}).status();
  EXPECT_EQ(threads.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(threads),
              HasSubstr("asks for 9 threads, this server gives a search at most 8"));
  const Status devices = DecodePlanRequest(message, {.max_devices = 3}).status();
  EXPECT_EQ(devices.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(devices), HasSubstr("has 4 devices, this server takes at most 3"));
}

TEST(DecodePlanRequestTest, LimitsAreListedWithAllOtherFaultsButWhatIsOverOneIsNotLookedInto) {
  v1::ShardPlanRequest message = GoodRequest(4);
  message.mutable_tables(0)->set_embedding_dim(-4);
  message.mutable_search()->set_max_threads(9);
  const Status over =
      DecodePlanRequest(message, {.max_tables = 3, .max_devices = 3, .max_search_threads = 8})
          .status();
  EXPECT_EQ(over.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(FaultyFields(over), testing::ElementsAre("tables", "topology", "search.max_threads"));
  message.set_global_batch_size(0);
  const Status both =
      DecodePlanRequest(message, {.max_devices = 3, .max_search_threads = 8}).status();
  EXPECT_EQ(both.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(FaultyFields(both),
              testing::ElementsAre("topology", "search.max_threads", "global_batch_size",
                                   "tables[0].embedding_dim"));
  // More than any server gives is a fault like another.
  message.mutable_search()->set_max_threads(5000);
  EXPECT_THAT(
      FaultyFields(DecodePlanRequest(message, {.max_search_threads = 8}).status()),
      testing::ElementsAre("global_batch_size", "search.max_threads", "tables[0].embedding_dim"));
}

TEST(DecodePlanRequestTest, HostileDeviceCountsDoNotOverflow) {
  v1::ShardPlanRequest message = GoodRequest();
  for (int i = 0; i < 10; ++i) {
    v1::HostGroup& hosts = *message.mutable_topology()->add_hosts();
    hosts.set_count(std::numeric_limits<std::int32_t>::max());
    hosts.set_num_devices(std::numeric_limits<std::int32_t>::max());
  }
  EXPECT_EQ(Decode(message).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(DecodePlanRequestTest, HostsWithoutDevicesCostNoTime) {
  v1::ShardPlanRequest message = GoodRequest();
  for (int i = 0; i < 16'000; ++i) message.mutable_topology()->add_hosts()->set_count(65536);
  const std::int64_t begin = ThreadCpuMs();
  EXPECT_THAT(Message(Decode(message).status()), HasSubstr("topology.hosts[1].num_devices"));
  // A step a host would be a billion of them.
  EXPECT_LT(ThreadCpuMs() - begin, 300);
}

TEST(DecodePlanRequestTest, AMillionTablesAreRefusedAtOnce) {
  v1::ShardPlanRequest message = GoodRequest(0);
  for (int i = 0; i < 1'000'000; ++i) message.add_tables();
  // Time of this thread alone, so that a busy machine does not count.
  const std::int64_t begin = ThreadCpuMs();
  EXPECT_EQ(Decode(message).status().code(), absl::StatusCode::kResourceExhausted);
  // Looking at every table takes hundreds of milliseconds; not looking, microseconds.
  EXPECT_LT(ThreadCpuMs() - begin, 100);
}

TEST(DecodePlanRequestTest, TotalMemoryIsBounded) {
  v1::ShardPlanRequest message = GoodRequest(2000);
  for (v1::Table& table : *message.mutable_tables()) {
    table.set_num_embeddings(std::int64_t{1} << 48);
    table.set_embedding_dim(65536);
  }
  EXPECT_THAT(Message(Decode(message).status()),
              HasSubstr("tables: must take at most 1024.00 PiB"));
}

TEST(DecodePlanRequestTest, AssumptionsAreWarnedAboutOnceAKind) {
  v1::ShardPlanRequest message = GoodRequest(6);
  for (int i = 0; i < 5; ++i) message.mutable_tables(i)->clear_reuse_histogram();
  message.mutable_tables(0)->clear_pooling_factor();
  message.mutable_tables(4)->set_pooling_factor(0);  // never looked up: nothing to assume
  const auto request = Decode(message);
  ASSERT_TRUE(request.ok()) << Message(request.status());
  EXPECT_THAT(
      request->warnings,
      ElementsAre(HasSubstr("pooling_factor is missing and taken as 1 for 1 table(s): \"table_0\""),
                  HasSubstr("4 table(s): \"table_0\", \"table_1\", \"table_2\", ...")));
  EXPECT_EQ(request->tables[0].pooling_factor, 1.0);
  EXPECT_EQ(request->tables[3].reuse_histogram, DefaultReuseHistogram());
  EXPECT_EQ(request->tables[4].reuse_histogram, ReuseHistogram{});
}

TEST(DecodePlanRequestTest, ABandwidthInAnotherUnitIsWarnedAbout) {
  // A thousandth of a real one, the real one, and a thousand times it.
  const std::vector<std::pair<const char*, double>> real = {
      {"device_memory_bytes_per_s", 3.35e12}, {"intra_host_bytes_per_s", 360e9},
      {"inter_host_bytes_per_s", 12.5e9},     {"host_to_device_bytes_per_s", 32e9},
      {"host_memory_bytes_per_s", 51e9},      {"ssd_bytes_per_s", 3.5e9}};
  for (const auto& [name, bytes_per_s] : real) {
    for (const double factor : {1e-3, 1.0, 1e3}) {
      v1::ShardPlanRequest message = GoodRequest();
      v1::Bandwidths& bandwidths = *message.mutable_topology()->mutable_bandwidths();
      bandwidths.GetReflection()->SetDouble(
          &bandwidths, bandwidths.GetDescriptor()->FindFieldByName(name), factor * bytes_per_s);
      const auto request = Decode(message);
      ASSERT_TRUE(request.ok()) << Message(request.status());
      const auto warned = ElementsAre(testing::AllOf(
          HasSubstr(fmt::format("topology.bandwidths.{} is ", name)),
          HasSubstr("the unit is bytes per second, and that of TorchRec's Topology bytes per "
                    "millisecond")));
      if (factor == 1) {
        EXPECT_THAT(request->warnings, IsEmpty()) << name;
      } else {
        EXPECT_THAT(request->warnings, warned) << name << " times " << factor;
      }
    }
  }
}

TEST(DecodePlanRequestTest, ACardIsSharedByItsRanks) {
  v1::ShardPlanRequest message = GoodRequest();
  message.mutable_topology()->clear_hosts();
  v1::HostGroup& hosts = *message.mutable_topology()->add_hosts();
  hosts.set_count(2);
  hosts.set_num_devices(8);
  hosts.set_memory_bytes(1 << 30);
  v1::Bandwidths& bandwidths = *message.mutable_topology()->mutable_bandwidths();
  bandwidths.set_nic_bytes_per_s(12.5e9);
  EXPECT_THAT(FaultyFields(Decode(message).status()),
              ElementsAre("topology.bandwidths.ranks_per_nic"));
  bandwidths.set_nic_bytes_per_s(5);
  EXPECT_THAT(FaultyFields(Decode(message).status()),
              ElementsAre("topology.bandwidths.ranks_per_nic"));
  bandwidths.set_nic_bytes_per_s(12.5e9);
  bandwidths.set_ranks_per_nic(8);
  const auto request = Decode(message);
  ASSERT_TRUE(request.ok()) << Message(request.status());
  EXPECT_EQ(request->topology.bandwidths.inter_host_bytes_per_s, 12.5e9 / 8);

  bandwidths.set_inter_host_bytes_per_s(12.5e9);
  EXPECT_THAT(FaultyFields(Decode(message).status()),
              ElementsAre("topology.bandwidths.nic_bytes_per_s"));
  bandwidths.clear_inter_host_bytes_per_s();
  for (const int ranks : {0, 9, -1}) {
    bandwidths.set_ranks_per_nic(ranks);
    EXPECT_THAT(FaultyFields(Decode(message).status()),
                ElementsAre("topology.bandwidths.ranks_per_nic"));
  }
  bandwidths.set_ranks_per_nic(8);
  // What one of the ranks has is in the range of the other bandwidths, too.
  bandwidths.set_nic_bytes_per_s(1e6);
  EXPECT_THAT(Message(Decode(message).status()),
              HasSubstr("topology.bandwidths.inter_host_bytes_per_s: must be at least 1000000, got "
                        "125000"));
  bandwidths.set_nic_bytes_per_s(5);
  EXPECT_THAT(FaultyFields(Decode(message).status()),
              ElementsAre("topology.bandwidths.nic_bytes_per_s"));
  bandwidths.clear_nic_bytes_per_s();
  EXPECT_THAT(FaultyFields(Decode(message).status()),
              ElementsAre("topology.bandwidths.nic_bytes_per_s"));
}

TEST(DecodePlanRequestTest, NoPublishedBandwidthIsWarnedAbout) {
  for (const PublishedDevice& device : PublishedDevices()) {
    v1::ShardPlanRequest message = GoodRequest();
    v1::Bandwidths& bandwidths = *message.mutable_topology()->mutable_bandwidths();
    bandwidths.set_device_memory_bytes_per_s(device.memory_bytes_per_s);
    if (device.fabric) {
      bandwidths.set_intra_host_bytes_per_s(device.fabric->intra_host.bytes_per_s);
      bandwidths.set_inter_host_bytes_per_s(device.fabric->inter_host.bytes_per_s);
    }
    EXPECT_THAT(Decode(message)->warnings, IsEmpty()) << device.name;
  }
}

TEST(DecodePlanRequestTest, ZipfExponentBecomesAHistogram) {
  v1::ShardPlanRequest message = GoodRequest();
  message.set_global_batch_size(1024);
  message.mutable_tables(0)->clear_reuse_histogram();
  message.mutable_tables(0)->set_zipf_exponent(1.05);
  const auto request = Decode(message);
  ASSERT_TRUE(request.ok()) << Message(request.status());
  EXPECT_EQ(request->tables[0].reuse_histogram, ZipfReuseHistogram(1000, 2560, 1.05));
  EXPECT_THAT(request->warnings, IsEmpty());
}

TEST(DecodePlanRequestTest, ATableThatIsNeverLookedUpMayHaveNoHistogram) {
  v1::ShardPlanRequest message = GoodRequest();
  message.mutable_tables(0)->set_pooling_factor(0);
  SetHistogram(*message.mutable_tables(0), 0, 0);
  EXPECT_TRUE(Decode(message).ok());
}

TEST(DecodePlanRequestTest, HostsMayDiffer) {
  v1::ShardPlanRequest message = GoodRequest();
  message.mutable_topology()->mutable_hosts(0)->set_count(2);
  v1::HostGroup& other = *message.mutable_topology()->add_hosts();
  other.set_num_devices(2);
  other.add_device_memory_bytes(7);
  other.add_device_memory_bytes(8);
  const auto request = Decode(message);
  ASSERT_TRUE(request.ok()) << Message(request.status());
  ASSERT_EQ(request->topology.num_ranks(), 10);
  EXPECT_EQ(request->topology.devices[4], (Device{1, 1 << 30}));
  EXPECT_EQ(request->topology.devices[9], (Device{2, 8}));
}

TEST(EncodePlanRequestTest, DecodesToTheSameRequest) {
  v1::ShardPlanRequest message = GoodRequest();
  message.set_request_id("launch 7");
  message.set_global_batch_size(4096);
  message.set_optimizer("rowwise_adagrad");
  message.set_pipeline_type("none");
  message.mutable_memory()->set_rule("weights_only");
  message.mutable_memory()->set_reserve_fraction(0.125);
  message.mutable_memory()->set_reserve_bytes(99);
  message.mutable_cost_model()->set_name("cpu");
  message.mutable_cost_model()->set_version(3);
  v1::SearchOptions& search = *message.mutable_search();
  search.set_strategy("random");
  search.set_beam_width(5);
  search.set_num_candidates(6);
  search.set_max_length(0);
  search.set_search_steps(8);
  search.set_time_budget_ms(0);
  search.set_seed(std::numeric_limits<std::uint64_t>::max());
  search.set_max_threads(7);
  search.set_refine_steps(0);
  search.set_explain(true);
  search.mutable_distributed_embeddings()->set_column_slice_threshold_elements(5);
  search.mutable_distributed_embeddings()->set_data_parallel_threshold_elements(6);
  search.mutable_distributed_embeddings()->set_gpu_embedding_size_elements(7);
  search.mutable_hugectr()->set_bandwidth_ratio(67);
  search.mutable_hugectr()->set_work_ratio(0.5);
  search.mutable_hugectr()->set_data_parallel_threshold_gb(0.0125);
  search.mutable_hugectr()->set_iterations(3);
  search.mutable_hugectr()->set_hierarchical(true);
  message.mutable_topology()->mutable_bandwidths()->set_inter_host_bytes_per_s(25e9);
  v1::Table& table = *message.mutable_tables(2);
  table.set_weight_dtype("bf16");
  table.set_pooling_mode("mean");
  table.set_weighted(true);
  table.add_features("f");
  table.add_batch_pooling_factors(3);
  message.mutable_search()->set_strategy("refine");
  message.mutable_search()->set_objective("mean_of_max");
  table.set_module("sparse.ebc");
  message.mutable_topology()->mutable_hosts(0)->set_count(2);
  v1::HostGroup& other = *message.mutable_topology()->add_hosts();
  other.set_num_devices(2);
  other.add_device_memory_bytes(7);
  other.add_device_memory_bytes(8);
  other.set_host_memory_bytes(1000);
  other.set_max_host_memory_bytes_per_device(600);
  other.set_compute_speed(1.5);
  other.set_ssd_bytes(5000);
  other.set_max_ssd_bytes_per_device(2500);
  message.mutable_topology()->mutable_bandwidths()->set_ssd_bytes_per_s(7e9);
  message.mutable_tables(0)->set_max_l1_cache_bytes(0);
  message.mutable_tables(0)->set_l2_cache_bytes(64);
  message.mutable_tables(0)->set_allocated_rows(1 << 20);
  message.mutable_tables(0)->set_extra_bytes_per_row(24);
  message.mutable_tables(0)->set_optimizer("adam");
  message.mutable_tables(0)->set_stash_weights(true);
  message.mutable_memory()->set_dense_bytes(77);
  message.mutable_topology()->mutable_bandwidths()->set_host_to_device_bytes_per_s(55e9);
  message.mutable_topology()->mutable_bandwidths()->set_host_memory_bytes_per_s(300e9);
  message.mutable_topology()->set_pod_size(3);
  table.set_output_dtype("fp16");
  table.add_num_poolings(1.5);
  table.add_feature_batch_sizes(512);
  message.set_pipeline_type("train_sparse_dist");
  message.mutable_quantized_comms()->set_backward_dtype("int8");
  other.set_device("a100-sxm-80gb");
  v1::DeviceCostModel& of_device = *message.add_device_cost_models();
  of_device.set_device("NVIDIA A100-SXM4-80GB");
  of_device.mutable_cost_model()->set_name("a100");
  of_device.mutable_cost_model()->set_version(2);
  v1::TableRule& rule = *message.mutable_constraints()->add_tables();
  rule.add_tables(message.tables(0).name());
  rule.add_compute_kernels("fused_uvm_caching");
  rule.add_compute_kernels("key_value");
  rule.set_cache_load_factor(0.25);
  const auto request = Decode(message);
  ASSERT_TRUE(request.ok()) << Message(request.status());
  EXPECT_THAT(request->topology.host_memory_bytes, ElementsAre(0, 0, 1000));
  EXPECT_THAT(request->topology.ssd_bytes, ElementsAre(0, 0, 5000));
  EXPECT_EQ(request->topology.devices.back().max_ssd_bytes, 2500);
  EXPECT_EQ(request->topology.bandwidths.ssd_bytes_per_s, 7e9);
  EXPECT_EQ(request->tables[0].max_l1_cache_bytes, 0);
  EXPECT_EQ(request->tables[0].l2_cache_bytes, 64);
  EXPECT_EQ(request->tables[0].allocated_rows, 1 << 20);
  EXPECT_EQ(request->tables[0].extra_bytes_per_row, 24);
  EXPECT_EQ(request->tables[0].optimizer, Optimizer::kAdam);
  EXPECT_TRUE(request->tables[0].stash_weights);
  EXPECT_EQ(request->memory.dense_bytes, 77);

  const v1::ShardPlanRequest encoded = EncodePlanRequest(*request);

  EXPECT_EQ(encoded.topology().hosts_size(), 2);
  EXPECT_EQ(request->device_cost_models,
            (std::vector<DeviceCostModel>{{"a100-sxm-80gb", {"a100", 2}}}));
  EXPECT_EQ(request->pipeline_type, PipelineType::kTrainSparseDist);
  EXPECT_EQ(request->tables[2].batch_pooling_factors, std::vector<double>{3});
  EXPECT_EQ(request->search.hugectr.iterations, 3);
  EXPECT_EQ(request->search.objective, PlanObjective::kMeanOfMax);
  EXPECT_EQ(request->topology.bandwidths.inter_host_bytes_per_s, 25e9);
  const auto again = Decode(encoded);
  ASSERT_TRUE(again.ok()) << Message(again.status());
  EXPECT_EQ(*again, *request);
}

// Requests of before tables had kinds, modules their own names, and features their own pooling
// factors: configs/workloads of then, and one with every field.
TEST(EarlierRequestsTest, AreValidAndKeepTheirFingerprints) {
  const std::string dir = NEUROSHARD_SOURCE_DIR "/common/codec/testdata/earlier_requests/";
  const std::map<std::string, std::string> fingerprints = {
      {"constraints_2x4", "029f2048d2075bdecb509b2c9fb5d8bcd167b8348f7c7ffe36b3f337b0a2eebd"},
      {"distributed_embeddings_tiny_8",
       "39354364ffd559db16fb19bcd792c9abc3f736c482cade41ad36c8d4f9e705b1"},
      {"mlperf_dlrm_dcnv2_8x80gb",
       "d8b11547623aaa3c34fe8cece415b35f50af84ca0331fbcc3be5e2dada519494"},
      {"quickstart_2x2gib", "ddcc00e8e2d56a9da810fb333f4fffe6303c0221424a203f28a30a818dcaec9f"},
      {"warm_start_4x16gib", "663c10ff6bb4959bee2c656f609df483c8634d87c4000c14adce4ce7980e661a"},
      // Names a previous plan's table without its module, which it has now.
      {"every_field", ""}};
  std::size_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(dir)) {
    SCOPED_TRACE(file.path());
    const auto text = ReadTextFile(file.path().string());
    ASSERT_TRUE(text.ok()) << Message(text.status());
    v1::ShardPlanRequest message;
    const Status parsed = ParseMessageText(*text, TextFormat::kYaml, &message);
    ASSERT_TRUE(parsed.ok()) << Message(parsed);
    const auto request = Decode(message);
    ASSERT_TRUE(request.ok()) << Message(request.status());
    const std::string& fingerprint = fingerprints.at(file.path().stem().string());
    if (!fingerprint.empty()) {
      EXPECT_EQ(RequestFingerprint(*request, "model", 3), fingerprint);
    }
    ++files;
  }
  EXPECT_EQ(files, fingerprints.size());
}

TEST(TableIdentityTest, ModulesMayOwnTablesOfOneName) {
  v1::ShardPlanRequest message = GoodRequest(3);
  message.mutable_tables(0)->set_module("user");
  message.mutable_tables(1)->set_module("item");
  message.mutable_tables(0)->set_name("id");
  message.mutable_tables(1)->set_name("id");
  v1::TableRule& rule = *message.mutable_constraints()->add_tables();
  rule.add_tables("item.id");
  rule.add_tables("table_2");
  rule.set_max_shards(1);
  v1::Plan& previous = *message.mutable_migration()->mutable_previous();
  for (const char* module : {"item", "user"}) {
    v1::TablePlan& entry = *previous.add_tables();
    entry.set_name("id");
    entry.set_module(module);
    entry.set_sharding_type("table_wise");
    entry.set_compute_kernel("fused");
    entry.add_shards()->set_rows(1);
    entry.mutable_shards(0)->set_cols(4);
  }
  const auto request = Decode(message);
  ASSERT_TRUE(request.ok()) << Message(request.status());
  EXPECT_THAT(request->constraints.tables[0].tables, ElementsAre(1, 2));
  const auto again = Decode(EncodePlanRequest(*request));
  ASSERT_TRUE(again.ok()) << Message(again.status());
  EXPECT_EQ(again->constraints, request->constraints);
  EXPECT_EQ(again->migration, request->migration);

  rule.set_tables(0, "id");
  EXPECT_THAT(Violations::FromStatus(Decode(message).status()),
              ElementsAre(Violation{"constraints.tables[0].tables[0]",
                                    "names several tables of the request (\"user.id\", "
                                    "\"item.id\"), got \"id\""}));
  rule.set_tables(0, "item.id");
  message.mutable_tables(1)->set_module("user");
  EXPECT_THAT(
      Violations::FromStatus(Decode(message).status()),
      testing::Contains(Violation{
          "tables[1].name", "must be unique, got \"user.id\", which is also tables[0].name"}));
}

TEST(TableIdentityTest, APreviousPlansEntriesGetTheNamesOfTheirTables) {
  v1::ShardPlanRequest message = GoodRequest(2);
  message.mutable_tables(0)->set_module("sparse.ebc");
  for (const char* name : {"table_0", "gone"}) {
    v1::TablePlan& entry = *message.mutable_migration()->mutable_previous()->add_tables();
    entry.set_name(name);
    entry.set_module("model.sparse.ebc");
    entry.set_sharding_type("table_wise");
    entry.set_compute_kernel("fused");
    entry.add_shards()->set_rows(1);
    entry.mutable_shards(0)->set_cols(4);
  }
  const auto request = Decode(message);
  ASSERT_TRUE(request.ok()) << Message(request.status());
  EXPECT_EQ(request->migration->previous.tables[0].module, "sparse.ebc");
  EXPECT_EQ(request->migration->previous.tables[1].module, "model.sparse.ebc");
}

TEST(TableKindTest, AnUnpooledTableHasNoPoolingModeAndNoWeights) {
  v1::ShardPlanRequest message = GoodRequest(2);
  message.mutable_tables(1)->set_kind("embedding");
  const auto request = Decode(message);
  ASSERT_TRUE(request.ok()) << Message(request.status());
  EXPECT_EQ(request->tables[0].kind, TableKind::kEmbeddingBag);
  EXPECT_EQ(request->tables[1].kind, TableKind::kEmbedding);
  EXPECT_THAT(request->warnings, IsEmpty());
  EXPECT_EQ(Decode(EncodePlanRequest(*request))->tables, request->tables);
  message.mutable_tables(1)->set_pooling_mode("sum");
  message.mutable_tables(1)->set_weighted(true);
  message.mutable_tables(0)->set_kind("sequence");
  EXPECT_THAT(FaultyFields(Decode(message).status()),
              ElementsAre("tables[0].kind", "tables[1].pooling_mode", "tables[1].weighted"));
}

TEST(BatchPoolingFactorsTest, AMeanFarFromThePoolingFactorIsSaid) {
  v1::ShardPlanRequest message = GoodRequest(2);
  for (v1::Table& table : *message.mutable_tables()) table.set_pooling_factor(10);
  for (const double ids : {5, 16}) message.mutable_tables(0)->add_batch_pooling_factors(ids);
  EXPECT_THAT(Decode(message)->warnings, IsEmpty()) << "two batches of many stray";
  for (const double ids : {50, 160}) message.mutable_tables(1)->add_batch_pooling_factors(ids);
  EXPECT_THAT(Decode(message)->warnings,
              ElementsAre(HasSubstr("the mean of batch_pooling_factors is not pooling_factor")));
}

TEST(PoolingFactorsTest, AreOneAFeatureAndSumToThePoolingFactor) {
  v1::ShardPlanRequest message = GoodRequest(1);
  v1::Table& table = *message.mutable_tables(0);
  table.add_features("f");
  table.add_features("g");
  table.add_pooling_factors(0.5);
  table.add_pooling_factors(2.0000001);
  auto request = Decode(message);
  ASSERT_TRUE(request.ok()) << Message(request.status());
  EXPECT_EQ(request->tables[0].pooling_factor, 2.5);
  EXPECT_THAT(request->tables[0].pooling_factors, ElementsAre(0.5, 2.0000001));
  EXPECT_EQ(Decode(EncodePlanRequest(*request))->tables, request->tables);
  table.set_pooling_factors(1, 2.00001);
  EXPECT_THAT(FaultyFields(Decode(message).status()), ElementsAre("tables[0].pooling_factor"));
  table.clear_pooling_factor();
  request = Decode(message);
  ASSERT_TRUE(request.ok()) << Message(request.status());
  EXPECT_EQ(request->tables[0].pooling_factor, 2.50001);
  EXPECT_THAT(request->warnings, IsEmpty());
  table.set_pooling_factors(1, kNan);
  EXPECT_THAT(FaultyFields(Decode(message).status()), ElementsAre("tables[0].pooling_factors[1]"));
  table.mutable_pooling_factors()->Truncate(1);
  EXPECT_THAT(FaultyFields(Decode(message).status()), ElementsAre("tables[0].pooling_factors"));
  table.set_pooling_factors(0, 9e5);
  table.add_pooling_factors(9e5);
  EXPECT_THAT(FaultyFields(Decode(message).status()), ElementsAre("tables[0].pooling_factors"));
}

// Ids of a batch: 2 x 3 x 1024 of f and 0.5 x 4 x 4096 of g.
TEST(PoolingFactorsTest, AreOfABagAndThePoolingFactorOfASample) {
  v1::ShardPlanRequest message = GoodRequest(1);
  message.set_global_batch_size(2048);
  v1::Table& table = *message.mutable_tables(0);
  table.clear_pooling_factor();
  for (const char* feature : {"f", "g"}) table.add_features(feature);
  for (const double of_bag : {2.0, 0.5}) table.add_pooling_factors(of_bag);
  for (const double bags : {3.0, 4.0}) table.add_num_poolings(bags);
  EXPECT_EQ(Decode(message)->tables[0].pooling_factor, 8);
  for (const int samples : {1024, 4096}) table.add_feature_batch_sizes(samples);
  auto request = Decode(message);
  ASSERT_TRUE(request.ok()) << Message(request.status());
  EXPECT_EQ(request->tables[0].pooling_factor, 7);
  EXPECT_EQ(Decode(EncodePlanRequest(*request))->tables, request->tables);
  table.set_pooling_factor(2.5);
  EXPECT_THAT(Message(Decode(message).status()),
              HasSubstr("must be the sum of pooling_factors over a sample's bags, 7, got 2.5"));

  // Alone it is of a sample too, and bags are alike: 7 x 2048 ids in 3 x 1024 + 4 x 4096 bags.
  table.clear_pooling_factors();
  table.set_pooling_factor(7);
  request = Decode(message);
  ASSERT_TRUE(request.ok()) << Message(request.status());
  EXPECT_EQ(request->tables[0].pooling_factor, 7);
  EXPECT_THAT(request->tables[0].pooling_factors,
              ElementsAre(DoubleEq(7.0 * 2 / 19), DoubleEq(7.0 * 2 / 19)));
  EXPECT_EQ(Decode(EncodePlanRequest(*request))->tables, request->tables);
  table.set_num_poolings(0, 0);
  table.set_num_poolings(1, 0);
  EXPECT_THAT(FaultyFields(Decode(message).status()), ElementsAre("tables[0].num_poolings"));
  table.mutable_num_poolings()->Truncate(1);
  EXPECT_THAT(FaultyFields(Decode(message).status()), ElementsAre("tables[0].num_poolings"));
}

TEST(ComputeDeviceTest, IsAWord) {
  v1::ShardPlanRequest message = GoodRequest(1);
  EXPECT_EQ(Decode(message)->topology.compute_device, std::nullopt);
  message.mutable_topology()->set_compute_device("cpu");
  const auto request = Decode(message);
  EXPECT_EQ(request->topology.compute_device, ComputeDevice::kCpu);
  EXPECT_EQ(Decode(EncodePlanRequest(*request))->topology, request->topology);
  message.mutable_topology()->set_compute_device("tpu");
  EXPECT_THAT(FaultyFields(Decode(message).status()), ElementsAre("topology.compute_device"));
}

// The devices of hosts come from the table that is compiled in (common/devices).
class NamedDeviceTest : public ::testing::Test {
 protected:
  NamedDeviceTest() : message_(GoodRequest(1)) {
    host_->set_device("h100-sxm");
    host_->clear_memory_bytes();
    host_->set_count(2);
  }

  Topology DecodedTopology() {
    const auto request = Decode(message_);
    EXPECT_TRUE(request.ok()) << Message(request.status());
    return request.ok() ? request->topology : Topology();
  }

  v1::ShardPlanRequest message_;
  v1::HostGroup* host_ = message_.mutable_topology()->mutable_hosts(0);
};

TEST_F(NamedDeviceTest, GivesMemoryBandwidthsAndLinks) {
  const Topology topology = DecodedTopology();
  const PublishedDevice& h100 = *FindDevice("h100-sxm");
  ASSERT_EQ(topology.num_ranks(), 8);
  EXPECT_EQ(topology.devices[7], (Device{1, h100.memory_bytes, "h100-sxm"}));
  EXPECT_EQ(topology.bandwidths,
            (Bandwidths{h100.memory_bytes_per_s, h100.fabric->intra_host.bytes_per_s,
                        h100.fabric->inter_host.bytes_per_s}));
  EXPECT_EQ(topology.fabric, h100.fabric);
  EXPECT_THAT(Decode(message_)->warnings, IsEmpty());
  EXPECT_EQ(Decode(EncodePlanRequest(*Decode(message_)))->topology, topology);
}

TEST_F(NamedDeviceTest, WhatTheRequestStatesWins) {
  host_->set_memory_bytes(7);
  v1::Bandwidths& stated = *message_.mutable_topology()->mutable_bandwidths();
  stated.set_device_memory_bytes_per_s(5e9);
  stated.set_inter_host_bytes_per_s(6e9);
  const Topology topology = DecodedTopology();
  const double intra = FindDevice("h100-sxm")->fabric->intra_host.bytes_per_s;
  EXPECT_EQ(topology.devices[0].memory_bytes, 7);
  EXPECT_EQ(topology.bandwidths, (Bandwidths{5e9, intra, 6e9}));
  EXPECT_EQ(topology.fabric->inter_host.bytes_per_s, 6e9);
  EXPECT_EQ(topology.fabric->intra_host.bytes_per_s, intra);
  EXPECT_EQ(Decode(EncodePlanRequest(*Decode(message_)))->topology, topology);
  for (const int bytes : {1, 2, 3, 4}) host_->add_device_memory_bytes(bytes);
  EXPECT_EQ(DecodedTopology().devices[6], (Device{1, 3, "h100-sxm"}));
}

TEST_F(NamedDeviceTest, AnUnknownNameIsOneFaultThatNamesTheNearest) {
  host_->set_device("h100-smx");
  const Status status = Decode(message_).status();
  EXPECT_THAT(FaultyFields(status), ElementsAre("topology.hosts[0].device"));
  EXPECT_THAT(Message(status), HasSubstr("did you mean h100-sxm?"));
  host_->set_device("h100-sxm");
  host_->set_memory_bytes(-1);
  EXPECT_THAT(FaultyFields(Decode(message_).status()),
              ElementsAre("topology.hosts[0].memory_bytes"));
}

TEST_F(NamedDeviceTest, ADriversNameIsTheDevices) {
  host_->set_device("NVIDIA H100 80GB HBM3");
  EXPECT_EQ(DecodedTopology().devices[0].name, "h100-sxm");
}

TEST_F(NamedDeviceTest, UnlikeDevicesArePricedByTheSlowestAndKeepTheirMemory) {
  v1::HostGroup& old = *message_.mutable_topology()->add_hosts();
  old.set_device("t4");
  old.set_num_devices(1);
  const Topology topology = DecodedTopology();
  const PublishedDevice& t4 = *FindDevice("t4");
  EXPECT_EQ(topology.devices.back().memory_bytes, t4.memory_bytes);
  EXPECT_EQ(topology.bandwidths,
            (Bandwidths{t4.memory_bytes_per_s, t4.fabric->intra_host.bytes_per_s,
                        t4.fabric->inter_host.bytes_per_s}));
  EXPECT_THAT(Decode(message_)->warnings, ElementsAre(HasSubstr("name h100-sxm, t4: ")));
  // Whichever comes first.
  message_.mutable_topology()->mutable_hosts()->SwapElements(0, 1);
  EXPECT_EQ(DecodedTopology().bandwidths, topology.bandwidths);
  old.clear_device();
}

TEST_F(NamedDeviceTest, ADeviceWithoutLinksHasTorchRecsAndSaysSo) {
  host_->set_device("mi300x");
  const Topology topology = DecodedTopology();
  EXPECT_FALSE(topology.fabric.has_value());
  EXPECT_EQ(topology.bandwidths,
            (Bandwidths{FindDevice("mi300x")->memory_bytes_per_s,
                        Bandwidths().intra_host_bytes_per_s, Bandwidths().inter_host_bytes_per_s}));
  EXPECT_THAT(Decode(message_)->warnings, ElementsAre(HasSubstr("no links of mi300x")));
  message_.mutable_topology()->mutable_bandwidths()->set_intra_host_bytes_per_s(1e11);
  message_.mutable_topology()->mutable_bandwidths()->set_inter_host_bytes_per_s(1e10);
  EXPECT_THAT(Decode(message_)->warnings, IsEmpty());
}

}  // namespace
}  // namespace neuroshard
