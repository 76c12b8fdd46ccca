// SPDX-License-Identifier: Apache-2.0
// Matrices of far fewer blocks than rows: what is said of all of them costs what is stored.
#include "matrix_support.h"

#include <fstream>
#include <sys/resource.h>

using namespace tartan_test;

namespace {

const int32_t kReductions[] = {TARTAN_REDUCE_SUM,     TARTAN_REDUCE_MEAN,    TARTAN_REDUCE_MINIMUM,
                               TARTAN_REDUCE_MAXIMUM, TARTAN_REDUCE_ABS_SUM, TARTAN_REDUCE_ABS_MAXIMUM,
                               TARTAN_REDUCE_NORM,    TARTAN_REDUCE_NONZEROS};

double whole(std::vector<double>::const_iterator x, int64_t count, int32_t reduction) {
    double sum = 0, least = INFINITY, most = -INFINITY, size = 0, sizes = 0, squares = 0, nonzeros = 0;
    for (int64_t i = 0; i < count; i++) {
        const double v = x[i];
        sum += v, sizes += std::fabs(v), squares += v * v, nonzeros += v != 0;
        least = std::min(least, v), most = std::max(most, v), size = std::max(size, std::fabs(v));
    }
    const double nothing = std::nan("");
    const double all[] = {sum,
                          sum / (double)count,
                          count ? least : nothing,
                          count ? most : nothing,
                          sizes,
                          size,
                          std::sqrt(squares),
                          nonzeros};
    return all[reduction - TARTAN_REDUCE_SUM];
}

double largest_sum(std::vector<double>::const_iterator x, const tartan_shape &s, bool by_row) {
    double largest = 0;
    for (int64_t i = 0; i < (by_row ? s.rows : s.cols); i++) {
        double sum = 0;
        for (int64_t k = 0; k < (by_row ? s.cols : s.rows); k++)
            sum += std::fabs(x[by_row ? i * s.cols + k : k * s.cols + i]);
        largest = std::max(largest, sum);
    }
    return largest;
}

bool near(double a, double b) {
    return same(a, b) || std::fabs(a - b) <= 1e-13 * (1 + std::fabs(b));
}

TEST(FewBlocks, ReductionsAndNormsAreThoseOfTheDenseMatrix) {
    std::mt19937_64 random(1);
    auto below = [&](int64_t n) { return (int64_t)(random() % (uint64_t)n); };
    for (int n = 0; n < rounds(300); n++) {
        const int64_t br = 1 + below(4), bc = 1 + below(4);
        const tartan_shape s = {below(40 * br + 1), below(40 * bc + 1), br, bc, 1 + below(3)};
        const Matrix a = random_matrix(s, all_dtypes[below(6)], (int32_t)below(2), random, below(3) * 0.01);
        const std::vector<double> x = elements_of(a.get());
        std::vector<double> got((size_t)s.heads);
        for (const Context *context : {&one_worker, &five_workers})
            for (int32_t reduction : kReductions) {
                ASSERT_OK(tartan_matrix_reduce(context->get(), a.get(), reduction, TARTAN_EACH_HEAD,
                                               got.data(), s.heads));
                for (int64_t h = 0; h < s.heads; h++)
                    ASSERT_TRUE(near(got[(size_t)h],
                                     whole(x.begin() + h * s.rows * s.cols, s.rows * s.cols, reduction)));
            }
        for (int32_t kind : {TARTAN_MATRIX_NORM_ONE, TARTAN_MATRIX_NORM_INFINITY}) {
            ASSERT_OK(tartan_matrix_norm(cpu(), a.get(), kind, got.data(), s.heads));
            for (int64_t h = 0; h < s.heads; h++)
                ASSERT_TRUE(near(got[(size_t)h], largest_sum(x.begin() + h * s.rows * s.cols, s,
                                                             kind == TARTAN_MATRIX_NORM_INFINITY)));
        }
    }
}

// Room for so many more bytes than the process has.
class Room {
  public:
    explicit Room(uint64_t bytes) {
        uint64_t pages = 0;
        std::ifstream("/proc/self/statm") >> pages;
        getrlimit(RLIMIT_AS, &old_);
#ifndef __SANITIZE_ADDRESS__ // the sanitizer takes terabytes of addresses
        const rlimit less = {pages * (uint64_t)sysconf(_SC_PAGESIZE) + bytes, old_.rlim_max};
        setrlimit(RLIMIT_AS, &less);
#endif
    }
    ~Room() {
        setrlimit(RLIMIT_AS, &old_);
    }

  private:
    rlimit old_;
};

TEST(FewBlocks, NothingIsOfTheSizeOfTheRows) {
    const int64_t n = (int64_t)1 << 32, last = (n >> 8) - 1;
    const tartan_shape s = {n, n, 256, 256, 1};
    const int64_t at[] = {0, last};
    const tartan_places places = {nullptr, at, at, 2};
    tartan_layout *layout = nullptr;
    ASSERT_OK(tartan_layout_from_coordinates(&s, &places, &layout));
    const Layout owner(layout);
    tartan_matrix *m = nullptr;
    ASSERT_OK(tartan_matrix_create(layout, TARTAN_F64, TARTAN_ROW_MAJOR, &m));
    const Matrix matrix(m);
    double *x = (double *)m->values;
    x[0] = 3, x[1] = -7, x[65536] = 4;
    const Room room((uint64_t)1 << 30); // a number for each row takes 32 times as much
    double got;
    const double expected[] = {0, 0, -7, 4, 14, 7, std::sqrt(74.0), 3};
    for (int32_t reduction : kReductions) {
        if (reduction == TARTAN_REDUCE_MEAN) continue;
        ASSERT_OK(tartan_matrix_reduce(cpu(), m, reduction, TARTAN_EACH_HEAD, &got, 1));
        EXPECT_DOUBLE_EQ(expected[reduction - TARTAN_REDUCE_SUM], got);
    }
    ASSERT_OK(tartan_matrix_norm(cpu(), m, TARTAN_MATRIX_NORM_ONE, &got, 1));
    EXPECT_EQ(7, got);
    ASSERT_OK(tartan_matrix_norm(cpu(), m, TARTAN_MATRIX_NORM_INFINITY, &got, 1));
    EXPECT_EQ(10, got);
    ASSERT_OK(tartan_matrix_trace(cpu(), m, 0, &got, 1));
    EXPECT_EQ(7, got);
    ASSERT_OK(tartan_matrix_trace(cpu(), m, 1, &got, 1));
    EXPECT_EQ(-7, got);
    ASSERT_OK(tartan_matrix_trace(cpu(), m, -n, &got, 1));
    EXPECT_EQ(0, got);
    std::vector<int64_t> rows(131072), cols(131072);
    Dense values(TARTAN_F64, {131072});
    ASSERT_OK(tartan_matrix_to_coo(m, rows.data(), 131072, cols.data(), 131072, &values.array));
    EXPECT_EQ(n - 1, rows.back());
    EXPECT_EQ(n - 1, cols.back());
}

TEST(FewBlocks, EveryAllocationCanFail) {
    const auto all = [] {
        const tartan_shape s = {64, 64, 2, 2, 2};
        const int64_t heads[] = {0, 1}, at[] = {3, 9};
        const tartan_places places = {heads, at, at, 2};
        tartan_layout *layout = nullptr;
        tartan_matrix *m = nullptr;
        double got[2];
        tartan_status status = tartan_layout_from_coordinates(&s, &places, &layout);
        if (status == TARTAN_OK) status = tartan_matrix_create(layout, TARTAN_F64, TARTAN_ROW_MAJOR, &m);
        if (status == TARTAN_OK)
            status = tartan_matrix_reduce(cpu(), m, TARTAN_REDUCE_NORM, TARTAN_EACH_HEAD, got, 2);
        if (status == TARTAN_OK) status = tartan_matrix_norm(cpu(), m, TARTAN_MATRIX_NORM_ONE, got, 2);
        if (status == TARTAN_OK) status = tartan_matrix_trace(cpu(), m, 1, got, 2);
        tartan_matrix_free(m);
        tartan_layout_free(layout);
        return status;
    };
    BRUTAL(all(), (void)0);
}

} // namespace
