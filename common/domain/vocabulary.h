// The closed vocabularies of requests, models and measurements, with their spelling.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/positions.h"
#include "common/base/similar_word.h"

namespace neuroshard {

// Type of stored weights, of looked-up vectors, and of values on the wire.
enum class DataType { kFp32, kFp16, kBf16, kFp8, kInt8, kInt4, kInt2 };
// Pooling of a bag's rows into one vector. kNone: every id gives a vector of its own; of measured
// shards only, since a request's Table says so by its kind.
enum class PoolingMode { kSum, kMean, kNone };
// Whether a sample's ids are pooled into a vector for each feature (TorchRec's
// EmbeddingBagCollection), or each gives one (EmbeddingCollection).
enum class TableKind { kEmbeddingBag, kEmbedding };
// Optimizer that is fused into the backward pass; it determines a table's state. kNone: there is no
// backward pass, as in serving.
enum class Optimizer {
  kSgd,
  kAdagrad,
  kRowwiseAdagrad,
  kAdam,
  kPartialRowwiseAdam,
  kLamb,
  kLarsSgd,
  kNone
};
// A trainer's pipeline (TorchRec's PipelineType): whether ids are distributed, and rows in host
// memory fetched into their cache, beside the batch before.
enum class PipelineType { kNone, kTrainSparseDist, kTrainPrefetchSparseDist };
// Rules for the memory of a shard (memory_use.h).
enum class MemoryRule { kFull, kWeightsOnly, kTorchRec };
// TorchRec's types, and last HugeCTR's: rows over some of the ranks (common/domain/shard_layout.h).
enum class ShardingType {
  kTableWise,
  kColumnWise,
  kRowWise,
  kTableRowWise,
  kTableColumnWise,
  kGridShard,
  kDataParallel,
  kRowWiseSubset
};
// kDense is for data_parallel alone, where the gradient is dense. Rows of kFusedUvm and
// kFusedUvmCaching are in host memory; the latter has a cache of some of them on the device. Those
// of kOffload are there too, and the host's CPU looks them up. Rows of kKeyValue are on the host's
// SSDs, behind a cache on the device. The dynamic ones are hash tables that grow (DynamicEmb): rows
// of kDynamicHybrid are on the device or in host memory, as their keys fall; those of
// kDynamicCaching are all in host memory, a share of them on the device as well.
enum class ComputeKernel {
  kFused,
  kDense,
  kFusedUvm,
  kFusedUvmCaching,
  kOffload,
  kKeyValue,
  kDynamicHybrid,
  kDynamicCaching
};
// Where the rows of a table are, the fastest first.
enum class MemoryTier { kDevice, kHost, kSsd };
// Positions of column cuts: anywhere on kColumnAlignment, or TorchRec's one block width a table.
enum class ColumnRule { kAny, kTorchRec };
// What the rows that row_wise gives a rank are in proportion to: its device's memory less the
// reserve, or its compute_speed.
enum class RowProportion { kMemory, kSpeed };
// What a trainer computes on.
enum class ComputeDevice { kCuda, kCpu };
// Direction of an all-to-all: pooled vectors forward, their gradients backward.
enum class CommDirection { kForward, kBackward };
// Collectives that a sharding type may need.
enum class Collective { kAllToAll, kReduceScatter, kAllGather, kAllReduce };

// Names of search strategies (server/search), the default first.
inline constexpr std::array<std::string_view, 11> kStrategyNames = {
    "refine",        "neuroshard",         "random", "size_greedy",     "dim_greedy",
    "lookup_greedy", "size_lookup_greedy", "basic",  "memory_balanced", "memory_optimized",
    "hugectr_auto"};
// The others reproduce searches that know of nothing but tables and memory: they refuse constraints
// and previous plans.
inline constexpr std::string_view kObeysConstraints = "refine";
// distributed-embeddings' and HugeCTR's: what limits TorchRec's trainer does not limit theirs.
constexpr bool IsOfAnotherTrainer(std::string_view strategy) {
  return strategy == "basic" || strategy == "memory_balanced" || strategy == "memory_optimized" ||
         strategy == "hugectr_auto";
}

// A value with its spelling in requests, files and answers.
template <typename E>
struct Word {
  E value;
  std::string_view text;
};

// kWords<E> lists every word of E once.
template <typename E>
inline constexpr int kWords = 0;
// Gives E its words, each as {kValue, "text"}.
#define NS_WORDS(E, ...)                          \
  template <>                                     \
  inline constexpr auto kWords<E> = [] {          \
    using enum E;                                 \
    return std::to_array<Word<E>>({__VA_ARGS__}); \
  }()

NS_WORDS(DataType, {kFp32, "fp32"}, {kFp16, "fp16"}, {kBf16, "bf16"}, {kFp8, "fp8"},
         {kInt8, "int8"}, {kInt4, "int4"}, {kInt2, "int2"});
NS_WORDS(PoolingMode, {kSum, "sum"}, {kMean, "mean"}, {kNone, "none"});
NS_WORDS(TableKind, {kEmbeddingBag, "embedding_bag"}, {kEmbedding, "embedding"});
NS_WORDS(Optimizer, {kSgd, "sgd"}, {kAdagrad, "adagrad"}, {kRowwiseAdagrad, "rowwise_adagrad"},
         {kAdam, "adam"}, {kPartialRowwiseAdam, "partial_rowwise_adam"}, {kLamb, "lamb"},
         {kLarsSgd, "lars_sgd"}, {kNone, "none"});
NS_WORDS(PipelineType, {kNone, "none"}, {kTrainSparseDist, "train_sparse_dist"},
         {kTrainPrefetchSparseDist, "train_prefetch_sparse_dist"});
NS_WORDS(MemoryRule, {kFull, "full"}, {kWeightsOnly, "weights_only"}, {kTorchRec, "torchrec"});
NS_WORDS(ShardingType, {kTableWise, "table_wise"}, {kColumnWise, "column_wise"},
         {kRowWise, "row_wise"}, {kTableRowWise, "table_row_wise"},
         {kTableColumnWise, "table_column_wise"}, {kGridShard, "grid_shard"},
         {kDataParallel, "data_parallel"}, {kRowWiseSubset, "row_wise_subset"});
NS_WORDS(ComputeKernel, {kFused, "fused"}, {kDense, "dense"}, {kFusedUvm, "fused_uvm"},
         {kFusedUvmCaching, "fused_uvm_caching"}, {kOffload, "offload"}, {kKeyValue, "key_value"},
         {kDynamicHybrid, "dynamic_hybrid"}, {kDynamicCaching, "dynamic_caching"});
NS_WORDS(MemoryTier, {kDevice, "device"}, {kHost, "host"}, {kSsd, "ssd"});
NS_WORDS(ColumnRule, {kAny, "any"}, {kTorchRec, "torchrec"});
NS_WORDS(RowProportion, {kMemory, "memory"}, {kSpeed, "speed"});
NS_WORDS(ComputeDevice, {kCuda, "cuda"}, {kCpu, "cpu"});
NS_WORDS(CommDirection, {kForward, "forward"}, {kBackward, "backward"});
NS_WORDS(Collective, {kAllToAll, "all_to_all"}, {kReduceScatter, "reduce_scatter"},
         {kAllGather, "all_gather"}, {kAllReduce, "all_reduce"});

template <typename E>
constexpr std::string_view ToText(E value) {
  for (const auto& word : kWords<E>) {
    if (word.value == value) return word.text;
  }
  return "?";
}

template <typename Values>
std::vector<std::string_view> ToTexts(const Values& values) {
  return Mapped<std::string_view>(values, [](const auto value) { return ToText(value); });
}

template <typename E>
constexpr std::optional<E> FromText(std::string_view text) {
  for (const auto& word : kWords<E>) {
    if (word.text == text) return word.value;
  }
  return std::nullopt;
}

// What is wrong with a text that spells no E: "must be one of sgd, adagrad, ...".
template <typename E>
std::string NotAWord(std::string_view text) {
  std::array<std::string_view, kWords<E>.size()> words;
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = kWords<E>[i].text;
  return NotOneOf(text, words);
}

// Whether TorchRec runs tables of the kind in this type (1.9.2, distributed/embedding.py: its
// sharder offers data_parallel for an EmbeddingCollection too, whose forward pass then fails).
constexpr bool IsTypeOf(TableKind kind, ShardingType type) {
  return kind == TableKind::kEmbeddingBag || type == ShardingType::kTableWise ||
         type == ShardingType::kColumnWise || type == ShardingType::kRowWise;
}

// Whether the ranks' numbers are added on the way.
constexpr bool Reduces(Collective collective) {
  return collective == Collective::kReduceScatter || collective == Collective::kAllReduce;
}

constexpr std::int64_t ElementBits(DataType type) {
  switch (type) {
    case DataType::kFp32:
      return 32;
    case DataType::kFp16:
    case DataType::kBf16:
      return 16;
    case DataType::kFp8:
    case DataType::kInt8:
      break;
    case DataType::kInt4:
      return 4;
    case DataType::kInt2:
      return 2;
  }
  return 8;
}

// A half or a quarter where a byte holds several values.
constexpr double ElementBytes(DataType type) { return static_cast<double>(ElementBits(type)) / 8; }

// Types on the wire that fp32 vectors are cast to one by one, as TorchRec's codecs of fp16 and bf16
// do it; those of fp8 and int8 have scales besides.
constexpr bool IsWireCast(DataType type) {
  return type == DataType::kFp16 || type == DataType::kBf16;
}

// A value for each memory, the fastest first.
template <typename T>
struct ByTier {
  std::array<T, kWords<MemoryTier>.size()> values;

  constexpr T& operator[](MemoryTier tier) { return At(values, tier); }
  constexpr const T& operator[](MemoryTier tier) const { return At(values, tier); }
  constexpr auto begin() const { return std::begin(values); }
  constexpr auto end() const { return std::end(values); }
  bool operator==(const ByTier&) const = default;
};
using TierBytes = ByTier<std::int64_t>;

// What is known of a kernel by itself.
struct KernelTraits {
  ComputeKernel kernel;
  MemoryTier tier;                 // where the rows are
  bool has_cache = false;          // on the device, of some of the rows: those of a load factor
  bool is_measurable = false;      // workers have it, as GPUs have
  bool only_where_listed = false;  // by a rule, or in place already: no search tries it unasked
  bool keeps_apart = false;        // no rank may have two shards of a table, whatever rules say
  bool is_dynamic = false;         // a hash table that grows, with keys on the device
};
inline constexpr std::array kKernelTraits = {
    KernelTraits{
        .kernel = ComputeKernel::kFused, .tier = MemoryTier::kDevice, .is_measurable = true},
    KernelTraits{.kernel = ComputeKernel::kDense, .tier = MemoryTier::kDevice},
    KernelTraits{
        .kernel = ComputeKernel::kFusedUvm, .tier = MemoryTier::kHost, .is_measurable = true},
    KernelTraits{.kernel = ComputeKernel::kFusedUvmCaching,
                 .tier = MemoryTier::kHost,
                 .has_cache = true,
                 .is_measurable = true},
    KernelTraits{
        .kernel = ComputeKernel::kOffload, .tier = MemoryTier::kHost, .only_where_listed = true},
    KernelTraits{.kernel = ComputeKernel::kKeyValue,
                 .tier = MemoryTier::kSsd,
                 .has_cache = true,
                 .only_where_listed = true,
                 .keeps_apart = true},
    KernelTraits{.kernel = ComputeKernel::kDynamicHybrid,
                 .tier = MemoryTier::kHost,
                 .has_cache = true,
                 .only_where_listed = true,
                 .is_dynamic = true},
    KernelTraits{.kernel = ComputeKernel::kDynamicCaching,
                 .tier = MemoryTier::kHost,
                 .has_cache = true,
                 .only_where_listed = true,
                 .is_dynamic = true}};
static_assert(kKernelTraits.size() == kWords<ComputeKernel>.size());
constexpr const KernelTraits& TraitsOf(ComputeKernel kernel) { return At(kKernelTraits, kernel); }

constexpr bool IsMeasurable(ComputeKernel kernel) { return TraitsOf(kernel).is_measurable; }
constexpr MemoryTier TierOf(ComputeKernel kernel) { return TraitsOf(kernel).tier; }
constexpr bool HasCache(ComputeKernel kernel) { return TraitsOf(kernel).has_cache; }
constexpr bool IsDynamic(ComputeKernel kernel) { return TraitsOf(kernel).is_dynamic; }

// Whether rows that go from one kernel to the other have to be copied, wherever their shards are:
// into another memory. Every count of what moves goes by it.
constexpr bool ChangesMemory(ComputeKernel before, ComputeKernel after) {
  return TierOf(before) != TierOf(after);
}

constexpr bool IsInHostMemory(ComputeKernel kernel) { return TierOf(kernel) == MemoryTier::kHost; }

// Whether no search puts a table in the memory unasked: every kernel there is only where listed.
constexpr bool IsOnlyWhereListed(MemoryTier tier) {
  return std::ranges::none_of(kKernelTraits, [tier](const KernelTraits& of) {
    return of.tier == tier && !of.only_where_listed;
  });
}

// Whether rows of the type can be on SSD (SSDTableBatchedEmbeddingBags of FBGEMM 1.9).
constexpr bool CanBeOnSsd(DataType dtype) {
  return dtype == DataType::kFp32 || dtype == DataType::kFp16;
}

}  // namespace neuroshard
