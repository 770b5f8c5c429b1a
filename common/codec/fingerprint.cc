#include "common/codec/fingerprint.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

namespace neuroshard {
namespace {

// Bytes to hash. Everything has a fixed width or its length in front, so that no two requests give
// the same bytes.
class CanonicalBytes {
 public:
  void Integer(std::uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) bytes_ += static_cast<char>(value >> shift & 0xFF);
  }
  void Integer(std::int64_t value) { Integer(static_cast<std::uint64_t>(value)); }
  void Integer(int value) { Integer(std::int64_t{value}); }
  // -0.0 and 0.0 mean the same.
  void Real(double value) { Integer(std::bit_cast<std::uint64_t>(value == 0 ? 0.0 : value)); }
  void Text(std::string_view text) {
    Integer(static_cast<std::uint64_t>(text.size()));
    bytes_ += text;
  }

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

void Append(const Table& table, CanonicalBytes& out) {
  out.Text(table.name);
  out.Text(table.module);
  out.Integer(table.num_embeddings);
  out.Integer(table.embedding_dim);
  out.Real(table.pooling_factor);
  for (const double share : table.reuse_histogram) out.Real(share);
  out.Text(ToText(table.weight_dtype));
  out.Text(ToText(table.pooling_mode));
  out.Integer(int{table.weighted});
  out.Integer(static_cast<std::uint64_t>(table.features.size()));
  for (const std::string& feature : table.features) out.Text(feature);
}

void Append(const SearchOptions& search, CanonicalBytes& out) {
  out.Text(search.strategy);
  out.Integer(search.beam_width);
  out.Integer(search.num_candidates);
  out.Integer(search.max_length);
  out.Integer(search.search_steps);
  out.Integer(std::int64_t{search.time_budget ? search.time_budget->count() : -1});
  out.Integer(search.seed);
}

std::string Sha256Hex(const std::string& bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int length = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_sha256(), nullptr);
  std::string hex;
  for (unsigned int i = 0; i < length; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

}  // namespace

std::string RequestFingerprint(const PlanRequest& request, std::string_view model_name,
                               int model_version) {
  CanonicalBytes out;
  out.Text("neuroshard-request/1");
  std::vector<const Table*> tables;
  for (const Table& table : request.tables) tables.push_back(&table);
  std::sort(tables.begin(), tables.end(),
            [](const Table* a, const Table* b) { return a->name < b->name; });
  out.Integer(static_cast<std::uint64_t>(tables.size()));
  for (const Table* table : tables) Append(*table, out);
  out.Integer(static_cast<std::uint64_t>(request.topology.devices.size()));
  for (const Device& device : request.topology.devices) {
    out.Integer(device.host);
    out.Integer(device.memory_bytes);
  }
  out.Integer(request.global_batch_size);
  out.Text(ToText(request.optimizer));
  out.Text(ToText(request.memory.rule));
  out.Real(request.memory.reserve_fraction);
  out.Integer(request.memory.reserve_bytes);
  Append(request.search, out);
  out.Text(model_name);
  out.Integer(model_version);
  return Sha256Hex(out.bytes());
}

}  // namespace neuroshard
