// SPDX-License-Identifier: Apache-2.0
// The shared cases of data/cases in C: every result has the listed checksum, with all kernels and numbers of
// threads, and is within the error rule of an f64 oracle (a long double one for f64).
#include "feature_sets.h"
#include "support.h"

#include <cmath>
#include <fstream>
#include <sstream>

extern "C" {
#include "core/cpu.h"
}

namespace {

using namespace tartan_test;

struct Case {
    std::string op, dtype, side, a, b, c, checksum;
    int transpose, gated;
    double alpha, beta;
};

std::vector<Case> read_cases() {
    std::ifstream in(TARTAN_CASES "/products.csv");
    std::vector<Case> cases;
    std::string line, f[11];
    std::getline(in, line);
    while (std::getline(in, line)) {
        std::istringstream fields(line);
        for (auto &field : f) std::getline(fields, field, ',');
        cases.push_back({f[0], f[1], f[2], f[7], f[8], f[9], f[10], std::stoi(f[3]), std::stoi(f[6]),
                         std::stod(f[4]), std::stod(f[5])});
    }
    return cases;
}

// A dense matrix in f64 and in the dtype of the case.
struct Dense {
    std::vector<double> values;
    std::vector<float> singles;
    tartan_array array;
    int64_t rows = 0, cols = 0;

    void describe(const std::string &dtype) {
        const int64_t shape[] = {rows, cols};
        singles.assign(values.begin(), values.end());
        void *data = dtype == "float64" ? (void *)values.data() : (void *)singles.data();
        ASSERT_OK(tartan_array_init(data, tartan_dtype_of(dtype.c_str()), 2, shape, nullptr, &array));
    }
    double result(int64_t i, int64_t j) const {
        return array.dtype == TARTAN_F64 ? values[(size_t)(i * cols + j)]
                                         : (double)singles[(size_t)(i * cols + j)];
    }
};

Matrix load(const File &file, const std::string &name) {
    tartan_matrix *matrix = nullptr;
    EXPECT_OK(tartan_file_get_matrix(file.get(), name.c_str(), &matrix));
    return Matrix(matrix);
}

Dense dense_of(const tartan_matrix *matrix) {
    tartan_layout *layout = nullptr;
    EXPECT_OK(tartan_matrix_get_layout(matrix, &layout));
    Dense d;
    d.rows = tartan_layout_rows(layout), d.cols = tartan_layout_cols(layout);
    tartan_layout_free(layout);
    d.values.resize((size_t)(d.rows * d.cols));
    const int64_t shape[] = {d.rows, d.cols};
    tartan_array array;
    EXPECT_OK(tartan_array_init(d.values.data(), TARTAN_F64, 2, shape, nullptr, &array));
    EXPECT_OK(tartan_matrix_to_dense(matrix, &array));
    return d;
}

std::string checksum(const tartan_array &array) {
    char *text = nullptr;
    EXPECT_OK(tartan_array_checksum(&array, &text));
    std::string result = text;
    tartan_text_free(text);
    return result;
}

// Element (i, j) of op(A) etc. as stored, with the gate of its block.
struct Oracle {
    Dense a;
    std::vector<double> gates; // of every element

    Oracle(const tartan_matrix *matrix, const std::vector<double> *by_block) : a(dense_of(matrix)) {
        tartan_layout *layout = nullptr;
        EXPECT_OK(tartan_matrix_get_layout(matrix, &layout));
        gates.assign(a.values.size(), 0);
        const int64_t blocks = tartan_layout_blocks(layout), br = tartan_layout_block_rows(layout),
                      bc = tartan_layout_block_cols(layout);
        std::vector<int64_t> h((size_t)blocks), r((size_t)blocks), c((size_t)blocks);
        EXPECT_OK(
            tartan_layout_get_coordinates(layout, h.data(), blocks, r.data(), blocks, c.data(), blocks));
        for (size_t w = 0; w < (size_t)blocks; w++)
            for (int64_t i = r[w] * br; i < std::min((r[w] + 1) * br, a.rows); i++)
                for (int64_t j = c[w] * bc; j < std::min((c[w] + 1) * bc, a.cols); j++)
                    gates[(size_t)(i * a.cols + j)] = by_block != nullptr ? (*by_block)[w] : 1;
        tartan_layout_free(layout);
    }
    double at(int64_t i, int64_t j, bool transpose) const {
        const size_t e = (size_t)(transpose ? j * a.cols + i : i * a.cols + j);
        return a.values[e] * gates[e];
    }
};

// |got - alpha * sum - beta * old| against the rule of docs/numerics.md.
void expect_close(double got, long double sum, long double magnitude, double alpha, double beta, double old,
                  int64_t k, double eps) {
    const long double exact = alpha * sum + (beta == 0 ? 0 : (long double)beta * old);
    const long double scale = std::fabs(alpha) * magnitude + std::fabs(beta * old);
    EXPECT_LE(std::fabs((double)(got - exact)), (double)((8 + 2 * std::sqrt((double)k)) * eps * scale));
}

class Cases : public ::testing::TestWithParam<tartan_i_cpu_features> {};

TEST_P(Cases, HaveTheListedBitsAndAreRight) {
    const tartan_test::WithFeatures with(GetParam());
    tartan_file *opened = nullptr;
    ASSERT_OK(tartan_file_open(TARTAN_CASES "/products.h5", &opened));
    const File file(opened);
    const std::vector<Case> cases = read_cases();
    ASSERT_GE(cases.size(), 100u);
    for (const Case &one : cases) {
        SCOPED_TRACE(one.a + ", " + one.b + ", " + one.op);
        const Matrix a = load(file, one.a);
        Dense b = dense_of(load(file, one.b).get()), c = dense_of(load(file, one.c).get());
        const Dense old = c;
        std::vector<double> gates((size_t)0);
        tartan_array gate_array, *gates_given = nullptr;
        tartan_layout *layout = nullptr;
        ASSERT_OK(tartan_matrix_get_layout(a.get(), &layout));
        const int64_t blocks = tartan_layout_blocks(layout);
        tartan_layout_free(layout);
        if (one.gated) {
            gates.resize((size_t)blocks);
            ASSERT_OK(tartan_file_get_gates(file.get(), one.a.c_str(), gates.data(), blocks));
            ASSERT_OK(tartan_array_init(gates.data(), TARTAN_F64, 1, &blocks, nullptr, &gate_array));
            gates_given = &gate_array;
        }
        const Oracle oracle(a.get(), one.gated ? &gates : nullptr);
        const double eps = one.dtype == "float64" ? 0x1p-52 : 0x1p-23;
        for (int32_t threads : {1, 3}) {
            c = old;
            b.describe(one.dtype), c.describe(one.dtype);
            const Context context = open_context(threads);
            const bool left = one.side == "left";
            if (one.op == "spmm") {
                ASSERT_OK(tartan_spmm(context.get(), a.get(), gates_given, &b.array, one.alpha, one.beta,
                                      spmm_options(left ? kLeft : kRight, one.transpose), &c.array));
                EXPECT_EQ(one.checksum, checksum(c.array));
                const int64_t k = left ? b.rows : b.cols;
                for (int64_t i = 0; i < c.rows; i++)
                    for (int64_t j = 0; j < c.cols; j++) {
                        long double sum = 0, magnitude = 0;
                        for (int64_t t = 0; t < k; t++) {
                            const long double term = left ? (long double)oracle.at(i, t, one.transpose) *
                                                                b.values[(size_t)(t * b.cols + j)]
                                                          : (long double)b.values[(size_t)(i * b.cols + t)] *
                                                                oracle.at(t, j, one.transpose);
                            sum += term, magnitude += std::fabs((double)term);
                        }
                        expect_close(c.result(i, j), sum, magnitude, one.alpha, one.beta,
                                     old.values[(size_t)(i * c.cols + j)], k, eps);
                    }
            } else {
                const Matrix s = load(file, one.a);
                ASSERT_OK(tartan_sddmm(context.get(), &b.array, &c.array, 1, gates_given, one.alpha, one.beta,
                                       s.get()));
                Dense result = dense_of(s.get());
                result.describe(one.dtype);
                EXPECT_EQ(one.checksum, checksum(result.array));
                const Oracle stored(a.get(), nullptr);
                for (int64_t i = 0; i < result.rows; i++)
                    for (int64_t j = 0; j < result.cols; j++) {
                        const size_t e = (size_t)(i * result.cols + j);
                        long double sum = 0, magnitude = 0;
                        for (int64_t t = 0; t < b.cols; t++) {
                            const long double term = (long double)b.values[(size_t)(i * b.cols + t)] *
                                                     c.values[(size_t)(t * c.cols + j)];
                            sum += term, magnitude += std::fabs((double)term);
                        }
                        const double gate = stored.gates[e] == 0 ? 0 : oracle.gates[e];
                        expect_close(result.result(i, j), sum * gate, magnitude * std::fabs(gate), one.alpha,
                                     one.beta, stored.a.values[e], b.cols, eps);
                    }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Each, Cases, ::testing::ValuesIn(tartan_test::feature_sets()),
                         [](const auto &set) { return tartan_test::features_name(set.param); });

} // namespace
