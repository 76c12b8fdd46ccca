// SPDX-License-Identifier: Apache-2.0
// The strip kernel of sampled products: each instruction set gives the chains of fused multiply-adds that its definition says, and
// writes nothing else.
#include "tables.h"

#include <cmath>

namespace {

using tartan_test::below;
using tartan_test::fill;
using tartan_test::Guarded;
using tartan_test::Tables;

class SampledKernels : public ::testing::TestWithParam<tartan_i_cpu_features> {};
INSTANTIATE_TEST_SUITE_P(Each, SampledKernels, ::testing::ValuesIn(tartan_test::feature_sets()),
                         [](const auto &set) { return tartan_test::features_name(set.param); });

template <typename T> void check(const tartan_i_kernels &k, std::mt19937_64 &random) {
    tartan_i_sampled s = {};
    s.vectors = 1 + (int64_t)below(random, TARTAN_I_SAMPLED_VECTORS);
    s.rows = 1 + (int64_t)below(random, (size_t)k.product.rows[s.vectors - 1]);
    s.halves = random() % 2;
    s.k = (int64_t)below(random, 40);
    s.first = random() % 2;
    const bool by_row = random() % 2;
    s.a_row = by_row ? s.k + (int64_t)below(random, 5) : 1,
    s.a_col = by_row ? 1 : s.rows + (int64_t)below(random, 3);
    const int64_t wide = s.halves ? k.lanes / 2 : k.lanes, pieces = s.halves ? 2 * s.vectors : s.vectors;
    s.sums_row = wide + (int64_t)below(random, 5);
    std::vector<T> a((size_t)(s.rows * s.a_row + s.k * s.a_col + 1)),
        b((size_t)((s.k + 1) * wide * (pieces + 1)));
    fill(a.data(), a.size(), random);
    fill(b.data(), b.size(), random);
    s.a = a.data();
    const size_t each = (size_t)((s.rows - 1) * s.sums_row + wide);
    std::vector<Guarded<T>> sums;
    std::vector<std::vector<T>> want;
    for (int64_t j = 0; j < pieces; j++) {
        const T *from = b.data() + below(random, (size_t)(wide * pieces + 1));
        sums.emplace_back(each, below(random, 16));
        fill(sums.back().data(), each, random);
        want.emplace_back(sums.back().data(), sums.back().data() + each);
        for (int64_t i = 0; i < s.rows; i++)
            for (int64_t lane = 0; lane < wide; lane++) {
                T &sum = want.back()[(size_t)(i * s.sums_row + lane)];
                if (s.first) sum = 0;
                for (int64_t n = 0; n < s.k; n++)
                    sum = std::fma(a[(size_t)(i * s.a_row + n * s.a_col)], from[n * wide + lane], sum);
            }
        s.pieces[j].b = from;
    }
    for (int64_t j = 0; j < pieces; j++) s.pieces[j].sums = sums[(size_t)j].data();
    k.sampled(&s);
    for (int64_t j = 0; j < pieces; j++) {
        EXPECT_SAME_BITS(each, want[(size_t)j].data(), sums[(size_t)j].data())
            << s.rows << " x " << s.vectors << (s.halves ? " in halves" : "") << ", " << s.k
            << " steps, piece " << j;
        EXPECT_TRUE(sums[(size_t)j].intact());
    }
}

TEST_P(SampledKernels, PiecesAreChainsOfFusedProducts) {
    std::mt19937_64 random(21);
    for (int i = 0; i < 1000; i++) {
        check<float>(Tables<float>(GetParam()).best, random);
        check<double>(Tables<double>(GetParam()).best, random);
    }
}

} // namespace
