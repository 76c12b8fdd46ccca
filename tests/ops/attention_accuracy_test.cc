// SPDX-License-Identifier: Apache-2.0
// The errors that docs/numerics.md states: of 16-bit attention, beside a plain implementation that rounds the result of
// each step to the dtype.
#include "attention_support.h"

namespace {

using namespace tartan_test;

struct Worst {
    double ratio = 0;
    uint64_t seed = 0;
    void take(double ours, double plain, uint64_t from) {
        const double tiny = 4 * epsilon(TARTAN_F32); // what sums in f32 cost
        if (ours <= tiny || ours / std::max(plain, tiny) <= ratio) return;
        ratio = ours / std::max(plain, tiny);
        seed = from;
    }
};

TEST(AttentionAccuracy, SixteenBitsWithinTwiceAPlainImplementation) {
    const Context context = open_context(2);
    const WithFeatures with(tartan_i_cpu_in_use());
    const auto sets = feature_sets();
    Worst out, q_grad, k_grad, v_grad;
    unsigned problems = 0;
    for (uint64_t seed = 20000; problems < rounds(250u); seed++) {
        Attention p = make_attention(seed);
        if (tartan_dtype_bytes(p.dtype) != 2 || p.tq() == 0 || p.tk() == 0) continue;
        tartan_i_cpu_use(sets[problems++ % sets.size()]);
        ASSERT_OK(p.forward(context.get()));
        ASSERT_OK(p.backward(context.get()));
        const AttentionResults want = p.results(), plain = p.results(Attention::plain);
        const auto of = [&](const Sums &got, const Sums &exact) {
            return error_of(got.values, exact.values, exact.sizes);
        };
        out.take(error_of(p.out, want.out), of(plain.out, want.out), seed);
        q_grad.take(error_of(p.q_grad, want.q_grad), of(plain.q_grad, want.q_grad), seed);
        k_grad.take(error_of(p.k_grad, want.k_grad), of(plain.k_grad, want.k_grad), seed);
        v_grad.take(error_of(p.v_grad, want.v_grad), of(plain.v_grad, want.v_grad), seed);
    }
    const std::pair<const char *, Worst> all[] = {
        {"out", out}, {"q_grad", q_grad}, {"k_grad", k_grad}, {"v_grad", v_grad}};
    for (const auto &one : all) {
        EXPECT_LE(one.second.ratio, 2) << one.first << " of seed " << one.second.seed;
        RecordProperty(one.first, std::to_string(one.second.ratio));
        std::printf("%s: at most %.2f of the error of a plain implementation\n", one.first, one.second.ratio);
    }
}

} // namespace
