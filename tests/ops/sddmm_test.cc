// SPDX-License-Identifier: Apache-2.0
#include "products.h"

namespace {

using namespace tartan_test;

// Sampled products with all that decides them. The descriptors are made anew for each call, so copies are safe.
struct Sddmm {
    Layout layout;
    Matrix s;
    std::vector<Dense> x, y;
    Dense gates;
    double alpha = 1, beta = 0;
    bool gated = false;

    tartan_status run(tartan_context *context, tartan_matrix *out) const {
        std::vector<tartan_array> xs, ys;
        for (const auto &d : x) xs.push_back(d.array);
        for (const auto &d : y) ys.push_back(d.array);
        return tartan_sddmm(context, xs.data(), ys.data(), (int64_t)xs.size(), gated ? &gates.array : nullptr,
                            alpha, beta, out);
    }
    Matrix copy() const {
        tartan_matrix *out = nullptr;
        EXPECT_OK(tartan_matrix_copy(cpu(), s.get(), &out));
        return Matrix(out);
    }
    int32_t dtype() const { return x[0].array.dtype; }

    void check(const tartan_matrix *got) const {
        const tartan_layout *l = layout.get();
        const int64_t m = l->shape.rows, n = l->shape.cols, heads = l->shape.heads;
        for (int64_t id = 0; id < l->blocks; id++) {
            const int64_t head = tartan_i_layout_head(l, id);
            const double gate = gated ? rounded(tartan_i_sum_dtype(dtype()), gates.get(id)) : 1;
            const double factor =
                rounded(tartan_i_sum_dtype(dtype()), gate * rounded(tartan_i_sum_dtype(dtype()), alpha));
            for (int64_t i = 0; i < tartan_i_rows_of(l, l->block_rows[id]); i++) {
                for (int64_t j = 0; j < tartan_i_cols_of(l, l->block_cols[id]); j++) {
                    const int64_t row = tartan_i_row_begin(l, l->block_rows[id]) + i;
                    const int64_t col = tartan_i_col_begin(l, l->block_cols[id]) + j;
                    Chain chain(dtype());
                    for (size_t p = 0; gate != 0 && p < x.size(); p++) {
                        const int64_t k = x[p].array.shape[x[p].array.ndim - 1];
                        const int64_t entries = k * m == 0 ? 0 : x[p].elements() / (m * k);
                        for (int64_t e = heads > 1 ? head : 0; e < entries; e += heads)
                            for (int64_t t = 0; t < k; t++)
                                chain.add(x[p].get((e * m + row) * k + t), y[p].get((e * k + t) * n + col));
                    }
                    const double old = entry(s.get(), id, i, j), value = entry(got, id, i, j);
                    if (has_chains(dtype())) {
                        ASSERT_EQ(chain.result(factor, beta, old, got->dtype), value)
                            << "block " << id << " at " << i << ", " << j;
                    }
                    ASSERT_TRUE(chain.within(value, factor, beta, old, got->dtype))
                        << "block " << id << ": " << value;
                }
            }
        }
    }
    void run_and_check(tartan_context *context) const {
        Matrix got = copy();
        ASSERT_OK(run(context, got.get()));
        check(got.get());
    }
};

void add_pair(Sddmm *p, int32_t dtype, std::vector<int64_t> batch, int64_t k, Style x_style, Style y_style,
              std::mt19937_64 &random) {
    std::vector<int64_t> x_shape = batch, y_shape = batch;
    x_shape.push_back(p->layout->shape.rows), x_shape.push_back(k);
    y_shape.push_back(k), y_shape.push_back(p->layout->shape.cols);
    p->x.emplace_back(dtype, x_shape, x_style);
    p->y.emplace_back(dtype, y_shape, y_style);
    p->x.back().fill(random);
    p->y.back().fill(random);
}

Sddmm make_sddmm(uint64_t seed) {
    std::mt19937_64 random(seed);
    Sddmm p;
    const std::pair<int, int> blocks[] = {{1, 1}, {3, 5},  {8, 8},   {16, 16}, {4, 1},
                                          {7, 2}, {9, 12}, {32, 32}, {1, 8},   {5, 50}};
    const auto block = blocks[below(random, 10)];
    const int64_t heads = pick(random, {1, 1, 1, 2, 3}), limit = heads > 1 ? 30 : 70;
    const tartan_shape shape = {(int64_t)below(random, (size_t)limit), (int64_t)below(random, (size_t)limit),
                                block.first, block.second, heads};
    const double density = pick(random, {0.0, 0.1, 0.4, 1.0}); // every fourth has blocks of different sizes
    p.layout = (seed % 4 == 3 ? random_variable_layout : random_layout)(shape, density, seed);
    const int32_t dtype = kDtypes[below(random, 4)];
    const bool wide = (dtype == TARTAN_F16 || dtype == TARTAN_BF16) && random() % 2;
    p.s = random_matrix(p.layout, wide ? TARTAN_F32 : dtype, (int32_t)below(random, 2), random);
    p.alpha = pick(random, {1.0, 1.0, -0.5, 0.3, 0.0});
    p.beta = pick(random, {0.0, 0.0, 1.0, -0.7});
    p.gated = random() % 3 == 0;
    p.gates = Dense(pick(random, {(int)TARTAN_F32, (int)TARTAN_F64}), {p.layout->blocks},
                    pick(random, {kRows, kReversed}));
    for (int64_t i = 0; i < p.layout->blocks; i++) p.gates.set(i, pick(random, {0.0, 1.0, 0.37, -2.5}));
    for (size_t pairs = pick(random, {1, 1, 1, 2, 8}); pairs > 0; pairs--) {
        std::vector<int64_t> batch;
        for (size_t d = below(random, 3); d > 0; d--) batch.push_back((int64_t)below(random, 4));
        if (heads > 1) batch.push_back(heads);
        add_pair(&p, dtype, batch, pick(random, {0, 1, 2, 7, 16, 33}), (Style)below(random, kStyles),
                 (Style)below(random, kStyles), random);
    }
    return p;
}

TEST(Sddmm, RandomProductsEqualTheChain) {
    Context contexts[] = {open_context(1), open_context(2), open_context(3), open_context(7)};
    for (uint64_t seed = 0; seed < rounds(1200u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const WithFeatures with(feature_sets()[seed % feature_sets().size()]);
        make_sddmm(seed).run_and_check(contexts[seed / 3 % 4].get());
        if (HasFailure()) return;
    }
}

TEST(Sddmm, SameBitsForKernelsThreadsAndRepeats) {
    for (uint64_t seed = 5000; seed < 5060; seed++) {
        const Sddmm p = make_sddmm(seed);
        Matrix first = p.copy();
        {
            const WithFeatures none(0);
            ASSERT_OK(p.run(open_context(1).get(), first.get()));
        }
        const size_t bytes = (size_t)(p.layout->blocks * tartan_i_block_elements(first.get()) *
                                      tartan_dtype_bytes(first->dtype));
        for (const auto set : feature_sets()) {
            const WithFeatures with(set);
            if (!has_chains(p.dtype())) { // bits of its own, the same for all threads and runs
                first = p.copy();
                ASSERT_OK(p.run(open_context(1).get(), first.get()));
            }
            for (int32_t threads : {1, 2, 3, 7, 16}) {
                if (threads == 16 && seed % 4 != 0) continue; // slow on few cores
                Context context = open_context(threads);
                for (int repeat = 0; repeat < (threads == 3 ? 3 : 1); repeat++) {
                    Matrix got = p.copy();
                    ASSERT_OK(p.run(context.get(), got.get()));
                    ASSERT_EQ(0, std::memcmp(first->values, got->values, bytes))
                        << "seed " << seed << " kernels " << features_name(set) << " threads " << threads;
                }
            }
        }
    }
}

Sddmm plain(const tartan_shape &shape, double density, int32_t dtype, int64_t k, uint64_t seed,
            Style x = kRows, Style y = kRows, std::vector<int64_t> batch = {}) {
    std::mt19937_64 random(seed);
    Sddmm p;
    p.layout = random_layout(shape, density, seed);
    p.s = random_matrix(p.layout, dtype, TARTAN_ROW_MAJOR, random);
    add_pair(&p, dtype, batch, k, x, y, random);
    return p;
}

TEST(Sddmm, BlockShapesOfAllKinds) {
    int number = 0;
    Context context = open_context(2);
    const std::pair<int64_t, int64_t> blocks[] = {{1, 1},   {3, 5},     {8, 8},     {16, 16},
                                                  {32, 32}, {64, 64},   {128, 128}, {256, 1},
                                                  {1, 256}, {256, 256}, {33, 17}};
    for (const auto &block : blocks) {
        for (int32_t dtype : kDtypes) {
            if (!is_of_the_share(number++)) continue;
            SCOPED_TRACE(::testing::Message() << block.first << " x " << block.second << " dtype " << dtype);
            const tartan_shape shape = {block.first * 2 + block.first / 2,
                                        block.second * 2 + block.second / 3 + 1, block.first, block.second,
                                        1};
            plain(shape, 0.7, dtype, 19, 1, dtype % 2 ? kRows : kColumns, dtype % 2 ? kColumns : kRows)
                .run_and_check(context.get());
            if (HasFailure()) return;
        }
    }
}

// Contracted lengths beyond one kernel call, one part of a segment, one list of segments and one round.
TEST(Sddmm, LongContractions) {
    int number = 0;
    for (int32_t threads : {1, 3}) {
        Context context = open_context(threads);
        for (int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_BF16}) {
            for (Style style : {kRows, kColumns}) {
                if (!is_of_the_share(number++)) continue;
                SCOPED_TRACE(::testing::Message() << "dtype " << dtype << " style " << style);
                plain({6, 6, 3, 3, 1}, 0.6, dtype, 1500, 1, style, style).run_and_check(context.get());
                Sddmm p = plain({20, 20, 10, 10, 2}, 0.6, dtype, 5, 2, style, kRows,
                                {700, 2}); // many entries, two heads
                p.beta = 0.5;
                p.run_and_check(context.get());
                plain({80, 90, 32, 20, 1}, 0.8, dtype, 300, 5, style, style)
                    .run_and_check(context.get()); // parts of a segment, for several strips of rows
                plain({256, 3, 256, 3, 1}, 1, dtype, 3000, 3, style, style)
                    .run_and_check(context.get()); // rounds
                plain({256, 6, 256, 3, 1}, 1, dtype, 300, 4, style, style, {8})
                    .run_and_check(context.get()); // rounds that end inside an entry
                if (HasFailure()) return;
            }
        }
    }
}

TEST(Sddmm, EmptyThings) {
    Context context = open_context(2);
    for (double beta : {0.0, 0.5}) {
        Sddmm p = plain({8, 8, 4, 4, 1}, 1, TARTAN_F32, 0, 1); // no products: zeros, then beta S
        p.beta = beta;
        p.run_and_check(context.get());
        p = plain({8, 8, 4, 4, 1}, 1, TARTAN_F32, 3, 1, kRows, kRows, {0});
        p.beta = beta;
        p.run_and_check(context.get());
    }
    plain({8, 8, 4, 4, 1}, 0, TARTAN_F32, 3, 1).run_and_check(context.get());
    plain({0, 8, 4, 4, 1}, 1, TARTAN_F32, 3, 1).run_and_check(context.get());
    plain({8, 0, 4, 4, 1}, 1, TARTAN_F32, 3, 1).run_and_check(context.get());
}

TEST(Sddmm, BetaZeroDoesNotReadS) {
    Context context = open_context(1);
    for (int32_t dtype : kDtypes) {
        Sddmm p = plain({16, 16, 8, 8, 1}, 1, dtype, 5, 1);
        Matrix got = p.copy();
        for (int64_t i = 0; i < 4 * 64; i++) tartan_i_store(got->values, dtype, i, NAN);
        ASSERT_OK(p.run(context.get(), got.get()));
        p.check(got.get());
    }
}

TEST(Sddmm, PaddingOfRaggedBlocksStaysAsItWas) {
    Context context = open_context(1);
    for (int32_t order : {0, 1}) {
        Layout layout = from_mask({5, 7, 4, 4, 1}, {1, 1, 1, 1});
        tartan_matrix *raw = nullptr;
        ASSERT_OK(tartan_matrix_create(layout.get(), TARTAN_F32, order, &raw));
        Matrix s(raw); // zeros
        Dense x(TARTAN_F32, {5, 3}), y(TARTAN_F32, {3, 7});
        for (int64_t i = 0; i < x.elements(); i++) x.set(i, 1);
        for (int64_t i = 0; i < y.elements(); i++) y.set(i, 1);
        ASSERT_OK(tartan_sddmm(context.get(), &x.array, &y.array, 1, nullptr, 1, 1, s.get()));
        for (int64_t id = 0; id < 4; id++)
            for (int64_t i = 0; i < 4; i++)
                for (int64_t j = 0; j < 4; j++)
                    EXPECT_EQ(id / 2 * 4 + i < 5 && id % 2 * 4 + j < 7 ? 3 : 0, entry(s.get(), id, i, j));
    }
}

// A gate of 0 gives beta S, whatever the product would have been.
TEST(Sddmm, AGateOfZeroComputesNothing) {
    Context context = open_context(1);
    Sddmm p = plain({8, 8, 4, 4, 1}, 1, TARTAN_F32, 3, 1);
    p.gated = true;
    p.gates = Dense(TARTAN_F64, {4});
    for (int64_t i = 0; i < 4; i++) p.gates.set(i, i == 0 ? 0 : 0.5);
    for (int64_t i = 0; i < 4; i++) p.x[0].set(i * 3, i == 0 ? NAN : 1); // row 0 of X, read by blocks 0 and 1
    Matrix got = p.copy();
    ASSERT_OK(p.run(context.get(), got.get()));
    for (int64_t i = 0; i < 4; i++)
        for (int64_t j = 0; j < 4; j++) EXPECT_EQ(0, entry(got.get(), 0, i, j));
    EXPECT_TRUE(std::isnan(entry(got.get(), 1, 0, 0)));
}

TEST(Sddmm, GatesAreRoundedToTheTypeOfTheSums) {
    Context context = open_context(1);
    for (int32_t dtype : kDtypes) {
        Sddmm p = plain({8, 8, 4, 4, 1}, 1, dtype, 3, 1);
        p.gated = true;
        p.gates = Dense(TARTAN_F64, {4});
        for (int64_t i = 0; i < 4; i++) p.gates.set(i, i == 0 ? 1e-60 : 1);
        p.x[0].set(0, INFINITY); // row 0 of X, read by blocks 0 and 1
        Matrix got = p.copy();
        ASSERT_OK(p.run(context.get(), got.get()));
        for (int64_t j = 0; j < 4; j++) {
            EXPECT_EQ(std::isinf(entry(got.get(), 0, 0, j)), dtype == TARTAN_F64) << j;
            EXPECT_TRUE(std::isinf(entry(got.get(), 1, 0, j))) << j;
        }
    }
}

// The product with the mask of a full layout is the dense product; SpMM with S's transpose finds the same sums.
TEST(Sddmm, AgreesWithSpmm) {
    Context context = open_context(1);
    for (uint64_t seed = 0; seed < rounds(1000u); seed++) {
        std::mt19937_64 random(seed);
        const int64_t m = 1 + (int64_t)below(random, 30), n = 1 + (int64_t)below(random, 30),
                      k = 1 + (int64_t)below(random, 30);
        Layout full = from_mask({m, k, m, k, 1}, {1});
        Matrix x = random_matrix(full, TARTAN_F64, 0, random);
        const tartan_array view = tartan_i_matrix_view(x.get());
        tartan_array flat = view;
        flat.ndim = 2, flat.shape[0] = m, flat.shape[1] = k, flat.strides[0] = k, flat.strides[1] = 1;
        Sddmm p = plain({m, n, 5, 4, 1}, 0.5, TARTAN_F64, k, seed);
        Matrix got = p.copy();
        Dense product(TARTAN_F64, {m, n});
        ASSERT_OK(tartan_sddmm(context.get(), &flat, &p.y[0].array, 1, nullptr, 1, 0, got.get()));
        ASSERT_OK(tartan_spmm(context.get(), x.get(), nullptr, &p.y[0].array, 1, 0, nullptr, &product.array));
        const tartan_layout *l = p.layout.get();
        for (int64_t id = 0; id < l->blocks; id++)
            for (int64_t i = 0; i < tartan_i_rows_of(l, l->block_rows[id]); i++)
                for (int64_t j = 0; j < tartan_i_cols_of(l, l->block_cols[id]); j++)
                    ASSERT_EQ(product.get((l->block_rows[id] * 5 + i) * n + l->block_cols[id] * 4 + j),
                              entry(got.get(), id, i, j))
                        << "seed " << seed;
    }
}

// Accumulating pair after pair with beta = 1 is within the rule of doing all at once; one pair at a time of a
// split contraction, continued in one call, has the bits of the whole.
TEST(Sddmm, PairsContinueOneChain) {
    Context context = open_context(1);
    for (uint64_t seed = 0; seed < rounds(300u); seed++) {
        std::mt19937_64 random(seed);
        const int64_t k = 2 + (int64_t)below(random, 40), cut = 1 + (int64_t)below(random, (size_t)k - 1);
        Sddmm p = plain({20, 20, 8, 8, 1}, 0.6, kDtypes[seed % 4], k, seed);
        Matrix whole = p.copy(), parts = p.copy();
        ASSERT_OK(p.run(context.get(), whole.get()));
        tartan_array xs[2] = {p.x[0].array, p.x[0].array}, ys[2] = {p.y[0].array, p.y[0].array};
        xs[0].shape[1] = cut, ys[0].shape[0] = cut;
        xs[1].shape[1] = k - cut, ys[1].shape[0] = k - cut;
        xs[1].data = tartan_i_at(xs[0].data, xs[0].dtype, cut * xs[0].strides[1]);
        ys[1].data = tartan_i_at(ys[0].data, ys[0].dtype, cut * ys[0].strides[0]);
        ASSERT_OK(tartan_sddmm(context.get(), xs, ys, 2, nullptr, 1, 0, parts.get()));
        p.check(parts.get());
    }
}

TEST(Sddmm, SurvivesEveryFailedAllocation) {
    for (int32_t dtype : {TARTAN_F64, TARTAN_BF16}) {
        const Sddmm p =
            plain({20, 20, 8, 8, 2}, 0.6, dtype, 9, 1, kRows, kRows, {300, 2}); // more than one round
        Matrix got = p.copy();
        BRUTAL(in_new_context(2, [&](tartan_context *own) { return p.run(own, got.get()); }),
               p.check(got.get()));
    }
}

// ---- Refusals of shapes, and of arrays that are not the first of their list. tests/ops/schema_test.cc has the others. ----

class SddmmRefusals : public ::testing::Test {
  protected:
    Context context = open_context(1);
    Sddmm p = plain({8, 6, 2, 3, 1}, 1, TARTAN_F32, 5, 1);
    Matrix before = p.copy();
    tartan_status call(int64_t pairs = 1) {
        return tartan_sddmm(context.get(), &p.x[0].array, &p.y[0].array, pairs,
                            p.gated ? &p.gates.array : nullptr, p.alpha, p.beta, p.s.get());
    }
    void TearDown() override {
        EXPECT_EQ(0, std::memcmp(before->values, p.s->values, (size_t)p.layout->blocks * 6 * 4))
            << "a refused call wrote";
    }
};

TEST_F(SddmmRefusals, Numbers) {
    EXPECT_FAILS(ARGUMENT, "pairs is 0, expected a whole number of 1 or more and of 8 or less", call(0));
    EXPECT_FAILS(ARGUMENT, "pairs is 9, expected a whole number of 1 or more and of 8 or less", call(9));
    EXPECT_FAILS(ARGUMENT, "pairs is -1", call(-1));
}

TEST_F(SddmmRefusals, Shapes) {
    p.x[0].array.shape[0] = 7;
    EXPECT_FAILS(SHAPE, "x has shape [7, 5], expected [8, 5], which is [batch..., rows of s, k]", call());
    p.x[0].array.shape[0] = 8, p.y[0].array.shape[1] = 5;
    EXPECT_FAILS(SHAPE, "y has shape [5, 5], expected [5, 6], which is [batch..., k, columns of s]", call());
    p.y[0].array.shape[1] = 6, p.y[0].array.shape[0] = 4;
    EXPECT_FAILS(SHAPE, "y has shape [4, 6], expected [5, 6]", call());
    p.x[0].array.ndim = 1;
    EXPECT_FAILS(SHAPE, "x has shape [8], expected at least 2 dimensions", call());
    p.x[0].array.ndim = 2, p.y[0].array.shape[0] = 5;
    p.gated = true;
    p.gates = Dense(TARTAN_F32, {3});
    EXPECT_FAILS(SHAPE, "gates has shape [3], expected [8], which is [blocks of s]", call());
    Sddmm heads = plain({8, 6, 2, 3, 2}, 1, TARTAN_F32, 5, 1, kRows, kRows, {2});
    heads.x[0].array.shape[0] = 1;
    EXPECT_FAILS(SHAPE, "x has shape [1, 8, 5], expected [2, 8, 5]", heads.run(context.get(), heads.s.get()));
    heads.x[0].array.ndim = 2;
    EXPECT_FAILS(SHAPE, "expected at least 3 dimensions (heads of the layout)",
                 heads.run(context.get(), heads.s.get()));
    Sddmm batch = plain({8, 6, 2, 3, 1}, 1, TARTAN_F32, 5, 1, kRows, kRows, {4});
    batch.x[0].array.shape[0] = 3;
    EXPECT_FAILS(SHAPE, "y has shape [4, 5, 6], expected [3, 5, 6]", batch.run(context.get(), batch.s.get()));
}

// The last of three pairs.
TEST_F(SddmmRefusals, OthersOfAList) {
    for (const bool right : {false, true}) {
        const std::string name = right ? "y" : "x";
        const auto refused = [&](auto spoil) {
            Sddmm q = plain({8, 6, 2, 3, 1}, 1, TARTAN_F32, 5, 1);
            q.s = p.copy();
            for (int more = 0; more < 2; more++) q.x.push_back(q.x[0]), q.y.push_back(q.y[0]);
            spoil((right ? q.y : q.x)[2], q);
            const tartan_status status = q.run(context.get(), q.s.get());
            EXPECT_EQ(0, std::memcmp(q.s->values, before->values, (size_t)q.layout->blocks * 6 * 4));
            return status;
        };
        EXPECT_FAILS(DTYPE, name + " is of float16, expected float32 (x is of float32)",
                     refused([](Dense &d, Sddmm &) { d.array.dtype = TARTAN_F16; }));
        EXPECT_FAILS(
            SHAPE,
            name + (right ? " has shape [5, 5], expected [5, 6]" : " has shape [7, 5], expected [8, 5]"),
            refused([&](Dense &d, Sddmm &) { d.array.shape[right]--; }));
        EXPECT_FAILS(HANDLE, name + " of shape ", refused([](Dense &d, Sddmm &) { d.array.data = nullptr; }));
        EXPECT_FAILS(UNSUPPORTED, name + " is on device 2:0, expected 1:0",
                     refused([](Dense &d, Sddmm &) { d.array.device_type = TARTAN_CUDA; }));
        EXPECT_FAILS(ARGUMENT, "s overlaps " + name,
                     refused([](Dense &d, Sddmm &q) { d.array.data = q.s->values; }));
    }
}

} // namespace
