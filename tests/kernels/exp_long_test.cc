// SPDX-License-Identifier: Apache-2.0
// exp of every f32. Minutes.
#include "exp_error.h"

#include <thread>

namespace {

TEST(ExpLong, OfEveryF32IsWithinOneUnit) {
    const size_t parts = std::max(1u, std::thread::hardware_concurrency());
    std::vector<double> worst(parts);
    std::vector<std::thread> threads;
    const uint64_t all = uint64_t(1) << 32;
    for (size_t i = 0; i < parts; i++)
        threads.emplace_back([&, i] {
            worst[i] =
                tartan_test::worst_exp_f32(all / parts * i, i + 1 < parts ? all / parts * (i + 1) : all, 1);
        });
    for (std::thread &thread : threads) thread.join();
    const double most = *std::max_element(worst.begin(), worst.end());
    RecordProperty("units", std::to_string(most));
    EXPECT_GT(most, 0.5); // nothing rounded is better
    EXPECT_LT(most, 1);
}

} // namespace
