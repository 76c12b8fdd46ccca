// SPDX-License-Identifier: Apache-2.0
// The ways in which the CPU runs attention: which one explain names, and why not the others.
#include "../ops/attention_support.h"
#include "../support/feature_sets.h"
#include "explained_rows.h"

namespace {

using namespace tartan_test;

struct AttentionQuestion {
    int32_t dtype = TARTAN_F32, out_dtype = TARTAN_F32, threads = 1;
    int64_t block = 32, d = 64, dv = 0;
    double dropout = 0, softcap = 0;

    Attention problem() const {
        Attention p;
        std::mt19937_64 random(1);
        p.layout = random_layout({2 * block, 2 * block, block, block, 1}, 1, 1);
        p.dtype = dtype, p.out_dtype = out_dtype, p.d = d, p.dropout = dropout;
        p.dv = dv, p.softcap = softcap;
        p.make(random);
        return p;
    }
    void forward(const char *chosen, const std::vector<Refusal> &others) const {
        Attention p = problem();
        const Context context = open_context(threads);
        const std::string text = explained([&] {
            return attention_forward(context.get(), p.layout.get(), &p.q.array, &p.k.array, &p.v.array,
                                     p.options().c_str(), nullptr, nullptr, nullptr, &p.out.array,
                                     &p.lse.array);
        });
        expect_row(TARTAN_OP_ATTENTION_FORWARD, text, chosen, others);
    }
    static std::string backward_of(tartan_context *context, Attention &p) {
        return explained([&] {
            return attention_backward(context, p.layout.get(), &p.q.array, &p.k.array, &p.v.array,
                                      p.options().c_str(), nullptr, nullptr, &p.out.array, &p.lse.array,
                                      &p.out_grad.array, &p.q_grad.array, &p.k_grad.array, &p.v_grad.array);
        });
    }
    void backward(const char *chosen, const std::vector<Refusal> &others) const {
        Attention p = problem();
        const Context context = open_context(threads);
        expect_row(TARTAN_OP_ATTENTION_BACKWARD, backward_of(context.get(), p), chosen, others);
    }
};

bool has_pairs() {
    return tartan_i_cpu_table_of(TARTAN_BF16)->product.group > 1;
}
bool has_stages() {
    return tartan_i_cpu_table_of(TARTAN_BF16)->product.stage != nullptr;
}
// What a CPU can do, but for tiles.
tartan_i_cpu_features without_tiles() {
    return tartan_i_cpu_detect() & ~(tartan_i_cpu_features)TARTAN_I_CPU_AMX;
}

const char *const kWide = "only for 16-bit dtypes";
const char *const kNoPairs = "no instruction set in use multiplies pairs of this dtype";
const char *const kConverts = "converts to float32 first";
const char *const kTwice = "computes weights twice: for dq, and for dk and dv";

TEST(ExplainAttention, ForwardOnReals) {
    AttentionQuestion q;
    q.forward("attention_forward",
              {{"attention_forward_pipelined", kWide}, {"attention_forward_pairs", kWide}});
    q.dtype = q.out_dtype = TARTAN_BF16;
    const WithFeatures none(0);
    q.forward("attention_forward",
              {{"attention_forward_pipelined", kNoPairs}, {"attention_forward_pairs", kNoPairs}});
}

// The instruction sets for pairs are named by the row that would use them, not by the row that runs.
TEST(ExplainAttention, AnInstructionSetBelongsToTheRowThatUsesIt) {
    const tartan_i_cpu_features wide = tartan_i_kernels_known_for(TARTAN_F32),
                                more = tartan_i_kernels_known_for(TARTAN_BF16) & ~wide;
    const WithFeatures none(0);
    AttentionQuestion q;
    q.dtype = q.out_dtype = TARTAN_BF16;
    Attention p = q.problem();
    const Context context = open_context(1);
    const std::string text = AttentionQuestion::backward_of(context.get(), p);
    EXPECT_NE(std::string::npos,
              text.find("\"kernel\": \"attention_backward_fused\", \"instruction_set\": \"c\""))
        << text;
    for (int i = 0; i < TARTAN_I_CPU_FEATURES; i++) {
        const std::string row = more >> i & 1 ? "attention_backward_pairs" : "attention_backward_fused";
        if (!((wide | more) >> i & 1)) continue;
        EXPECT_NE(std::string::npos,
                  text.find("{\"kernel\": \"" + row + " with " + tartan_i_cpu_name(i) + "\", \"why\": "))
            << text;
    }
}

TEST(ExplainAttention, ForwardOnPairs) {
    const WithFeatures set(without_tiles());
    if (!has_pairs()) GTEST_SKIP() << "no products of pairs without tiles";
    AttentionQuestion q;
    q.dtype = q.out_dtype = TARTAN_BF16;
    q.forward("attention_forward_pairs",
              {{"attention_forward_pipelined", "no instruction set in use multiplies tiles of this dtype"},
               {"attention_forward", kConverts}});
    q.d = 0;
    q.forward("attention_forward",
              {{"attention_forward_pipelined", "d is 0"}, {"attention_forward_pairs", "d is 0"}});
}

TEST(ExplainAttention, PairsTakeSoftcapAndAnotherD) {
    const WithFeatures set(tartan_i_cpu_detect());
    if (!has_pairs()) GTEST_SKIP() << "no products of pairs";
    AttentionQuestion q;
    q.dtype = q.out_dtype = TARTAN_BF16;
    const auto refused = [&](const char *why) {
        q.forward("attention_forward_pairs",
                  {{"attention_forward_pipelined", why}, {"attention_forward", kConverts}});
        q.backward("attention_backward_pairs_fused", {{"attention_backward_pairs", kTwice},
                                                      {"attention_backward_fused", kConverts},
                                                      {"attention_backward", kTwice}});
    };
    q.dv = 32;
    refused("v has another d than q and k");
    q.dv = 0, q.softcap = 30;
    refused("it has no softcap");
}

TEST(ExplainAttention, ForwardPipelined) {
    const WithFeatures set(tartan_i_cpu_detect());
    if (!has_stages()) GTEST_SKIP() << "no products of tiles";
    AttentionQuestion q;
    q.dtype = q.out_dtype = TARTAN_BF16;
    q.forward("attention_forward_pipelined",
              {{"attention_forward_pairs", "computes scores, weights and sums one after the other"},
               {"attention_forward", kConverts}});
    q.block = 16;
    q.forward("attention_forward_pairs",
              {{"attention_forward_pipelined", "the sizes of blocks are not multiples of 32"},
               {"attention_forward", kConverts}});
    q.block = 64, q.d = 24;
    q.forward("attention_forward_pairs", {{"attention_forward_pipelined", "d is not a multiple of 32"},
                                          {"attention_forward", kConverts}});
}

TEST(ExplainAttention, BackwardOnReals) {
    AttentionQuestion q;
    q.backward("attention_backward_fused", {{"attention_backward_pairs_fused", kWide},
                                            {"attention_backward_pairs", kWide},
                                            {"attention_backward", kTwice}});
    q.threads = 2;
    q.backward("attention_backward",
               {{"attention_backward_pairs_fused", kWide},
                {"attention_backward_pairs", kWide},
                {"attention_backward_fused", "fewer kv heads in the batch than threads"}});
}

TEST(ExplainAttention, BackwardOfManyKeys) {
    const int64_t keys = 4 << 20;
    std::vector<uint8_t> mask((size_t)(keys / 256));
    mask[1] = 1;
    Attention p;
    std::mt19937_64 random(1);
    p.layout = from_mask({1, keys, 1, 256, 1}, mask);
    p.d = 1;
    p.make(random);
    const Context context = open_context(1);
    expect_row(
        TARTAN_OP_ATTENTION_BACKWARD, AttentionQuestion::backward_of(context.get(), p), "attention_backward",
        {{"attention_backward_pairs_fused", kWide},
         {"attention_backward_pairs", kWide},
         {"attention_backward_fused", "the gradients of a kv head for each thread take too much memory"}});
}

TEST(ExplainAttention, BackwardOnPairs) {
    if (!has_pairs()) GTEST_SKIP() << "no products of pairs";
    AttentionQuestion q;
    q.dtype = q.out_dtype = TARTAN_BF16;
    q.backward("attention_backward_pairs_fused", {{"attention_backward_pairs", kTwice},
                                                  {"attention_backward_fused", kConverts},
                                                  {"attention_backward", kTwice}});
    q.threads = 2;
    q.backward("attention_backward_pairs",
               {{"attention_backward_pairs_fused", "fewer kv heads in the batch than threads"},
                {"attention_backward_fused", "fewer kv heads in the batch than threads"},
                {"attention_backward", kTwice}});
    q.threads = 1, q.dropout = 0.5;
    q.backward("attention_backward_fused", {{"attention_backward_pairs_fused", "it has no dropout"},
                                            {"attention_backward_pairs", "it has no dropout"},
                                            {"attention_backward", kTwice}});
    q.dropout = 0, q.out_dtype = TARTAN_F32;
    q.backward("attention_backward_fused",
               {{"attention_backward_pairs_fused", "out_grad has another dtype than q"},
                {"attention_backward_pairs", "out_grad has another dtype than q"},
                {"attention_backward", kTwice}});
}

} // namespace
