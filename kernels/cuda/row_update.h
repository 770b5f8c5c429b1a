// Backward, after the sort: sums the gradients of each row's occurrences and updates the row once.
//
// Entries in key order are cut into chunks of kChunk, one a group of lanes, so that all groups have
// the same work however often rows occur. A run of equal keys inside a chunk is summed and its row
// updated at once. A run that goes beyond its chunk leaves a partial sum in each chunk it touches;
// the partial sums, two a chunk at most, are the entries of the next level, and so on until one
// chunk is left. All sums are formed in one fixed order, nothing is atomic, nobody waits for
// another block: results do not depend on the launch, and a row that occurs 10^7 times costs five
// more short levels.
//
// Row-wise Adagrad, and optimizers with norms, need sums over all columns of a row, so the lanes of
// a row are a power of two within one warp and wide rows have several vectors a lane. The Group
// parameter is how the lanes of a row talk; on the host one lane has the whole row.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/domain/vocabulary.h"
#include "kernels/cuda/numbers.h"
#include "kernels/cuda/row_keys.h"

namespace neuroshard::cuda {

// The optimizers of embedding_op.h that keep a value for each weight, four columns at a time. Where
// a quotient has no value (0 / 0), it is 0.

// A value for each weight: momentum1.
constexpr bool HasMoments(Optimizer optimizer) {
  return optimizer != Optimizer::kSgd && optimizer != Optimizer::kRowwiseAdagrad;
}
// Another one for each weight: momentum2.
constexpr bool HasSecondMoments(Optimizer optimizer) {
  return optimizer == Optimizer::kAdam || optimizer == Optimizer::kLamb;
}
// One for each row.
constexpr bool HasRowState(Optimizer optimizer) {
  return optimizer == Optimizer::kRowwiseAdagrad || optimizer == Optimizer::kPartialRowwiseAdam;
}

// The optimizer at one step t, counted from 1.
struct UpdateStep {
  float learning_rate = 0;
  float epsilon = 0;
  Optimizer optimizer = Optimizer::kSgd;
  float beta1 = 0;
  float beta2 = 0;
  // 1 / (1 - beta1^t), 1 / (1 - beta2^t); 1 where there is nothing to correct.
  float inverse_correction1 = 1;
  float inverse_correction2 = 1;
  float eta = 0;
  float momentum = 0;
};

NS_DEVICE_CODE float SquareRoot(float value) {
#ifdef __CUDA_ARCH__
  return __fsqrt_rn(value);
#else
  return __builtin_sqrtf(value);
#endif
}

NS_DEVICE_CODE float Quotient(float value, float by) { return value == 0 ? 0 : value / by; }

// |a| / |b|, of sums of squares.
NS_DEVICE_CODE float NormRatio(float squares, float squares_below) {
  return squares_below > 0 ? SquareRoot(squares / squares_below) : 0;
}

NS_DEVICE_CODE Float4 Squares(Float4 v) { return {v.x * v.x, v.y * v.y, v.z * v.z, v.w * v.w}; }

NS_DEVICE_CODE Float4 FirstMoments(const UpdateStep& step, Float4 before, Float4 gradient) {
  return MultiplyAdd(step.beta1 * before, 1 - step.beta1, gradient);
}
NS_DEVICE_CODE Float4 SecondMoments(const UpdateStep& step, Float4 before, Float4 gradient) {
  return MultiplyAdd(step.beta2 * before, 1 - step.beta2, Squares(gradient));
}

// Adam's step before the learning rate; Adagrad's, of the gradient and its sum of squares.
NS_DEVICE_CODE float AdamStep(const UpdateStep& step, float first, float second) {
  return Quotient(first * step.inverse_correction1,
                  SquareRoot(second * step.inverse_correction2) + step.epsilon);
}
NS_DEVICE_CODE Float4 AdamStep(const UpdateStep& step, Float4 first, Float4 second) {
  return {AdamStep(step, first.x, second.x), AdamStep(step, first.y, second.y),
          AdamStep(step, first.z, second.z), AdamStep(step, first.w, second.w)};
}

inline constexpr std::int64_t kChunk = 32;
inline constexpr int kMaxVectorsPerLane = 16;
inline constexpr std::int64_t kMaxCols =
    std::int64_t{kWarp} * kMaxVectorsPerLane * kVector;  // what fits the widest group

// One table at one level of the backward pass.
struct UpdateTable {
  void* weights = nullptr;
  NumberType type = NumberType::kFp32;
  std::int32_t vectors = 0;  // of a row
  std::int32_t cols = 0;     // without padding
  float* state = nullptr;    // one a row, where the optimizer has any
  // One a weight, in rows of `vectors`, where the optimizer has any.
  float* momentum1 = nullptr;
  float* momentum2 = nullptr;
  std::uint32_t first_key = 0;
  // With a cache, as PoolTable's: weights are in slots; state is not.
  void* slots = nullptr;
  const std::uint32_t* slot_of_row = nullptr;

  std::int64_t entries = 0;
  const std::uint32_t* keys = nullptr;  // ascending
  // First level: the gradient of the output at the table's first column, and who needs which row of
  // it (PlainOccurrence or ScaledOccurrence). Later levels: partial sums, one an entry.
  const float* gradients = nullptr;
  std::int64_t gradient_stride = 0;      // floats
  const void* occurrences = nullptr;     // null: later level
  const std::uint8_t* filled = nullptr;  // later levels: 0 for entries without a partial sum

  // The entries of the next level, two a chunk. Null when there is one chunk.
  std::uint32_t* next_keys = nullptr;
  std::uint8_t* next_filled = nullptr;
  float* next_partials = nullptr;  // vectors * 4 floats each
};

// Entries that an update launch reads: occurrences of the first level, or partial sums.
enum class EntryKind { kPlain, kScaled, kPartial };

NS_DEVICE_CODE int UpdateLanes(std::int32_t vectors) {
  int lanes = 1;
  while (lanes < vectors && lanes < kWarp) lanes *= 2;
  return lanes;
}
NS_DEVICE_CODE int VectorsPerLane(std::int32_t vectors) { return (vectors + kWarp - 1) / kWarp; }
// Tables of up to so many vectors a lane have launches of their own.
constexpr int NarrowVectors(bool moments) { return moments ? 1 : 2; }
NS_DEVICE_CODE std::int64_t Chunks(std::int64_t entries) { return (entries + kChunk - 1) / kChunk; }

// Group: lane(), lanes(); Sum(x): the sum of x over the group, the same on all lanes; Agree():
// what the lanes read before it does not see what they write after it.
// Occurrence: void on later levels. kMoments: of an optimizer that has them; kCached: of tables with
// a cache. The others keep the registers to themselves.
template <typename Type, int kVectorsPerLane, typename Occurrence, bool kMoments, bool kCached,
          typename Group>
class ChunkUpdate {
 public:
  static constexpr bool kFirstLevel = !std::is_void_v<Occurrence>;
  // Whether a row is loaded with its last gradient; wide ones have no registers for that.
  static constexpr bool kRowAhead = kFirstLevel && kVectorsPerLane <= 2 && !kMoments;
  static constexpr int kInFlight = kVectorsPerLane == 1 ? 4 : kVectorsPerLane == 2 ? 2 : 1;

  NS_DEVICE_CODE ChunkUpdate(const UpdateTable& table, UpdateStep step, Group group)
      : table_(table), step_(step), group_(group) {}

  NS_DEVICE_CODE void Run(std::int64_t chunk) {
    const std::int64_t begin = chunk * kChunk;
    const std::int64_t end = begin + kChunk < table_.entries ? begin + kChunk : table_.entries;
    const std::uint32_t first = table_.keys[begin], last = table_.keys[end - 1];
    if constexpr (!kFirstLevel) {
      // Most rows end in the chunk where they begin, so most chunks of a later level are empty.
      if (!AnyFilled(begin, end)) return WriteNextEntries(chunk, first, last, false, false);
    }
    const bool from_before = begin > 0 && table_.keys[begin - 1] == first;
    const bool goes_on = end < table_.entries && table_.keys[end] == last;
    bool head_filled = false, tail_filled = false;

    Float4 sum[kVectorsPerLane];
    Clear(sum);
    bool any = false;
    Ahead ahead;
    LoadAhead(begin, &ahead);
    for (std::int64_t i = begin; i < end; i += kInFlight) {
      const Ahead now = ahead;
      const int count = end - i < kInFlight ? static_cast<int>(end - i) : kInFlight;
      bool closes[kInFlight], whole[kInFlight];
      Item item[kInFlight];
      NS_UNROLL
      for (int k = 0; k < kInFlight; ++k) {
        const std::uint32_t key = now.key[k];
        closes[k] = k < count && (i + k + 1 == end || now.key[k + 1] != key);
        whole[k] = closes[k] && !(from_before && key == first) && !(goes_on && key == last);
        Load(now, k, k < count, whole[k], i + k, &item[k]);
      }
      LoadAhead(i + kInFlight, &ahead);
      NS_UNROLL
      for (int k = 0; k < kInFlight; ++k) {
        if (item[k].filled) {
          Add(item[k], sum);
          any = true;
        }
        if (!closes[k]) continue;
        const std::uint32_t key = now.key[k];
        if (any && whole[k]) {
          Update(key, item[k], sum);
        } else if (any && from_before && key == first) {
          Store(2 * chunk, sum);
          head_filled = true;
        } else if (any) {
          Store(2 * chunk + 1, sum);
          tail_filled = true;
        }
        Clear(sum);
        any = false;
      }
    }
    WriteNextEntries(chunk, first, last, head_filled, tail_filled);
  }

 private:
  // What the next entries' loads depend on, itself loaded while those before are worked on; and the
  // key after them, which tells whether a run ends.
  struct Ahead {
    std::uint32_t key[kInFlight + 1];
    std::conditional_t<kFirstLevel, Occurrence, std::uint8_t> what[kInFlight];
  };
  // What is loaded for an entry before the first of several entries is worked on.
  struct Item {
    Float4 gradient[kVectorsPerLane];
    // NOLINTNEXTLINE(bugprone-branch-clone): the same where a lane has one vector
    typename Type::Raw weights[kRowAhead ? kVectorsPerLane : 1];
    float scale;
    float state;
    bool filled;
  };

  // Whether one of the entries has a partial sum. All are loaded at once: one trip to memory.
  NS_DEVICE_CODE bool AnyFilled(std::int64_t begin, std::int64_t end) const {
    std::uint8_t any = 0;
    NS_UNROLL
    for (int i = 0; i < kChunk; ++i) {
      if (begin + i < end) any |= table_.filled[begin + i];
    }
    return any != 0;
  }

  NS_DEVICE_CODE void WriteNextEntries(std::int64_t chunk, std::uint32_t first, std::uint32_t last,
                                       bool head_filled, bool tail_filled) const {
    if (table_.next_keys == nullptr || group_.lane() != 0) return;
    table_.next_keys[2 * chunk] = first;
    table_.next_keys[2 * chunk + 1] = last;
    table_.next_filled[2 * chunk] = head_filled ? 1 : 0;
    table_.next_filled[2 * chunk + 1] = tail_filled ? 1 : 0;
  }

  template <typename Visit>
  NS_DEVICE_CODE void ForVectors(Visit visit) const {
    NS_UNROLL
    for (int v = 0; v < kVectorsPerLane; ++v) {
      const int vector = group_.lane() + v * group_.lanes();
      visit(v, vector, vector < table_.vectors);
    }
  }

  // Visits the vectors with the code of a visit once: it takes minutes to compile sixteen times.
  template <typename Visit>
  NS_DEVICE_CODE void LoopOverVectors(Visit visit) const {
    NS_NO_UNROLL
    for (int v = 0; v < kVectorsPerLane; ++v) {
      const int vector = group_.lane() + v * group_.lanes();
      visit(v, vector, vector < table_.vectors);
    }
  }

  static NS_DEVICE_CODE void Clear(Float4 (&sum)[kVectorsPerLane]) {
    NS_UNROLL
    for (int v = 0; v < kVectorsPerLane; ++v) sum[v] = {0, 0, 0, 0};
  }

  NS_DEVICE_CODE std::int64_t RowOf(std::uint32_t key) const {
    return static_cast<std::int64_t>(key - table_.first_key);
  }
  // `exists`: else nothing may be loaded from there.
  NS_DEVICE_CODE typename Type::Raw* WeightsOf(std::uint32_t key, bool exists) const {
    std::int64_t place = RowOf(key);
    void* rows = table_.weights;
    if constexpr (kCached) {
      const std::uint32_t slot = exists ? LoadConstant(table_.slot_of_row + place) : 0;
      if (slot != 0) {
        place = slot - 1;
        rows = table_.slots;
      }
    }
    return static_cast<typename Type::Raw*>(rows) + place * table_.vectors;
  }

  NS_DEVICE_CODE void LoadAhead(std::int64_t entry, Ahead* ahead) const {
    NS_UNROLL
    for (int k = 0; k <= kInFlight; ++k) {
      ahead->key[k] = 0;
      if (entry + k < table_.entries) ahead->key[k] = LoadConstant(table_.keys + entry + k);
    }
    NS_UNROLL
    for (int k = 0; k < kInFlight; ++k) {
      ahead->what[k] = {};
      if (entry + k >= table_.entries) continue;
      if constexpr (kFirstLevel) {
        ahead->what[k] =
            LoadConstant(static_cast<const Occurrence*>(table_.occurrences) + entry + k);
      } else {
        ahead->what[k] = table_.filled[entry + k];
      }
    }
  }

  NS_DEVICE_CODE void Load(const Ahead& ahead, int k, bool within, bool whole, std::int64_t entry,
                           Item* item) const {
    if constexpr (kFirstLevel) {
      item->filled = within;
      item->scale = ahead.what[k].scale();
      LoadGradient(within, static_cast<std::int64_t>(ahead.what[k].bag), item);
      // The row's last occurrence: its weights are needed in a moment.
      if constexpr (kRowAhead) {
        const typename Type::Raw* weights = WeightsOf(ahead.key[k], whole);
        ForVectors([&](int v, int vector, bool has) {
          item->weights[v] = {};
          if (has && whole) item->weights[v] = LoadRow(weights + vector);
        });
      }
      item->state = 0;
      if (whole && table_.state != nullptr) {
        item->state = LoadRow(table_.state + RowOf(ahead.key[k]));
      }
    } else {
      item->filled = within && ahead.what[k] != 0;
      item->scale = 1;
      LoadGradient(item->filled, entry, item);
    }
  }

  NS_DEVICE_CODE void LoadGradient(bool wanted, std::int64_t row, Item* item) const {
    const auto* gradient =
        reinterpret_cast<const Float4*>(table_.gradients + row * table_.gradient_stride);
    ForVectors([&](int v, int vector, bool has) {
      item->gradient[v] = {0, 0, 0, 0};
      if (has && wanted) item->gradient[v] = LoadConstant(gradient + vector);
    });
  }

  NS_DEVICE_CODE void Add(const Item& item, Float4 (&sum)[kVectorsPerLane]) const {
    NS_UNROLL
    for (int v = 0; v < kVectorsPerLane; ++v) {
      sum[v] = MultiplyAdd(sum[v], item.scale, item.gradient[v]);
    }
  }

  NS_DEVICE_CODE void Store(std::int64_t entry, const Float4 (&sum)[kVectorsPerLane]) const {
    auto* partial = reinterpret_cast<Float4*>(table_.next_partials) + entry * table_.vectors;
    ForVectors([&](int v, int vector, bool has) {
      if (has) StoreRow(partial + vector, sum[v]);
    });
  }

  NS_DEVICE_CODE void Update(std::uint32_t key, const Item& item,
                             const Float4 (&sum)[kVectorsPerLane]) const {
    if constexpr (kMoments) return UpdateMoments(key, item, sum);
    typename Type::Raw* weights = WeightsOf(key, true);
    float rate = step_.learning_rate;
    if (table_.state != nullptr) {
      const float squares = SquaresOfRow(sum);
      if (squares == 0) return;  // also where state and epsilon are 0
      float* state = table_.state + RowOf(key);
      const float before = kFirstLevel ? item.state : LoadRow(state);
      const float after = before + squares / static_cast<float>(table_.cols);
      rate /= SquareRoot(after) + step_.epsilon;
      group_.Agree();  // every lane has read the state
      if (group_.lane() == 0) StoreRow(state, after);
    }
    ForVectors([&](int v, int vector, bool has) {
      if (!has) return;
      Float4 row;
      if constexpr (kRowAhead) {
        row = Type::Widen(item.weights[v]);
      } else {
        row = Type::Widen(LoadRow(weights + vector));
      }
      StoreRow(weights + vector, Type::Narrow(MultiplyAdd(row, -rate, sum[v])));
    });
  }

  NS_DEVICE_CODE float SquaresOfRow(const Float4 (&sum)[kVectorsPerLane]) const {
    float squares = 0;
    NS_UNROLL
    for (int v = 0; v < kVectorsPerLane; ++v) squares += SumOfSquares(sum[v]);
    return group_.Sum(squares);
  }

  NS_DEVICE_CODE void UpdateMoments(std::uint32_t key, const Item& item,
                                    const Float4 (&sum)[kVectorsPerLane]) const {
    Float4 gradient[kVectorsPerLane];  // in memory where rows are wide: it is indexed in a loop
    NS_UNROLL
    for (int v = 0; v < kVectorsPerLane; ++v) gradient[v] = sum[v];
    typename Type::Raw* weights = WeightsOf(key, true);
    const std::int64_t first_vector = RowOf(key) * table_.vectors;
    auto* firsts = reinterpret_cast<Float4*>(table_.momentum1) + first_vector;
    const auto second_at = [&](int vector) {
      return reinterpret_cast<Float4*>(table_.momentum2) + first_vector + vector;
    };
    float rate = step_.learning_rate, second_of_row = 0;
    if (step_.optimizer == Optimizer::kPartialRowwiseAdam) {
      float* state = table_.state + RowOf(key);
      const float before = kFirstLevel ? item.state : LoadRow(state);
      second_of_row = step_.beta2 * before +
                      (1 - step_.beta2) * SquaresOfRow(sum) / static_cast<float>(table_.cols);
      group_.Agree();  // every lane has read the state
      if (group_.lane() == 0) StoreRow(state, second_of_row);
    } else if (step_.optimizer == Optimizer::kLarsSgd) {
      float squares = 0;
      LoopOverVectors([&](int, int vector, bool has) {
        if (has) squares += SumOfSquares(Type::Widen(LoadRow(weights + vector)));
      });
      rate *= step_.eta * NormRatio(group_.Sum(squares), SquaresOfRow(sum));
    } else if (step_.optimizer == Optimizer::kLamb) {
      // Moments of the whole row, and the norm of its step, before any weight.
      float squares = 0, squares_of_step = 0;
      LoopOverVectors([&](int v, int vector, bool has) {
        if (!has) return;
        const Float4 first = FirstMoments(step_, LoadRow(firsts + vector), gradient[v]);
        const Float4 second = SecondMoments(step_, LoadRow(second_at(vector)), gradient[v]);
        StoreRow(firsts + vector, first);
        StoreRow(second_at(vector), second);
        squares += SumOfSquares(Type::Widen(LoadRow(weights + vector)));
        squares_of_step += SumOfSquares(AdamStep(step_, first, second));
      });
      squares = group_.Sum(squares);
      rate *= NormRatio(squares, group_.Sum(squares_of_step));
    }
    LoopOverVectors([&](int v, int vector, bool has) {
      if (!has) return;
      const Float4 row = Type::Widen(LoadRow(weights + vector));
      Float4 first = LoadRow(firsts + vector);
      // What Adam's step is made of.
      Float4 numerator = first;
      Float4 second = {second_of_row, second_of_row, second_of_row, second_of_row};
      switch (step_.optimizer) {
        case Optimizer::kAdagrad:
          first = second = first + Squares(gradient[v]);
          numerator = gradient[v];
          break;
        case Optimizer::kAdam:
          second = SecondMoments(step_, LoadRow(second_at(vector)), gradient[v]);
          StoreRow(second_at(vector), second);
          first = numerator = FirstMoments(step_, first, gradient[v]);
          break;
        case Optimizer::kPartialRowwiseAdam:
          first = numerator = FirstMoments(step_, first, gradient[v]);
          break;
        case Optimizer::kLamb:
          second = LoadRow(second_at(vector));
          break;
        case Optimizer::kLarsSgd:
          first = MultiplyAdd(step_.momentum * first, rate, gradient[v]);
          break;
        case Optimizer::kSgd:
        case Optimizer::kRowwiseAdagrad:
        case Optimizer::kNone:
          break;
      }
      const bool is_lars = step_.optimizer == Optimizer::kLarsSgd;
      const Float4 change = is_lars ? first : AdamStep(step_, numerator, second);
      StoreRow(firsts + vector, first);
      StoreRow(weights + vector, Type::Narrow(MultiplyAdd(row, is_lars ? -1 : -rate, change)));
    });
  }

  const UpdateTable& table_;
  const UpdateStep step_;
  const Group group_;
};

template <int kVectorsPerLane, typename Occurrence, bool kMoments = false, bool kCached = false,
          typename Group>
NS_DEVICE_CODE void UpdateChunk(const UpdateTable& table, UpdateStep step, std::int64_t chunk,
                                Group group) {
  WithType(table.type, [&](auto type) {
    ChunkUpdate<decltype(type), kVectorsPerLane, Occurrence, kMoments, kCached, Group>(table, step,
                                                                                       group)
        .Run(chunk);
  });
}

}  // namespace neuroshard::cuda
