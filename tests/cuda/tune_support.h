// SPDX-License-Identifier: Apache-2.0
// What the tests of the tuning tables share: chips, problems and what the tables say of them.
#ifndef TARTAN_TESTS_TUNE_SUPPORT_H
#define TARTAN_TESTS_TUNE_SUPPORT_H

#include "support.h"

extern "C" {
#include "backend/operation.h"
#include "kernels.h"
#include "tune.h"
}

namespace tartan_test {

inline const tartan_cuda_chip kHopper = {9, 0, 132, 232448, nullptr}, kAmpere = {8, 0, 108, 166912, nullptr},
                              kAda = {8, 9, 128, 101376, nullptr}, kBlackwell = {10, 0, 148, 232448, nullptr};

// A dense array in memory that is not read.
inline tartan_array array_of(int32_t dtype, std::vector<int64_t> shape, uintptr_t address = 4096) {
    tartan_array a = {};
    a.data = (void *)address;
    a.dtype = dtype;
    a.ndim = (int32_t)shape.size();
    int64_t step = 1;
    for (size_t d = shape.size(); d-- > 0; step *= shape[d]) a.shape[d] = shape[d], a.strides[d] = step;
    return a;
}

template <typename Problem> tartan_cuda_figures &figures_of(Problem &p) {
    return p.figures;
}
inline tartan_cuda_figures &figures_of(tartan_cuda_attention_forward &p) {
    return p.in.figures;
}
inline tartan_cuda_figures &figures_of(tartan_cuda_attention_backward &p) {
    return p.in.figures;
}

// What the tables say of a problem.
template <typename Problem> struct Asked {
    const tartan_cuda_kernels *kernels;
    Problem p = {};

    explicit Asked(const tartan_cuda_kernels *table) : kernels(table) {
        for (auto &direction : figures_of(p).share)
            for (auto &share : direction) share = 1;
    }
    const tartan_cuda_kernel &row(const std::string &name) const {
        for (int32_t i = 0; i < kernels->count; i++)
            if (name == kernels->rows[i].name) return kernels->rows[i];
        ADD_FAILURE() << name << " is in no row";
        return kernels->rows[0];
    }
    std::string chosen(const tartan_cuda_chip &chip) const {
        return kernels->rows[tartan_cuda_choose(kernels, &chip, &p)].name;
    }
    std::string refusal(const std::string &name, const tartan_cuda_chip &chip) const {
        const char *why = tartan_cuda_kernel_refuses(&row(name), &chip, &p);
        return why == nullptr ? "" : why;
    }
    double rate(const std::string &name) const { return tartan_cuda_kernel_rate(&row(name), &p); }
};

// A square product of density 10% with everything in the best order.
struct Spmm : Asked<tartan_cuda_spmm> {
    Spmm(int32_t dtype, int32_t block, int64_t n = 4096) : Asked(tartan_cuda_kernels_of(TARTAN_OP_SPMM)) {
        p.dtype = dtype;
        p.m = p.k = 4096;
        p.n = n;
        p.heads = 1;
        p.grid_m = p.grid_k = 4096 / block;
        p.block_m = p.block_k = block;
        p.blocks = p.grid_m * p.grid_k / 10;
        p.values = (void *)4096;
        p.a_m = block;
        p.a_k = 1;
        p.alpha = 1;
        p.batch.entries = 1;
        p.b = {(void *)4096, dtype, 0, n, 1};
        p.c = {(void *)4096, dtype, 0, n, 1};
    }
    double operations() const {
        return 2.0 * (double)p.blocks * p.block_m * p.block_k * (double)p.n * (double)p.batch.entries;
    }
    // The rate without what every product takes to begin and to end.
    double steady_rate(const std::string &name) const {
        return operations() / (operations() / rate(name) - 1e6 * tartan_cuda_spmm_start_us);
    }
};

struct Sddmm : Asked<tartan_cuda_sddmm> {
    Sddmm(int32_t dtype, int32_t block) : Asked(tartan_cuda_kernels_of(TARTAN_OP_SDDMM)) {
        p.dtype = p.s_dtype = dtype;
        p.m = p.n = 4096;
        p.heads = 1;
        p.grid_m = p.grid_n = 4096 / block;
        p.block_m = p.block_n = block;
        p.blocks = p.grid_m * p.grid_n / 10;
        p.values = (void *)4096;
        p.s_m = block;
        p.s_n = 1;
        p.pairs = 2;
        for (int i = 0; i < 2; i++) {
            p.pair[i].k = 4096;
            p.pair[i].batch.entries = 1;
            p.pair[i].x = {(void *)4096, dtype, 0, 4096, 1};
            p.pair[i].y = {(void *)4096, dtype, 0, 1, 4096};
        }
    }
};

// Attention of 16 heads that see a tenth of 8192 keys, with everything in the best order.
template <typename Problem> struct Attention : Asked<Problem> {
    Attention(const tartan_cuda_kernels *table, int32_t dtype, int32_t block_q, int32_t block_k, int64_t d)
        : Asked<Problem>(table) {
        tartan_cuda_attention &in = this->p.in;
        in.dtype = dtype;
        in.sum_dtype = dtype == TARTAN_F64 ? TARTAN_F64 : TARTAN_F32;
        in.batch = 2, in.heads = in.kv_heads = in.layout_heads = 16;
        in.tq = in.tk = 8192;
        in.d = in.dv = d;
        in.block_q = block_q, in.block_k = block_k;
        in.grid_q = 8192 / block_q, in.grid_k = 8192 / block_k;
        in.blocks = 16 * in.grid_q * in.grid_k / 10;
        in.q = in.k = in.v = {(void *)4096, dtype, 16 * 8192 * d, d, 16 * d, 1};
        in.scale = 0.125;
    }
};
struct Forward : Attention<tartan_cuda_attention_forward> {
    Forward(int32_t dtype, int32_t block_q, int32_t block_k, int64_t d = 128)
        : Attention(tartan_cuda_kernels_of(TARTAN_OP_ATTENTION_FORWARD), dtype, block_q, block_k, d) {}
};
struct Backward : Attention<tartan_cuda_attention_backward> {
    Backward(int32_t dtype, int32_t block_q, int32_t block_k, int64_t d = 128)
        : Attention(tartan_cuda_kernels_of(TARTAN_OP_ATTENTION_BACKWARD), dtype, block_q, block_k, d) {
        p.out_grad = p.in.q;
    }
};

// `kernel` can do the problem, and after `change` refuses it with a text that contains `part`.
#define EXPECT_REFUSES(problem, kernel, chip, part, change)                                                  \
    do {                                                                                                     \
        auto changed = problem;                                                                              \
        EXPECT_EQ("", changed.refusal(kernel, chip)) << #change;                                             \
        auto &p = changed.p;                                                                                 \
        change;                                                                                              \
        EXPECT_NE(std::string::npos, changed.refusal(kernel, chip).find(part))                               \
            << #change << ": " << changed.refusal(kernel, chip);                                             \
    } while (0)

inline const std::vector<int32_t> kBlocks = {8, 16, 32, 64, 128};

} // namespace tartan_test

#endif
