// SPDX-License-Identifier: Apache-2.0
#include "../backend/explained.h"

#include <utility>

extern "C" {
#include "core/memory.h"
#include "explain.h"
#include "tartan/device.h"
}

using namespace tartan_test;

namespace {

const tartan_cuda_chip kHopper = {9, 0, 132, 232448, nullptr}, kAmpere = {8, 0, 108, 166912, nullptr};

tartan_cuda_spmm square_spmm(int32_t dtype) {
    tartan_cuda_spmm p = {};
    p.dtype = dtype;
    p.m = p.k = p.n = 1024;
    p.heads = 1;
    p.block_m = p.block_k = 64;
    p.blocks = 40;
    p.batch.entries = 1;
    p.b = {nullptr, dtype, 0, 1024, 1};
    for (auto &direction : p.figures.share)
        for (auto &share : direction) share = 1;
    return p;
}

template <typename Problem>
std::string text_of(const tartan_cuda_kernels &kernels, const tartan_cuda_chip &chip, const Problem &p) {
    tartan_i_text text = {};
    tartan_cuda_explain(&tartan_i_host, &kernels, &chip, &p, &text);
    EXPECT_EQ(TARTAN_OK, text.status);
    const std::string all = text.data;
    tartan_i_free(text.data);
    return all;
}

std::string spmm_text(const tartan_cuda_chip &chip, const tartan_cuda_spmm &p) {
    return text_of(*tartan_cuda_kernels_of(TARTAN_OP_SPMM), chip, p);
}

bool has(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

} // namespace

TEST(CudaExplain, SaysWhatRunsAndWhyNotTheOthers) {
    const std::string hopper = spmm_text(kHopper, square_spmm(TARTAN_BF16));
    EXPECT_EQ(0u, hopper.find(
                      "\"kernel\": \"spmm_wgmma\", \"why\": \"the highest expected rate of those that can do "
                      "it\", \"refused\": [{\"kernel\": \"spmm_plain\", \"why\": \"slower: expected "))
        << hopper;
    EXPECT_TRUE(has(hopper, "{\"kernel\": \"spmm_simt\", \"why\": \"only for float32\"}, ")) << hopper;
    EXPECT_TRUE(has(hopper, "}], \"expected_tflops\": ")) << hopper;
    EXPECT_TRUE(has(hopper, "{\"kernel\": \"spmm_dense\", \"why\": \"uses cuBLAS with a dense copy of a, "
                            "which the context does not allow\"}]"))
        << hopper;
    const std::string ampere = spmm_text(kAmpere, square_spmm(TARTAN_BF16));
    EXPECT_TRUE(has(ampere, "{\"kernel\": \"spmm_wgmma\", \"why\": \"needs compute capability 9.0\"}, "))
        << ampere;
}

TEST(CudaExplain, SaysThatCublasMultiplies) {
    tartan_cuda_spmm p = square_spmm(TARTAN_BF16);
    p.grid_m = p.grid_k = 16;
    p.blocks = 256;
    p.c = p.b;
    p.allow_dense = true;
    const std::string text = spmm_text(kHopper, p);
    EXPECT_EQ(
        0u,
        text.find("\"kernel\": \"spmm_dense\", \"why\": \"the highest expected rate of those that can do it: "
                  "cuBLAS, with a dense copy of a\", \"refused\": ["))
        << text;
    tartan_cuda_chip alone = kHopper;
    alone.no_cublas = "cuBLAS was not found";
    const std::string without = spmm_text(alone, p);
    EXPECT_TRUE(has(without, "{\"kernel\": \"spmm_dense\", \"why\": \"cuBLAS was not found\"}]")) << without;
}

namespace {

/* CUDA's answers on a context of the CPU. */
bool supports(void *, const tartan_op *, const char **) {
    return true;
}
tartan_status explain(const tartan_context *context, const tartan_op *op, tartan_i_text *text) {
    tartan_cuda_spmm p;
    PASS(tartan_cuda_spmm_of(&tartan_i_host, context, &op->spmm, &p));
    tartan_cuda_explain(&tartan_i_host, tartan_cuda_kernels_of(TARTAN_OP_SPMM), &kHopper, &p, text);
    return text->status;
}

} // namespace

TEST(CudaExplain, AnswersForTheOrdersAskedAbout) {
    const Context context = open_context();
    tartan_backend backend = *context->backend;
    backend.supports = supports;
    backend.explain = explain;
    const tartan_backend *own = std::exchange(context->backend, &backend);
    const Layout layout = from_mask({256, 512, 64, 64, 1}, std::vector<uint8_t>(32, 1));
    const auto answer = [&](int32_t dtype, int32_t blocks, int32_t side, int32_t op, int32_t dense) {
        return explain_spmm(context.get(), layout.get(), dtype, 128, side, op, blocks, dense);
    };
    // The summed index: columns of op(A) and rows of B, or of a right-hand A rows of op(A) and columns of B.
    for (int32_t side : {kLeft, kRight})
        for (int32_t op : {kAsIs, kTransposed})
            for (int32_t blocks : {TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR})
                for (int32_t dense : {TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR}) {
                    const bool a = (blocks == TARTAN_ROW_MAJOR) == ((op == kAsIs) == (side == kLeft));
                    const bool b = (dense == TARTAN_COL_MAJOR) == (side == kLeft);
                    const std::string said = answer(TARTAN_F8E4M3, blocks, side, op, dense);
                    EXPECT_TRUE(has(said, a && b ? "\"kernel\": \"spmm_wgmma\", \"why\": \"the highest"
                                          : !a   ? "8-bit types need the summed index of a"
                                                 : "8-bit types need the summed index of b"))
                        << said;
                    EXPECT_TRUE(
                        has(answer(TARTAN_BF16, blocks, side, op, dense), "\"kernel\": \"spmm_wgmma\""));
                }
    context->backend = own;
}

TEST(CudaExplain, SaysThatNothingElseCan) {
    tartan_cuda_spmm odd = square_spmm(TARTAN_F8E4M3);
    odd.block_k = 20;
    const std::string text = spmm_text(kHopper, odd);
    EXPECT_TRUE(has(text, "\"kernel\": \"spmm_plain\", \"why\": \"no other kernel can do it\"")) << text;
    tartan_cuda_sddmm p = {};
    p.dtype = p.s_dtype = TARTAN_F32;
    p.block_m = p.block_n = 32;
    p.blocks = 4;
    p.m = p.n = 64;
    p.heads = p.pairs = 1;
    p.pair[0].k = 64;
    p.pair[0].batch.entries = 1;
    p.pair[0].x = p.pair[0].y = {nullptr, TARTAN_F32, 0, 64, 1};
    const std::string sddmm = text_of(*tartan_cuda_kernels_of(TARTAN_OP_SDDMM), kHopper, p);
    EXPECT_TRUE(has(sddmm, "\"kernel\": \"sddmm_gather\"")) << sddmm;
    EXPECT_TRUE(has(sddmm, "tf32, which the context does not allow")) << sddmm;
}

TEST(CudaExplain, DescribesOperationsOfOneKernel) {
    const tartan_op_block_copy p = {};
    EXPECT_EQ("\"kernel\": \"block_copy_plain\", \"why\": \"no other kernel can do it\", \"refused\": [], "
              "\"expected_tflops\": null",
              text_of(*tartan_cuda_kernels_of(TARTAN_OP_BLOCK_COPY), kHopper, p));
}

TEST(CudaExplain, SaysThatNoKernelCan) {
    const tartan_cuda_kernel never = {
        "never", [](const tartan_cuda_chip *, const void *) { return "only on Sundays"; }, nullptr, nullptr,
        nullptr};
    const tartan_cuda_kernels table = {1, &never, nullptr};
    EXPECT_EQ(
        "\"kernel\": null, \"why\": \"no kernel can do it\", \"refused\": [{\"kernel\": \"never\", \"why\": "
        "\"only on Sundays\"}], \"expected_tflops\": null",
        text_of(table, kHopper, 0));
}

TEST(CudaExplain, KeepsTheFailureOfItsText) {
    const tartan_cuda_spmm p = square_spmm(TARTAN_F64);
    const auto explained = [&] { // the text is its owner's, whatever came of it
        tartan_i_text text = {};
        tartan_cuda_explain(&tartan_i_host, tartan_cuda_kernels_of(TARTAN_OP_SPMM), &kHopper, &p, &text);
        tartan_i_free(text.data);
        return text.status;
    };
    BRUTAL(explained(), (void)0);
}
