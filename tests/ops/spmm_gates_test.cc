// SPDX-License-Identifier: Apache-2.0
// Products whose gates are only 0 and 1: the kernels for few columns, which do not scale blocks, leave out those that are switched off.
#include "../backend/explained.h"
#include "../support/feature_sets.h"
#include "spmm_support.h"

namespace {

using namespace tartan_test;

Spmm make(int64_t block, int32_t dtype, int64_t heads, int64_t n, int32_t order, int32_t op, uint64_t seed,
          int32_t gate_dtype = TARTAN_F64) {
    std::mt19937_64 random(seed);
    std::vector<int64_t> batch;
    if (heads > 1) batch.push_back(heads);
    Spmm p = plain({70, 50, block, block, heads}, 0.5, dtype, batch, n, seed, kRows, op, kLeft);
    p.a = random_matrix(p.layout, dtype, order, random);
    p.gated = true;
    p.gates = Dense(gate_dtype, {p.layout->blocks});
    for (int64_t i = 0; i < p.layout->blocks; i++) p.gates.set(i, pick(random, {0.0, 1.0}));
    return p;
}

std::string explain(const Spmm &p) {
    Dense got = p.c;
    const Context context = open_context(1);
    return explained([&] { return p.run(context.get(), &got); });
}

// What is left out is not read.
void spoil_what_is_off(const Spmm &p) {
    const int64_t elements = p.layout->shape.block_rows * p.layout->shape.block_cols;
    for (int64_t id = 0; id < p.layout->blocks; id++)
        for (int64_t e = 0; p.gates.get(id) == 0 && e < elements; e++)
            tartan_i_store(p.a->values, p.a->dtype, id * elements + e, NAN);
}

struct Kernel {
    const char *name;
    int64_t block, n;
    int32_t order;
};
const Kernel kKernels[] = {{"spmm_vector", 3, 1, TARTAN_ROW_MAJOR},
                           {"spmm_vector", 16, 1, TARTAN_COL_MAJOR},
                           {"spmm_narrow", 32, 2, TARTAN_COL_MAJOR},
                           {"spmm_few", 4, 8, TARTAN_ROW_MAJOR}};

TEST(SpmmGates, BlocksThatAreSwitchedOffAreLeftOut) {
    uint64_t seed = 0;
    for (const Kernel &k : kKernels)
        for (int32_t dtype : {TARTAN_F64, TARTAN_F32})
            for (int32_t gate_dtype : {TARTAN_F64, TARTAN_F32})
                for (int32_t op : {kAsIs, kTransposed}) {
                    if (k.block == 32 && op == kTransposed) continue; // columns are not contiguous then
                    const int64_t heads = ++seed % 2 == 0 ? 3 : 1;
                    SCOPED_TRACE(::testing::Message() << k.name << " seed " << seed);
                    Spmm p = make(k.block, dtype, heads, k.n, k.order, op, seed, gate_dtype);
                    EXPECT_EQ(k.name, kernel_of(explain(p)));
                    spoil_what_is_off(p);
                    for (int32_t threads : {1, 3}) p.run_and_check(open_context(threads).get());
                    if (HasFailure()) return;
                    p.gates.set(p.layout->blocks - 1, 0.5);
                    EXPECT_HAS(explain(p),
                               "\"" + std::string(k.name) + "\", \"why\": \"gates scale blocks first\"");
                }
}

// Factors of 16 bits have other kernels, which take gates of both dtypes as well.
TEST(SpmmGates, BlocksOf16BitsAreLeftOut) {
    uint64_t seed = 100;
    for (const Kernel &k : kKernels)
        for (int32_t dtype : {TARTAN_F16, TARTAN_BF16})
            for (int32_t gate_dtype : {TARTAN_F64, TARTAN_F32})
                for (double other : {1.0, 0.5}) {
                    seed++;
                    Spmm p = make(k.block, dtype, 1 + 2 * (int64_t)(seed % 2), k.n, k.order,
                                  (int32_t)(seed / 2 % 2), seed, gate_dtype);
                    p.gates.set(p.layout->blocks - 1, other);
                    spoil_what_is_off(p);
                    SCOPED_TRACE(::testing::Message() << "seed " << seed);
                    for (int32_t threads : {1, 3}) p.run_and_check(open_context(threads).get());
                    if (HasFailure()) return;
                }
}

TEST(SpmmGates, AllBlocksSwitchedOffGiveZeros) {
    for (const Kernel &k : kKernels) {
        Spmm p = make(k.block, TARTAN_F64, 1, k.n, k.order, kAsIs, 1);
        for (int64_t id = 0; id < p.layout->blocks; id++) p.gates.set(id, 0);
        p.run_and_check(open_context(2).get());
    }
}

TEST(SpmmGates, SurviveEveryFailedAllocation) {
    for (const Kernel &k : kKernels) {
        const Spmm p = make(k.block, TARTAN_F64, 2, k.n, k.order, kAsIs, 1);
        Dense got = p.c;
        BRUTAL(in_new_context(2, [&](tartan_context *own) { return p.run(own, &got); }), p.check(got));
    }
}

} // namespace
