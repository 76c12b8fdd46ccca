// SPDX-License-Identifier: Apache-2.0
// Real GPUs, where TARTAN_DEVICE=cuda says that there are some: pointers mixed up, two threads, two GPUs.
#include "hardware.h"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace {

using namespace tartan_test;

class Hardware : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!has_hardware()) GTEST_SKIP() << "TARTAN_DEVICE=cuda is not in the environment";
        ASSERT_NE(nullptr, Driver::get()) << "there is no CUDA driver";
        zero = open_on("cuda:0");
        ASSERT_NE(nullptr, zero);
    }
    void expect_work(tartan_context *context) {
        const Inputs in(TARTAN_F32, 32, 96, true, 7);
        const Context own = open_context(2); // cpu() would keep its scratch memory beyond the test
        EXPECT_TRUE(products(context, in) == products(own.get(), in));
    }
    Context zero;
    std::mt19937_64 random{1};
};

// A test of two.
class HardwarePair : public Hardware {
  protected:
    void SetUp() override {
        Hardware::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        int count = 0;
        ASSERT_EQ(0, Driver::get()->count(&count));
        if (count < 2) GTEST_SKIP() << "there is one GPU, expected two";
        one = open_on("cuda:1");
        ASSERT_NE(nullptr, one);
    }
    Context one;
};

// ---- One GPU ----

// Memory of the host that is said to be the device's is found out before anything runs.
TEST_F(Hardware, PointersOfTheHostThatAreCalledTheDevices) {
    Operands o(zero.get());
    const Calls call = {zero.get(), o};
    const auto lie = [](tartan_array array) {
        array.device_type = TARTAN_CUDA, array.device_id = 0;
        return array;
    };
    const tartan_array square = lie(o.square.array), list = lie(o.list.array), grid = lie(o.grid.array);
    tartan_array values = {}, mask = array_of(o.mask.data(), TARTAN_U8, {2, 2});
    ASSERT_OK(tartan_matrix_values(o.host.get(), &values));
    values = lie(values), mask = lie(mask);
    tartan_matrix *raw = nullptr;
    ASSERT_OK(tartan_matrix_wrap(o.layout.get(), &values, nullptr, nullptr, &raw));
    const Matrix wrong(raw);
    const tartan_array &b = o.b.array, &c = o.c.array;
#define EXPECT_FOUND(name, ...)                                                                              \
    EXPECT_FAILS(UNSUPPORTED, name " is host memory, expected memory of cuda:0", call.__VA_ARGS__)
    EXPECT_FOUND("a", spmm(wrong.get(), nullptr, b, c));
    EXPECT_FOUND("gates", spmm(o.a.get(), &list, b, c));
    EXPECT_FOUND("b", spmm(o.a.get(), nullptr, square, c));
    EXPECT_FOUND("c", spmm(o.a.get(), nullptr, b, square));
    EXPECT_FOUND("x", sddmm(square, b, o.s.get()));
    EXPECT_FOUND("y", sddmm(b, square, o.s.get()));
    EXPECT_FOUND("s", sddmm(b, b, wrong.get()));
    EXPECT_FOUND("w", gradient(wrong.get(), o.s.get(), o.sums.array));
    EXPECT_FOUND("dw", gradient(o.a.get(), wrong.get(), o.sums.array));
    EXPECT_FOUND("gate_grad", gradient(o.a.get(), o.s.get(), list));
    EXPECT_FOUND("x", growth(square, b, o.scores.array));
    EXPECT_FOUND("score", growth(b, b, grid));
    EXPECT_FOUND("from", matrix(tartan_matrix_copy, wrong.get()));
    EXPECT_FOUND("from", scatter(wrong.get(), o.s.get()));
    EXPECT_FOUND("matrix", scatter(o.a.get(), wrong.get()));
    EXPECT_FOUND("matrix", norms(wrong.get()));
    EXPECT_FOUND("the source", matrix(tartan_matrix_to_device, wrong.get()));
    EXPECT_FOUND("the source", buffer_of(square));
    EXPECT_FOUND("mask", layout_of(mask));
    EXPECT_FOUND("mask", update(o.dynamic.layout, mask));
    EXPECT_FOUND("scores", layout_of_scores(grid));
    EXPECT_FOUND("scores", update_by(o.dynamic.layout, grid));
    EXPECT_OK(call.spmm(o.a.get(), &o.gates.array, b, c));
    expect_work(zero.get());
}

// Work of a stream that waits until the gate is opened, or for a while.
struct Gate {
    std::mutex lock;
    std::condition_variable changed;
    bool is_open = false;
    static void pass(void *gate) {
        Gate *g = (Gate *)gate;
        std::unique_lock<std::mutex> hold(g->lock);
        g->changed.wait_for(hold, std::chrono::seconds(300), [g] { return g->is_open; });
    }
    void open() {
        {
            std::lock_guard<std::mutex> hold(lock);
            is_open = true;
        }
        changed.notify_all();
    }
};

// Nothing is freed on the device while its stream waits: that would wait, too.
TEST_F(Hardware, ASecondThreadIsRefused) {
    const Current current(0);
    void *stream = nullptr;
    ASSERT_EQ(0, Driver::get()->create_stream(&stream, 1));
    Context context = open_on("cuda:0", (int64_t)(intptr_t)stream);
    ASSERT_NE(nullptr, context);
    Operands o(context.get());
    const Calls call = {context.get(), o};
    Gate gate;
    ASSERT_EQ(0, Driver::get()->call_in_order(stream, Gate::pass, &gate));
    tartan_status first = TARTAN_ERR_INTERNAL;
    std::thread other([&] { first = tartan_context_sync(context.get()); });
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(300);
    while (__atomic_load_n(&context->busy, __ATOMIC_ACQUIRE) == 0 && std::chrono::steady_clock::now() < end)
        std::this_thread::yield();
#define EXPECT_IN_USE(...)                                                                                   \
    EXPECT_FAILS(ARGUMENT, "context is in use by another thread, expected one at a time", __VA_ARGS__)
    EXPECT_IN_USE(call.spmm(o.a.get(), nullptr, o.b.array, o.c.array));
    EXPECT_IN_USE(call.sddmm(o.b.array, o.b.array, o.s.get()));
    EXPECT_IN_USE(call.matrix(tartan_matrix_copy, o.a.get()));
    EXPECT_IN_USE(call.matrix(tartan_matrix_to_device, o.host.get()));
    EXPECT_IN_USE(call.matrix(tartan_matrix_to_host, o.a.get()));
    EXPECT_IN_USE(call.buffer_of(o.square.array));
    EXPECT_IN_USE(call.fetch(o.buffer));
    EXPECT_IN_USE(call.layout_of(o.bytes.array));
    EXPECT_IN_USE(call.update(o.dynamic.layout, o.bytes.array));
    EXPECT_IN_USE(call.layout_of_scores(o.scores.array));
    EXPECT_IN_USE(call.update_by(o.dynamic.layout, o.scores.array));
    EXPECT_IN_USE(tartan_context_sync(context.get()));
    EXPECT_OK(tartan_context_sync(zero.get())); // another queue is free
    gate.open();
    other.join();
    EXPECT_EQ(TARTAN_OK, first);
    expect_work(context.get());
    context.reset();
    EXPECT_EQ(0, Driver::get()->destroy_stream(stream));
}

// ---- Two GPUs ----

TEST_F(HardwarePair, OperandsOfTheOtherAreRefused) {
    for (int32_t id : {0, 1}) {
        tartan_context *x = id == 0 ? zero.get() : one.get();
        Operands o(x), far(id == 0 ? one.get() : zero.get());
        const Calls call = {x, o};
        const tartan_array &b = o.b.array, &c = o.c.array, &far_b = far.b.array;
        tartan_matrix *raw = nullptr;
        tartan_array values = {};
        const auto where = [&](const char *name) {
            return std::string(name) + " is on device 2:" + std::to_string(1 - id) +
                   ", expected 2:" + std::to_string(id);
        };
#define EXPECT_FAR(name, ...) EXPECT_FAILS(UNSUPPORTED, where(name), call.__VA_ARGS__)
        EXPECT_FAR("a", spmm(far.a.get(), nullptr, b, c));
        EXPECT_FAR("gates", spmm(o.a.get(), &far.gates.array, b, c));
        EXPECT_FAR("b", spmm(o.a.get(), nullptr, far_b, c));
        EXPECT_FAR("c", spmm(o.a.get(), nullptr, b, far.c.array));
        EXPECT_FAR("x", sddmm(far_b, b, o.s.get()));
        EXPECT_FAR("y", sddmm(b, far_b, o.s.get()));
        EXPECT_FAR("s", sddmm(b, b, far.s.get()));
        EXPECT_FAR("dw", gradient(o.a.get(), far.s.get(), o.sums.array));
        EXPECT_FAR("score", growth(b, b, far.scores.array));
        EXPECT_FAR("matrix", matrix(tartan_matrix_copy, far.a.get()));
        EXPECT_FAR("matrix", matrix(tartan_matrix_transpose, far.a.get()));
        EXPECT_FAR("matrix", matrix(tartan_matrix_to_host, far.a.get()));
        EXPECT_FAR("matrix", norms(far.a.get()));
        EXPECT_FAR("from", scatter(far.a.get(), o.s.get()));
        EXPECT_FAR("buffer", fetch(far.buffer));
        EXPECT_FAR("layout", update(far.dynamic.layout, o.bytes.array));
        EXPECT_FAR("layout", update_by(far.dynamic.layout, o.scores.array));
        EXPECT_FAR("layout", layout_to_host(far.dynamic.layout));
        // What these copy may come from anywhere.
        EXPECT_OK(call.matrix(tartan_matrix_to_device, far.a.get()));
        EXPECT_OK(call.buffer_of(far_b));
        EXPECT_OK(call.layout_of(far.bytes.array));
        EXPECT_OK(call.update(o.dynamic.layout, far.bytes.array));
        EXPECT_OK(call.layout_of_scores(far.scores.array));
        EXPECT_OK(call.update_by(o.dynamic.layout, far.scores.array));
        ASSERT_OK(tartan_matrix_values(o.a.get(), &values));
        values.shape[0] = tartan_layout_blocks(far.dynamic.layout.get());
        EXPECT_FAILS(UNSUPPORTED,
                     "values is on device 2:" + std::to_string(id) + ", expected 2:" + std::to_string(1 - id),
                     tartan_matrix_wrap(far.dynamic.layout.get(), &values, nullptr, nullptr, &raw));
        EXPECT_OK(call.spmm(o.a.get(), &o.gates.array, b, c));
        expect_work(x);
    }
    expect_work(zero.get());
}

// Memory that is said to be this GPU's and is the other's.
TEST_F(HardwarePair, PointersAndStreamsOfTheOtherAreFoundOut) {
    for (int32_t id : {0, 1}) {
        tartan_context *x = id == 0 ? zero.get() : one.get();
        Operands o(x), far(id == 0 ? one.get() : zero.get());
        const Calls call = {x, o};
        tartan_array b = far.b.array, mask = far.bytes.array;
        b.device_id = mask.device_id = id;
        const std::string here = "cuda:" + std::to_string(id), there = "cuda:" + std::to_string(1 - id),
                          where = " is memory of " + there + ", expected memory of " + here;
        EXPECT_FAILS(UNSUPPORTED, "b" + where, call.spmm(o.a.get(), nullptr, b, o.c.array));
        EXPECT_FAILS(UNSUPPORTED, "c" + where, call.spmm(o.a.get(), nullptr, o.b.array, b));
        EXPECT_FAILS(UNSUPPORTED, "x" + where, call.sddmm(b, o.b.array, o.s.get()));
        EXPECT_OK(call.buffer_of(b)); // copies find the memory wherever it is
        EXPECT_FAILS(UNSUPPORTED, "mask" + where, call.update(o.dynamic.layout, mask));
        const Current current(1 - id);
        void *stream = nullptr;
        ASSERT_EQ(0, Driver::get()->create_stream(&stream, 1));
        tartan_context *out = nullptr;
        const std::string options = "stream=" + std::to_string((int64_t)(intptr_t)stream);
        EXPECT_FAILS(DEVICE, "stream is a stream of " + there + ", expected one of " + here,
                     tartan_context_create(here.c_str(), options.c_str(), nullptr, &out));
        EXPECT_EQ(nullptr, out);
        expect_work(open_on(there, (int64_t)(intptr_t)stream).get());
        EXPECT_EQ(0, Driver::get()->destroy_stream(stream));
        expect_work(x);
    }
}

const std::vector<int32_t> kNumbers = {TARTAN_F32, TARTAN_F64, TARTAN_F16, TARTAN_BF16, TARTAN_F8E4M3};

// Layouts and matrices of the host serve both; each use is the first on its GPU once.
TEST_F(HardwarePair, BothGiveTheSameBits) {
    const Context own = open_context(2); // cpu() would keep its scratch memory beyond the test
    char names[2][100] = {};
    for (int i : {0, 1}) ASSERT_EQ(0, Driver::get()->name(names[i], sizeof names[i], i));
    for (int32_t dtype : kNumbers)
        for (int64_t block : {8, 16, 32, 64, 128})
            for (int64_t n : {32, 256})
                for (bool whole : {true, false}) {
                    SCOPED_TRACE(::testing::Message()
                                 << "dtype " << dtype << ", block " << block << ", " << n);
                    const Inputs in(dtype, block, n, whole, 3);
                    Work here(zero.get(), in), there(one.get(), in);
                    for (int turn = 0; turn < 2; turn++) here.ask(), there.ask();
                    const Results want = here.fetch(), got = there.fetch();
                    if (whole) {
                        const Results exact = products(own.get(), in);
                        EXPECT_TRUE(exact == want) << "cuda:0";
                        EXPECT_TRUE(exact == got) << "cuda:1";
                    } else if (strcmp(names[0], names[1]) == 0) { // else the kernels may be others
                        EXPECT_TRUE(want == got);
                    }
                    if (HasFailure()) return;
                }
}

TEST_F(HardwarePair, BothWorkInThreads) {
    const Context own = open_context(2);
    const Inputs in(TARTAN_BF16, 64, 256, true, 5);
    const Results want = products(own.get(), in);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&, i] { // two for each, and contexts come and go
            for (int round = 0; round < 4; round++) {
                const Context context = open_on("cuda:" + std::to_string((i + round) % 2));
                Work work(context.get(), in);
                for (int turn = 0; turn < 3; turn++) work.ask();
                EXPECT_TRUE(work.fetch() == want) << "thread " << i << ", round " << round;
            }
        });
    for (std::thread &thread : threads) thread.join();
}

TEST_F(HardwarePair, CopiesOfBothComeBack) {
    for (int style = 0; style < kStyles; style++) {
        Dense dense(TARTAN_F32, {33, 70}, (Style)style);
        dense.fill(random);
        const Placed here(zero.get(), dense), there(one.get(), dense);
        for (int turn = 0; turn < 4; turn++) {
            tartan_context *x = turn % 2 == 0 ? one.get() : zero.get();
            tartan_buffer *raw = nullptr;
            ASSERT_OK(tartan_buffer_from_array(x, turn % 2 == 0 ? &there.array : &here.array, &raw));
            const Buffer buffer(raw);
            Dense got(TARTAN_F32, {33, 70}, kGaps);
            ASSERT_OK(tartan_buffer_to_array(x, buffer.get(), &got.array));
            for (int64_t i = 0; i < dense.elements(); i++) ASSERT_EQ(dense.get(i), got.get(i)) << i;
        }
    }
    const Matrix host = random_matrix(random_layout({40, 24, 8, 8, 1}, 0.5, 1), TARTAN_F64, 0, random);
    const Matrix here = placed(zero.get(), host), there = placed(one.get(), fetched(zero.get(), here));
    EXPECT_STREQ("cuda:0", tartan_matrix_device(here.get()));
    EXPECT_STREQ("cuda:1", tartan_matrix_device(there.get()));
    const Matrix back = fetched(one.get(), there);
    EXPECT_EQ(0, memcmp(host->values, back->values, (size_t)host->layout->blocks * 64 * sizeof(double)));
}

// The thread's current device when it calls, as the driver sees it: none, or either GPU.
TEST_F(HardwarePair, TheCallersDeviceStays) {
    const Context own = open_context(2); // cpu() would keep its scratch memory beyond the test
    const auto call_all = [&](void *want, const std::string &device) {
        const auto expect_same = [&](const char *after) {
            void *now = nullptr;
            EXPECT_EQ(0, Driver::get()->get_current(&now));
            EXPECT_EQ(want, now) << device << ", after " << after;
        };
        {
            const Inputs in(TARTAN_BF16, 64, 256, true, 9);
            Context context = open_on(device);
            expect_same("opening");
            Work work(context.get(), in);
            expect_same("copies to the device");
            work.ask();
            expect_same("products");
            EXPECT_TRUE(work.fetch() == products(own.get(), in));
            expect_same("copies to the host");
            Operands o(context.get());
            const Calls call = {context.get(), o};
            expect_same("a layout of a mask");
            EXPECT_OK(call.update(o.dynamic.layout, o.bytes.array));
            EXPECT_OK(call.update_by(o.dynamic.layout, o.scores.array));
            EXPECT_OK(call.layout_to_host(o.dynamic.layout));
            expect_same("an update of it");
            tartan_array lie = o.square.array;
            lie.device_type = TARTAN_CUDA, lie.device_id = o.b.array.device_id;
            EXPECT_FAILS(UNSUPPORTED, "b is host memory", call.spmm(o.a.get(), nullptr, lie, o.c.array));
            expect_same("a refusal");
            char *text = nullptr;
            EXPECT_OK(tartan_info(&text));
            tartan_text_free(text);
            EXPECT_OK(tartan_context_sync(context.get()));
            context.reset();
            expect_same("closing");
        }
        expect_same("freeing");
    };
    std::thread([&] { // a new one has none
        for (int device : {-1, 1, 0, -1, 0, 1}) {
            const std::unique_ptr<Current> current(device < 0 ? nullptr : new Current(device));
            for (const char *used : {"cuda:0", "cuda:1"})
                call_all(current == nullptr ? nullptr : current->context, used);
        }
    })
        .join();
}

} // namespace
