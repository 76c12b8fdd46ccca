// SPDX-License-Identifier: Apache-2.0
// Freeing in the middle of calls and while other contexts are at work. The dummy ends the process where memory is released
// that a stream may still be at work on (dummy_order.h).
#include "order.h"

#include <functional>

namespace {

using namespace tartan_test;

using Freeing = Order;

// What tartan_dummy.at_work and the parallel loop below free in the middle of a call.
std::function<void()> in_the_middle;

TEST_F(Freeing, WhatACallUsesMayBeFreedMeanwhile) {
    Context x = open_context("cuda:1");
    Matrix a = placed(x.get(), host);
    auto b = std::make_unique<Placed>(x.get(), dense), c = std::make_unique<Placed>(x.get(), dense);
    const tartan_array in = b->array;
    tartan_array out = c->array;
    const int64_t live = tartan_dummy.live;
    in_the_middle = [&] {
        tartan_dummy.at_work = nullptr;
        b.reset(), c.reset();
        tartan_matrix_free(a.get());
        EXPECT_EQ(live, tartan_dummy.live); // not yet
        tartan_context_free(x.get());
        tartan_context_free(x.get()); // as closed as any
        EXPECT_FAILS(HANDLE, "closed", tartan_context_sync(x.get()));
        EXPECT_EQ(0, tartan_dummy.closed);
    };
    tartan_dummy.at_work = [] { in_the_middle(); };
    EXPECT_OK(tartan_spmm(x.get(), a.get(), nullptr, &in, 1, 0, nullptr, &out));
    EXPECT_EQ(live - 3, tartan_dummy.live);
    EXPECT_EQ(1, tartan_dummy.closed);
    (void)a.release();
    (void)x.release();
}

// The host still has to sort the elements when the buffer is gone, and other memory is where it was.
TEST_F(Freeing, ABufferMayBeFreedWhileItIsFetched) {
    const Context x = open_context("cuda:1");
    tartan_buffer *raw = nullptr, *next = nullptr;
    ASSERT_OK(tartan_buffer_from_array(x.get(), &dense.array, &raw));
    Dense got(TARTAN_F32, {16, 16}, kColumns);
    in_the_middle = [&] {
        tartan_dummy.at_work = nullptr;
        tartan_buffer_free(raw);
        const Context y = open_context("cuda:1");
        const int64_t other[] = {3, 5, 7};
        EXPECT_OK(tartan_buffer_create(y.get(), TARTAN_F64, other, 3, TARTAN_COL_MAJOR, &next));
    };
    tartan_dummy.at_work = [] { in_the_middle(); };
    EXPECT_OK(tartan_buffer_to_array(x.get(), raw, &got.array));
    for (int64_t i = 0; i < dense.elements(); i++) EXPECT_EQ(dense.get(i), got.get(i));
    tartan_buffer_free(next);
}

// Functions that no device runs hold their matrix too.
TEST_F(Freeing, AMatrixMayBeFreedWhileItIsFilled) {
    tartan_hooks hooks = {sizeof hooks, nullptr, nullptr};
    hooks.parallel_for = [](void *, int32_t workers, tartan_task task, void *data) {
        if (in_the_middle) in_the_middle();
        for (int32_t w = 0; w < workers; w++) task(data, w);
    };
    in_the_middle = nullptr;
    const Context x = open_context("cpu", "threads=2", &hooks);
    const std::vector<std::function<tartan_status(tartan_matrix *)>> calls = {
        [&](tartan_matrix *m) { return tartan_matrix_fill_normal(x.get(), m, 1, 1); },
        [&](tartan_matrix *m) { return tartan_matrix_fill_orthogonal(x.get(), m, 1, 1); },
    };
    for (const auto &call : calls) {
        tartan_matrix *raw = random_matrix(layout, TARTAN_F32, 0, random).release();
        bool freed = false;
        in_the_middle = [&] {
            if (freed) return;
            freed = true;
            const int64_t live = tartan_i_memory_live();
            tartan_matrix_free(raw);
            EXPECT_EQ(live, tartan_i_memory_live());
        };
        EXPECT_OK(call(raw));
        EXPECT_TRUE(freed);
    }
    in_the_middle = nullptr;
}

TEST_F(Freeing, OnTheCpuToo) {
    tartan_hooks hooks = {sizeof hooks, nullptr, nullptr};
    hooks.parallel_for = [](void *, int32_t workers, tartan_task task, void *data) {
        if (in_the_middle) in_the_middle();
        for (int32_t w = 0; w < workers; w++) task(data, w);
    };
    in_the_middle = nullptr;
    Context x = open_context("cpu", "threads=2", &hooks);
    Matrix a = placed(x.get(), host);
    auto b = std::make_unique<Placed>(x.get(), dense), c = std::make_unique<Placed>(x.get(), dense);
    Placed want(x.get(), dense);
    ASSERT_OK(multiply(x, a, *b, &want));
    const tartan_array in = b->array;
    const int64_t live = tartan_i_memory_live();
    bool freed = false;
    in_the_middle = [&] {
        if (freed) return;
        freed = true;
        b.reset();
        tartan_matrix_free(a.get());
        tartan_context_free(x.get());
        EXPECT_LE(live - 2, tartan_i_memory_live()); // the buffer's handle at most
    };
    tartan_array out = c->array;
    EXPECT_OK(tartan_spmm(x.get(), a.get(), nullptr, &in, 1, 0, nullptr, &out));
    EXPECT_TRUE(freed);
    in_the_middle = nullptr;
    (void)a.release();
    (void)x.release();
    EXPECT_EQ(0, std::memcmp(want.array.data, out.data, 16 * 16 * sizeof(float)));
}

// Memory outlives its context, and is released in the order of the queues that still work with it.
TEST_F(Freeing, MemoryOfAClosedContext) {
    const Context y = open_context("cuda:1"), z = open_context("cuda:1"), far = open_context("cuda:0");
    Matrix a;
    std::unique_ptr<Placed> b, c;
    const auto make = [&] {
        const Context x = open_context("cuda:1");
        a = placed(x.get(), host);
        b = std::make_unique<Placed>(x.get(), dense), c = std::make_unique<Placed>(x.get(), dense);
    };
    make();
    ASSERT_OK(multiply(y, a, *b, c.get()));
    a.reset(), b.reset(), c.reset(); // after y's work
    make();
    ASSERT_OK(multiply(y, a, *b, c.get()));
    ASSERT_OK(multiply(z, a, *b, c.get()));
    a.reset(), b.reset(), c.reset(); // after both
    make();
    tartan_buffer *raw = nullptr;
    ASSERT_OK(tartan_buffer_from_array(far.get(), &b->array, &raw));
    const Buffer copy(raw);
    a.reset(), b.reset(), c.reset();       // after a copy to another device
    EXPECT_EQ(0, tartan_dummy.synced - 3); // of the contexts that ended
}

TEST_F(Freeing, TheLastWhoWorksMayBeOnAnotherDevice) {
    const Context far = open_context("cuda:0");
    auto x = open_context("cuda:1");
    auto b = std::make_unique<Placed>(x.get(), dense);
    tartan_buffer *raw = nullptr;
    ASSERT_OK(tartan_buffer_from_array(far.get(), &b->array, &raw));
    const Buffer copy(raw);
    x.reset();
    b.reset(); // no queue is left on its device: the host waits for the copy
}

} // namespace
