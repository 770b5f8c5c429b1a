// What a device's kernels have, as the words of messages that list it (v1.WorkerDevice).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/domain/vocabulary.h"
#include "kernels/api/embedding_op.h"

namespace neuroshard {

// Words that are no E are left out.
template <typename E, typename Texts>
std::vector<E> WordsIn(const Texts& texts) {
  std::vector<E> words;
  for (const std::string& text : texts) {
    if (const std::optional<E> word = FromText<E>(text)) words.push_back(*word);
  }
  return words;
}

// Into repeated fields weight_dtypes, optimizers, pooling_modes and compute_kernels, and from them.
template <typename Message>
void EncodeAbilities(const EmbeddingAbilities& abilities, Message* message) {
  for (const DataType type : abilities.weight_types) {
    message->add_weight_dtypes(std::string(ToText(type)));
  }
  for (const Optimizer optimizer : abilities.optimizers) {
    message->add_optimizers(std::string(ToText(optimizer)));
  }
  for (const PoolingMode mode : abilities.pooling_modes) {
    message->add_pooling_modes(std::string(ToText(mode)));
  }
  for (const ComputeKernel kernel : abilities.compute_kernels) {
    message->add_compute_kernels(std::string(ToText(kernel)));
  }
}

template <typename Message>
EmbeddingAbilities DecodeAbilities(const Message& message) {
  return {.weight_types = WordsIn<DataType>(message.weight_dtypes()),
          .optimizers = WordsIn<Optimizer>(message.optimizers()),
          .pooling_modes = WordsIn<PoolingMode>(message.pooling_modes()),
          .compute_kernels = WordsIn<ComputeKernel>(message.compute_kernels())};
}

}  // namespace neuroshard
