// SPDX-License-Identifier: Apache-2.0
// What can go wrong with a device, shown on the dummy: its memory is used up, it is lost, two threads use one
// context, operands are elsewhere. Each is a clear error, and all goes on afterwards.
#include "placed.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

extern "C" {
#include "core/workspace.h"
}

namespace {

using namespace tartan_test;

// One of everything on device cuda:1, and what can be done with it.
class Device : public ::testing::Test {
  protected:
    DummyInstalled installed;
    Context context = open_context("cuda:1");
    Layout layout = from_mask({16, 16, 4, 4, 1}, std::vector<uint8_t>(16, 1)),
           half = from_mask({16, 16, 4, 4, 1}, {1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0});
    std::mt19937_64 random{1};
    Matrix host = random_matrix(layout, TARTAN_F32, 0, random);
    Matrix a = placed(context.get(), host), s = placed(context.get(), host);
    Dense dense = Dense(TARTAN_F32, {16, 16}), strided = Dense(TARTAN_F32, {16, 16}, kGaps),
          list = Dense(TARTAN_F32, {16}), score = Dense(TARTAN_F32, {4, 4});
    Placed b, c, c_strided, gates, sums, scores;
    tartan_buffer *buffer = nullptr;
    tartan_matrix *matrix = nullptr;
    Buffer full;

    void SetUp() override {
        for (Dense *one : {&dense, &strided, &list, &score}) one->fill(random);
        b = Placed(context.get(), dense), c = Placed(context.get(), dense);
        c_strided = Placed(context.get(), strided), gates = Placed(context.get(), list);
        sums = Placed(context.get(), list), scores = Placed(context.get(), score);
        ASSERT_OK(tartan_buffer_from_array(context.get(), &dense.array, &buffer));
        full.reset(buffer);
        buffer = nullptr;
    }
    void undo() {
        tartan_buffer_free(buffer);
        tartan_matrix_free(matrix);
        buffer = nullptr, matrix = nullptr;
    }

    // Every public function that works with a context. Those on `on_device` ask the device for something.
    struct Call {
        const char *name;
        bool on_device;
        std::function<tartan_status()> run;
    };
    std::vector<Call> calls() {
        static const int64_t lengths[] = {3, 5};
        static const int64_t block[] = {4, 4};
        static const int64_t ids[] = {3, 2, 1, 0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, -1};
        static double norms[16];
        tartan_context *x = context.get();
        return {
            {"tartan_spmm", true,
             [=] { return tartan_spmm(x, a.get(), &gates.array, &b.array, 1, 0, nullptr, &c.array); }},
            {"tartan_sddmm", true,
             [=] { return tartan_sddmm(x, &b.array, &b.array, 1, nullptr, 1, 0, s.get()); }},
            {"tartan_gate_gradient", true,
             [=] { return tartan_gate_gradient(x, a.get(), nullptr, s.get(), &sums.array); }},
            {"tartan_growth_score", true,
             [=] {
                 return tartan_growth_score(x, &b.array, &b.array, 1, block, 2, "norm=l2", &scores.array);
             }},
            {"tartan_matrix_copy", true, [=] { return tartan_matrix_copy(x, a.get(), &matrix); }},
            {"tartan_matrix_cast", true,
             [=] { return tartan_matrix_cast(x, a.get(), TARTAN_F16, 1, &matrix); }},
            {"tartan_matrix_block_norms", true,
             [=] { return tartan_matrix_block_norms(x, a.get(), TARTAN_NORM_L2, norms, 16); }},
            {"tartan_matrix_transpose", true, [=] { return tartan_matrix_transpose(x, a.get(), &matrix); }},
            {"tartan_matrix_permute", true,
             [=] { return tartan_matrix_permute(x, a.get(), ids, 4, nullptr, 0, &matrix); }},
            {"tartan_matrix_slice", true,
             [=] { return tartan_matrix_slice(x, a.get(), 0, 2, 1, 3, &matrix); }},
            {"tartan_matrix_project", true,
             [=] { return tartan_matrix_project(x, a.get(), half.get(), &matrix); }},
            {"tartan_matrix_rearrange", true,
             [=] { return tartan_matrix_rearrange(x, a.get(), layout.get(), ids, 16, &matrix); }},
            {"tartan_matrix_scatter", true,
             [=] { return tartan_matrix_scatter(x, a.get(), ids, 16, s.get()); }},
            {"tartan_matrix_add", true,
             [=] { return tartan_matrix_add(x, 1, a.get(), 2, a.get(), 0, &matrix); }},
            {"tartan_matrix_reduce", true,
             [=] { return tartan_matrix_reduce(x, a.get(), TARTAN_REDUCE_SUM, TARTAN_EACH_ROW, norms, 16); }},
            {"tartan_matrix_get_diagonal", true,
             [=] { return tartan_matrix_get_diagonal(x, a.get(), 0, norms, 16); }},
            {"tartan_matrix_count_different", true,
             [=] { return tartan_matrix_count_different(x, a.get(), a.get(), 0, 0, 0, norms); }},
            {"tartan_buffer_create", true,
             [=] { return tartan_buffer_create(x, TARTAN_F32, lengths, 2, 0, &buffer); }},
            {"tartan_buffer_from_array", true,
             [=] { return tartan_buffer_from_array(x, &strided.array, &buffer); }},
            {"tartan_buffer_from_array", true,
             [=] { return tartan_buffer_from_array(x, &c_strided.array, &buffer); }},
            {"tartan_buffer_to_array", true,
             [=] { return tartan_buffer_to_array(x, full.get(), &strided.array); }},
            {"tartan_matrix_to_device", true,
             [=] { return tartan_matrix_to_device(x, host.get(), &matrix); }},
            {"tartan_matrix_to_device", true, [=] { return tartan_matrix_to_device(x, a.get(), &matrix); }},
            {"tartan_matrix_to_host", true, [=] { return tartan_matrix_to_host(x, a.get(), &matrix); }},
            {"tartan_context_sync", true, [=] { return tartan_context_sync(x); }},
            {"tartan_context_peak", false,
             [=] {
                 double rate;
                 return tartan_context_peak(x, TARTAN_F32, &rate);
             }},
            {"tartan_matrix_fill_normal", false,
             [=] { return tartan_matrix_fill_normal(x, host.get(), 1, -1); }},
            {"tartan_matrix_fill_orthogonal", false,
             [=] { return tartan_matrix_fill_orthogonal(x, host.get(), 1, -1); }},
        };
    }
    void expect_all_work() {
        for (const Call &call : calls()) {
            EXPECT_OK(call.run()) << call.name;
            undo();
        }
    }
    void expect_message(const Call &call, const char *part) {
        EXPECT_EQ(0u, std::string(tartan_last_error()).find(std::string(call.name) + ": "))
            << tartan_last_error();
        EXPECT_NE(std::string::npos, std::string(tartan_last_error()).find(part)) << tartan_last_error();
    }
};

TEST_F(Device, EveryAllocationOfItCanFail) {
    int64_t failures = 0;
    for (const Call &call : calls()) {
        SCOPED_TRACE(call.name);
        for (int64_t n = 0;; n++) {
            const int64_t live = tartan_dummy.live, host_live = tartan_i_memory_live();
            tartan_dummy.asked = 0, tartan_dummy.fail_at = n;
            const tartan_status status = call.run();
            tartan_dummy.fail_at = -1;
            const bool over = tartan_dummy.asked <= n;
            if (over) {
                EXPECT_OK(status);
                break;
            }
            failures++;
            EXPECT_EQ(TARTAN_ERR_MEMORY, status);
            expect_message(call, "out of memory on device dummy:1");
            EXPECT_EQ(live, tartan_dummy.live);
            EXPECT_EQ(host_live, tartan_i_memory_live());
            EXPECT_EQ(nullptr, buffer);
            EXPECT_EQ(nullptr, matrix);
            expect_all_work();
        }
        undo();
    }
    // Makers ask once, with a list of blocks twice; norms, sums, counts and scattering once, diagonals twice.
    EXPECT_EQ(5 + 14 + 5, failures);
}

TEST_F(Device, EveryAllocationOfTheHostCanFail) {
    expect_all_work(); // column lists, which stay in layouts, are there from now on
    for (const Call &call : calls()) {
        SCOPED_TRACE(call.name);
        for (int64_t n = 0;; n++) {
            tartan_i_workspace_free(
                context.get()); // the dummy computes on the CPU, whose scratch memory stays
            const int64_t live = tartan_dummy.live, host_live = tartan_i_memory_live();
            tartan_i_memory_fail_at(n);
            const tartan_status status = call.run();
            const bool over = tartan_i_memory_asked() <= n;
            tartan_i_memory_fail_at(-1);
            tartan_i_workspace_free(context.get());
            if (over) {
                EXPECT_OK(status);
                break;
            }
            EXPECT_EQ(TARTAN_ERR_MEMORY, status);
            EXPECT_EQ(live, tartan_dummy.live);
            EXPECT_EQ(host_live, tartan_i_memory_live());
        }
        undo();
    }
}

TEST_F(Device, ALostOneIsAnErrorEverywhereUntilItIsBack) {
    tartan_dummy.lost = true;
    for (const Call &call : calls()) {
        SCOPED_TRACE(call.name);
        if (!call.on_device) continue;
        EXPECT_EQ(TARTAN_ERR_DEVICE, call.run());
        expect_message(call, "device dummy:1 was lost");
        undo();
    }
    tartan_context *other = nullptr;
    EXPECT_FAILS(DEVICE, "dummy:0 was lost", tartan_context_create("cuda", nullptr, nullptr, &other));
    EXPECT_EQ(nullptr, other);
    s.reset(); // freeing is always possible
    tartan_dummy.lost = false;
    s = placed(context.get(), host);
    expect_all_work();
}

TEST_F(Device, OpenedClosedAndWaitedFor) {
    const tartan_dummy_state before = tartan_dummy;
    tartan_context *other = nullptr;
    ASSERT_OK(tartan_context_create("cuda", nullptr, nullptr, &other));
    EXPECT_OK(tartan_context_sync(other));
    tartan_dummy.fail_next = true;
    EXPECT_FAILS(DEVICE, "told to fail", tartan_context_sync(other));
    tartan_context_free(other);
    tartan_dummy.fail_next = true;
    EXPECT_FAILS(DEVICE, "told to fail", tartan_context_create("cuda", nullptr, nullptr, &other));
    EXPECT_EQ(nullptr, other);
    EXPECT_FAILS(DEVICE, "dummy:2 does not exist: 2 devices",
                 tartan_context_create("cuda:2", nullptr, nullptr, &other));
    EXPECT_EQ(before.opened + 1, tartan_dummy.opened);
    EXPECT_EQ(before.closed + 1, tartan_dummy.closed);
    EXPECT_EQ(before.synced + 3, tartan_dummy.synced); // the context that was freed waited, too
    char *text = nullptr;
    ASSERT_OK(tartan_info(&text));
    EXPECT_NE(std::string(text).find("dummy 1"), std::string::npos) << text;
    tartan_text_free(text);
    undo();
    BRUTAL(tartan_context_create("cuda", nullptr, nullptr, &other), tartan_context_free(other));
}

// ---- Two threads, one context ----

std::mutex gate_lock;
std::condition_variable gate_changed;
bool arrived, may_leave;

void wait_at_work() {
    std::unique_lock<std::mutex> hold(gate_lock);
    arrived = true;
    gate_changed.notify_all();
    gate_changed.wait(hold, [] { return may_leave; });
}

TEST_F(Device, ASecondThreadIsRefused) {
    arrived = may_leave = false;
    tartan_dummy.at_work = wait_at_work;
    tartan_status first = TARTAN_ERR_INTERNAL;
    std::thread other(
        [&] { first = tartan_spmm(context.get(), a.get(), nullptr, &b.array, 1, 0, nullptr, &c.array); });
    {
        std::unique_lock<std::mutex> hold(gate_lock);
        gate_changed.wait(hold, [] { return arrived; });
    }
    tartan_dummy.at_work = nullptr;
    for (const Call &call : calls()) {
        SCOPED_TRACE(call.name);
        EXPECT_EQ(TARTAN_ERR_ARGUMENT, call.run());
        expect_message(call, "context is in use by another thread, expected one at a time");
        EXPECT_EQ(nullptr, buffer);
        EXPECT_EQ(nullptr, matrix);
    }
    const Context mine = open_context("cuda:1"); // another queue is free
    EXPECT_OK(tartan_context_sync(mine.get()));
    {
        std::lock_guard<std::mutex> hold(gate_lock);
        may_leave = true;
    }
    gate_changed.notify_all();
    other.join();
    EXPECT_EQ(TARTAN_OK, first);
    expect_all_work();
}

// ---- Operands elsewhere ----

TEST_F(Device, AnotherDeviceOfTheSameKind) {
    const Context zero = open_context("cuda:0");
    const tartan_array *far = &b.array; // of cuda:1
    Dense target = dense;
    Placed here(zero.get(), dense), out(zero.get(), dense);
    const Matrix a_here = placed(zero.get(), host);
    EXPECT_FAILS(UNSUPPORTED, "b is on device 2:1, expected 2:0",
                 tartan_spmm(zero.get(), a_here.get(), nullptr, far, 1, 0, nullptr, &out.array));
    EXPECT_FAILS(UNSUPPORTED, "a is on device 2:1, expected 2:0",
                 tartan_spmm(zero.get(), a.get(), nullptr, &here.array, 1, 0, nullptr, &out.array));
    EXPECT_FAILS(UNSUPPORTED, "buffer is on device 2:1",
                 tartan_buffer_to_array(zero.get(), full.get(), &target.array));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 2:1", tartan_matrix_to_host(zero.get(), a.get(), &matrix));
    const int64_t ids[16] = {};
    double norms[16];
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 2:1, expected 2:0",
                 tartan_matrix_cast(zero.get(), a.get(), TARTAN_F16, 0, &matrix));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 1:0, expected 2:0",
                 tartan_matrix_cast(zero.get(), host.get(), TARTAN_F16, 0, &matrix));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 2:1",
                 tartan_matrix_block_norms(zero.get(), a.get(), TARTAN_NORM_L2, norms, 16));
    EXPECT_FAILS(UNSUPPORTED, "from is on device 2:1, expected 2:0",
                 tartan_matrix_scatter(zero.get(), a.get(), ids, 16, a_here.get()));
    const Context cpu = open_context();
    EXPECT_FAILS(UNSUPPORTED, "array is on device 2:1", tartan_buffer_from_array(cpu.get(), far, &buffer));
    EXPECT_FAILS(UNSUPPORTED, "buffer is on device 2:1",
                 tartan_buffer_to_array(cpu.get(), full.get(), &target.array));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 2:1", tartan_matrix_to_host(cpu.get(), a.get(), &matrix));
    EXPECT_EQ(dense.memory(), target.memory());
    expect_all_work();
}

// The one mistake that the library cannot see: memory of the host that is said to be the device's.
TEST_F(Device, HostMemoryThatIsCalledTheDevices) {
    tartan_array lie = dense.array;
    lie.device_type = TARTAN_CUDA, lie.device_id = 1;
    EXPECT_FAILS(INTERNAL, "is no memory of device dummy:1",
                 tartan_spmm(context.get(), a.get(), nullptr, &lie, 1, 0, nullptr, &c.array));
    // Begins in an allocation of the device and leaves it, but not its page: c may have the next one.
    tartan_array beyond = b.array;
    beyond.strides[0] = 32;
    EXPECT_FAILS(INTERNAL, "is no memory of device dummy:1",
                 tartan_spmm(context.get(), a.get(), nullptr, &beyond, 1, 0, nullptr, &c.array));
    tartan_array device_as_host = b.array;
    device_as_host.device_type = TARTAN_CPU;
    EXPECT_FAILS(INTERNAL, "is not the host's",
                 tartan_buffer_from_array(context.get(), &device_as_host, &buffer));
    EXPECT_FAILS(INTERNAL, "is not the host's",
                 tartan_buffer_to_array(context.get(), full.get(), &device_as_host));
    expect_all_work();
}

// ---- Refusals of the backend ----

TEST_F(Device, ARefusedCaseIsNotRun) {
    tartan_dummy.refusal = "not today";
    int at_work = 0;
    static int *counter;
    counter = &at_work;
    tartan_dummy.at_work = [] { ++*counter; };
    for (const Call &call : calls()) {
        if (std::string(call.name).find("_buffer_") != std::string::npos) break; // the operations come first
        EXPECT_EQ(TARTAN_ERR_UNSUPPORTED, call.run());
        expect_message(call, "backend dummy: not today");
    }
    EXPECT_EQ(0, at_work);
    tartan_dummy.refusal = nullptr, tartan_dummy.at_work = nullptr;
    expect_all_work();
}

TEST_F(Device, AnOperationThatIsNotThereIsRefused) {
    static tartan_backend poor;
    poor = *tartan_plugin_get(&tartan_i_host);
    poor.supports = [](void *, const tartan_op *op, const char **out_reason) {
        *out_reason = "it does not have this operation";
        return op->kind != TARTAN_OP_GROWTH_SCORE;
    };
    tartan_i_backend_install(TARTAN_CUDA, &poor);
    const Context other = open_context("cuda:1");
    const int64_t block[] = {4, 4};
    EXPECT_FAILS(UNSUPPORTED, "tartan_growth_score: backend dummy: it does not have this operation",
                 tartan_growth_score(other.get(), &b.array, &b.array, 1, block, 2, "norm=l2", &scores.array));
}

} // namespace
