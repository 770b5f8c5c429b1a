#include "worker/measure/quantized_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "kernels/tcp/testing/tcp_group_fixture.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::Group;

// Rank r has (r + 1) + i / 1021 at place i (mod 1021) of what it sends, peers in rank order.
double Sent(std::size_t rank, std::size_t place) {
  return static_cast<double>(rank + 1) + static_cast<double>(place % 1021) / 1021;
}

// What `rank` has to get: from each peer the part for it, peers in rank order.
std::vector<double> Expected(const CommSample& sample, std::size_t rank) {
  const std::size_t ranks = sample.dim_sums.size();
  const auto samples = static_cast<std::size_t>(sample.batch_size) / ranks;
  const bool forward = sample.direction == CommDirection::kForward;
  const auto values = [&](std::size_t from, std::size_t to) {
    return samples * static_cast<std::size_t>(sample.dim_sums[forward ? from : to]);
  };
  std::vector<double> expected;
  for (std::size_t from = 0; from < ranks; ++from) {
    std::size_t place = 0;
    for (std::size_t to = 0; to < rank; ++to) place += values(from, to);
    for (std::size_t i = 0; i < values(from, rank); ++i) expected.push_back(Sent(from, place + i));
  }
  return expected;
}

TEST(QuantizedExchangeTest, EveryRankGetsItsValuesToThePrecisionOfTheType) {
  const SteadyClock clock;
  for (const CommDirection direction : {CommDirection::kForward, CommDirection::kBackward}) {
    for (const auto& [dtype, precision] :
         {std::pair(DataType::kFp16, 0x1p-11), std::pair(DataType::kBf16, 0x1p-8)}) {
      const CommSample sample = {.sample_id = "s",
                                 .direction = direction,
                                 .dim_sums = {7, 0, 21},
                                 .start_offsets_ms = {},
                                 .batch_size = 30,
                                 .element_bytes = 2,
                                 .wire_dtype = dtype};
      Group group(3);
      std::vector<std::unique_ptr<QuantizedExchange>> exchanges(3);
      group.ForEach([&](int rank) {
        auto& exchange = exchanges[static_cast<std::size_t>(rank)];
        exchange = std::make_unique<QuantizedExchange>(group[rank], sample, clock);
        ASSERT_TRUE(exchange->Reserve().ok());
        for (int run = 0; run < 2; ++run) ASSERT_TRUE(exchange->Run().ok());
      });
      for (std::size_t rank = 0; rank < 3; ++rank) {
        const std::vector<double> expected = Expected(sample, rank);
        const auto received = exchanges[rank]->received();
        ASSERT_EQ(received.size(), expected.size());
        bool rounded = expected.empty();
        for (std::size_t i = 0; i < expected.size(); ++i) {
          ASSERT_NEAR(received[i], expected[i], expected[i] * precision) << i;
          rounded = rounded || std::abs(received[i] - expected[i]) > expected[i] * 1e-6;
        }
        EXPECT_TRUE(rounded) << "the values went in fp32";
        EXPECT_EQ(exchanges[rank]->casts_ms().size(), 2U);
      }
    }
  }
}

}  // namespace
}  // namespace neuroshard
