// SPDX-License-Identifier: Apache-2.0
// Matrices made from elements, and elements read and written, against dense oracles.
#include "matrix_support.h"

#include <map>
#include <numeric>
#include <set>

using namespace tartan_test;

namespace {

struct Elements {
    std::vector<int64_t> heads, rows, cols;
    std::vector<double> values;
    int64_t count() const { return (int64_t)rows.size(); }
};

Elements random_elements(const tartan_shape &s, size_t n, bool repeats, std::mt19937_64 &random) {
    Elements e;
    std::set<std::vector<int64_t>> seen;
    for (size_t i = 0; i < n && s.rows > 0 && s.cols > 0; i++) {
        const int64_t h = (int64_t)(random() % (uint64_t)s.heads), r = (int64_t)(random() % (uint64_t)s.rows),
                      c = (int64_t)(random() % (uint64_t)s.cols);
        if (!seen.insert({h, r, c}).second && !repeats) continue;
        e.heads.push_back(h), e.rows.push_back(r), e.cols.push_back(c);
        e.values.push_back((double)(int64_t)(random() % 17) / 4 -
                           2); // exact in every dtype but the 8-bit ones
    }
    return e;
}

Dense list_of(const std::vector<double> &values, int32_t dtype, std::mt19937_64 *random = nullptr) {
    Dense list(dtype, {(int64_t)values.size()}, random);
    for (size_t i = 0; i < values.size(); i++) list.set({(int64_t)i}, values[i]);
    return list;
}

tartan_status from_elements(tartan_context *context, const tartan_shape &s, const Elements &e,
                            const tartan_array &values, int32_t duplicates, int32_t dtype, int32_t order,
                            tartan_matrix **out) {
    return tartan_matrix_from_elements(context, &s,
                                       places_of(nullptr, e.rows.data(), e.cols.data(), e.count()), &values,
                                       duplicates, dtype, order, out);
}

// The same elements as CSR or CSC, each line in the order of the list; `order` gets their positions there.
struct Compressed {
    std::vector<int64_t> pointers, indices;
    std::vector<double> values;
};
Compressed compress(const tartan_shape &s, const Elements &e, bool by_column) {
    Compressed c;
    const int64_t lines = by_column ? s.cols : s.rows;
    c.pointers.push_back(0);
    for (int64_t l = 0; l < lines; l++) {
        for (size_t i = 0; i < e.rows.size(); i++)
            if ((by_column ? e.cols[i] : e.rows[i]) == l) {
                c.indices.push_back(by_column ? e.rows[i] : e.cols[i]);
                c.values.push_back(e.values[i]);
            }
        c.pointers.push_back((int64_t)c.indices.size());
    }
    return c;
}

std::vector<double> dense_of(const tartan_shape &s, const Elements &e, int32_t dtype) {
    std::vector<double> x((size_t)(s.rows * s.cols));
    for (size_t i = 0; i < e.rows.size(); i++) {
        double &v = x[(size_t)(e.rows[i] * s.cols + e.cols[i])];
        v = round_to(v + round_to(e.values[i], dtype), dtype);
    }
    return x;
}

TEST(FromElements, AddsRepeatsAndStoresTheirBlocksAlone) {
    std::mt19937_64 random(1);
    for (int n = 0; n < rounds(400); n++) {
        tartan_shape s = random_shape(random, 1);
        const Elements e = random_elements(s, random() % 200, true, random);
        const int32_t from = all_dtypes[random() % 6], to = n % 3 ? 0 : all_dtypes[random() % 6];
        const Dense list = list_of(e.values, from, &random);
        Elements rounded = e;
        for (double &v : rounded.values) v = round_to(v, from);
        const Matrix a = made([&](tartan_context *context, tartan_matrix **out) {
            return from_elements(context, s, e, list.array, TARTAN_DUPLICATES_ADDED, to, n % 2, out);
        });
        ASSERT_EQ(to != 0 ? to : from, a->dtype);
        ASSERT_EQ(n % 2, a->block_order);
        ASSERT_EQ(dense_of(s, rounded, a->dtype), elements_of(a.get()));
        tartan_layout *layout = nullptr;
        ASSERT_OK(tartan_layout_from_entries(&s, places_of(nullptr, e.rows.data(), e.cols.data(), e.count()),
                                             &layout));
        ASSERT_EQ(1, tartan_layout_equal(layout, a->layout));
        tartan_layout_free(layout);
        for (bool by_column : {false, true}) {
            const Compressed c = compress(s, e, by_column);
            const Dense values = list_of(c.values, from, &random);
            const Matrix b = made([&](tartan_context *context, tartan_matrix **out) {
                return tartan_matrix_from_compressed(context, &s, lists_of(c.pointers, c.indices, by_column),
                                                     &values.array, TARTAN_DUPLICATES_ADDED, to, n % 2, out);
            });
            expect_same_bits(a.get(), b.get());
        }
    }
}

TEST(FromElements, WideMatricesAndEveryBlockWidth) {
    std::mt19937_64 random(2);
    for (int64_t width = 1; width <= 256; width += 1 + width / 9) {
        const tartan_shape s = {37, 5000 * width + 3, 5, width, 1};
        const Elements e = random_elements(s, 500, false, random);
        const Dense list = list_of(e.values, TARTAN_F64);
        const Matrix a = made([&](tartan_context *context, tartan_matrix **out) {
            return from_elements(context, s, e, list.array, TARTAN_DUPLICATES_REFUSED, 0, 0, out);
        });
        for (size_t i = 0; i < e.rows.size(); i++) {
            double value;
            ASSERT_OK(tartan_matrix_entry(a.get(), 0, e.rows[i], e.cols[i], &value));
            ASSERT_EQ(e.values[i], value);
        }
    }
}

TEST(FromElements, FewElementsInManyRows) {
    std::mt19937_64 random(3);
    for (int n = 0; n < rounds(200); n++) {
        const tartan_shape s = {500 + (int64_t)(random() % 500), 40, 1 + (int64_t)(random() % 9),
                                1 + (int64_t)(random() % 9), 1};
        const Elements e = random_elements(s, random() % 30, true, random);
        const int32_t dtype = all_dtypes[random() % 6];
        const Dense list = list_of(e.values, TARTAN_F64, &random);
        const Matrix a = made([&](tartan_context *context, tartan_matrix **out) {
            return from_elements(context, s, e, list.array, TARTAN_DUPLICATES_ADDED, dtype, n % 2, out);
        });
        ASSERT_EQ(dense_of(s, e, dtype), elements_of(a.get()));
    }
    const tartan_shape s = {1000, 10, 3, 3, 1};
    Elements twice;
    twice.rows = {999, 4, 999}, twice.cols = {9, 0, 9}, twice.values = {1, 2, 3};
    const Dense list = list_of(twice.values, TARTAN_F64);
    tartan_matrix *out = nullptr;
    EXPECT_FAILS(LAYOUT, "tartan_matrix_from_elements: element (999, 9) appears twice",
                 from_elements(cpu(), s, twice, list.array, TARTAN_DUPLICATES_REFUSED, 0, 0, &out));
    twice.cols[2] = 8;
    BRUTAL(from_elements(cpu(), s, twice, list.array, TARTAN_DUPLICATES_REFUSED, TARTAN_F32, 0, &out),
           tartan_matrix_free(out));
}

TEST(FromElements, KeepsTheBitsOfWhatComesAlone) {
    const uint64_t bits[] = {0x7ff00000000007a2, 0x8000000000000000, 0x7ff8000000000001};
    const tartan_shape s = {4, 4, 2, 2, 1};
    const int64_t rows[] = {0, 1, 3}, cols[] = {1, 1, 3};
    tartan_array values;
    const int64_t three[] = {3};
    ASSERT_OK(tartan_array_init((void *)bits, TARTAN_F64, 1, three, nullptr, &values));
    for (int32_t duplicates : {0, 1}) {
        tartan_matrix *a = nullptr;
        ASSERT_OK(tartan_matrix_from_elements(cpu(), &s, places_of(nullptr, rows, cols, 3), &values,
                                              duplicates, 0, 0, &a));
        const uint64_t *x = (const uint64_t *)a->values;
        EXPECT_EQ(bits[0], x[1]);
        EXPECT_EQ(bits[1], x[3]);
        EXPECT_EQ(bits[2], x[7]);
        uint64_t back[3];
        tartan_array read;
        ASSERT_OK(tartan_array_init(back, TARTAN_F64, 1, three, nullptr, &read));
        ASSERT_OK(tartan_matrix_get_elements(a, places_of(nullptr, rows, cols, 3), &read));
        EXPECT_EQ(0, std::memcmp(bits, back, sizeof bits));
        tartan_matrix_free(a);
    }
}

TEST(FromElements, RefusesRepeatsIfAsked) {
    std::mt19937_64 random(3);
    int refused = 0;
    for (int n = 0; n < rounds(300); n++) {
        const tartan_shape s = random_shape(random, 1);
        const Elements e = random_elements(s, random() % 30, true, random);
        std::set<std::pair<int64_t, int64_t>> seen;
        for (size_t i = 0; i < e.rows.size(); i++) seen.insert({e.rows[i], e.cols[i]});
        const bool repeats = seen.size() < e.rows.size();
        const Dense list = list_of(e.values, TARTAN_F32);
        tartan_matrix *a = nullptr;
        const tartan_status status = from_elements(n % 2 ? one_worker.get() : five_workers.get(), s, e,
                                                   list.array, TARTAN_DUPLICATES_REFUSED, 0, 0, &a);
        ASSERT_EQ(repeats ? TARTAN_ERR_LAYOUT : TARTAN_OK, status) << tartan_last_error();
        if (repeats) {
            EXPECT_NE(nullptr, std::strstr(tartan_last_error(), "twice"));
        } else {
            EXPECT_EQ(dense_of(s, e, TARTAN_F32), elements_of(a));
        }
        refused += repeats;
        tartan_matrix_free(a);
    }
    EXPECT_GT(refused, 0);
}

TEST(FromElements, RefusesWhatDoesNotFit) {
    const tartan_shape s = {8, 12, 4, 4, 1}, two = {8, 12, 4, 4, 2};
    const Dense values = list_of({1, 2}, TARTAN_F64), long_list = list_of({1, 2, 3}, TARTAN_F64);
    const int64_t rows[] = {0, 7}, cols[] = {0, 11}, low[] = {-1, 0}, high[] = {0, 12};
    std::vector<int64_t> pointers = {0, 1, 1, 1, 1, 1, 1, 1, 2}, falling = {0, 2, 1, 1, 1, 1, 1, 1, 2},
                         far = {0, 1, 1, 1, 1, 1, 1, 1, 3};
    tartan_matrix *out = nullptr;
    auto coo = [&](const tartan_shape &shape, const int64_t *r, const int64_t *c, const Dense &v,
                   int32_t duplicates, int32_t dtype, int32_t order) {
        return tartan_matrix_from_elements(cpu(), &shape, places_of(nullptr, r, c, 2), &v.array, duplicates,
                                           dtype, order, &out);
    };
    EXPECT_FAILS(SHAPE, "2 heads", coo(two, rows, cols, values, 0, 0, 0));
    EXPECT_FAILS(SHAPE, "values has shape [3]", coo(s, rows, cols, long_list, 0, 0, 0));
    EXPECT_FAILS(LAYOUT, "rows[0] is -1", coo(s, low, cols, values, 0, 0, 0));
    EXPECT_FAILS(LAYOUT, "cols[1] is 12", coo(s, rows, high, values, 0, 0, 0));
    EXPECT_FAILS(ARGUMENT, "duplicates is 2", coo(s, rows, cols, values, 2, 0, 0));
    EXPECT_FAILS(DTYPE, "dtype is 7", coo(s, rows, cols, values, 0, 7, 0));
    EXPECT_FAILS(ARGUMENT, "block_order is 2", coo(s, rows, cols, values, 0, 0, 2));
    EXPECT_FAILS(HANDLE, "context is NULL",
                 tartan_matrix_from_elements(nullptr, &s, places_of(nullptr, rows, cols, 2), &values.array, 0,
                                             0, 0, &out));
    auto csr = [&](const std::vector<int64_t> &p, int64_t np, const int64_t *c) {
        return tartan_matrix_from_compressed(cpu(), &s, lists_of(p.data(), np, c, 2, 0), &values.array, 0, 0,
                                             0, &out);
    };
    EXPECT_FAILS(SHAPE, "rows + 1", csr(pointers, 8, cols));
    EXPECT_FAILS(LAYOUT, "pointers[2] is 1", csr(falling, 9, cols));
    EXPECT_FAILS(LAYOUT, "go from 0 to 3", csr(far, 9, cols));
    EXPECT_FAILS(LAYOUT, "indices[1] is 12", csr(pointers, 9, high));
    EXPECT_FAILS(SHAPE, "cols + 1",
                 tartan_matrix_from_compressed(cpu(), &s, lists_of(pointers.data(), 9, rows, 2, 1),
                                               &values.array, 0, 0, 0, &out));
    tartan_array gpu = values.array;
    gpu.device_type = TARTAN_CUDA;
    EXPECT_FAILS(
        UNSUPPORTED, "values",
        tartan_matrix_from_elements(cpu(), &s, places_of(nullptr, rows, cols, 2), &gpu, 0, 0, 0, &out));
    EXPECT_EQ(nullptr, out);
    const int64_t backwards[] = {7, 0};
    { BRUTAL(coo(s, backwards, cols, values, 0, TARTAN_F32, 0), tartan_matrix_free(out)); }
    {
        const std::vector<int64_t> by_col = {0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2};
        BRUTAL(tartan_matrix_from_compressed(cpu(), &s, lists_of(by_col.data(), 13, rows, 2, 1),
                                             &values.array, 0, TARTAN_F32, 0, &out),
               tartan_matrix_free(out));
    }
}

TEST(Elements, AreReadAndWrittenInBulk) {
    std::mt19937_64 random(4);
    for (int n = 0; n < rounds(400); n++) {
        const tartan_shape s = random_shape(random);
        const Matrix a = random_matrix(s, all_dtypes[random() % 6], n % 2, random, 0.6);
        const Elements e = random_elements(s, random() % 100, true, random);
        std::vector<double> x = elements_of(a.get());
        auto place = [&](size_t i) {
            return (size_t)((e.heads[i] * s.rows + e.rows[i]) * s.cols + e.cols[i]);
        };
        Dense list(all_dtypes[random() % 6], {e.count()}, &random);
        auto get = [&](const tartan_matrix *m) {
            return tartan_matrix_get_elements(
                m, places_of(e.heads.data(), e.rows.data(), e.cols.data(), e.count()), &list.array);
        };
        ASSERT_OK(get(a.get()));
        for (size_t i = 0; i < e.rows.size(); i++)
            ASSERT_EQ(round_to(x[place(i)], list.array.dtype), list.get({(int64_t)i}));

        const bool add = n % 3 == 0;
        const Dense news = list_of(e.values, TARTAN_F64, &random);
        auto set = [&](tartan_matrix *m) {
            return tartan_matrix_set_elements(
                m, places_of(e.heads.data(), e.rows.data(), e.cols.data(), e.count()), &news.array, add);
        };
        tartan_layout *raw = nullptr;
        ASSERT_OK(tartan_layout_add_elements(
            a->layout, places_of(e.heads.data(), e.rows.data(), e.cols.data(), e.count()), &raw));
        const Layout grown(raw);
        bool stored = true;
        for (size_t i = 0; i < e.rows.size(); i++) {
            const int64_t at[] = {e.rows[i] / s.block_rows, e.cols[i] / s.block_cols};
            ASSERT_GE(tartan_i_layout_find(grown.get(), e.heads[i], at[0], at[1]), 0);
            stored = stored &&
                     (e.values[i] == 0 || tartan_i_layout_find(a->layout, e.heads[i], at[0], at[1]) >= 0);
        }
        tartan_matrix *room = nullptr;
        ASSERT_OK(tartan_matrix_project(cpu(), a.get(), grown.get(), &room));
        const Matrix b(room);
        ASSERT_EQ(x, elements_of(room));
        const std::vector<double> before = x;
        for (size_t i = 0; i < e.rows.size(); i++)
            x[place(i)] = round_to((add ? x[place(i)] : 0) + e.values[i], a->dtype);
        ASSERT_OK(set(room));
        ASSERT_EQ(x, elements_of(room));
        ASSERT_TRUE(padding_is_zero(room));
        ASSERT_EQ(stored ? TARTAN_OK : TARTAN_ERR_LAYOUT, set(a.get())) << tartan_last_error();
        ASSERT_EQ(stored ? x : before, elements_of(a.get()));
        tartan_layout *again = nullptr;
        ASSERT_OK(tartan_layout_add_elements(
            grown.get(), places_of(e.heads.data(), e.rows.data(), e.cols.data(), e.count()), &again));
        ASSERT_EQ(grown.get(), again);
        tartan_layout_free(again);
    }
}

TEST(Elements, RefuseWhatDoesNotFit) {
    std::mt19937_64 random(5);
    const tartan_shape s = {8, 12, 4, 4, 2};
    const Matrix a = random_matrix(s, TARTAN_F64, 0, random, 1),
                 none = random_matrix(s, TARTAN_F64, 0, random, 0), far = on_device(a->layout);
    Dense values = list_of({1, 2}, TARTAN_F64), long_list = list_of({1, 2, 3}, TARTAN_F64);
    const int64_t rows[] = {0, 7}, cols[] = {0, 11}, high[] = {0, 12}, heads[] = {0, 2};
    tartan_layout *out = nullptr;
    EXPECT_FAILS(LAYOUT, "cols[1] is 12, expected 0 .. 11",
                 tartan_matrix_get_elements(a.get(), places_of(nullptr, rows, high, 2), &values.array));
    EXPECT_FAILS(LAYOUT, "heads[1] is 2",
                 tartan_matrix_get_elements(a.get(), places_of(heads, rows, cols, 2), &values.array));
    EXPECT_FAILS(HANDLE, "places is NULL", tartan_matrix_get_elements(a.get(), nullptr, &values.array));
    EXPECT_FAILS(HANDLE, "places is NULL", tartan_matrix_set_elements(a.get(), nullptr, &values.array, 0));
    EXPECT_FAILS(SHAPE, "expected [2]",
                 tartan_matrix_get_elements(a.get(), places_of(nullptr, rows, cols, 2), &long_list.array));
    EXPECT_FAILS(UNSUPPORTED, "matrix has",
                 tartan_matrix_get_elements(far.get(), places_of(nullptr, rows, cols, 2), &values.array));
    EXPECT_FAILS(UNSUPPORTED, "matrix has",
                 tartan_matrix_set_elements(far.get(), places_of(nullptr, rows, cols, 2), &values.array, 0));
    EXPECT_FAILS(LAYOUT, "is not stored",
                 tartan_matrix_set_elements(none.get(), places_of(nullptr, rows, cols, 2), &values.array, 0));
    EXPECT_FAILS(LAYOUT, "cols[1] is 12",
                 tartan_layout_add_elements(a->layout, places_of(nullptr, rows, high, 2), &out));
    EXPECT_FAILS(HANDLE, "layout is NULL",
                 tartan_layout_add_elements(nullptr, places_of(nullptr, rows, cols, 2), &out));
    tartan_array own;
    const int64_t two[] = {2};
    ASSERT_OK(tartan_array_init(a->values, TARTAN_F64, 1, two, nullptr, &own));
    EXPECT_FAILS(ARGUMENT, "overlaps",
                 tartan_matrix_get_elements(a.get(), places_of(nullptr, rows, cols, 2), &own));
    EXPECT_FAILS(ARGUMENT, "overlaps",
                 tartan_matrix_set_elements(a.get(), places_of(nullptr, rows, cols, 2), &own, 0));
    {
        BRUTAL(tartan_layout_add_elements(none->layout, places_of(nullptr, rows, cols, 2), &out),
               tartan_layout_free(out));
    }
}

} // namespace
