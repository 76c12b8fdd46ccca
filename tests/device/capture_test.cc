// SPDX-License-Identifier: Apache-2.0
// The order of work where the device cannot wait: during graph captures, and for streams of other threads. As in
// order_test.cc, the dummy refuses what a missing wait would break.
#include "order.h"

#include <chrono>
#include <functional>
#include <future>

extern "C" {
#include "device/resource.h"
#include "dummy_order.h"
}

namespace {

using namespace tartan_test;

// What the dummy's hooks call.
std::function<void()> hook;

class Capture : public Order {
  protected:
    static void capture(const Context &context, uint32_t graph) {
        dummy_stream_capture(1, (void *)tartan_context_stream(context.get()), graph);
    }
    std::unique_ptr<Placed> copy_to(const Context &context) {
        return std::make_unique<Placed>(context.get(), dense);
    }
};

// What a queue did before its capture, and after it, is waited for before the memory is given back.
TEST_F(Capture, WhatCannotBeWaitedForIsReleasedLater) {
    const Context x = open_context("cuda:1"), y = open_context("cuda:1"), z = open_context("cuda:1");
    const Matrix a = placed(y.get(), host);
    const auto b = copy_to(y), c = copy_to(z);
    for (const bool by_sync : {false, true}) {
        auto w = copy_to(y);
        ASSERT_OK(multiply(x, a, *b, w.get()));
        ASSERT_OK(multiply(z, a, *w, c.get()));
        const int64_t live = tartan_dummy.live;
        capture(x, 1);
        w.reset();
        ASSERT_OK(multiply(y, a, *b, c.get()));
        EXPECT_EQ(live, tartan_dummy.live);
        EXPECT_FAILS(UNSUPPORTED, "during its graph capture", tartan_context_sync(x.get()));
        EXPECT_EQ(live, tartan_dummy.live);
        capture(x, 0);
        if (by_sync)
            ASSERT_OK(tartan_context_sync(x.get()));
        else
            ASSERT_OK(multiply(x, a, *b, c.get()));
        EXPECT_EQ(live - 1, tartan_dummy.live);
    }
}

// A capture on the queue that the memory came from: the host would have to wait for others' work.
TEST_F(Capture, TheHomeOfMemoryIsCaptured) {
    const Context x = open_context("cuda:1"), y = open_context("cuda:1");
    const Matrix a = placed(x.get(), host);
    const auto c = copy_to(y);
    auto w = copy_to(x), joined = copy_to(x), own = copy_to(x);
    ASSERT_OK(tartan_context_sync(x.get()));
    ASSERT_OK(multiply(y, a, *w, c.get()));
    ASSERT_OK(multiply(y, a, *joined, c.get()));
    const int64_t live = tartan_dummy.live, drained = tartan_dummy.synced;
    capture(x, 1);
    own.reset(); // no other queue has worked with it: the backend keeps it until the capture ends
    EXPECT_EQ(live - 1, tartan_dummy.live);
    w.reset();
    capture(y, 1);
    joined.reset(); // by an edge of the graph, which nothing outside waits for
    EXPECT_EQ(live - 1, tartan_dummy.live);
    capture(x, 0), capture(y, 0);
    EXPECT_EQ(drained, tartan_dummy.synced);
    ASSERT_OK(tartan_context_sync(x.get()));
    EXPECT_EQ(live - 3, tartan_dummy.live);
}

TEST_F(Capture, ItEndsWithItsQueue) {
    auto x = open_context("cuda:1");
    const Context y = open_context("cuda:1");
    const Matrix a = placed(y.get(), host);
    const auto c = copy_to(y);
    auto w = copy_to(y);
    ASSERT_OK(multiply(x, a, *c, w.get()));
    const int64_t live = tartan_dummy.live;
    capture(x, 1);
    w.reset();
    EXPECT_EQ(live, tartan_dummy.live);
    capture(x, 0);
    x.reset();
    EXPECT_EQ(live - 1, tartan_dummy.live);
}

// A wait inside a graph does not count for what comes after the capture.
TEST_F(Capture, WaitsInAGraphAreNotRemembered) {
    const Context x = open_context("cuda:1"), y = open_context("cuda:1");
    const Matrix a = placed(x.get(), host);
    const auto b = copy_to(x), w = copy_to(x), v = copy_to(x), c = copy_to(y);
    ASSERT_OK(tartan_context_sync(x.get()));
    ASSERT_OK(tartan_context_sync(y.get()));
    ASSERT_OK(multiply(x, a, *b, w.get()));
    capture(x, 1), capture(y, 1);
    ASSERT_OK(multiply(x, a, *b, v.get()));
    ASSERT_OK(multiply(y, a, *v, c.get()));
    ASSERT_OK(multiply(y, a, *v, c.get()));
    EXPECT_OK(tartan_context_wait(y.get(), x.get()));
    capture(x, 0), capture(y, 0);
    const int64_t before = tartan_dummy.waits;
    EXPECT_OK(multiply(y, a, *w, c.get()));
    EXPECT_EQ(before + 1, tartan_dummy.waits);
}

// The host waits for what a graph needs and does not contain; other threads work meanwhile.
TEST_F(Capture, TheHostWaitsWithoutTheLock) {
    const Context x = open_context("cuda:1"), y = open_context("cuda:1"), z = open_context("cuda:1"),
                  foreign = open_context("cuda:1", "stream=0x900");
    const Matrix a = placed(z.get(), host);
    const auto b = copy_to(z), c = copy_to(y), d = copy_to(z), e = copy_to(y);
    ASSERT_OK(tartan_context_sync(z.get()));
    std::future<void> other;
    bool in_time = true;
    hook = [&] {
        tartan_dummy.at_work = nullptr;
        other = std::async(std::launch::async, [&] { EXPECT_OK(multiply(z, a, *b, d.get())); });
        in_time = other.wait_for(std::chrono::seconds(300)) == std::future_status::ready;
    };
    const auto write = [&] {
        ASSERT_OK(multiply(x, a, *b, c.get()));
        tartan_dummy.at_work = nullptr;
    };
    const auto expect = [&](const char *what, const std::function<tartan_status()> &call) {
        SCOPED_TRACE(what);
        const int64_t drained = tartan_dummy.synced;
        write();
        capture(y, 1), capture(foreign, 2);
        tartan_dummy.at_work = [] { hook(); };
        EXPECT_OK(call());
        EXPECT_EQ(nullptr, tartan_dummy.at_work);
        EXPECT_TRUE(in_time) << "another thread had to wait";
        if (other.valid()) other.get();
        EXPECT_EQ(drained + 1, tartan_dummy.synced);
        tartan_dummy.at_work = nullptr;
        capture(y, 0), capture(foreign, 0);
    };
    expect("a call", [&] { return multiply(y, a, *c, e.get()); });
    expect("context_wait", [&] { return tartan_context_wait(y.get(), x.get()); });
    expect("wait_stream",
           [&] { return tartan_context_wait_stream(y.get(), 1, tartan_context_stream(x.get())); });
    expect("signal_stream", [&] { return tartan_context_signal_stream(x.get(), 1, 0x900); });
    expect("array_signal_stream", [&] { return tartan_array_signal_stream(&c->array, 1, 0x900); });
}

// Calls that are numbered but not yet enqueued stay noted, however many others read.
TEST_F(Capture, ACallThatIsAboutToReadIsNotForgotten) {
    static std::promise<void> arrived, may_go;
    const Context x = open_context("cuda:1");
    const Matrix a = placed(x.get(), host);
    const auto b = copy_to(x), other = copy_to(x);
    std::vector<Context> readers;
    std::vector<std::unique_ptr<Placed>> results;
    for (int i = 0; i < 24; i++) {
        readers.push_back(open_context("cuda:1"));
        for (int k = 0; k <= i; k++) ASSERT_OK(tartan_context_wait(readers.back().get(), x.get()));
        results.push_back(copy_to(readers.back()));
        for (int k = 0; k < i % 7; k++) ASSERT_OK(multiply(readers.back(), a, *other, results.back().get()));
    }
    tartan_dummy.before_work = [] {
        tartan_dummy.before_work = nullptr;
        arrived.set_value();
        may_go.get_future().wait();
    };
    std::thread late([&] { EXPECT_OK(multiply(readers[0], a, *b, results[0].get())); });
    arrived.get_future().wait();
    for (size_t i = 1; i < readers.size(); i++) EXPECT_OK(multiply(readers[i], a, *b, results[i].get()));
    may_go.set_value();
    late.join();
    EXPECT_OK(multiply(x, a, *other, b.get()));
}

TEST_F(Capture, PlacesForReadersMayBeRefused) {
    const Context x = open_context("cuda:1");
    const Matrix a = placed(x.get(), host);
    const auto b = copy_to(x);
    std::vector<Context> readers;
    std::vector<std::unique_ptr<Placed>> results;
    for (int i = 0; i < TARTAN_I_READERS + 1; i++) {
        readers.push_back(open_context("cuda:1"));
        results.push_back(copy_to(readers.back()));
        ASSERT_OK(multiply(readers.back(), a, *b, results.back().get()));
    }
    const auto read = [&] {
        readers.push_back(open_context("cuda:1"));
        results.push_back(copy_to(readers.back()));
        tartan_i_memory_fail_at(0);
        const tartan_status status = multiply(readers.back(), a, *b, results.back().get());
        tartan_i_memory_fail_at(-1);
        return status;
    };
    int refused = 0;
    while (readers.size() < 4 * TARTAN_I_READERS) refused += read() == TARTAN_ERR_MEMORY;
    EXPECT_LT(0, refused);
    EXPECT_OK(multiply(x, a, *results[0], b.get()));
}

// ---- A context that ends while another thread waits for it ----

TEST_F(Capture, AContextEndsAfterThoseWhoWaitForIt) {
    Context x = open_context("cuda:1");
    const Context cpu = open_context();
    std::thread other;
    hook = [&] {
        tartan_dummy.at_work = nullptr;
        other = std::thread([raw = x.release()] { tartan_context_free(raw); });
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        EXPECT_EQ(0, tartan_dummy.closed); // its stream is still there
    };
    tartan_dummy.at_work = [] { hook(); };
    EXPECT_OK(tartan_context_wait(cpu.get(), x.get()));
    other.join();
    EXPECT_EQ(1, tartan_dummy.closed);
}

// ---- The default stream of a thread ----

TEST_F(Capture, AThreadsDefaultStreamIsItsOwn) {
    Context x = open_context("cuda:1", "stream=2");
    const Context y = open_context("cuda:1");
    const Matrix a = placed(y.get(), host);
    auto b = copy_to(x), c = copy_to(x), d = copy_to(y);
    ASSERT_OK(multiply(x, a, *b, c.get()));
    EXPECT_OK(tartan_context_sync(x.get()));
    EXPECT_EQ((void *)2, tartan_dummy.drained);
    ASSERT_OK(multiply(x, a, *b, c.get()));
    std::thread([&] {
        EXPECT_FAILS(ARGUMENT, "the default stream of the thread that made it (stream=2)",
                     multiply(x, a, *b, c.get()));
        EXPECT_FAILS(ARGUMENT, "from that thread", tartan_context_sync(x.get()));
        ASSERT_OK(multiply(y, a, *c, d.get())); // waits for what the other thread asked for
        c.reset(), b.reset();                   // in the order of the other thread's stream
        x.reset();
    }).join();
    EXPECT_EQ((void *)1, tartan_dummy.drained);
    EXPECT_EQ(1, tartan_dummy.closed);
}

} // namespace
