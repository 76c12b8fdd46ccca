// SPDX-License-Identifier: Apache-2.0
// What every backend's attention must do: results within the error of its dtype, and nothing else written. A problem that a
// device refuses (UNSUPPORTED) is passed over; on the CPU and the dummy nothing may be refused.
#include "../ops/attention_support.h"
#include "explained.h"

namespace {

using namespace tartan_test;

class BackendAttention : public OnBackend {
  protected:
    // A problem whose operands are on the device.
    struct There {
        const Attention &p;
        Placed q, k, v, bias, sinks, out, lse, out_grad, q_grad, k_grad, v_grad;
        There(tartan_context *c, const Attention &p_)
            : p(p_), q(c, p.q), k(c, p.k), v(c, p.v), out(c, p.out), lse(c, p.lse), out_grad(c, p.out_grad),
              q_grad(c, p.q_grad), k_grad(c, p.k_grad), v_grad(c, p.v_grad) {
            if (p.bias_kind != TARTAN_I_BIAS_NONE) bias = Placed(c, p.bias);
            if (p.has_sinks) sinks = Placed(c, p.sinks);
        }
        const tartan_array *bias_array() const { return p.bias_array() != nullptr ? &bias.array : nullptr; }
        const tartan_array *sinks_array() const { return p.has_sinks ? &sinks.array : nullptr; }
        tartan_status forward(tartan_context *c) {
            return tartan_attention_forward(c, p.layout.get(), &q.array, &k.array, &v.array,
                                            p.options().c_str(), p.mask.get(), bias_array(), sinks_array(),
                                            &out.array, &lse.array);
        }
        tartan_status backward(tartan_context *c) {
            return tartan_attention_backward(c, p.layout.get(), &q.array, &k.array, &v.array,
                                             p.options().c_str(), p.mask.get(), bias_array(), &out.array,
                                             &lse.array, &out_grad.array, &q_grad.array, &k_grad.array,
                                             &v_grad.array);
        }
    };
    // Whether the call ran.
    bool ran(tartan_status status) const {
        if (dummy() || on_host() || status != TARTAN_ERR_UNSUPPORTED) {
            EXPECT_OK(status);
        }
        return status == TARTAN_OK;
    }
    static void check(const Placed &there, Dense &here, const Sums &want, double most) {
        there.fetch(here);
        EXPECT_LE(error_of(here, want), most);
        EXPECT_TRUE(marks_intact(here));
    }
    // Runs and checks what is not refused.
    void run_and_check(Attention &p) {
        There there(context.get(), p);
        if (!ran(there.forward(context.get()))) return;
        const AttentionResults want = p.results();
        const double most = allowed(p);
        check(there.out, p.out, want.out, most);
        there.lse.fetch(p.lse);
        EXPECT_LE(error_of(numbers_of(p.lse), want.lse, Numbers(want.lse.size(), 1)),
                  16 * epsilon(p.sum_dtype()));
        if (!ran(there.backward(context.get()))) return;
        check(there.q_grad, p.q_grad, want.q_grad, most);
        check(there.k_grad, p.k_grad, want.k_grad, most);
        check(there.v_grad, p.v_grad, want.v_grad, most);
    }
};
INSTANTIATE_TEST_SUITE_P(Each, BackendAttention, ::testing::ValuesIn(backends()),
                         [](const auto &info) { return info.param; });

TEST_P(BackendAttention, RandomProblems) {
    for (uint64_t seed = 10000; seed < 10000 + rounds(150u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        Attention p = make_attention(seed);
        run_and_check(p);
        if (HasFailure()) return;
    }
}

// Sizes for which devices have kernels of their own.
TEST_P(BackendAttention, BlocksAndHeadsOfAllSizes) {
    int number = 0;
    for (int64_t block : {8, 16, 32, 64, 128})
        for (int64_t d : {16, 64, 128, 256})
            for (int32_t dtype : {TARTAN_F32, TARTAN_F16, TARTAN_BF16}) {
                if (!is_of_the_share(number++)) continue;
                const bool causal = number % 2;
                SCOPED_TRACE(::testing::Message() << "block " << block << " d " << d << " causal " << causal
                                                  << " " << tartan_dtype_name(dtype));
                std::mt19937_64 random((uint64_t)number);
                Attention p;
                p.dtype = p.out_dtype = dtype;
                p.d = d, p.heads = 2, p.kv_heads = 1 + number / 4 % 2, p.causal = causal;
                p.layout = random_layout({block + 70, 2 * block + 70, block, block, 1 + number / 2 % 2}, 0.6,
                                         (uint64_t)number);
                p.make(random, number % 3 == 0 ? kTokens : kHeads);
                run_and_check(p);
                if (HasFailure()) return;
            }
}

// Queries with and without keys, and special sinks.
TEST_P(BackendAttention, Sinks) {
    for (int32_t dtype : kDtypes) {
        SCOPED_TRACE(tartan_dtype_name(dtype));
        std::mt19937_64 random(1);
        Attention p;
        p.dtype = p.out_dtype = dtype;
        p.heads = 4, p.kv_heads = 2;
        p.layout = from_mask({40, 48, 16, 16, 1}, {1, 0, 1, 0, 0, 0, 1, 1, 0});
        p.make(random);
        p.add_sinks(random);
        p.sinks.set(0, -INFINITY);
        run_and_check(p);
        p.sinks.set(1, INFINITY), p.sinks.set(2, NAN);
        There there(context.get(), p);
        if (!ran(there.forward(context.get()))) continue;
        there.out.fetch(p.out);
        there.lse.fetch(p.lse);
        for (int64_t i = 0; i < 160; i++) {
            const double lse = p.lse.get(i), out = p.out.get(i * 16);
            const bool as_expected[] = {(i % 40 / 16 == 1) == (lse == -INFINITY), lse == INFINITY && out == 0,
                                        std::isnan(lse) && std::isnan(out), std::isfinite(lse)};
            EXPECT_TRUE(as_expected[i / 40]) << i << ": " << lse << ", " << out;
        }
    }
}

TEST_P(BackendAttention, ExplainsItself) {
    std::mt19937_64 random(1);
    Attention p;
    p.heads = p.kv_heads = 2;
    p.layout = random_layout({32, 48, 16, 16, 1}, 1, 1);
    p.make(random);
    p.add_sinks(random);
    There there(context.get(), p);
    const std::string text = explained([&] {
        EXPECT_OK(there.forward(context.get()));
        return there.backward(context.get());
    });
    for (const char *part :
         {"[{\"operation\": \"attention_forward\"", "}, {\"operation\": \"attention_backward\"",
          "{\"name\": \"layout\"", "{\"name\": \"sinks\"", "\"flops\": 196608,", "\"flops\": 491520,",
          "\"kernel\": \""})
        EXPECT_NE(std::string::npos, text.find(part)) << part << " in " << text;
}

} // namespace
