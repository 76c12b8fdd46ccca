// SPDX-License-Identifier: Apache-2.0
// Attention of packed sequences equals attention of each sequence alone, on every backend.
#include "../support/attention_calls.h"
#include "attention_placed.h"

namespace {

using namespace tartan_test;

struct Packed {
    std::vector<int64_t> q, k; // offsets
    int64_t block = 16, window = 0;
    bool causal = false, aligns_starts = false;

    tartan_shape shape() const { return {q.back(), k.back(), block, block, 1}; }
    void plan(Attention &p) const {
        const std::string options = std::string("causal=") + (causal ? "1" : "0") +
                                    (aligns_starts ? " align=start" : "") +
                                    (window > 0 ? " window=" + std::to_string(window) : "");
        const int64_t n = (int64_t)q.size();
        const tartan_shape s = shape();
        tartan_layout *layout = nullptr;
        tartan_block_mask *mask = nullptr;
        ASSERT_OK(tartan_layout_from_sequences(&s, q.data(), n, k.data(), n, options.c_str(), &layout));
        p.layout.reset(layout);
        ASSERT_OK(tartan_block_mask_from_sequences(layout, q.data(), n, k.data(), n, options.c_str(), &mask));
        p.mask.reset(mask);
    }
    // One sequence alone, of the same blocks.
    Attention alone(size_t s) const {
        Attention p;
        const int64_t rows = q[s + 1] - q[s], cols = k[s + 1] - k[s];
        p.layout = random_layout({rows, cols, block, block, 1}, 1, 1);
        p.causal = causal;
        p.query_offset = causal && !aligns_starts ? cols - rows : 0;
        if (window == 0) return p;
        const struct Rule { int64_t offset, window; } rule = {p.query_offset, window};
        const auto keep = [](void *user, int64_t, int64_t row, int64_t col) -> int32_t {
            const Rule *r = (const Rule *)user;
            return row + r->offset - col < r->window;
        };
        tartan_block_mask *mask = nullptr;
        EXPECT_OK(tartan_block_mask_from_rule(p.layout.get(), keep, (void *)&rule, &mask));
        p.mask.reset(mask);
        return p;
    }
};

// The tokens begin .. end - 1 of an array [batch, heads, tokens, ...].
tartan_array tokens_of(tartan_array a, int64_t begin, int64_t end) {
    a.data = (char *)a.data + begin * a.strides[2] * (int64_t)tartan_dtype_bytes(a.dtype);
    a.shape[2] = end - begin;
    return a;
}

class PackedAttention : public AttentionOnBackend {
  protected:
    // Both passes of sequence after sequence; false if the device refuses.
    bool run_alone(const Packed &packed, There &x) {
        for (size_t s = 0; s + 1 < packed.q.size(); s++) {
            const auto queries = [&](const Placed &a) {
                return tokens_of(a.array, packed.q[s], packed.q[s + 1]);
            };
            const auto keys = [&](const Placed &a) {
                return tokens_of(a.array, packed.k[s], packed.k[s + 1]);
            };
            const Attention one = packed.alone(s);
            tartan_array q = queries(x.q), k = keys(x.k), v = keys(x.v), out = queries(x.out),
                         lse = queries(x.lse), out_grad = queries(x.out_grad), q_grad = queries(x.q_grad),
                         k_grad = keys(x.k_grad), v_grad = keys(x.v_grad);
            const std::string options = one.options();
            if (!ran(attention_forward(context.get(), one.layout.get(), &q, &k, &v, options.c_str(),
                                       one.mask.get(), nullptr, nullptr, &out, &lse)) ||
                !ran(attention_backward(context.get(), one.layout.get(), &q, &k, &v, options.c_str(),
                                        one.mask.get(), nullptr, &out, &lse, &out_grad, &q_grad, &k_grad,
                                        &v_grad)))
                return false;
        }
        return true;
    }
    // The same bits, or numbers within the error of both.
    static void compare(bool bits, const Placed &a, const Placed &b, Dense &here, const Sums &sums,
                        double most) {
        a.fetch(here);
        const Numbers one = numbers_of(here);
        b.fetch(here);
        const Numbers other = numbers_of(here);
        if (bits) {
            EXPECT_EQ(one, other);
            return;
        }
        EXPECT_LE(error_of(one, other, sums.sizes), 2 * most);
    }
    // `bits`: on the host, sequences of whole blocks have the bits of each alone.
    void check_packed(const Packed &packed, Attention &p, bool bits) {
        packed.plan(p);
        if (HasFailure()) return;
        std::mt19937_64 random(packed.q.size());
        p.make(random);
        There there(context.get(), p), alone(context.get(), p);
        if (!ran(there.forward(context.get())) || !ran(there.backward(context.get())) ||
            !run_alone(packed, alone))
            return;
        AttentionResults sums = p.results();
        Sums lse;
        lse.sizes.assign(sums.lse.size(), 1);
        bits = bits && on_host();
        const double most = allowed(p);
        compare(bits, there.out, alone.out, p.out, sums.out, most);
        compare(bits, there.lse, alone.lse, p.lse, lse, 8 * epsilon(p.sum_dtype()));
        compare(bits, there.q_grad, alone.q_grad, p.q_grad, sums.q_grad, most);
        compare(bits, there.k_grad, alone.k_grad, p.k_grad, sums.k_grad, most);
        compare(bits, there.v_grad, alone.v_grad, p.v_grad, sums.v_grad, most);
    }
};
INSTANTIATE_TEST_SUITE_P(Each, PackedAttention, ::testing::ValuesIn(backends()),
                         [](const auto &info) { return info.param; });

TEST_P(PackedAttention, IsThatOfEachSequence) {
    const Packed cases[] = {
        {{0, 0, 0}, {0, 0, 0}},                                          // no tokens
        {{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 5}, 4, 0, true},            // single tokens
        {{0, 40, 40, 57, 58, 97}, {0, 40, 40, 57, 58, 97}, 16, 0, true}, // ragged, one empty
        {{0, 40, 57, 97}, {0, 40, 57, 97}, 16, 0, false},                // both directions
        {{0, 7, 8, 24, 30}, {0, 50, 90, 106, 106}, 16, 0, true},         // chunked prefill, decoding, no keys
        {{0, 7, 8, 24, 30}, {0, 50, 90, 106, 150}, 16, 0, true, true},   // from the first key
        {{0, 60, 75, 80}, {0, 20, 100, 103}, 8, 0, true},                // more queries than keys
        {{0, 40, 57, 97}, {0, 40, 57, 97}, 8, 11, true},                 // a window
        {{0, 70, 130}, {0, 70, 130}, 64, 0, true},                       // large blocks
    };
    int number = 0;
    for (const Packed &packed : cases)
        for (int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_BF16}) {
            SCOPED_TRACE(::testing::Message() << "case " << number / 3 << " " << tartan_dtype_name(dtype));
            Attention p;
            p.dtype = p.out_dtype = dtype;
            p.kv_heads = 1 + number % 2, p.heads = p.kv_heads * (1 + number / 2 % 2);
            p.batch = 1 + number / 4 % 2;
            p.d = dtype == TARTAN_BF16 ? 64 : 24;
            number++;
            check_packed(packed, p, false);
            if (HasFailure()) return;
        }
}

TEST_P(PackedAttention, OfWholeBlocksHasTheBitsOfEachSequence) {
    for (int32_t dtype : {TARTAN_F64, TARTAN_F32})
        for (int64_t block : {8, 32}) {
            SCOPED_TRACE(::testing::Message() << "block " << block << " " << tartan_dtype_name(dtype));
            Attention p;
            p.dtype = p.out_dtype = dtype;
            p.heads = 2;
            p.d = 16;
            check_packed({{0, 3 * block, 4 * block, 4 * block, 9 * block + 3},
                          {0, 3 * block, 8 * block, 9 * block, 15 * block + 5},
                          block,
                          0,
                          true},
                         p, true);
        }
}

} // namespace
