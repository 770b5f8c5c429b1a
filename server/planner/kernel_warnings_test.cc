#include <gmock/gmock.h>

#include <string>

#include "common/domain/backend_names.h"
#include "server/planner/table_warnings.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Optional;

CostModelInfo MeasuredWithBackend(std::string_view backend) {
  CostModelInfo model;
  model.measured_with.backend = backend;
  return model;
}

PlanRequest WithDims(std::initializer_list<std::int64_t> dims) {
  PlanRequest request;
  request.topology.devices.resize(2);
  for (const std::int64_t dim : dims) {
    Table& table = request.tables.emplace_back();
    table.name = "dim" + std::to_string(dim);
    table.num_embeddings = 100;
    table.embedding_dim = dim;
  }
  return request;
}

TEST(KernelWarningsTest, ATrainerIsOnCudaUnlessTheRequestOrItsModelSaysOtherwise) {
  Topology topology;
  topology.devices.resize(1);
  EXPECT_THAT(TrainsOn(topology, {}), Optional(ComputeDevice::kCuda));
  EXPECT_THAT(TrainsOn(topology, MeasuredWithBackend(kNeuroshardCpu)), Eq(std::nullopt));
  CostModelInfo fbgemm = MeasuredWithBackend("fbgemm");
  fbgemm.measured_with.device = "AMD EPYC 9654";
  EXPECT_THAT(TrainsOn(topology, fbgemm), Optional(ComputeDevice::kCpu));
  fbgemm.measured_with.device = "NVIDIA H100 80GB HBM3";
  EXPECT_THAT(TrainsOn(topology, fbgemm), Optional(ComputeDevice::kCuda));
  topology.devices[0].name = "h100-sxm";
  EXPECT_THAT(TrainsOn(topology, MeasuredWithBackend(kNeuroshardCpu)),
              Optional(ComputeDevice::kCuda));
  topology.compute_device = ComputeDevice::kCpu;
  EXPECT_THAT(TrainsOn(topology, {}), Optional(ComputeDevice::kCpu));
}

TEST(KernelWarningsTest, ARequestSaysWhatItTrainsOnOnlyWhereATableIsTooWideForThat) {
  EXPECT_THAT(WithTrainer(WithDims({2048, 5}), {}), Eq(std::nullopt));
  PlanRequest wide = WithDims({2052, 8});
  EXPECT_THAT(WithTrainer(wide, MeasuredWithBackend(kNeuroshardCpu)), Eq(std::nullopt));
  const auto with = WithTrainer(wide, {});
  ASSERT_TRUE(with.has_value());
  EXPECT_THAT(with->too_wide_tables(), ElementsAre(0));
  for (const char* strategy : {"basic", "memory_balanced", "memory_optimized", "hugectr_auto"}) {
    wide.search.strategy = strategy;
    EXPECT_THAT(WithTrainer(wide, {}), Eq(std::nullopt)) << strategy;
  }
}

TEST(KernelWarningsTest, NamesTheTablesWhoseColumnsHaveNoKernelOnAnyDevice) {
  PlanRequest request = WithDims({1, 2, 3, 4, 5, 8, 50, 4096});
  const auto names_ragged =
      AllOf(HasSubstr("multiple of 4"), HasSubstr("pad their embedding_dim"), HasSubstr("'dim1'"),
            HasSubstr("'dim2'"), HasSubstr("'dim3'"), HasSubstr("'dim5'"), HasSubstr("'dim50'"),
            Not(HasSubstr("'dim4'")), Not(HasSubstr("'dim8'")), Not(HasSubstr("'dim4096'")));
  EXPECT_THAT(KernelWarnings(request, {}),
              ElementsAre(AllOf(HasSubstr("FBGEMM on CUDA devices"), names_ragged)));
  request.topology.compute_device = ComputeDevice::kCpu;
  EXPECT_THAT(KernelWarnings(request, {}),
              ElementsAre(AllOf(HasSubstr("FBGEMM on CPUs"), names_ragged)));
  request.topology.compute_device.reset();
  EXPECT_THAT(KernelWarnings(request, MeasuredWithBackend(kNeuroshardCpu)), IsEmpty());
  request.search.strategy = "hugectr_auto";
  EXPECT_THAT(KernelWarnings(request, {}), IsEmpty());
}

TEST(KernelWarningsTest, NamesVectorsThatHaveNoKernel) {
  PlanRequest request = WithDims({8, 16});
  request.tables[0].output_dtype = DataType::kInt8;
  EXPECT_THAT(KernelWarnings(request, {}), IsEmpty());
  request.topology.compute_device = ComputeDevice::kCpu;
  EXPECT_THAT(KernelWarnings(request, {}),
              ElementsAre(AllOf(HasSubstr("FBGEMM on CPUs gives vectors of fp32, fp16, bf16 alone"),
                                HasSubstr("'dim8'"), Not(HasSubstr("'dim16'")))));
  request.tables[0].kind = TableKind::kEmbedding;
  for (const ComputeDevice device : {ComputeDevice::kCpu, ComputeDevice::kCuda}) {
    request.topology.compute_device = device;
    EXPECT_THAT(KernelWarnings(request, {}),
                ElementsAre(AllOf(HasSubstr("gives vectors of fp32, fp16, bf16"),
                                  HasSubstr("'dim8'"), Not(HasSubstr("'dim16'")))));
  }
}

TEST(KernelWarningsTest, NamesTablesWhoseBatchesTheOptimizerHasNoKernelFor) {
  PlanRequest request = WithDims({8, 16});
  request.tables[1].feature_batch_sizes = {64};
  for (const Optimizer optimizer :
       {Optimizer::kSgd, Optimizer::kRowwiseAdagrad, Optimizer::kAdam}) {
    request.optimizer = optimizer;
    EXPECT_THAT(KernelWarnings(request, {}), IsEmpty());
  }
  for (const Optimizer optimizer :
       {Optimizer::kAdagrad, Optimizer::kLamb, Optimizer::kPartialRowwiseAdam}) {
    request.optimizer = optimizer;
    EXPECT_THAT(
        KernelWarnings(request, {}),
        ElementsAre(AllOf(HasSubstr("sgd, rowwise_adagrad, adam alone"), HasSubstr("'dim16'"),
                          HasSubstr(ToText(optimizer)), Not(HasSubstr("'dim8'")))));
  }
}

TEST(KernelWarningsTest, NamesWeightsAndTheOptimizerThatHaveNoKernel) {
  PlanRequest request = WithDims({8, 16});
  request.optimizer = Optimizer::kAdam;
  for (const DataType dtype : {DataType::kInt4, DataType::kInt2, DataType::kBf16}) {
    request.tables[1].weight_dtype = dtype;
    EXPECT_THAT(KernelWarnings(request, {}),
                ElementsAre(AllOf(HasSubstr("fp32, fp16, fp8, int8 alone"), HasSubstr("'dim16'"),
                                  Not(HasSubstr("'dim8'")))));
  }
  request.optimizer = Optimizer::kNone;
  EXPECT_THAT(KernelWarnings(request, {}), IsEmpty()) << "limits are of training";
  request.optimizer = Optimizer::kAdam;
  request.topology.compute_device = ComputeDevice::kCpu;
  EXPECT_THAT(KernelWarnings(request, {}),
              ElementsAre(AllOf(HasSubstr("fp32, fp16 alone"), HasSubstr("'dim16'")),
                          HasSubstr("sgd, adagrad, rowwise_adagrad alone, not with adam")));
}

}  // namespace
}  // namespace neuroshard
