// SPDX-License-Identifier: Apache-2.0
// Products as cuBLAS takes them, carried out by its rules on the host and compared with the products themselves.
#include "support.h"

#include <algorithm>
#include <cmath>

extern "C" {
#include "core/memory.h"
#include "gemm.h"
#include "index.h"
}

using namespace tartan_test;

namespace {

int64_t below(std::mt19937_64 &random, int64_t n) {
    return (int64_t)(random() % (uint64_t)n);
}

// A product of f64 with all its memory, in any order that BLAS knows.
struct Product {
    Layout layout;
    tartan_cuda_spmm p = {};
    std::vector<double> values, b, c;

    // rows x cols in rows or columns, heads and batch entries further apart than they must be
    tartan_cuda_dense dense(std::mt19937_64 &random, int64_t rows, int64_t cols, std::vector<double> &memory,
                            int64_t *entry_stride) {
        const bool by_col = random() % 2;
        const int64_t ld = (by_col ? rows : cols) + below(random, 4),
                      one = ld * (by_col ? cols : rows) + below(random, 4);
        *entry_stride = one * p.heads;
        memory.resize((size_t)(*entry_stride * p.batch.entries));
        for (double &x : memory) x = (double)below(random, 19) - 9;
        return {memory.data(), TARTAN_F64, one, by_col ? 1 : ld, by_col ? ld : 1};
    }

    explicit Product(std::mt19937_64 &random) {
        const tartan_shape shape = {1 + below(random, 30), 1 + below(random, 30), 1 + below(random, 6),
                                    1 + below(random, 6), 1 + below(random, 3)};
        layout = random_layout(shape, random() % 2 ? 1 : 0.5, random());
        const bool transposed = p.by_columns = random() % 2, by_row = random() % 2;
        const int32_t br = (int32_t)shape.block_rows, bc = (int32_t)shape.block_cols;
        const int32_t row = by_row ? bc : 1, col = by_row ? 1 : br;
        p.dtype = TARTAN_F64;
        p.heads = shape.heads;
        p.blocks = layout->blocks;
        p.m = transposed ? shape.cols : shape.rows, p.k = transposed ? shape.rows : shape.cols;
        p.n = 1 + below(random, 9);
        p.grid_m = transposed ? layout->grid_cols : layout->grid_rows;
        p.grid_k = transposed ? layout->grid_rows : layout->grid_cols;
        p.block_m = transposed ? bc : br, p.block_k = transposed ? br : bc;
        p.a_m = transposed ? col : row, p.a_k = transposed ? row : col;
        values.resize((size_t)(p.blocks * br * bc));
        for (double &x : values) x = (double)below(random, 19) - 9;
        p.values = values.data();
        p.alpha = 2, p.beta = (double)below(random, 3);
        p.batch.ndim = (int32_t)below(random, 2);
        p.batch.entries = p.batch.ndim > 0 ? 2 + below(random, 3) : 1;
        p.batch.lengths[0] = p.batch.entries;
        p.b = dense(random, p.k, p.n, b, &p.batch.first[0]);
        p.c = dense(random, p.m, p.n, c, &p.batch.second[0]);
    }
    double a(int64_t head, int64_t i, int64_t k) const {
        const int64_t row = p.by_columns ? k / p.block_k : i / p.block_m,
                      col = p.by_columns ? i / p.block_m : k / p.block_k;
        const int64_t *lines = layout->row_pointers + head * layout->grid_rows + row;
        for (int64_t id = lines[0]; id < lines[1]; id++)
            if (layout->block_cols[id] == col)
                return values[(size_t)(id * p.block_m * p.block_k + i % p.block_m * p.a_m +
                                       k % p.block_k * p.a_k)];
        return 0;
    }
    int64_t at(const tartan_cuda_dense &d, const int64_t *strides, int64_t entry, int64_t head, int64_t i,
               int64_t j) const {
        return entry * (p.batch.ndim > 0 ? strides[0] : 0) + head * d.head_stride + i * d.row_stride +
               j * d.col_stride;
    }
    std::vector<double> expected() const {
        std::vector<double> out = c;
        for (int64_t e = 0; e < p.batch.entries; e++)
            for (int64_t h = 0; h < p.heads; h++)
                for (int64_t i = 0; i < p.m; i++)
                    for (int64_t j = 0; j < p.n; j++) {
                        double sum = 0;
                        for (int64_t k = 0; k < p.k; k++)
                            sum += a(h, i, k) * b[(size_t)at(p.b, p.batch.first, e, h, k, j)];
                        double &x = out[(size_t)at(p.c, p.batch.second, e, h, i, j)];
                        x = p.alpha * sum + p.beta * x;
                    }
        return out;
    }
};

// The copy, by the lists that it is made from; its padding is NaN.
std::vector<double> copy_of(const Product &x, const tartan_cuda_gemm &g) {
    tartan_cuda_host_rows plan;
    EXPECT_OK(tartan_cuda_index_rows(&tartan_i_host, x.layout.get(), g.by_columns, &plan));
    std::vector<double> copy((size_t)g.elements, NAN);
    const int32_t *pointers = plan.values + plan.pointers, *cols = plan.values + plan.cols;
    const int64_t length = g.lines == x.p.grid_m && g.by_columns == x.p.by_columns ? x.p.k : x.p.m;
    for (int64_t line = 0; line < x.p.heads * g.lines; line++) {
        double *to = copy.data() + line * g.line * g.ld;
        for (int64_t i = 0; i < g.line; i++) std::fill_n(to + i * g.ld, length, 0.0);
        for (int32_t e = pointers[line]; e < pointers[line + 1]; e++) {
            const int64_t id = plan.ids < 0 ? e : plan.values[plan.ids + e];
            for (int64_t i = 0; i < g.line; i++)
                for (int64_t j = 0; j < g.across; j++)
                    to[i * g.ld + cols[e] * g.across + j] =
                        x.values[(size_t)((id * g.line + i) * g.across + j)];
        }
    }
    tartan_i_free(plan.values);
    return copy;
}

// out = alpha op(first) op(second) + beta out, all column-major.
void blas(const tartan_cuda_gemm &g, double alpha, const double *first, int32_t ld_first,
          const double *second, int32_t ld_second, double beta, double *out) {
    ASSERT_GE(ld_first, g.transposed_first ? g.terms : g.rows);
    ASSERT_GE(ld_second, g.transposed_second ? g.cols : g.terms);
    ASSERT_GE(g.ld_c, g.rows);
    for (int64_t i = 0; i < g.rows; i++)
        for (int64_t j = 0; j < g.cols; j++) {
            double sum = 0;
            for (int64_t k = 0; k < g.terms; k++)
                sum += first[g.transposed_first ? k + i * ld_first : i + k * ld_first] *
                       second[g.transposed_second ? j + k * ld_second : k + j * ld_second];
            double *x = out + i + j * g.ld_c;
            *x = alpha * sum + beta * *x;
        }
}

std::vector<double> result_of(const Product &x, const tartan_cuda_gemm &g) {
    const std::vector<double> copy = copy_of(x, g);
    std::vector<double> out = x.c;
    for (int64_t i = 0; i < g.calls.count; i++)
        for (int64_t j = 0; j < g.batch.count; j++) {
            const double *a = copy.data() + i * g.calls.a + j * g.batch.a;
            const double *b = x.b.data() + i * g.calls.b + j * g.batch.b;
            double *c = out.data() + i * g.calls.c + j * g.batch.c;
            blas(g, x.p.alpha, g.swapped ? b : a, g.swapped ? g.ld_b : g.ld_a, g.swapped ? a : b,
                 g.swapped ? g.ld_a : g.ld_b, x.p.beta, c);
        }
    return out;
}

std::string why(const tartan_cuda_spmm &p) {
    tartan_cuda_gemm g;
    const char *text = tartan_cuda_gemm_of(&p, &g);
    return text == nullptr ? "" : text;
}

} // namespace

TEST(CudaGemm, IsTheProduct) {
    std::mt19937_64 random(4);
    for (int i = 0; i < 1000 && !HasFailure(); i++) {
        const Product x(random);
        SCOPED_TRACE(::testing::Message() << "product " << i);
        tartan_cuda_gemm g;
        ASSERT_EQ(nullptr, tartan_cuda_gemm_of(&x.p, &g));
        EXPECT_EQ(0, g.ld % 2); // whole 16 bytes
        EXPECT_EQ(8, g.bytes);
        EXPECT_GE(g.batch.count, g.calls.count);
        EXPECT_EQ(x.expected(), result_of(x, g));
    }
}

TEST(CudaGemm, RefusesWhatBlasCannotSay) {
    std::mt19937_64 random(5);
    Product x(random);
    x.p.m = x.p.k = x.p.n = 64;
    x.p.b = x.p.c = {nullptr, TARTAN_F64, 4096, 64, 1};
    x.p.batch = {1, 3, {3}, {8192}, {8192}};
    const tartan_cuda_spmm good = x.p;
    EXPECT_EQ("", why(good));
#define EXPECT_WHY(part, change)                                                                             \
    do {                                                                                                     \
        tartan_cuda_spmm p = good;                                                                           \
        change;                                                                                              \
        EXPECT_NE(std::string::npos, why(p).find(part)) << why(p);                                           \
    } while (0)
    EXPECT_WHY("1 to 2^30 rows and columns", p.n = 0);
    EXPECT_WHY("1 to 2^30 rows and columns", p.m = ((int64_t)1 << 30) + 1);
    EXPECT_WHY("one batch dimension", p.batch.ndim = 2);
    EXPECT_WHY("batch entries and heads", p.batch.entries = 0);
    EXPECT_WHY("b needs one stride of 1", p.b.col_stride = 2);
    EXPECT_WHY("b needs one stride of 1", p.b.row_stride = 63);
    EXPECT_WHY("b needs one stride of 1", p.b.row_stride = -64);
    EXPECT_WHY("c needs one stride of 1", p.c.row_stride = (int64_t)1 << 31);
    EXPECT_WHY("not negative", p.batch.first[0] = -8192);
    EXPECT_WHY("not negative", (p.heads = 2, p.c.head_stride = -4096));
    EXPECT_WHY("more than 2^36 bytes", p.heads = 1 << 30);
    EXPECT_WHY("2^30 lines of blocks", (p.heads = 1 << 20, p.grid_m = 1 << 11, p.grid_k = 1));
    tartan_cuda_spmm shared = good; // one B for all
    shared.batch.first[0] = 0;
    EXPECT_EQ("", why(shared));
}
