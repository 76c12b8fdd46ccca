// SPDX-License-Identifier: Apache-2.0
#include "products.h"

namespace {

using namespace tartan_test;

struct Gates {
    Layout layout;
    Matrix w, dw;
    Dense gates, out;
    bool gated = true;

    static Gates make(uint64_t seed) {
        std::mt19937_64 random(seed);
        Gates p;
        const std::pair<int, int> blocks[] = {{1, 1}, {3, 5}, {8, 8}, {16, 16}, {7, 2}, {32, 32}};
        const auto block = blocks[below(random, 6)];
        p.layout = random_layout({(int64_t)below(random, 70), (int64_t)below(random, 70), block.first,
                                  block.second, (int64_t)(1 + below(random, 3))},
                                 0.5, seed);
        const int32_t dtype = kDtypes[below(random, 4)];
        p.w = random_matrix(p.layout, dtype, (int32_t)below(random, 2), random);
        p.dw = random_matrix(p.layout, dtype, (int32_t)below(random, 2), random);
        p.gates = Dense(pick(random, {(int)TARTAN_F32, (int)TARTAN_F64}), {p.layout->blocks},
                        pick(random, {kRows, kReversed}));
        p.gates.fill(random, -2, 2);
        p.out = Dense(tartan_i_sum_dtype(dtype), {p.layout->blocks}, pick(random, {kRows, kGaps}));
        p.gated = random() % 3 != 0;
        return p;
    }
    tartan_status run(tartan_context *context, tartan_matrix *to, Dense *sums) const {
        return tartan_gate_gradient(context, w.get(), gated ? &gates.array : nullptr, to, &sums->array);
    }
    Matrix copy() const {
        tartan_matrix *out_matrix = nullptr;
        EXPECT_OK(tartan_matrix_copy(cpu(), dw.get(), &out_matrix));
        return Matrix(out_matrix);
    }
    void check(const tartan_matrix *to, const Dense &sums) const {
        const tartan_layout *l = layout.get();
        const int32_t real = tartan_i_sum_dtype(w->dtype);
        for (int64_t id = 0; id < l->blocks; id++) {
            Chain chain(w->dtype);
            for (int64_t i = 0; i < tartan_i_rows_of(l, l->block_rows[id]); i++) {
                for (int64_t j = 0; j < tartan_i_cols_of(l, l->block_cols[id]); j++) {
                    chain.add(entry(dw.get(), id, i, j), entry(w.get(), id, i, j));
                    double want = entry(dw.get(), id, i, j);
                    if (gated) want = rounded(w->dtype, rounded(real, rounded(real, gates.get(id)) * want));
                    ASSERT_EQ(want, entry(to, id, i, j)) << "block " << id;
                }
            }
            ASSERT_TRUE(chain.within(sums.get(id), 1, 0, 0, real)) << "block " << id;
        }
    }
};

TEST(GateGradient, RandomCases) {
    Context contexts[] = {open_context(1), open_context(3)};
    for (uint64_t seed = 0; seed < rounds(1000u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const WithFeatures with(feature_sets()[seed % feature_sets().size()]);
        const Gates p = Gates::make(seed);
        Matrix to = p.copy();
        Dense sums = p.out;
        ASSERT_OK(p.run(contexts[seed % 2].get(), to.get(), &sums));
        p.check(to.get(), sums);
        if (HasFailure()) return;
    }
}

} // namespace
