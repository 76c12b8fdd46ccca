// SPDX-License-Identifier: Apache-2.0
// Long calls that their caller stops: every operation that asks, at several questions, and the next call.
#include "../support/attention_calls.h"
#include "conv_support.h"
#include "products.h"

#include <chrono>
#include <functional>
#include <map>
#include <thread>

extern "C" {
#include "core/interrupt.h"
}

using namespace tartan_test;

namespace {

struct Caller {
    int64_t asked = 0, stop_at = -1; // which question is answered with yes, from 0
    bool elsewhere = false;          // a question came on another thread
    std::thread::id thread = std::this_thread::get_id();
};
int32_t ask(void *user) {
    Caller *caller = (Caller *)user;
    caller->elsewhere |= caller->thread != std::this_thread::get_id();
    return caller->asked++ == caller->stop_at;
}

// Questions without pauses.
class Interrupt : public testing::Test {
  protected:
    void SetUp() override { tartan_i_interrupt_every(0); }
    void TearDown() override { tartan_i_interrupt_every(0.01); }
};

using Values = std::vector<double>;
using Call = std::function<tartan_status(tartan_context *context, Values *out)>;

void add_values(const Dense &dense, Values *out) {
    for (int64_t i = 0; i < dense.elements(); i++) out->push_back(dense.get(i));
}
tartan_status add_values(tartan_status status, const tartan_matrix *m, Values *out) {
    if (status != TARTAN_OK) return status;
    Dense dense(m->dtype, {m->layout->shape.rows, m->layout->shape.cols});
    status = tartan_matrix_to_dense(m, &dense.array);
    add_values(dense, out);
    return status;
}

// Operands of all calls.
struct Operands {
    std::mt19937_64 random{7};
    int32_t dtype;
    Layout layout = random_layout({96, 96, 8, 8, 1}, 0.5, 3);
    Layout tall = random_layout({4000, 96, 16, 16, 1}, 0.5, 4),
           small = random_layout({2000, 96, 4, 4, 1}, 0.5, 4),
           high = random_layout({2048, 512, 64, 32, 1}, 0.02, 4);
    Matrix a, b, c, d, e;
    Dense x, y, q, k, v, out, lse, out_grad, image, result;
    std::unique_ptr<tartan_conv, void (*)(tartan_conv *)> conv{nullptr, tartan_conv_free};
    Matrix filter;

    explicit Operands(int32_t of)
        : dtype(of), a(random_matrix(layout, of, TARTAN_COL_MAJOR, random)),
          b(random_matrix(layout, of, TARTAN_ROW_MAJOR, random)),
          c(random_matrix(tall, of, TARTAN_COL_MAJOR, random)),
          d(random_matrix(small, of, TARTAN_ROW_MAJOR, random)),
          e(random_matrix(high, of, TARTAN_COL_MAJOR, random)), x(of, {96, 40}), y(of, {40, 96}),
          q(of, {1, 2, 96, 16}), k(of, {1, 2, 96, 16}), v(of, {1, 2, 96, 16}), out(of, {1, 2, 96, 16}),
          lse(tartan_i_sum_dtype(of), {1, 2, 96}), out_grad(of, {1, 2, 96, 16}), image(of, {3, 16, 40, 60}),
          result(of, {3, 16, 40, 60}) {
        for (Dense *dense : {&x, &y, &q, &k, &v, &out_grad, &image, &result}) dense->fill(random);
        const Layout channels = from_mask({16, 16, 8, 8, 1}, {1, 1, 0, 1});
        tartan_conv *made = nullptr;
        EXPECT_OK(tartan_conv_create(channels.get(), "kernel=3x3 padding=1", &made));
        conv.reset(made);
        tartan_layout *taps = nullptr;
        EXPECT_OK(tartan_conv_get_layout(made, &taps));
        filter = random_matrix(Layout(taps), of, TARTAN_ROW_MAJOR, random);
        const Context own = open_context(1);
        EXPECT_OK(attention_forward(own.get(), layout.get(), &q.array, &k.array, &v.array, nullptr, nullptr,
                                    nullptr, nullptr, &out.array, &lse.array));
    }

    std::map<std::string, Call> calls() {
        std::map<std::string, Call> all;
        all["spmm"] = [this](tartan_context *c, Values *values) {
            Dense product(dtype, {96, 40});
            const tartan_status status =
                tartan_spmm(c, a.get(), nullptr, &x.array, 1, 0, nullptr, &product.array);
            add_values(product, values);
            return status;
        };
        all["spmm_columns"] = [this](tartan_context *context, Values *values) {
            Dense columns(dtype, {512, 256}, kColumns), product(dtype, {2048, 256}, kColumns);
            for (int64_t i = 0; i < 512 * 256; i++) columns.set(i, x.get(i % x.elements()));
            const tartan_status status =
                tartan_spmm(context, e.get(), nullptr, &columns.array, 1, 0, nullptr, &product.array);
            add_values(product, values);
            return status;
        };
        all["spmm_narrow"] = [this](tartan_context *context, Values *values) {
            Dense columns(dtype, {96, 2}), product(dtype, {4000, 2});
            for (int64_t i = 0; i < 2 * 96; i++) columns.set(i, x.get(i));
            const tartan_status status =
                tartan_spmm(context, c.get(), nullptr, &columns.array, 1, 0, nullptr, &product.array);
            add_values(product, values);
            return status;
        };
        all["spmm_few"] = [this](tartan_context *context, Values *values) {
            Dense columns(dtype, {96, 3}), product(dtype, {2000, 3});
            for (int64_t i = 0; i < 3 * 96; i++) columns.set(i, x.get(i));
            const tartan_status status =
                tartan_spmm(context, d.get(), nullptr, &columns.array, 1, 0, nullptr, &product.array);
            add_values(product, values);
            return status;
        };
        all["spmm_vector"] = [this](tartan_context *context, Values *values) {
            Dense column(dtype, {96, 1}), product(dtype, {2000, 1});
            for (int64_t i = 0; i < 96; i++) column.set(i, x.get(i));
            const tartan_status status =
                tartan_spmm(context, d.get(), nullptr, &column.array, 1, 0, nullptr, &product.array);
            add_values(product, values);
            return status;
        };
        all["sddmm"] = [this](tartan_context *c, Values *values) {
            const Matrix s = random_matrix(layout, dtype, TARTAN_COL_MAJOR, random);
            return add_values(tartan_sddmm(c, &x.array, &y.array, 1, nullptr, 1, 0, s.get()), s.get(),
                              values);
        };
        all["multiply"] = [this](tartan_context *c, Values *values) {
            tartan_matrix *product = nullptr;
            const tartan_status status = tartan_matrix_multiply(c, a.get(), b.get(), 0, &product);
            EXPECT_EQ(status == TARTAN_OK, product != nullptr);
            return add_values(status, Matrix(product).get(), values);
        };
        all["growth_score"] = [this](tartan_context *c, Values *values) {
            const int64_t block[] = {1, 1};
            Dense score(tartan_i_sum_dtype(dtype), {96, 96});
            const tartan_status status =
                tartan_growth_score(c, &x.array, &y.array, 1, block, 2, nullptr, &score.array);
            add_values(score, values);
            return status;
        };
        all["attention_forward"] = [this](tartan_context *c, Values *values) {
            Dense to(dtype, {1, 2, 96, 16});
            const tartan_status status =
                attention_forward(c, layout.get(), &q.array, &k.array, &v.array, nullptr, nullptr, nullptr,
                                  nullptr, &to.array, nullptr);
            add_values(to, values);
            return status;
        };
        all["attention_backward"] = [this](tartan_context *c, Values *values) {
            Dense to[3] = {q, k, v};
            const tartan_status status = attention_backward(
                c, layout.get(), &q.array, &k.array, &v.array, nullptr, nullptr, nullptr, &out.array,
                &lse.array, &out_grad.array, &to[0].array, &to[1].array, &to[2].array);
            for (const Dense &gradient : to) add_values(gradient, values);
            return status;
        };
        all["conv_forward"] = [this](tartan_context *c, Values *values) {
            Dense to(dtype, {3, 16, 40, 60});
            const tartan_status status = conv_forward(c, conv.get(), filter.get(), &image.array, nullptr,
                                                      nullptr, nullptr, nullptr, nullptr, &to.array);
            add_values(to, values);
            return status;
        };
        all["conv_input_gradient"] = [this](tartan_context *c, Values *values) {
            Dense to(dtype, {3, 16, 40, 60});
            const tartan_status status =
                conv_input_gradient(c, conv.get(), filter.get(), &result.array, nullptr, nullptr, &to.array);
            add_values(to, values);
            return status;
        };
        all["conv_filter_gradient"] = [this](tartan_context *c, Values *values) {
            tartan_matrix *gradient = nullptr;
            EXPECT_OK(tartan_matrix_create(filter->layout, dtype, TARTAN_ROW_MAJOR, &gradient));
            const Matrix to(gradient);
            return add_values(tartan_conv_filter_gradient(c, conv.get(), &image.array, &result.array, nullptr,
                                                          nullptr, 0, gradient),
                              gradient, values);
        };
        return all;
    }
};

// The number of questions of a call that is not stopped, whose results must be `expected`.
int64_t run_whole(tartan_context *context, Caller *caller, const Call &call, const Values &expected) {
    Values values;
    caller->asked = 0, caller->stop_at = -1;
    EXPECT_OK(call(context, &values));
    EXPECT_EQ(expected, values);
    return caller->asked;
}

TEST_F(Interrupt, EveryOperationStopsAndTheNextCallIsRight) {
    for (int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_BF16}) {
        Operands operands(dtype);
        for (const auto &[name, call] : operands.calls()) {
            for (int32_t threads : {1, 3}) {
                SCOPED_TRACE(name + " " + tartan_dtype_name(dtype) + " " + std::to_string(threads));
                const Context context = open_context(threads);
                Values expected;
                Caller caller;
                EXPECT_OK(call(context.get(), &expected));
                EXPECT_OK(tartan_context_set_interrupt(context.get(), ask, &caller));
                const int64_t questions = run_whole(context.get(), &caller, call, expected);
                EXPECT_GE(questions, threads == 1 ? 2 : 1);
                std::vector<int64_t> at = {0};
                if (threads == 1) at.insert(at.end(), {questions / 2, questions - 1});
                for (int64_t stop_at : at) {
                    Values values;
                    caller.asked = 0, caller.stop_at = stop_at;
                    EXPECT_FAILS(INTERRUPTED, "the caller asked to stop", call(context.get(), &values));
                    EXPECT_EQ(stop_at + 1, caller.asked); // nobody asks again
                    run_whole(context.get(), &caller, call, expected);
                }
                EXPECT_FALSE(caller.elsewhere);
                EXPECT_OK(tartan_context_set_interrupt(context.get(), nullptr, nullptr));
                EXPECT_EQ(0, run_whole(context.get(), &caller, call, expected));
            }
        }
    }
}

// Rounds, panels and heads: loops of parallel loops end as well, without the rest of the work.
TEST_F(Interrupt, TheRestOfTheWorkIsSkipped) {
    std::mt19937_64 random(1);
    const Layout layout = random_layout({512, 512, 32, 32, 4}, 0.5, 3);
    const Matrix a = random_matrix(layout, TARTAN_F64, TARTAN_COL_MAJOR, random);
    Dense b(TARTAN_F64, {4, 512, 600}), c(TARTAN_F64, {4, 512, 600});
    b.fill(random);
    for (int32_t threads : {1, 2}) {
        const Context context = open_context(threads);
        Caller caller;
        EXPECT_OK(tartan_context_set_interrupt(context.get(), ask, &caller));
        caller.stop_at = 0;
        c.fill(random, 7, 7);
        EXPECT_EQ(TARTAN_ERR_INTERRUPTED,
                  tartan_spmm(context.get(), a.get(), nullptr, &b.array, 1, 0, nullptr, &c.array));
        EXPECT_EQ(1, caller.asked);
        EXPECT_EQ(7, c.get(c.elements() - 1));
        if (threads == 1) {
            EXPECT_EQ(7, c.get(0));
        }
    }
}

TEST_F(Interrupt, ShortCallsAskRarely) {
    tartan_i_interrupt_every(0.01);
    Operands operands(TARTAN_F64);
    const Call call = operands.calls()["spmm"];
    const Context context = open_context(1);
    Caller caller;
    EXPECT_OK(tartan_context_set_interrupt(context.get(), ask, &caller));
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 50; i++) {
        Values values;
        EXPECT_OK(call(context.get(), &values));
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    EXPECT_GE(caller.asked, 1);
    EXPECT_LE((double)caller.asked, 1 + seconds / 0.01);
}

TEST_F(Interrupt, Refusals) {
    EXPECT_FAILS(HANDLE, "context is NULL", tartan_context_set_interrupt(nullptr, ask, nullptr));
    // The callback may not use the context.
    struct Nested {
        tartan_context *context;
        tartan_status status;
    } nested = {nullptr, TARTAN_OK};
    const Context context = open_context(1);
    nested.context = context.get();
    EXPECT_OK(tartan_context_set_interrupt(
        context.get(),
        [](void *user) -> int32_t {
            Nested *n = (Nested *)user;
            n->status = tartan_context_set_interrupt(n->context, nullptr, nullptr);
            return 0;
        },
        &nested));
    Operands operands(TARTAN_F64);
    Values values;
    EXPECT_OK(operands.calls()["spmm"](context.get(), &values));
    EXPECT_EQ(TARTAN_ERR_ARGUMENT, nested.status);
    // A context that is freed while it is in a call ends with the call.
    Context freed = open_context(1);
    EXPECT_OK(tartan_context_set_interrupt(
        freed.get(),
        [](void *user) -> int32_t {
            ((Context *)user)->reset();
            return 1;
        },
        &freed));
    EXPECT_FAILS(INTERRUPTED, "asked to stop", operands.calls()["spmm"](freed.get(), &values));
}

TEST_F(Interrupt, FailedAllocation) {
    const Context context = open_context(1);
    Caller caller;
    BRUTAL(tartan_context_set_interrupt(context.get(), ask, &caller),
           tartan_context_set_interrupt(context.get(), nullptr, nullptr));
}

} // namespace
