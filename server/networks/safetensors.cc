#include "server/networks/safetensors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "common/base/float16.h"
#include "common/base/printable_text.h"
#include "server/networks/regular_file.h"

namespace neuroshard {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "tensors are copied as they are stored");

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kMaxRank = 8;
constexpr std::size_t kMaxNameBytes = 256;

template <typename Stored>
Stored Load(const char* bytes) {
  Stored value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// A type of values in a file.
struct StoredType {
  std::string_view name;
  std::uint64_t bytes;  // of a value
  float (*load)(const char* bytes);
};
constexpr StoredType kStoredTypes[] = {
    {"F64", 8, [](const char* bytes) { return static_cast<float>(Load<double>(bytes)); }},
    {"F32", 4, [](const char* bytes) { return Load<float>(bytes); }},
    {"F16", 2, [](const char* bytes) { return Fp16ToFloat(Load<std::uint16_t>(bytes)); }},
    {"BF16", 2, [](const char* bytes) { return Bf16ToFloat(Load<std::uint16_t>(bytes)); }}};

// Where a tensor is, as the header tells it.
struct Placement {
  std::string name;
  StoredType type{};
  std::vector<std::int64_t> shape;
  std::uint64_t count = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// A JSON object in which no object names a key twice: nlohmann alone would keep the last and hide
// the other.
StatusOr<Json> ParseHeader(std::string_view text) {
  std::vector<std::set<std::string>> keys;
  std::optional<std::string> repeated;
  const auto watch = [&](int /*depth*/, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys.back().insert(key).second) repeated = key;
    }
    return true;
  };
  Json header = Json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  if (header.is_discarded()) return InvalidArgument("the header is not valid JSON");
  if (!header.is_object()) return InvalidArgument("the header is not a JSON object");
  if (repeated) return InvalidArgument("the header has the key {} twice", Quoted(*repeated));
  return header;
}

// For messages. Lists and objects may be nested millions deep, and dump recurses.
std::string Shown(const Json& json) {
  if (json.is_structured()) return json.is_array() ? "a list" : "an object";
  return json.is_string() ? Quoted(json.get_ref<const std::string&>()) : json.dump(-1, ' ', true);
}

Status ParseMetadata(const Json& json, std::map<std::string, std::string>& metadata) {
  if (!json.is_object()) return InvalidArgument("__metadata__ is not an object");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      return InvalidArgument("__metadata__: the value of {} is not a string", Quoted(key));
    }
    metadata[key] = value.get<std::string>();
  }
  return absl::OkStatus();
}

Status ParseShape(const Json& json, Placement& placement) {
  if (!json.is_array()) return InvalidArgument("shape is not a list");
  if (json.size() > kMaxRank) {
    return InvalidArgument("shape has {} dimensions, more than the limit of {}", json.size(),
                           kMaxRank);
  }
  placement.count = 1;
  for (const Json& dimension : json) {
    if (!dimension.is_number_unsigned()) {
      return InvalidArgument("shape has {}, must be integers of at least 0", Shown(dimension));
    }
    const auto extent = dimension.get<std::uint64_t>();
    if (extent > INT64_MAX || __builtin_mul_overflow(placement.count, extent, &placement.count)) {
      return InvalidArgument("shape overflows: its number of values is not below 2^64");
    }
    placement.shape.push_back(static_cast<std::int64_t>(extent));
  }
  return absl::OkStatus();
}

Status ParseOffsets(const Json& json, std::uint64_t data_bytes, Placement& placement) {
  if (!json.is_array() || json.size() != 2 || !json[0].is_number_unsigned() ||
      !json[1].is_number_unsigned()) {
    return InvalidArgument("data_offsets must be two integers of at least 0");
  }
  placement.begin = json[0].get<std::uint64_t>();
  placement.end = json[1].get<std::uint64_t>();
  if (placement.begin > placement.end || placement.end > data_bytes) {
    return InvalidArgument("data_offsets [{}, {}] are not within the {} bytes of data",
                           placement.begin, placement.end, data_bytes);
  }
  std::uint64_t shape_bytes = 0;
  if (__builtin_mul_overflow(placement.count, placement.type.bytes, &shape_bytes) ||
      shape_bytes != placement.end - placement.begin) {
    return InvalidArgument("data_offsets hold {} bytes, its shape has {} values of {} bytes",
                           placement.end - placement.begin, placement.count, placement.type.bytes);
  }
  return absl::OkStatus();
}

// Names end up in messages and logs.
Status CheckName(const std::string& name) {
  const bool control = std::ranges::any_of(name, [](unsigned char c) { return c < ' '; });
  if (!name.empty() && name.size() <= kMaxNameBytes && !control && name != kMetadataKey) {
    return absl::OkStatus();
  }
  return InvalidArgument("its name must have 1 to {} bytes, no control characters, and not be {}",
                         kMaxNameBytes, kMetadataKey);
}

StatusOr<Placement> ParsePlacement(const std::string& name, const Json& json,
                                   std::uint64_t data_bytes) {
  Placement placement;
  placement.name = name;
  NS_RETURN_IF_ERROR(CheckName(name));
  if (!json.is_object()) return InvalidArgument("is not an object");
  for (const auto& [key, value] : json.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return InvalidArgument("unknown key {}", Quoted(key));
    }
  }
  if (json.size() != 3) return InvalidArgument("must have dtype, shape and data_offsets");
  const Json& dtype = json["dtype"];
  const auto type =
      std::find_if(std::begin(kStoredTypes), std::end(kStoredTypes), [&](const StoredType& stored) {
        return dtype.is_string() && dtype.get_ref<const std::string&>() == stored.name;
      });
  if (type == std::end(kStoredTypes)) {
    return InvalidArgument("dtype {} is not one of F64, F32, F16, BF16", Shown(dtype));
  }
  placement.type = *type;
  NS_RETURN_IF_ERROR(ParseShape(json["shape"], placement));
  NS_RETURN_IF_ERROR(ParseOffsets(json["data_offsets"], data_bytes, placement));
  return placement;
}

// The tensors cover the data from its first to its last byte, each byte once.
Status CheckCoverage(std::vector<Placement>& placements, std::uint64_t data_bytes) {
  std::ranges::sort(placements, [](const Placement& a, const Placement& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t covered = 0;
  for (const Placement& placement : placements) {
    if (placement.begin != covered) {
      return InvalidArgument("tensor {}: starts at byte {} of the data, the one before ends at {}",
                             Quoted(placement.name), placement.begin, covered);
    }
    covered = placement.end;
  }
  if (covered != data_bytes) {
    return InvalidArgument("{} bytes follow the last tensor", data_bytes - covered);
  }
  return absl::OkStatus();
}

StatusOr<Tensor> LoadTensor(const Placement& placement, std::string_view data,
                            NonFinite non_finite) {
  Tensor tensor{placement.shape, std::vector<float>(placement.count)};
  for (std::uint64_t i = 0; i < placement.count; ++i) {
    tensor.values[i] =
        placement.type.load(data.data() + placement.begin + i * placement.type.bytes);
    if (non_finite == NonFinite::kRefuse && !std::isfinite(tensor.values[i])) {
      return InvalidArgument("value {} is {}, must be finite", i, tensor.values[i]);
    }
  }
  return tensor;
}

StatusOr<TensorFile> Parse(std::string_view bytes, const TensorReadOptions& options) {
  if (bytes.size() < kLengthBytes) {
    return InvalidArgument("{} bytes, too short for the 8-byte header length", bytes.size());
  }
  const auto header_bytes = Load<std::uint64_t>(bytes.data());
  if (header_bytes > static_cast<std::uint64_t>(options.max_header_bytes)) {
    return InvalidArgument("header length {} is over the limit of {} bytes", header_bytes,
                           options.max_header_bytes);
  }
  if (header_bytes > bytes.size() - kLengthBytes) {
    return InvalidArgument("header length {} is past the end of the file ({} bytes)", header_bytes,
                           bytes.size());
  }
  NS_ASSIGN_OR_RETURN(const Json header, ParseHeader(bytes.substr(kLengthBytes, header_bytes)));
  const std::string_view data = bytes.substr(kLengthBytes + header_bytes);

  TensorFile file;
  std::vector<Placement> placements;
  for (const auto& [name, json] : header.items()) {
    if (name == kMetadataKey) {
      NS_RETURN_IF_ERROR(ParseMetadata(json, file.metadata));
      continue;
    }
    StatusOr<Placement> placement = ParsePlacement(name, json, data.size());
    if (!placement.ok()) return Annotate(placement.status(), "tensor " + Quoted(name));
    placements.push_back(*std::move(placement));
  }
  NS_RETURN_IF_ERROR(CheckCoverage(placements, data.size()));
  for (const Placement& placement : placements) {
    StatusOr<Tensor> tensor = LoadTensor(placement, data, options.non_finite);
    if (!tensor.ok()) return Annotate(tensor.status(), "tensor " + Quoted(placement.name));
    file.tensors.emplace(placement.name, *std::move(tensor));
  }
  return file;
}

bool ShapeHasCount(const Tensor& tensor) {
  std::uint64_t count = 1;
  for (const std::int64_t extent : tensor.shape) {
    if (extent < 0 || __builtin_mul_overflow(count, static_cast<std::uint64_t>(extent), &count)) {
      return false;
    }
  }
  return tensor.shape.size() <= kMaxRank && count == tensor.values.size();
}

}  // namespace

StatusOr<TensorFile> ParseTensorFile(std::string_view bytes, std::string_view file_name,
                                     const TensorReadOptions& options) {
  StatusOr<TensorFile> file = Parse(bytes, options);
  if (!file.ok()) return Annotate(file.status(), std::string(file_name));
  return file;
}

StatusOr<TensorFile> ReadTensorFile(const std::filesystem::path& path,
                                    const TensorReadOptions& options) {
  NS_ASSIGN_OR_RETURN(const std::string bytes, ReadRegularFile(path, options.max_file_bytes));
  return ParseTensorFile(bytes, path.string(), options);
}

StatusOr<std::string> FormatTensorFile(const TensorFile& file) {
  Json header = Json::object();
  if (!file.metadata.empty()) header[std::string(kMetadataKey)] = file.metadata;
  std::uint64_t offset = 0;
  for (const auto& [name, tensor] : file.tensors) {
    NS_RETURN_IF_ERROR(Annotate(CheckName(name), "tensor " + Quoted(name)));
    if (!ShapeHasCount(tensor)) {
      return InvalidArgument("tensor {}: its shape [{}] has not its {} values", Quoted(name),
                             fmt::join(tensor.shape, ", "), tensor.values.size());
    }
    const std::uint64_t end = offset + tensor.values.size() * sizeof(float);
    header[name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');  // aligns the data

  const std::uint64_t header_bytes = text.size();
  std::string bytes(reinterpret_cast<const char*>(&header_bytes), kLengthBytes);
  bytes += text;
  for (const auto& [name, tensor] : file.tensors) {
    bytes.append(reinterpret_cast<const char*>(tensor.values.data()),
                 tensor.values.size() * sizeof(float));
  }
  return bytes;
}

Status WriteTensorFile(const std::filesystem::path& path, const TensorFile& file) {
  StatusOr<std::string> bytes = FormatTensorFile(file);
  if (!bytes.ok()) return Annotate(bytes.status(), path.string());
  return WriteFileAtomically(path, *bytes);
}

}  // namespace neuroshard
