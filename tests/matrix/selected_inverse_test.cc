// SPDX-License-Identifier: Apache-2.0
// Elements of inverses, against dense ones.
#include "matrix_support.h"

using namespace tartan_test;

namespace {

// The Cholesky factor of a random sparse matrix, with all fill, and its inverse, dense and row-major.
struct Factor {
    int64_t n;
    std::vector<int64_t> pointers = {0}, rows;
    std::vector<double> x;
    std::vector<long double> inverse;

    Factor(int64_t size, double density, std::mt19937_64 &random) : n(size) {
        auto at = [&](int64_t i, int64_t j) { return (size_t)(i * n + j); };
        std::vector<long double> l((size_t)(n * n), 0);
        std::vector<bool> there((size_t)(n * n), false);
        std::uniform_real_distribution<double> number(-1, 1);
        for (int64_t j = 0; j < n; j++) {
            for (int64_t i = j + 1; i < n; i++)
                if (number(random) < 2 * density - 1) there[at(i, j)] = true, l[at(i, j)] = number(random);
            there[at(j, j)] = true, l[at(j, j)] = (j % 3 ? 1 : -1) * (1.5 + number(random));
            int64_t parent = j + 1; // where elimination fills
            while (parent < n && !there[at(parent, j)]) parent++;
            for (int64_t i = parent + 1; i < n; i++)
                if (there[at(i, j)]) there[at(i, parent)] = true; // some with a zero
        }
        for (int64_t j = 0; j < n; j++) {
            for (int64_t i = j; i < n; i++) {
                l[at(i, j)] = (double)l[at(i, j)];
                if (there[at(i, j)]) rows.push_back(i), x.push_back((double)l[at(i, j)]);
            }
            pointers.push_back((int64_t)rows.size());
        }
        std::vector<long double> m((size_t)(n * n), 0); // L^-1
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = j; i < n; i++) {
                long double sum = i == j;
                for (int64_t k = j; k < i; k++) sum -= l[at(i, k)] * m[at(k, j)];
                m[at(i, j)] = sum / l[at(i, i)];
            }
        inverse.resize((size_t)(n * n), 0);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++)
                for (int64_t k = 0; k < n; k++) inverse[at(i, j)] += m[at(k, i)] * m[at(k, j)];
    }
    tartan_compressed lists() const {
        return {pointers.data(), (int64_t)pointers.size(), rows.data(), (int64_t)rows.size(), 1};
    }
};

tartan_array vector_of(std::vector<double> &x) {
    tartan_array array;
    const int64_t shape[] = {(int64_t)x.size()};
    static double none;
    EXPECT_OK(tartan_array_init(x.empty() ? &none : x.data(), TARTAN_F64, 1, shape, nullptr, &array));
    return array;
}

TEST(SelectedInverse, IsTheInverseWhereTheFactorHasElements) {
    std::mt19937_64 random(1);
    for (int n = 0; n < rounds(120); n++) {
        Factor f((int64_t)(random() % 25), n % 5 * 0.1, random);
        std::vector<double> z(f.x.size(), NAN);
        const tartan_compressed lists = f.lists();
        tartan_array values = vector_of(f.x), inverse = vector_of(z);
        ASSERT_OK(tartan_selected_inverse(&lists, &values, &inverse));
        for (int64_t j = 0; j < f.n; j++)
            for (int64_t k = f.pointers[(size_t)j]; k < f.pointers[(size_t)j + 1]; k++) {
                const int64_t i = f.rows[(size_t)k];
                auto at = [&](int64_t r, int64_t c) { return f.inverse[(size_t)(r * f.n + c)]; };
                const double scale = std::sqrt((double)(at(i, i) * at(j, j)));
                ASSERT_NEAR((double)at(i, j), z[(size_t)k], 1e-11 * scale);
            }
        ASSERT_OK(tartan_selected_inverse(&lists, &values, &values)); // in place, with the same bits
        ASSERT_EQ(z, f.x);
    }
}

TEST(SelectedInverse, RefusesOtherLists) {
    std::vector<int64_t> pointers = {0, 3, 5, 6}, rows = {0, 1, 2, 1, 2, 2};
    std::vector<double> x = {2, 1, 1, 2, 1, 2}, z(6, 7);
    tartan_array values = vector_of(x), inverse = vector_of(z);
    auto run = [&] {
        const tartan_compressed lists = {pointers.data(), (int64_t)pointers.size(), rows.data(),
                                         (int64_t)rows.size(), 1};
        return tartan_selected_inverse(&lists, &values, &inverse);
    };
    auto with = [&](std::vector<int64_t> p, std::vector<int64_t> r) {
        pointers.swap(p), rows.swap(r);
        const tartan_status status = run();
        pointers.swap(p), rows.swap(r);
        return status;
    };
    EXPECT_FAILS(HANDLE, "factor is NULL", tartan_selected_inverse(nullptr, &values, &inverse));
    const tartan_compressed by_row = {pointers.data(), 4, rows.data(), 6, 0};
    EXPECT_FAILS(ARGUMENT, "factor has compressed rows", tartan_selected_inverse(&by_row, &values, &inverse));
    EXPECT_FAILS(LAYOUT, "", with({0, 3, 7, 6}, rows));
    EXPECT_FAILS(ARGUMENT, "does not begin with its diagonal", with(pointers, {0, 1, 2, 2, 1, 2}));
    EXPECT_FAILS(ARGUMENT, "does not begin with its diagonal", with({0, 3, 3, 6}, rows));
    EXPECT_FAILS(ARGUMENT, "has row 1 after row 2", with(pointers, {0, 2, 1, 1, 2, 2}));
    EXPECT_FAILS(ARGUMENT, "expected all elements that elimination fills",
                 with({0, 3, 4, 5, 6}, {0, 1, 2, 1, 2, 3}));
    x[3] = 0;
    EXPECT_FAILS(ARGUMENT, "element (1, 1) of the factor is 0", run());
    x[3] = 2;
    std::vector<double> few(5);
    tartan_array other = vector_of(few);
    const tartan_compressed lists = {pointers.data(), 4, rows.data(), 6, 1};
    EXPECT_FAILS(SHAPE, "values is no contiguous f64 vector of 6",
                 tartan_selected_inverse(&lists, &other, &inverse));
    EXPECT_FAILS(SHAPE, "inverse is no contiguous f64 vector of 6",
                 tartan_selected_inverse(&lists, &values, &other));
    EXPECT_FAILS(HANDLE, "values is NULL", tartan_selected_inverse(&lists, nullptr, &inverse));
    EXPECT_EQ(std::vector<double>(6, 7), z); // nothing was written
    BRUTAL(tartan_selected_inverse(&lists, &values, &inverse), (void)0);
    EXPECT_DOUBLE_EQ(0.25, z[5]);
}

} // namespace
