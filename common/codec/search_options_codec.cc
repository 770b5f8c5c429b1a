#include "common/codec/search_options_codec.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "common/codec/field_check.h"
#include "common/codec/field_limits.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kMaxTimeBudgetMs = 3'600'000;
constexpr std::int64_t kMaxSteps = std::int64_t{1} << 60;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 62;
constexpr double kMaxRatio = 1e6;

DistributedEmbeddingsOptions DecodeDistributedEmbeddings(
    const v1::DistributedEmbeddingsOptions& message, Violations& violations) {
  const FieldCheck check("search.distributed_embeddings", violations);
  DistributedEmbeddingsOptions options;
  if (message.has_column_slice_threshold_elements()) {
    options.column_slice_threshold_elements = message.column_slice_threshold_elements();
    check.InRange("column_slice_threshold_elements", *options.column_slice_threshold_elements, 1,
                  kMaxElements);
  }
  if (message.has_row_slice_threshold_elements()) {
    options.row_slice_threshold_elements = message.row_slice_threshold_elements();
    check.InRange("row_slice_threshold_elements", *options.row_slice_threshold_elements, 1,
                  kMaxElements);
  }
  if (message.has_data_parallel_threshold_elements()) {
    options.data_parallel_threshold_elements = message.data_parallel_threshold_elements();
    check.InRange("data_parallel_threshold_elements", *options.data_parallel_threshold_elements, 1,
                  kMaxElements);
  }
  if (message.has_gpu_embedding_size_elements()) {
    options.gpu_embedding_size_elements = message.gpu_embedding_size_elements();
    check.InRange("gpu_embedding_size_elements", *options.gpu_embedding_size_elements, 1,
                  kMaxElements);
  }
  return options;
}

HugeCtrOptions DecodeHugeCtr(const v1::HugeCtrOptions& message, Violations& violations) {
  const FieldCheck check("search.hugectr", violations);
  HugeCtrOptions options;
  if (message.has_bandwidth_ratio()) options.bandwidth_ratio = message.bandwidth_ratio();
  if (message.has_work_ratio()) options.work_ratio = message.work_ratio();
  if (message.has_data_parallel_threshold_gb()) {
    options.data_parallel_threshold_gb = message.data_parallel_threshold_gb();
  }
  if (message.has_iterations()) options.iterations = message.iterations();
  options.hierarchical = message.hierarchical();
  check.InRange("bandwidth_ratio", options.bandwidth_ratio, 1 / kMaxRatio, kMaxRatio);
  check.InRange("work_ratio", options.work_ratio, 1 / kMaxRatio, kMaxRatio);
  check.InRange("data_parallel_threshold_gb", options.data_parallel_threshold_gb, 0.0, kMaxRatio);
  check.InRange("iterations", std::int64_t{options.iterations}, 1, 100'000);
  return options;
}

}  // namespace

SearchOptions DecodeSearchOptions(const v1::SearchOptions& message, Violations& violations) {
  const FieldCheck check("search", violations);
  SearchOptions options;
  if (!message.strategy().empty()) {
    options.strategy = message.strategy();
    check.IsOneOf("strategy", message.strategy(), kStrategyNames);
  }
  if (message.has_beam_width()) options.beam_width = message.beam_width();
  if (message.has_num_candidates()) options.num_candidates = message.num_candidates();
  if (message.has_max_length()) options.max_length = message.max_length();
  if (message.has_search_steps()) options.search_steps = message.search_steps();
  if (message.has_max_threads()) options.max_threads = message.max_threads();
  check.InRange("beam_width", std::int64_t{options.beam_width}, 1, 64);
  check.InRange("num_candidates", std::int64_t{options.num_candidates}, 1, 1000);
  check.InRange("max_length", std::int64_t{options.max_length}, 0, 1000);
  check.InRange("search_steps", std::int64_t{options.search_steps}, 1, 101);
  check.InRange("max_threads", std::int64_t{options.max_threads}, 1, kMaxSearchThreads);
  if (message.has_time_budget_ms()) {
    check.InRange("time_budget_ms", message.time_budget_ms(), 0, kMaxTimeBudgetMs);
    options.time_budget = std::chrono::milliseconds(message.time_budget_ms());
  }
  if (message.has_refine_steps()) {
    check.InRange("refine_steps", message.refine_steps(), 0, kMaxSteps);
    options.refine_steps = message.refine_steps();
  }
  if (message.has_seed()) options.seed = message.seed();
  options.explain = message.explain();
  options.distributed_embeddings =
      DecodeDistributedEmbeddings(message.distributed_embeddings(), violations);
  options.hugectr = DecodeHugeCtr(message.hugectr(), violations);
  options.objective =
      check.WordOrDefault("objective", message.objective(), PlanObjective::kMaxOfMeans);
  if (options.objective == PlanObjective::kMeanOfMax && options.strategy != kObeysConstraints) {
    check.Fail("objective", fmt::format("'{}' does not know mean_of_max; '{}' does",
                                        options.strategy, kObeysConstraints));
  }
  return options;
}

v1::SearchOptions EncodeSearchOptions(const SearchOptions& options) {
  v1::SearchOptions message;
  message.set_strategy(options.strategy);
  message.set_beam_width(options.beam_width);
  message.set_num_candidates(options.num_candidates);
  message.set_max_length(options.max_length);
  message.set_search_steps(options.search_steps);
  if (options.time_budget) message.set_time_budget_ms(options.time_budget->count());
  if (options.seed) message.set_seed(*options.seed);
  message.set_max_threads(options.max_threads);
  if (options.refine_steps) message.set_refine_steps(*options.refine_steps);
  message.set_explain(options.explain);
  if (options.distributed_embeddings != DistributedEmbeddingsOptions{}) {
    v1::DistributedEmbeddingsOptions& peer = *message.mutable_distributed_embeddings();
    const DistributedEmbeddingsOptions& from = options.distributed_embeddings;
    if (from.column_slice_threshold_elements) {
      peer.set_column_slice_threshold_elements(*from.column_slice_threshold_elements);
    }
    if (from.row_slice_threshold_elements) {
      peer.set_row_slice_threshold_elements(*from.row_slice_threshold_elements);
    }
    if (from.data_parallel_threshold_elements) {
      peer.set_data_parallel_threshold_elements(*from.data_parallel_threshold_elements);
    }
    if (from.gpu_embedding_size_elements) {
      peer.set_gpu_embedding_size_elements(*from.gpu_embedding_size_elements);
    }
  }
  if (options.hugectr != HugeCtrOptions{}) {
    v1::HugeCtrOptions& peer = *message.mutable_hugectr();
    peer.set_bandwidth_ratio(options.hugectr.bandwidth_ratio);
    peer.set_work_ratio(options.hugectr.work_ratio);
    peer.set_data_parallel_threshold_gb(options.hugectr.data_parallel_threshold_gb);
    peer.set_iterations(options.hugectr.iterations);
    peer.set_hierarchical(options.hugectr.hierarchical);
  }
  if (options.objective != PlanObjective::kMaxOfMeans) {
    message.set_objective(std::string(ToText(options.objective)));
  }
  return message;
}

}  // namespace neuroshard
