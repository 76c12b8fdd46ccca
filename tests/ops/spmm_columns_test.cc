// SPDX-License-Identifier: Apache-2.0
// Products with column-major operands, whose lanes are rows of op(A) where blocks are large enough (cpu_columns.c).
#include "../backend/explained.h"
#include "../support/feature_sets.h"
#include "spmm_support.h"

namespace {

using namespace tartan_test;

// A product whose B and C are column-major in C = op(A) B: on the right, row-major. One of `every` blocks is stored, so that the kernel
// that is chosen does not depend on chance.
Spmm make(const tartan_shape &shape, int64_t every, int32_t dtype, int64_t n, int32_t op, int32_t side,
          uint64_t seed) {
    Spmm p = plain(shape, 1, dtype, {}, n, seed, side == kLeft ? kColumns : kRows, op, side);
    std::vector<uint8_t> mask((size_t)p.layout->blocks);
    for (size_t i = (size_t)seed % (size_t)every; i < mask.size(); i += (size_t)every) mask[i] = 1;
    std::mt19937_64 random(seed);
    p.layout = from_mask(shape, mask);
    p.a = random_matrix(p.layout, dtype, TARTAN_ROW_MAJOR, random);
    p.gates = Dense(TARTAN_F32, {p.layout->blocks});
    p.gates.fill(random);
    return p;
}

std::string explain(const Spmm &p) {
    Dense got = p.c;
    const Context context = open_context(1);
    return explained([&] { return p.run(context.get(), &got); });
}
void expect_columns(const Spmm &p) {
    EXPECT_EQ("spmm_columns", kernel_of(explain(p)));
}

struct Case {
    int64_t rows, cols, block_rows, block_cols;
    int64_t every;
};

// Ragged in both directions; blocks that are read as they are and transposed; a block row without blocks; an odd number of columns.
// Equal to the chain, so to the other kernels, for all instruction sets and numbers of threads.
TEST(SpmmColumns, RandomProductsEqualTheChain) {
    Context contexts[] = {open_context(1), open_context(2), open_context(3)};
    const Case cases[] = {
        {160, 100, 64, 9, 14}, {300, 150, 128, 32, 9}, {150, 150, 48, 48, 9}, {200, 90, 64, 64, 8}};
    uint64_t seed = 0;
    for (const auto &set : feature_sets())
        for (const Case &c : cases)
            for (int32_t dtype : {TARTAN_F64, TARTAN_F32})
                for (int32_t side : {kLeft, kRight})
                    for (bool transposed : {false, true}) {
                        SCOPED_TRACE(::testing::Message() << "case " << seed);
                        const WithFeatures with(set);
                        // op(A) has the shape of the case.
                        const int32_t op = transposed != (side == kRight) ? kTransposed : kAsIs;
                        const tartan_shape shape =
                            transposed ? tartan_shape{c.cols, c.rows, c.block_cols, c.block_rows, 1}
                                       : tartan_shape{c.rows, c.cols, c.block_rows, c.block_cols, 1};
                        const Spmm p = make(shape, c.every, dtype, 259, op, side, ++seed);
                        expect_columns(p);
                        p.run_and_check(contexts[seed % 3].get());
                        if (HasFailure()) return;
                    }
}

// More blocks in a row than are packed at a time, so that sums go on in C, also those of a last vector that is not full.
TEST(SpmmColumns, SumsOfSeveralListsGoOnInC) {
    for (int32_t dtype : {TARTAN_F64, TARTAN_F32}) {
        const int64_t bytes = tartan_dtype_bytes(dtype),
                      fit = tartan_i_cpu_l2_bytes() / 2 / (48 * 32 * bytes);
        const Spmm p = make({32 * 2 * (fit + 1), 41, 32, 48, 1}, 1, dtype, 129, kTransposed, kLeft, 5);
        expect_columns(p);
        for (int32_t threads : {1, 2}) p.run_and_check(open_context(threads).get());
    }
    // A list is full before L2 is: terms of one step.
    const Spmm many = make({700, 48, 1, 48, 1}, 1, TARTAN_F32, 129, kTransposed, kLeft, 6);
    expect_columns(many);
    many.run_and_check(open_context(1).get());
}

TEST(SpmmColumns, Heads) {
    for (int32_t dtype : {TARTAN_F64, TARTAN_F32}) {
        std::mt19937_64 random(1);
        Spmm p = make({130, 70, 64, 16, 3}, 7, dtype, 256, kAsIs, kLeft, 1);
        // One product of all columns for each head: B and C are [rows, n] in each entry, by columns.
        p.b = Dense(dtype, {3, 256, 70}), p.c = Dense(dtype, {3, 256, 130});
        p.b.fill(random);
        p.c.fill(random);
        p.side = kRight, p.op = kTransposed;
        expect_columns(p);
        for (int32_t threads : {1, 3}) p.run_and_check(open_context(threads).get());
    }
}

TEST(SpmmColumns, WritesNothingBesideItsOutput) {
    for (int32_t side : {kLeft, kRight}) {
        const Spmm p =
            make({160, 100, 64, 9, 1}, 14, TARTAN_F32, 259, side == kLeft ? kAsIs : kTransposed, side, 1);
        expect_columns(p);
        Dense got = p.c;
        ASSERT_OK(p.run(open_context(2).get(), &got));
        for (int64_t i = 0; i < got.elements(); i++) got.set(i, p.c.get(i));
        EXPECT_EQ(p.c.memory(), got.memory());
    }
}

TEST(SpmmColumns, SurvivesEveryFailedAllocation) {
    const Spmm p = make({192, 64, 64, 32, 1}, 6, TARTAN_F32, 256, kAsIs, kLeft, 1);
    expect_columns(p);
    Dense got = p.c;
    BRUTAL(in_new_context(2, [&](tartan_context *own) { return p.run(own, &got); }), p.check(got));
}

// What is left to other kernels, and why.
TEST(SpmmColumns, SaysWhatItRefuses) {
    const auto made = [](int32_t dtype, int64_t n, int64_t block = 64, int64_t every = 10) {
        return make({512, 512, block, block, 1}, every, dtype, n, kAsIs, kLeft, 1);
    };
    const auto refused = [](const Spmm &p, const char *why) {
        EXPECT_HAS(explain(p), std::string("{\"kernel\": \"spmm_columns\", \"why\": \"") + why + "\"}");
    };
    expect_columns(made(TARTAN_F32, 256));
    refused(made(TARTAN_F16, 256), "only for float32 and float64");
    Spmm p = made(TARTAN_F32, 256);
    p.gated = true;
    refused(p, "gates scale blocks first");
    p.gated = false, p.alpha = 2;
    refused(p, "the sums are not the results");
    p.alpha = 1, p.beta = 1;
    refused(p, "the sums are not the results");
    refused(plain({512, 512, 64, 64, 1}, 0.15, TARTAN_F32, {}, 256, 1, kRows),
            "b and c are not column-major");
    p = plain({512, 512, 64, 64, 1}, 0.15, TARTAN_F32, {2}, 256, 1, kColumns);
    p.b.array.strides[0] = 0; // else the entries would be one product of more columns
    refused(p, "b has batch entries");
    refused(made(TARTAN_F64, 256, 16), "blocks have too few rows, or rows that do not fill vectors");
    refused(made(TARTAN_F64, 256, 33), "blocks have too few rows, or rows that do not fill vectors");
    refused(made(TARTAN_F32, 255), "b has too few columns");
    refused(made(TARTAN_F32, 256, 64, 2), "so many blocks pay for packing b");
    {
        const WithFeatures avx2(tartan_i_cpu_detect() & TARTAN_I_CPU_AVX2);
        const char *why = "a row of blocks stays in cache while packed columns of b go past it";
        if (tartan_i_cpu_in_use() != 0) refused(made(TARTAN_F32, 256, 64, 6), why);
        expect_columns(made(TARTAN_F32, 256));
    }
    p = made(TARTAN_F32, 128);
    p.op = kTransposed; // blocks with contiguous columns: fewer suffice
    expect_columns(p);
    p.layout = random_variable_layout({512, 512, 64, 64, 1}, 0.15, 1);
    std::mt19937_64 random(1);
    p.a = random_matrix(p.layout, TARTAN_F32, TARTAN_ROW_MAJOR, random);
    p.b = Dense(TARTAN_F32, p.b_shape({}, 128), kColumns);
    p.c = Dense(TARTAN_F32, p.c_shape({}, 128), kColumns);
    refused(p, "blocks have different sizes");
    refused(make({48, 32784, 48, 48, 1}, 10, TARTAN_F64, 256, kAsIs, kLeft, 1),
            "blocks have too few rows for a b that is larger than caches");
}

} // namespace
