// The safetensors format: 8-byte little-endian length of a JSON header, the header, raw
// little-endian tensors. The README of this folder has it byte by byte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"

namespace neuroshard {

// A row-major tensor. An empty shape is a scalar (one value).
struct Tensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;

  bool operator==(const Tensor&) const = default;
};

// The content of a safetensors file.
struct TensorFile {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;  // __metadata__

  bool operator==(const TensorFile&) const = default;
};

// Treatment of NaN and infinities in reading.
enum class NonFinite { kRefuse, kKeep };

// Limits of reading; larger files and headers are refused.
struct TensorReadOptions {
  NonFinite non_finite = NonFinite::kRefuse;
  std::int64_t max_file_bytes = std::int64_t{1} << 30;
  std::int64_t max_header_bytes = std::int64_t{1} << 24;
};

// Parses a file; F64, F16 and BF16 become float. INVALID_ARGUMENT for anything but exactly one such
// file (bad lengths, bad JSON, duplicate keys, unknown types or keys, shapes and offsets that
// disagree, gaps, overlaps, trailing bytes, and NaN or infinite values unless kept); the message
// names `file_name` and the tensor. Memory is bounded by a small multiple of bytes.size().
StatusOr<TensorFile> ParseTensorFile(std::string_view bytes, std::string_view file_name,
                                     const TensorReadOptions& options = {});

// Reads a file. Errors are those of ParseTensorFile and ReadRegularFile.
StatusOr<TensorFile> ReadTensorFile(const std::filesystem::path& path,
                                    const TensorReadOptions& options = {});

// Writes all tensors as F32 in name order; equal values give equal bytes. INVALID_ARGUMENT when the
// number of values of a tensor is not its shape's, or its name is "__metadata__".
StatusOr<std::string> FormatTensorFile(const TensorFile& file);

// Writes a file by FormatTensorFile and WriteFileAtomically.
Status WriteTensorFile(const std::filesystem::path& path, const TensorFile& file);

}  // namespace neuroshard
