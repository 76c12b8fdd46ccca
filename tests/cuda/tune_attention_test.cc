// SPDX-License-Identifier: Apache-2.0
// The choice among kernels of attention, their refusals and the rates that the model expects.
#include "tune_support.h"

#include <functional>

using namespace tartan_test;

namespace {

const char *const kWgmma = "attention_forward_wgmma", *const kPlain = "attention_forward_plain",
                  *const kBackward = "attention_backward_plain",
                  *const kBackwardWgmma = "attention_backward_wgmma",
                  *const kFused = "attention_backward_fused";

} // namespace

// ---- The choice ----

TEST(CudaAttention, HopperHasAKernelForSixteenBits) {
    for (const int32_t dtype : {TARTAN_F16, TARTAN_BF16})
        for (const int32_t block_q : kBlocks)
            for (const int32_t block_k : kBlocks) {
                EXPECT_EQ(kWgmma, Forward(dtype, block_q, block_k).chosen(kHopper)) << block_q;
                EXPECT_EQ(kPlain, Forward(dtype, block_q, block_k).chosen(kAmpere)) << block_q;
                EXPECT_EQ(kPlain, Forward(dtype, block_q, block_k).chosen(kBlackwell)) << block_q;
            }
    for (const int32_t dtype : {TARTAN_F64, TARTAN_F32})
        EXPECT_EQ(kPlain, Forward(dtype, 64, 64).chosen(kHopper));
}

TEST(CudaAttention, PlainKernelsRefuseNothing) {
    for (const int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16})
        for (const int32_t block : {1, 3, 256})
            for (const int64_t d : {0, 1, 300}) {
                EXPECT_EQ("", Forward(dtype, block, 7, d).refusal(kPlain, kAmpere));
                EXPECT_EQ("", Backward(dtype, block, 7, d).refusal(kBackward, kAmpere));
                EXPECT_EQ(kPlain, Forward(dtype, block, 7, d).chosen(kHopper));
                EXPECT_EQ(kBackward, Backward(dtype, block, 7, d).chosen(kHopper));
            }
}

// Five products instead of seven, if the order of sums may depend on the run and queries see many keys. Up to 64 elements, that
// gains nothing where both sides have blocks of 128.
TEST(CudaAttention, SumsInAnyOrderAreFaster) {
    for (const int32_t dtype : {TARTAN_F16, TARTAN_BF16})
        for (const int64_t d : {16, 64, 80, 128})
            for (const int32_t block_q : {64, 128}) {
                Backward p(dtype, block_q, 128, d);
                EXPECT_EQ(kBackwardWgmma, p.chosen(kHopper));
                p.p.in.any_order = true;
                EXPECT_EQ(kBackwardWgmma, p.chosen(kHopper));
                p.p.in.blocks *= 5;
                EXPECT_EQ(d > 64 || block_q < 128 ? kFused : kBackwardWgmma, p.chosen(kHopper));
                EXPECT_EQ(kBackward, p.chosen(kAmpere));
            }
}

// ---- The order of tiles ----

namespace {

// 32 heads of 8192 tokens in blocks of 128, d = 128, on 132 SMs: keys and values of a head are 4 MB.
tartan_cuda_attention_tiles tiles(double share) {
    tartan_cuda_attention_tiles t = {};
    t.heads = 32, t.slots = 132, t.rows = 128;
    t.lists = t.columns = 64;
    t.entries = share * 64 * 64, t.longest = share * 64 + 8;
    t.head_bytes = 4 << 20;
    return t;
}

} // namespace

TEST(CudaAttention, HeadsOfAPanel) {
    const auto panel = [](const tartan_cuda_attention_tiles &t) { return tartan_cuda_attention_panel(&t); };
    tartan_cuda_attention_tiles t = tiles(.1);
    EXPECT_EQ(4, panel(t)); // as many as fit in L2
    EXPECT_EQ(8, panel(tiles(.5)));
    t = tiles(.5), t.longest = 0; // of a dynamic layout, which may have fewer blocks
    EXPECT_EQ(4, panel(t));
    t = tiles(.1);
    t.head_bytes = 8 << 20;
    EXPECT_EQ(2, panel(t));
    t.adds = true, t.head_bytes = 16 << 20;
    EXPECT_EQ(1, panel(t));
    t = tiles(.5), t.adds = true, t.head_bytes = 8 << 20;
    EXPECT_EQ(6, panel(t));
    t = tiles(.1), t.rows = 64, t.slots = 264;
    EXPECT_EQ(1, panel(t));
    t = tiles(1), t.equal = true;
    EXPECT_EQ(1, panel(t));
    t = tiles(.1), t.longest = 64; // half of what a slot does
    EXPECT_EQ(32, panel(t));
    t = tiles(.5), t.head_bytes = 1 << 18; // short sequences
    EXPECT_EQ(32, panel(t));
    t = tiles(.1), t.heads = 1;
    EXPECT_EQ(1, panel(t));
    t = tiles(0), t.lists = t.columns = t.head_bytes = 0; // no tokens
    EXPECT_EQ(1, panel(t));
}

// ---- Parts of dk and dv of grouped heads ----

TEST(CudaAttention, PartsOfKeys) {
    const auto parts = [](int32_t heads, double matrices, double tokens = 4096, bool causal = false) {
        tartan_cuda_attention_keys t = {};
        t.heads = heads, t.slots = 132, t.tile = 128, t.teams = 1, t.matrices = matrices, t.causal = causal;
        t.keys = t.queries = tokens, t.d = 128;
        return tartan_cuda_attention_key_parts(&t);
    };
    EXPECT_EQ(1, parts(1, 32));  // nothing to deal out
    EXPECT_EQ(1, parts(4, 256)); // enough tiles
    EXPECT_EQ(16, parts(32, 1)); // 32 tiles for 132 SMs
    EXPECT_EQ(2, parts(4, 4));   // one tile for each SM, of unlike lists
    EXPECT_EQ(4, parts(4, 4, 4096, true));
    EXPECT_EQ(32, parts(32, 1, 128)); // one tile
    EXPECT_EQ(0, 12 % parts(12, 1));
    EXPECT_EQ(1, parts(4, 4, 0)); // no tokens
    tartan_cuda_attention_keys none = {};
    none.heads = 8, none.slots = 132, none.tile = 128, none.teams = 1;
    none.matrices = 1, none.queries = 4096, none.d = 128;
    EXPECT_EQ(1, tartan_cuda_attention_key_parts(&none)); // queries, but no keys
}

// ---- Refusals ----

TEST(CudaAttention, RefusalsOfFused) {
    Backward half(TARTAN_BF16, 64, 64);
    EXPECT_EQ("its sums depend on the run, only for deterministic=0", half.refusal(kFused, kHopper));
    half.p.in.any_order = true;
    EXPECT_EQ("needs compute capability 9.0", half.refusal(kFused, kAmpere));
    EXPECT_REFUSES(half, kFused, kHopper, "up to 128 elements", p.in.d = 136);
    EXPECT_REFUSES(half, kFused, kHopper, "blocks of 64 or 128 keys", p.in.block_k = 32);
    Backward narrow(TARTAN_BF16, 64, 8, 64);
    narrow.p.in.any_order = true;
    EXPECT_EQ("", narrow.refusal(kFused, kHopper));
    EXPECT_REFUSES(half, kFused, kHopper, "float16", p.in.dtype = TARTAN_F32);
    EXPECT_REFUSES(half, kFused, kHopper, "bias", p.in.bias = &p);
    EXPECT_REFUSES(half, kFused, kHopper, "dropout", p.in.dropout = 0.1);
    EXPECT_REFUSES(half, kFused, kHopper, "dtype of q", p.out_grad.dtype = TARTAN_F32);
    EXPECT_REFUSES(half, kFused, kHopper, "of out_grad", p.out_grad.element = 2);
}

TEST(CudaAttention, RefusalsOfWgmma) {
    const Forward half(TARTAN_BF16, 64, 32);
    EXPECT_EQ("needs compute capability 9.0", half.refusal(kWgmma, kAmpere));
    EXPECT_EQ("needs compute capability 9.0", half.refusal(kWgmma, kBlackwell));
    EXPECT_REFUSES(half, kWgmma, kHopper, "float16", p.in.dtype = TARTAN_F32);
    EXPECT_REFUSES(half, kWgmma, kHopper, "float16", p.in.dtype = TARTAN_F64);
    for (const int64_t d : {8, 20, 264}) EXPECT_REFUSES(half, kWgmma, kHopper, "in eights", p.in.d = d);
    for (const int32_t block : {1, 24, 256}) {
        EXPECT_REFUSES(half, kWgmma, kHopper, "only for blocks of", p.in.block_q = block);
        EXPECT_REFUSES(half, kWgmma, kHopper, "only for blocks of", p.in.block_k = block);
    }
    EXPECT_REFUSES(half, kWgmma, kHopper, "values with as many elements as keys", p.in.dv = 64);
    EXPECT_REFUSES(half, kWgmma, kHopper, "has no softcap", p.in.softcap = 30);
    EXPECT_REFUSES(half, kWgmma, kHopper, "has no dense bias", p.in.bias_kind = TARTAN_I_BIAS_DENSE);
    EXPECT_REFUSES(half, kWgmma, kHopper, "no blocks", p.in.blocks = 0);
    EXPECT_REFUSES(half, kWgmma, kHopper, "no heads", p.in.heads = 0);
    EXPECT_REFUSES(half, kWgmma, kHopper, "2^31 queries", p.in.tq = INT32_MAX);
    EXPECT_REFUSES(half, kWgmma, kHopper, "2^31 queries", p.in.tk = INT32_MAX);
    EXPECT_REFUSES(half, kWgmma, kHopper, "2e9 tiles", p.in.batch = 1000000);
    for (const double scale : {0.0, -1.0})
        EXPECT_REFUSES(half, kWgmma, kHopper, "positive", p.in.scale = scale);
    for (const int64_t offset : {-((int64_t)1 << 30) - 1, ((int64_t)1 << 30) + 1})
        EXPECT_REFUSES(half, kWgmma, kHopper, "below 2^30", p.in.bias = &p; p.in.query_offset = offset);
    EXPECT_REFUSES(half, kWgmma, kHopper, "1e-20", p.in.bias = &p; p.in.scale = 1e-21);
    EXPECT_REFUSES(half, kWgmma, kHopper, "together with a block mask", p.in.bias_kind = TARTAN_I_BIAS_BLOCK;
                   p.in.block_mask = (const tartan_block_mask *)&p);
}

TEST(CudaAttention, WgmmaNeedsTensorsThatTmaCanLoad) {
    const Forward half(TARTAN_F16, 64, 64);
    const std::function<void(tartan_cuda_tensor &)> changes[] = {
        [](tartan_cuda_tensor &t) { t.data = (void *)4098; },
        [](tartan_cuda_tensor &t) { t.element = 2; },
        [](tartan_cuda_tensor &t) { t.token = 2052; },
        [](tartan_cuda_tensor &t) { t.token = 0; },
        [](tartan_cuda_tensor &t) { t.token = -2048; },
        [](tartan_cuda_tensor &t) { t.head = 12; },
        [](tartan_cuda_tensor &t) { t.head = (int64_t)1 << 38; },
        [](tartan_cuda_tensor &t) { t.batch = 0; },
    };
    for (const auto &change : changes)
        for (const auto tensor :
             {&tartan_cuda_attention::q, &tartan_cuda_attention::k, &tartan_cuda_attention::v}) {
            EXPECT_REFUSES(half, kWgmma, kHopper, "contiguous", change(p.in.*tensor));
            auto changed = half;
            change(changed.p.in.*tensor);
            EXPECT_EQ(kPlain, changed.chosen(kHopper));
        }
    // The strides of one head and one batch entry do not count.
    Forward single(TARTAN_F16, 64, 64);
    single.p.in.batch = single.p.in.heads = single.p.in.kv_heads = 1;
    single.p.in.q.head = single.p.in.k.batch = 3;
    EXPECT_EQ("", single.refusal(kWgmma, kHopper));
}

// ---- Rates ----

TEST(CudaAttention, RatesOfPlainKernels) {
    const auto forward = [](int32_t dtype, int32_t block, int64_t d) {
        return Forward(dtype, block, 64, d).rate(kPlain);
    };
    EXPECT_NEAR(12, forward(TARTAN_F32, 128, 128), 1e-9);
    EXPECT_NEAR(12, forward(TARTAN_BF16, 64, 64), 1e-9);
    EXPECT_NEAR(10, forward(TARTAN_F32, 32, 128), 1e-9);
    EXPECT_NEAR(7, forward(TARTAN_F32, 16, 128), 1e-9);
    EXPECT_NEAR(3.5, forward(TARTAN_F32, 8, 128), 1e-9);             // half of the threads are idle
    EXPECT_NEAR(12 * 36 / 64.0, forward(TARTAN_F32, 72, 128), 1e-9); // two pieces of 36
    EXPECT_NEAR(12 * 2 / 3.0, forward(TARTAN_F32, 64, 32), 1e-9);    // sums are made of 64 elements
    EXPECT_NEAR(12 * 2 / 3.0, forward(TARTAN_F32, 64, 256), 1e-9);   // the scores are computed twice
    EXPECT_NEAR(6, forward(TARTAN_F64, 128, 128), 1e-9);
    EXPECT_EQ(0, forward(TARTAN_F32, 64, 0));
    const auto backward = [](int32_t dtype, int32_t block_q, int32_t block_k, int64_t d) {
        return Backward(dtype, block_q, block_k, d).rate(kBackward);
    };
    EXPECT_NEAR(10 * 5 / 7.0, backward(TARTAN_F32, 64, 64, 128), 1e-9); // the scores are computed twice
    EXPECT_GT(backward(TARTAN_F32, 64, 64, 128), backward(TARTAN_F32, 64, 8, 128));
    EXPECT_GT(backward(TARTAN_F32, 64, 64, 128), backward(TARTAN_F32, 8, 64, 128));
    EXPECT_NEAR(6 * 5 / 9.0, backward(TARTAN_F64, 64, 64, 128), 1e-9); // and a third time
}

// Where the queries of several block rows share a tile, it has all keys that any of them sees.
TEST(CudaAttention, RatesOfWgmma) {
    EXPECT_GT(Forward(TARTAN_BF16, 128, 128).rate(kWgmma), Forward(TARTAN_BF16, 64, 128).rate(kWgmma));
    Forward shared(TARTAN_BF16, 16, 64), apart(TARTAN_BF16, 16, 64);
    for (int i = 0; i < TARTAN_CUDA_SHARES; i++) shared.p.in.figures.share[0][i] = 1 << i;
    EXPECT_NEAR(4 * apart.rate(kWgmma), shared.rate(kWgmma), 1e-9);
    EXPECT_NEAR(Forward(TARTAN_BF16, 64, 64).rate(kWgmma), shared.rate(kWgmma), 1e-9);
}

// Tiles of the backward pass have all queries that any of their keys sees, and dq's all keys.
TEST(CudaAttention, RatesOfTheBackwardPass) {
    Backward shared(TARTAN_BF16, 16, 16), apart(TARTAN_BF16, 16, 16);
    shared.p.in.blocks = apart.p.in.blocks = 0; // unknown, so without what each query costs
    for (int i = 0; i < TARTAN_CUDA_SHARES; i++)
        shared.p.in.figures.share[0][i] = shared.p.in.figures.share[1][i] = 1 << i;
    EXPECT_NEAR(4 * apart.rate(kBackwardWgmma), shared.rate(kBackwardWgmma), 1e-9);
    EXPECT_GT(Backward(TARTAN_BF16, 128, 128).rate(kBackwardWgmma),
              Backward(TARTAN_BF16, 128, 16).rate(kBackwardWgmma));
    EXPECT_GT(Backward(TARTAN_BF16, 128, 128).rate(kBackwardWgmma),
              Backward(TARTAN_BF16, 16, 128).rate(kBackwardWgmma));
    Backward few(TARTAN_BF16, 8, 128), many(TARTAN_BF16, 128, 128);
    few.p.in.blocks = many.p.in.blocks = 0;
    EXPECT_EQ(many.rate(kFused), few.rate(kFused));
    // Two blocks of 64 keys share a tile of 128, which pays if the same queries see them.
    Backward pair(TARTAN_BF16, 64, 64);
    pair.p.in.any_order = true, pair.p.in.blocks *= 5;
    EXPECT_EQ(kBackwardWgmma, pair.chosen(kHopper));
    pair.p.in.figures.share[1][1] = 2;
    EXPECT_EQ(kFused, pair.chosen(kHopper));
}

// What a query costs whatever it sees: 0.68 and 1.09 ns for 128 elements.
TEST(CudaAttention, FewKeysAreSlower) {
    Backward some(TARTAN_BF16, 128, 128), endless(TARTAN_BF16, 128, 128);
    some.p.in.blocks = 16 * 64 * 10; // 1280 keys a query
    endless.p.in.blocks = 0;
    const double work = 10.0 * 128 * 1280;
    EXPECT_NEAR(work / some.rate(kBackwardWgmma), work / endless.rate(kBackwardWgmma) + 680, 1e-6);
    EXPECT_NEAR(work / some.rate(kFused), work / endless.rate(kFused) + 1090, 1e-6);
}
