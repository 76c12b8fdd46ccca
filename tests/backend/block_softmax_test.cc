// SPDX-License-Identifier: Apache-2.0
// What every backend's softmax of block-sparse scores, its gradient and the merge of attentions must do: results within
// the error of their dtypes, also in place, and nothing else written.
#include "../ops/block_softmax_support.h"
#include "explained.h"

namespace {

using namespace tartan_test;

class BackendSoftmax : public OnBackend {
  protected:
    // Runs both directions with operands on the device, in place if asked, and checks them.
    void run_and_check(Softmax &p, bool in_place = false) {
        tartan_context *c = context.get();
        const Matrix x = placed(c, p.x), dy = placed(c, p.dy), room = placed(c, p.y), grads = placed(c, p.dx);
        const Matrix &y = in_place ? x : room, &dx = in_place ? dy : grads;
        const Placed lse(c, p.lse);
        tartan_array lse_there = lse.array;
        const tartan_status status =
            tartan_block_softmax(c, x.get(), p.options().c_str(), p.mask.get(), y.get(), &lse_there);
        if (is_refused(status)) return;
        ASSERT_EQ(TARTAN_OK, status) << tartan_last_error();
        ASSERT_OK(tartan_block_softmax_gradient(c, y.get(), dy.get(), p.scale, dx.get()));
        p.y = fetched(c, y);
        p.dx = fetched(c, dx);
        lse.fetch(p.lse);
        p.check_forward(p.x.get());
        p.check_backward(p.dy.get());
        EXPECT_TRUE(marks_intact(p.lse));
    }
};
INSTANTIATE_TEST_SUITE_P(Each, BackendSoftmax, ::testing::ValuesIn(backends()),
                         [](const auto &info) { return info.param; });

TEST_P(BackendSoftmax, RandomProblems) {
    for (uint64_t seed = 10000; seed < 10000 + rounds(300u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        Softmax p = make_softmax(seed);
        run_and_check(p);
        if (HasFailure()) return;
    }
}

TEST_P(BackendSoftmax, InPlace) {
    for (uint64_t seed = 11000; seed < 11000 + rounds(50u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        Softmax p = make_softmax(seed);
        std::mt19937_64 random(seed);
        const int32_t dtype = p.x->dtype, grads = p.dy->dtype, order = (int32_t)(seed % 2);
        p.make(random, {dtype, dtype, grads, grads}, {order, order, order, order});
        run_and_check(p, true);
        if (HasFailure()) return;
    }
}

// Sizes for which threads divide rows in other ways.
TEST_P(BackendSoftmax, BlocksOfAllSizes) {
    int number = 0;
    for (int64_t rows : {8, 32, 64, 256})
        for (int64_t cols : {8, 16, 32, 64, 128, 256})
            for (int32_t dtype : kDtypes) {
                if (!is_of_the_share(number++)) continue;
                SCOPED_TRACE(::testing::Message() << rows << " x " << cols << " dtype " << dtype);
                std::mt19937_64 random((uint64_t)number);
                Softmax p;
                const int64_t length = number % 2 ? 300 : 512;
                p.layout = random_layout({rows + 5, length, rows, cols, 1}, 0.8, (uint64_t)number);
                if (number % 3 == 0) p.take_mask(0.7, (uint64_t)number);
                p.causal = number % 4 == 0;
                p.query_offset = length / 2;
                p.make(random, dtype, number % 5 == 0);
                run_and_check(p);
                if (HasFailure()) return;
            }
}

// Rows that are longer than threads can keep.
TEST_P(BackendSoftmax, LongRows) {
    for (int64_t cols : {8, 64, 256})
        for (int32_t dtype : kDtypes)
            for (int32_t order : {TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR}) {
                SCOPED_TRACE(::testing::Message() << cols << " dtype " << dtype << " order " << order);
                std::mt19937_64 random((uint64_t)cols);
                Softmax p;
                p.layout = random_layout({11, 9984, 8, cols, 1}, 1, 1);
                p.causal = dtype == TARTAN_F16;
                p.query_offset = 9000;
                p.make(random, dtype, order);
                run_and_check(p);
                if (HasFailure()) return;
            }
}

TEST_P(BackendSoftmax, NanStaysInTheVisiblePartOfItsRow) {
    for (int32_t dtype : kDtypes) {
        std::mt19937_64 random(1);
        Softmax p;
        p.layout = random_layout({32, 48, 16, 16, 1}, 1, 1);
        p.make(random, dtype);
        p.causal = true;
        tartan_i_store(tartan_i_block_at(p.x.get(), 3), dtype, 4 * 16 + 3, NAN); // row 20, column 3
        tartan_context *c = context.get();
        const Matrix x = placed(c, p.x), y = placed(c, p.y);
        ASSERT_OK(tartan_block_softmax(c, x.get(), p.options().c_str(), nullptr, y.get(), nullptr));
        p.y = fetched(c, y);
        p.each_row([&](int64_t h, int64_t row) {
            p.each(h, row, [&](int64_t id, int64_t i, int64_t j) {
                const double got = entry(p.y.get(), id, i, j);
                if (!p.sees(id, i, j))
                    EXPECT_EQ(0, got) << row;
                else
                    EXPECT_EQ(row == 20, std::isnan(got)) << row;
            });
        });
    }
}

TEST_P(BackendSoftmax, ExplainsItself) {
    std::mt19937_64 random(1);
    Softmax p;
    p.layout = random_layout({32, 48, 16, 16, 1}, 1, 1);
    p.make(random, TARTAN_F32);
    tartan_context *c = context.get();
    const Matrix x = placed(c, p.x), y = placed(c, p.y);
    const std::string text = explained([&] {
        EXPECT_OK(tartan_block_softmax(c, x.get(), nullptr, nullptr, y.get(), nullptr));
        return tartan_block_softmax_gradient(c, y.get(), x.get(), 1, x.get());
    });
    for (const char *part :
         {"[{\"operation\": \"block_softmax\"", "}, {\"operation\": \"block_softmax_gradient\"",
          "\"flops\": 6144,", "\"kernel\": \""})
        EXPECT_NE(std::string::npos, text.find(part)) << part << " in " << text;
}

TEST_P(BackendSoftmax, Merge) {
    for (uint64_t seed = 12000; seed < 12000 + rounds(150u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        Merge p = make_merge(seed);
        tartan_context *c = context.get();
        Placed out_a(c, p.out_a), lse_a(c, p.lse_a), out_b(c, p.out_b), lse_b(c, p.lse_b), out(c, p.out),
            lse(c, p.lse);
        RUN_OR_NEXT(tartan_attention_merge(c, &out_a.array, &lse_a.array, &out_b.array, &lse_b.array,
                                           &out.array, &lse.array));
        Dense got = p.out, got_lse = p.lse;
        out.fetch(got);
        lse.fetch(got_lse);
        p.check(got, got_lse);
        EXPECT_TRUE(marks_intact(got));
        EXPECT_TRUE(marks_intact(got_lse));
        Placed &first = seed % 2 ? out_a : out_b, &first_lse = seed % 2 ? lse_a : lse_b; // in place
        ASSERT_OK(tartan_attention_merge(c, &out_a.array, &lse_a.array, &out_b.array, &lse_b.array,
                                         &first.array, &first_lse.array));
        got = seed % 2 ? p.out_a : p.out_b, got_lse = seed % 2 ? p.lse_a : p.lse_b;
        first.fetch(got);
        first_lse.fetch(got_lse);
        p.check(got, got_lse);
        if (HasFailure()) return;
    }
}

} // namespace
