// SPDX-License-Identifier: Apache-2.0
#include "support.h"

extern "C" {
#include "core/memory.h"
#include "explain.h"
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
    return p;
}

std::string spmm_text(const tartan_cuda_chip &chip, const tartan_cuda_spmm &p) {
    tartan_cuda_figures figures = {};
    for (auto &direction : figures.share)
        for (auto &share : direction) share = 1;
    tartan_i_text text = {};
    tartan_cuda_explain_spmm(&tartan_i_host, &chip, &p, &figures, &text);
    EXPECT_EQ(TARTAN_OK, text.status);
    const std::string all = text.data;
    tartan_i_free(text.data);
    return all;
}

bool has(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

} // namespace

TEST(CudaExplain, SaysWhatRunsAndWhyNotTheOthers) {
    const std::string hopper = spmm_text(kHopper, square_spmm(TARTAN_BF16));
    EXPECT_EQ(0u, hopper.find(
                      "\"kernel\": \"spmm_wgmma\", \"why\": \"the highest expected rate of those that can do "
                      "it\", \"refused\": [{\"kernel\": \"spmm_plain\", \"why\": \"expected to give "))
        << hopper;
    EXPECT_TRUE(has(hopper, "{\"kernel\": \"spmm_simt\", \"why\": \"made for float32\"}, ")) << hopper;
    EXPECT_TRUE(has(hopper, "}], \"expected_tflops\": ")) << hopper;
    EXPECT_TRUE(has(
        hopper, "{\"kernel\": \"spmm_dense\", \"why\": \"multiplies a dense copy of a by cuBLAS, which the "
                "context does not allow\"}]"))
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

TEST(CudaExplain, SaysThatNothingElseCan) {
    tartan_cuda_spmm odd = square_spmm(TARTAN_F64);
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
    tartan_i_text sddmm = {};
    tartan_cuda_explain_sddmm(&tartan_i_host, &kHopper, &p, &sddmm);
    EXPECT_EQ(TARTAN_OK, sddmm.status);
    EXPECT_TRUE(has(sddmm.data, "\"kernel\": \"sddmm_plain\"")) << sddmm.data;
    EXPECT_TRUE(has(sddmm.data, "tf32, which the context does not allow")) << sddmm.data;
    tartan_i_free(sddmm.data);
}

TEST(CudaExplain, KeepsTheFailureOfItsText) {
    tartan_cuda_figures figures = {};
    const tartan_cuda_spmm p = square_spmm(TARTAN_F64);
    const auto explained = [&] { // the text is its owner's, whatever came of it
        tartan_i_text text = {};
        tartan_cuda_explain_spmm(&tartan_i_host, &kHopper, &p, &figures, &text);
        tartan_i_free(text.data);
        return text.status;
    };
    BRUTAL(explained(), (void)0);
}
