// SPDX-License-Identifier: Apache-2.0
#include "matrix_support.h"

#include <set>

using namespace tartan_test;

namespace {

// Some of the places of the stored blocks, shuffled, with values.
struct Entries {
    std::vector<int64_t> rows, cols;
    Dense values;
    Entries(const tartan_layout *l, int32_t dtype, std::mt19937_64 &random, double share = 0.5)
        : values(dtype, {pick(l, random, share)}, &random) {
        std::uniform_real_distribution<double> uniform(-2, 2);
        for (int64_t i = 0; i < size(); i++) values.set({i}, uniform(random));
    }
    int64_t size() const { return (int64_t)rows.size(); }

  private:
    int64_t pick(const tartan_layout *l, std::mt19937_64 &random, double share) {
        std::vector<std::pair<int64_t, int64_t>> places;
        for (int64_t r = 0; r < l->shape.rows; r++)
            for (int64_t c = 0; c < l->shape.cols; c++) {
                bool stored =
                    tartan_i_layout_find(l, 0, r / l->shape.block_rows, c / l->shape.block_cols) >= 0;
                if (stored && std::generate_canonical<double, 32>(random) < share) places.push_back({r, c});
            }
        std::shuffle(places.begin(), places.end(), random);
        for (auto &p : places) rows.push_back(p.first), cols.push_back(p.second);
        return size();
    }
};

TEST(EntryLists, FromCooAndCsr) {
    std::mt19937_64 random(1);
    for (int n = 0; n < rounds(500); n++) {
        tartan_shape s = random_shape(random, 1);
        Layout layout = random_layout(s, 0.5, random());
        Entries e(layout.get(), all_dtypes[random() % 4], random);
        int32_t dtype = (int32_t)(random() % 5), made = dtype ? dtype : e.values.array.dtype;
        std::vector<double> expected((size_t)(s.rows * s.cols));
        for (int64_t i = 0; i < e.size(); i++)
            expected[(size_t)(e.rows[(size_t)i] * s.cols + e.cols[(size_t)i])] =
                round_to(e.values.get({i}), made);
        tartan_matrix *m = nullptr;
        ASSERT_OK(tartan_matrix_from_coo(layout.get(),
                                         places_of(nullptr, e.rows.data(), e.cols.data(), e.size()),
                                         &e.values.array, dtype, n % 2, &m));
        Matrix coo(m);
        EXPECT_EQ(made, m->dtype);
        EXPECT_EQ(expected, elements_of(m));
        EXPECT_TRUE(padding_is_zero(m));

        std::vector<int64_t> order, pointers(1), cols;
        for (int64_t i = 0; i < e.size(); i++) order.push_back(i);
        std::stable_sort(order.begin(), order.end(),
                         [&](int64_t a, int64_t b) { return e.rows[(size_t)a] < e.rows[(size_t)b]; });
        Dense values(e.values.array.dtype, {e.size()}, &random);
        for (int64_t r = 0, i = 0; r < s.rows; r++) {
            for (; i < e.size() && e.rows[(size_t)order[(size_t)i]] == r; i++) {
                cols.push_back(e.cols[(size_t)order[(size_t)i]]);
                values.set({i}, e.values.get({order[(size_t)i]}));
            }
            pointers.push_back(i);
        }
        ASSERT_OK(tartan_matrix_from_csr(layout.get(),
                                         lists_of(pointers.data(), s.rows + 1, cols.data(), e.size()),
                                         &values.array, dtype, n % 2, &m));
        Matrix csr(m);
        EXPECT_EQ(expected, elements_of(m));
    }
}

TEST(EntryLists, ToCooAndCsrAndBack) {
    std::mt19937_64 random(2);
    for (int n = 0; n < rounds(500); n++) {
        tartan_shape s = random_shape(random, 1);
        if (n % 3 != 0) s.rows -= s.rows % s.block_rows, s.cols -= s.cols % s.block_cols; // whole blocks
        Matrix a = random_matrix(s, all_dtypes[n % 4], n / 4 % 2, random);
        std::vector<double> all = elements_of(a.get());
        int64_t count = tartan_layout_elements(a->layout);
        const int32_t dtype = random() % 2 ? a->dtype : all_dtypes[random() % 4];
        std::vector<int64_t> rows((size_t)count + 1), cols((size_t)count + 1), again((size_t)count + 1),
            pointers((size_t)s.rows + 1);
        Dense x(dtype, {count}, &random), y(dtype, {count}, &random);
        ASSERT_OK(tartan_matrix_to_coo(a.get(), rows.data(), count, cols.data(), count, &x.array));
        ASSERT_OK(tartan_matrix_to_csr(a.get(), pointers.data(), s.rows + 1, again.data(), count, &y.array));
        EXPECT_EQ(cols, again);
        EXPECT_EQ(0, pointers[0]);
        EXPECT_EQ(count, pointers[(size_t)s.rows]);
        for (int64_t i = 0; i < count; i++) {
            size_t k = (size_t)i;
            ASSERT_EQ(round_to(all[(size_t)(rows[k] * s.cols + cols[k])], dtype), x.get({i}));
            ASSERT_EQ(x.get({i}), y.get({i}));
            ASSERT_TRUE(pointers[(size_t)rows[k]] <= i && i < pointers[(size_t)rows[k] + 1]);
            if (i > 0) {
                ASSERT_TRUE(std::make_pair(rows[k - 1], cols[k - 1]) < std::make_pair(rows[k], cols[k]));
            }
        }
        Dense exact(a->dtype, {count}, &random);
        ASSERT_OK(tartan_matrix_to_coo(a.get(), rows.data(), count, cols.data(), count, &exact.array));
        tartan_matrix *m = nullptr;
        ASSERT_OK(tartan_matrix_from_coo(a->layout, places_of(nullptr, rows.data(), cols.data(), count),
                                         &exact.array, 0, 0, &m));
        Matrix back(m);
        EXPECT_EQ(all, elements_of(m));
    }
}

struct EntriesRefused : testing::Test {
    Layout layout = from_mask({5, 5, 2, 2, 1}, {1, 0, 0, 0, 1, 0, 0, 0, 1}),
           heads = random_layout({5, 5, 2, 2, 2}, 0.5, 1);
    std::vector<int64_t> rows = {0, 1, 4}, cols = {1, 0, 4}, pointers = {0, 1, 2, 2, 2, 3};
    Dense values = Dense(TARTAN_F64, {3});
    tartan_matrix *m = nullptr;
    void SetUp() override {
        for (int64_t i = 0; i < 3; i++) values.set({i}, (double)i + 1);
    }
    tartan_status coo() {
        return tartan_matrix_from_coo(layout.get(), places_of(rows, cols), &values.array, 0, 0, &m);
    }
    tartan_status csr() {
        return tartan_matrix_from_csr(layout.get(), lists_of(pointers, cols), &values.array, 0, 0, &m);
    }
};

TEST_F(EntriesRefused, Places) {
    ASSERT_OK(coo());
    tartan_matrix_free(m);
    ASSERT_OK(csr());
    tartan_matrix_free(m);
    const struct {
        std::vector<int64_t> rows, cols;
        const char *part;
    } cases[] = {
        {{0, 1, 5}, {1, 0, 4}, "rows[2] is 5, expected 0 .. 4"},
        {{0, 1, -1}, {1, 0, 4}, "rows[2] is -1"},
        {{0, 1, 4}, {1, 5, 4}, "cols[1] is 5"},
        {{0, 1, 4}, {-1, 0, 4}, "cols[0] is -1"},
        {{0, 1, 4}, {1, 2, 4}, "(1, 2) is in block (0, 1)"},
        {{0, 0, 4}, {1, 1, 4}, "entry 1 is at (0, 1) like an earlier entry"},
        {{4, 0, 4}, {4, 1, 4}, "entry 2 is at (4, 4) like an earlier entry"},
    };
    int64_t live = tartan_i_memory_live();
    for (auto &c : cases) {
        rows = c.rows, cols = c.cols;
        EXPECT_FAILS(LAYOUT, c.part, coo());
        EXPECT_EQ(nullptr, m);
    }
    cols = {1, 5, 4};
    EXPECT_FAILS(LAYOUT, "tartan_matrix_from_csr: indices[1] is 5, expected 0 .. 4", csr());
    cols = {1, 2, 4};
    EXPECT_FAILS(LAYOUT, "is in block (0, 1)", csr());
    cols = {1, 1, 4}, pointers = {0, 2, 2, 2, 2, 3};
    EXPECT_FAILS(LAYOUT, "like an earlier entry", csr());
    EXPECT_EQ(nullptr, m);
    EXPECT_EQ(live, tartan_i_memory_live());
}

TEST_F(EntriesRefused, Pointers) {
    const std::vector<int64_t> cases[] = {{1, 1, 2, 2, 2, 3}, {0, 1, 2, 2, 2, 2}, {0, 1, 2, 2, 2, 4}};
    for (auto &p : cases) {
        pointers = p;
        EXPECT_FAILS(LAYOUT, "pointers go from", csr());
    }
    pointers = {0, 2, 1, 2, 2, 3};
    EXPECT_FAILS(LAYOUT, "pointers[2] is 1 after 2", csr());
    pointers = {0, 1, 2, 2, 3};
    EXPECT_FAILS(SHAPE, "pointers has 5", csr());
    EXPECT_EQ(nullptr, m);
}

TEST_F(EntriesRefused, Inputs) {
    Dense flat(TARTAN_F64, {3, 1}), two(TARTAN_F64, {2});
    auto *v = &values.array;
    const int64_t *r = rows.data(), *c = cols.data(), *p = pointers.data();
    tartan_layout *l = layout.get();
    EXPECT_FAILS(HANDLE, "out is NULL",
                 tartan_matrix_from_coo(l, places_of(nullptr, r, c, 3), v, 0, 0, nullptr));
    EXPECT_FAILS(HANDLE, "layout is NULL",
                 tartan_matrix_from_coo(nullptr, places_of(nullptr, r, c, 3), v, 0, 0, &m));
    EXPECT_FAILS(HANDLE, "places is NULL", tartan_matrix_from_coo(l, nullptr, v, 0, 0, &m));
    EXPECT_FAILS(HANDLE, "rows is NULL",
                 tartan_matrix_from_coo(l, places_of(nullptr, nullptr, c, 3), v, 0, 0, &m));
    EXPECT_FAILS(HANDLE, "cols is NULL",
                 tartan_matrix_from_coo(l, places_of(nullptr, r, nullptr, 3), v, 0, 0, &m));
    EXPECT_FAILS(SHAPE, "places has a count of -1",
                 tartan_matrix_from_coo(l, places_of(nullptr, r, c, -1), v, 0, 0, &m));
    EXPECT_FAILS(HANDLE, "values is NULL",
                 tartan_matrix_from_coo(l, places_of(nullptr, r, c, 3), nullptr, 0, 0, &m));
    EXPECT_FAILS(SHAPE, "values has shape [3, 1], expected [3]",
                 tartan_matrix_from_coo(l, places_of(nullptr, r, c, 3), &flat.array, 0, 0, &m));
    EXPECT_FAILS(SHAPE, "values has shape [2]",
                 tartan_matrix_from_coo(l, places_of(nullptr, r, c, 3), &two.array, 0, 0, &m));
    EXPECT_FAILS(DTYPE, "dtype is 7", tartan_matrix_from_coo(l, places_of(nullptr, r, c, 3), v, 7, 0, &m));
    EXPECT_FAILS(ARGUMENT, "block_order is 6",
                 tartan_matrix_from_coo(l, places_of(nullptr, r, c, 3), v, 0, 6, &m));
    EXPECT_FAILS(SHAPE, "2 heads",
                 tartan_matrix_from_coo(heads.get(), places_of(nullptr, r, c, 3), v, 0, 0, &m));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_matrix_from_csr(l, lists_of(p, 6, c, 3), v, 0, 0, nullptr));
    EXPECT_FAILS(HANDLE, "layout is NULL",
                 tartan_matrix_from_csr(nullptr, lists_of(p, 6, c, 3), v, 0, 0, &m));
    EXPECT_FAILS(HANDLE, "lists is NULL", tartan_matrix_from_csr(l, nullptr, v, 0, 0, &m));
    EXPECT_FAILS(ARGUMENT, "by_column", tartan_matrix_from_csr(l, lists_of(p, 6, c, 3, true), v, 0, 0, &m));
    EXPECT_FAILS(HANDLE, "pointers is NULL",
                 tartan_matrix_from_csr(l, lists_of(nullptr, 6, c, 3), v, 0, 0, &m));
    EXPECT_FAILS(HANDLE, "indices is NULL",
                 tartan_matrix_from_csr(l, lists_of(p, 6, nullptr, 3), v, 0, 0, &m));
    EXPECT_FAILS(SHAPE, "indices has -1", tartan_matrix_from_csr(l, lists_of(p, 6, c, -1), v, 0, 0, &m));
    EXPECT_FAILS(SHAPE, "values has shape [2]",
                 tartan_matrix_from_csr(l, lists_of(p, 6, c, 3), &two.array, 0, 0, &m));
    EXPECT_FAILS(DTYPE, "dtype is 7", tartan_matrix_from_csr(l, lists_of(p, 6, c, 3), v, 7, 0, &m));
    EXPECT_FAILS(SHAPE, "2 heads", tartan_matrix_from_csr(heads.get(), lists_of(p, 6, c, 3), v, 0, 0, &m));
    EXPECT_EQ(nullptr, m);
}

TEST_F(EntriesRefused, Outputs) {
    ASSERT_OK(coo());
    Matrix owner(m), gpu = on_device(layout.get());
    tartan_matrix *many = nullptr;
    ASSERT_OK(tartan_matrix_create(heads.get(), TARTAN_F64, 0, &many));
    Matrix owner_many(many);
    const int64_t n = 9; // 4 + 4 + 1
    ASSERT_EQ(n, tartan_layout_elements(layout.get()));
    std::vector<int64_t> out_rows(20, -7), out_cols(20, -7);
    Dense x(TARTAN_F64, {n}), small(TARTAN_F64, {n - 1});
    std::vector<uint64_t> before = x.room;
    int64_t *r = out_rows.data(), *c = out_cols.data();
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_matrix_to_coo(nullptr, r, n, c, n, &x.array));
    EXPECT_FAILS(HANDLE, "values is NULL", tartan_matrix_to_coo(m, r, n, c, n, nullptr));
    EXPECT_FAILS(HANDLE, "out_entry_rows is NULL", tartan_matrix_to_coo(m, nullptr, n, c, n, &x.array));
    EXPECT_FAILS(HANDLE, "out_entry_cols is NULL", tartan_matrix_to_coo(m, r, n, nullptr, n, &x.array));
    EXPECT_FAILS(SHAPE, "out_entry_rows has 8", tartan_matrix_to_coo(m, r, n - 1, c, n, &x.array));
    EXPECT_FAILS(SHAPE, "out_entry_cols has 10", tartan_matrix_to_coo(m, r, n, c, n + 1, &x.array));
    EXPECT_FAILS(SHAPE, "values has shape [8], expected [9]",
                 tartan_matrix_to_coo(m, r, n, c, n, &small.array));
    EXPECT_FAILS(UNSUPPORTED, "CUDA", tartan_matrix_to_coo(gpu.get(), r, n, c, n, &x.array));
    EXPECT_FAILS(SHAPE, "2 heads", tartan_matrix_to_coo(many, r, n, c, n, &x.array));
    EXPECT_FAILS(ARGUMENT, "overlap, expected", tartan_matrix_to_coo(m, r, n, r + 8, n, &x.array));
    EXPECT_FAILS(ARGUMENT, "out_entry_cols overlaps values",
                 tartan_matrix_to_coo(m, r, n, (int64_t *)x.array.data, n, &x.array));
    EXPECT_FAILS(ARGUMENT, "out_entry_rows overlaps the values",
                 tartan_matrix_to_coo(m, (int64_t *)m->values, n, c, n, &x.array));
    tartan_array bad = x.array;
    bad.strides[0] = 0;
    EXPECT_FAILS(ARGUMENT, "repeat or interleave", tartan_matrix_to_coo(m, r, n, c, n, &bad));
    bad = x.array, bad.data = m->values;
    EXPECT_FAILS(ARGUMENT, "values overlaps the values", tartan_matrix_to_coo(m, r, n, c, n, &bad));
    EXPECT_FAILS(HANDLE, "matrix is NULL", tartan_matrix_to_csr(nullptr, r, 6, c, n, &x.array));
    EXPECT_FAILS(HANDLE, "out_row_pointers is NULL", tartan_matrix_to_csr(m, nullptr, 6, c, n, &x.array));
    EXPECT_FAILS(HANDLE, "out_cols is NULL", tartan_matrix_to_csr(m, r, 6, nullptr, n, &x.array));
    EXPECT_FAILS(SHAPE, "out_row_pointers has 5", tartan_matrix_to_csr(m, r, 5, c, n, &x.array));
    EXPECT_FAILS(SHAPE, "out_cols has 8", tartan_matrix_to_csr(m, r, 6, c, n - 1, &x.array));
    EXPECT_FAILS(SHAPE, "values has shape [8]", tartan_matrix_to_csr(m, r, 6, c, n, &small.array));
    EXPECT_FAILS(SHAPE, "2 heads", tartan_matrix_to_csr(many, r, 6, c, n, &x.array));
    EXPECT_FAILS(ARGUMENT, "overlap, expected", tartan_matrix_to_csr(m, r, 6, r + 5, n, &x.array));
    EXPECT_EQ(before, x.room);
    EXPECT_EQ(std::vector<int64_t>(20, -7), out_rows);
    EXPECT_EQ(std::vector<int64_t>(20, -7), out_cols);
}

TEST_F(EntriesRefused, CooWithoutMemory) {
    BRUTAL(coo(), tartan_matrix_free(m));
}

TEST_F(EntriesRefused, CsrWithoutMemory) {
    BRUTAL(csr(), tartan_matrix_free(m));
}

} // namespace
