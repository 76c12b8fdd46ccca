// SPDX-License-Identifier: Apache-2.0
// The order of work between contexts. The dummy refuses work on memory that another stream may still be at work on, and
// ends the process where such memory is released (dummy_order.h), so a wait that is missing fails these tests.
#include "order.h"

namespace {

using namespace tartan_test;

// The detector itself: without the library's waits it refuses.
TEST_F(Order, TheDummySeesThatAWaitIsMissing) {
    const Context x = open_context("cuda:1"), y = open_context("cuda:1");
    const Placed b = copy_to(x);
    const tartan_backend *backend = tartan_plugin_get(&tartan_i_host);
    EXPECT_FAILS(INTERNAL, "while another stream may be at work on it",
                 backend->clear("test", y->device, b.array.data, 4));
    ASSERT_OK(tartan_context_sync(y.get())); // the wrong one
    EXPECT_FAILS(INTERNAL, "while another stream", backend->clear("test", y->device, b.array.data, 4));
    ASSERT_OK(tartan_context_sync(x.get()));
    ASSERT_OK(tartan_context_sync(y.get()));
    EXPECT_OK(backend->clear("test", x->device, b.array.data, 4));
    ASSERT_OK(tartan_context_wait(y.get(), x.get()));
    EXPECT_OK(backend->clear("test", y->device, b.array.data, 4));
    ASSERT_OK(tartan_context_sync(y.get()));
}

TEST_F(Order, OneContextNeverWaits) {
    const Context x = open_context("cuda:1");
    const Matrix a = placed(x.get(), host);
    const Placed b = copy_to(x);
    Placed c = copy_to(x);
    for (int i = 0; i < 3; i++) EXPECT_OK(multiply(x, a, b, &c));
    EXPECT_EQ(0, waits());
}

TEST_F(Order, ContextsOnOneStreamNeverWait) {
    const Context x = open_context("cuda:1", "stream=0x500"), y = open_context("cuda:1", "stream=0x500"),
                  z = open_context("cuda:0", "stream=0x500");
    EXPECT_EQ(0x500, tartan_context_stream(x.get()));
    const Matrix a = placed(x.get(), host);
    const Placed b = copy_to(x);
    Placed c = copy_to(y);
    EXPECT_OK(multiply(y, a, b, &c));
    EXPECT_OK(multiply(x, a, b, &c));
    EXPECT_OK(tartan_context_wait(x.get(), y.get()));
    EXPECT_EQ(0, waits());
    EXPECT_OK(tartan_context_wait(x.get(), z.get())); // another device's stream
    EXPECT_EQ(1, waits());
}

TEST_F(Order, OnlyWhatDependsWaits) {
    const Context x = open_context("cuda:1"), y = open_context("cuda:1");
    const Matrix a = placed(x.get(), host);
    const Placed b = copy_to(x);
    Placed c = copy_to(y), d = copy_to(x);
    EXPECT_EQ(0, waits());
    EXPECT_OK(multiply(y, a, b, &c)); // reads what x wrote
    EXPECT_EQ(1, waits());
    EXPECT_OK(multiply(y, a, b, &c)); // which it has waited for
    EXPECT_OK(multiply(x, a, b, &d)); // both read
    EXPECT_EQ(1, waits());
    EXPECT_OK(multiply(x, a, c, &d)); // y wrote c
    EXPECT_EQ(2, waits());
    EXPECT_OK(multiply(y, a, b, &c)); // x reads c
    EXPECT_EQ(3, waits());
    EXPECT_OK(tartan_context_sync(x.get()));
    EXPECT_OK(multiply(y, a, d, &c)); // x wrote d, but the host has waited
    EXPECT_EQ(3, waits());
    EXPECT_EQ(1, tartan_dummy.synced);
}

// More queues read than there is room to note.
TEST_F(Order, AWriterWaitsForAnyNumberOfReaders) {
    std::vector<Context> readers;
    std::vector<Placed> results;
    const Context x = open_context("cuda:1");
    const Matrix a = placed(x.get(), host);
    Placed b = copy_to(x);
    const Placed other = copy_to(x);
    for (int i = 0; i < 20; i++) {
        readers.push_back(open_context("cuda:1"));
        results.push_back(copy_to(readers.back()));
        ASSERT_OK(multiply(readers.back(), a, b, &results.back()));
    }
    ASSERT_OK(multiply(x, a, other, &b));
    for (int i = 0; i < 20; i++) ASSERT_OK(multiply(readers[(size_t)i], a, b, &results[(size_t)i]));
    results.clear();
}

TEST_F(Order, IndexSetsAreOrderedToo) {
    const Context x = open_context("cuda:1"), y = open_context("cuda:1");
    const tartan_shape shape = layout->shape;
    std::vector<uint8_t> bytes(16, 1);
    const int64_t sizes[] = {4, 4};
    tartan_array mask = {};
    ASSERT_OK(tartan_array_init(bytes.data(), TARTAN_U8, 2, sizes, nullptr, &mask));
    tartan_layout *raw = nullptr;
    ASSERT_OK(tartan_layout_from_device_mask(x.get(), &shape, &mask, 0, &raw));
    const Layout dynamic(raw);
    const Placed values(y.get(), Dense(TARTAN_F32, {16, 4, 4})), b = copy_to(y);
    Placed c = copy_to(y);
    tartan_matrix *matrix = nullptr;
    ASSERT_OK(tartan_matrix_wrap(dynamic.get(), &values.array, nullptr, nullptr, &matrix));
    const Matrix a(matrix);
    EXPECT_EQ(0, waits());
    ASSERT_OK(multiply(y, a, b, &c)); // x made them
    EXPECT_EQ(1, waits());
    ASSERT_OK(tartan_layout_update_device_mask(x.get(), dynamic.get(), &mask)); // y reads them
    EXPECT_EQ(2, waits());
    tartan_layout *fixed = nullptr;
    ASSERT_OK(tartan_layout_to_host(y.get(), dynamic.get(), &fixed));
    EXPECT_EQ(3, waits());
    tartan_layout_free(fixed);
}

TEST_F(Order, CopiesBetweenDevices) {
    const Context x = open_context("cuda:0"), y = open_context("cuda:1");
    for (Style style : {kRows, kColumns, kGaps}) {
        Dense source(TARTAN_F32, {5, 7}, style);
        source.fill(random);
        const Placed far(x.get(), source);
        const int64_t before = waits();
        tartan_buffer *raw = nullptr;
        ASSERT_OK(tartan_buffer_from_array(y.get(), &far.array, &raw));
        const Buffer near(raw);
        EXPECT_EQ(before + 1, waits());
        tartan_array view = {};
        ASSERT_OK(tartan_buffer_view(raw, &view));
        EXPECT_EQ(1, view.device_id);
        Dense got(TARTAN_F32, {5, 7});
        ASSERT_OK(tartan_buffer_to_array(y.get(), raw, &got.array));
        for (int64_t i = 0; i < source.elements(); i++) ASSERT_EQ(source.get(i), got.get(i));
        EXPECT_FAILS(UNSUPPORTED, "buffer is on device 2:1",
                     tartan_buffer_to_array(x.get(), raw, &got.array));
    }
    const Matrix there = placed(x.get(), host), here = placed(y.get(), there), back = fetched(y.get(), here);
    EXPECT_STREQ("cuda:1", tartan_matrix_device(here.get()));
    tartan_array first = {}, second = {};
    ASSERT_OK(tartan_matrix_values(host.get(), &first));
    ASSERT_OK(tartan_matrix_values(back.get(), &second));
    EXPECT_EQ(0, std::memcmp(first.data, second.data, 16 * 16 * sizeof(float)));
    Dense mask(TARTAN_F8E4M3, {4, 4});
    mask.fill(random);
    Placed far_mask(x.get(), mask);
    far_mask.array.dtype = TARTAN_U8;
    tartan_layout *raw = nullptr;
    ASSERT_OK(tartan_layout_from_device_mask(y.get(), &layout->shape, &far_mask.array, 0, &raw));
    tartan_layout_free(raw);
}

// ---- Waiting that is asked for ----

TEST_F(Order, ForeignStreams) {
    const Context x = open_context("cuda:1", "stream=0x700");
    const Context own = open_context("cuda:1"), foreign = open_context("cuda:1", "stream=0x900");
    EXPECT_STREQ("cuda:1", tartan_context_device(x.get()));
    EXPECT_LT(0, tartan_context_stream(own.get()));
    EXPECT_OK(tartan_context_wait_stream(x.get(), 1, 0x700));
    EXPECT_OK(tartan_context_signal_stream(x.get(), 1, 0x700));
    EXPECT_EQ(0, waits());
    // What another library, here played by the backend, does on its stream.
    const tartan_backend *backend = tartan_plugin_get(&tartan_i_host);
    const Placed b = copy_to(x);
    EXPECT_FAILS(INTERNAL, "while another", backend->clear("test", foreign->device, b.array.data, 4));
    const Placed c = copy_to(x);
    EXPECT_OK(tartan_context_signal_stream(x.get(), 1, 0x900));
    EXPECT_OK(backend->clear("test", foreign->device, c.array.data, 4));
    EXPECT_OK(tartan_context_wait_stream(x.get(), 1, 0x900));
    EXPECT_OK(backend->clear("test", x->device, c.array.data, 4));
    const Placed d = copy_to(own);
    EXPECT_OK(tartan_array_signal_stream(&d.array, 1, 0x900));
    EXPECT_OK(backend->clear("test", foreign->device, d.array.data, 4));
    EXPECT_OK(tartan_context_wait_stream(own.get(), 1, 0x900));
    EXPECT_OK(tartan_context_wait_stream(x.get(), 1, 0x900));
    const int64_t before = waits();
    for (auto *f : {tartan_array_signal_stream, tartan_array_wait_stream}) {
        EXPECT_OK(f(&dense.array, 1, 0x900)); // of the host
        tartan_array unknown = d.array;
        unknown.data = (void *)0x1000;
        EXPECT_OK(f(&unknown, 1, 0x900)); // not ours
        unknown.shape[0] = 0;
        EXPECT_OK(f(&unknown, 1, 0x900));
    }
    EXPECT_EQ(before, waits());
}

// Another library works with memory of ours: before our later work with it, and before it is released.
TEST_F(Order, MemoryThatForeignStreamsWorkWith) {
    const Context foreign = open_context("cuda:1", "stream=0x900"), y = open_context("cuda:1");
    const tartan_backend *backend = tartan_plugin_get(&tartan_i_host);
    for (const char *options : {"", "stream=0x900"}) {
        for (bool read_by_y : {false, true}) {
            Context x = open_context("cuda:1", options);
            const Matrix a = placed(x.get(), host);
            auto b = std::make_unique<Placed>(x.get(), dense), c = std::make_unique<Placed>(x.get(), dense);
            Placed d = copy_to(y);
            if (read_by_y) {
                EXPECT_OK(multiply(y, a, *b, &d));
            }
            for (const auto &one : {b.get(), c.get()}) {
                EXPECT_OK(tartan_array_signal_stream(&one->array, 1, 0x900));
                EXPECT_OK(backend->clear("test", foreign->device, one->array.data, 4));
                EXPECT_OK(tartan_array_wait_stream(&one->array, 1, 0x900));
            }
            ASSERT_OK(multiply(y, a, *b, &d));
            ASSERT_OK(multiply(x, a, *b, c.get()));
            ASSERT_OK(tartan_array_signal_stream(&c->array, 1, 0x900));
            EXPECT_OK(backend->clear("test", foreign->device, c->array.data, 4));
            EXPECT_OK(tartan_array_wait_stream(&c->array, 1, 0x900));
            c.reset(); // after that work
            x.reset();
            b.reset();
        }
    }
    EXPECT_EQ(0, tartan_dummy.synced - 4); // of the contexts that ended
}

TEST_F(Order, RefusesBadArguments) {
    const Context x = open_context("cuda:1"), cpu = open_context();
    int64_t other[8] = {42};
    auto *foreign = (tartan_context *)other;
    EXPECT_FAILS(HANDLE, "context is NULL", tartan_context_wait(nullptr, x.get()));
    EXPECT_FAILS(HANDLE, "other is NULL", tartan_context_wait(x.get(), nullptr));
    EXPECT_FAILS(HANDLE, "closed or not one of Tartan's", tartan_context_wait(x.get(), foreign));
    for (auto *f : {tartan_context_wait_stream, tartan_context_signal_stream}) {
        EXPECT_FAILS(HANDLE, "context is NULL", f(nullptr, 0, 1));
        EXPECT_FAILS(HANDLE, "closed or not one of Tartan's", f(foreign, 0, 1));
        EXPECT_FAILS(UNSUPPORTED, "context is on cpu, which has no streams", f(cpu.get(), 0, 1));
        EXPECT_FAILS(ARGUMENT, "device_id is 2, expected", f(x.get(), 2, 1));
        EXPECT_FAILS(ARGUMENT, "device_id is -1, expected", f(x.get(), -1, 1));
        EXPECT_FAILS(ARGUMENT, "stream is 0, expected", f(x.get(), 1, 0));
    }
    for (auto *f : {tartan_array_signal_stream, tartan_array_wait_stream}) {
        EXPECT_FAILS(HANDLE, "array is NULL", f(nullptr, 0, 1));
        EXPECT_FAILS(ARGUMENT, "device_id is -1", f(&dense.array, -1, 1));
        EXPECT_FAILS(ARGUMENT, "stream is -1", f(&dense.array, 0, -1));
    }
    EXPECT_EQ(-1, tartan_context_stream(nullptr));
    EXPECT_EQ(-1, tartan_context_stream(foreign));
    EXPECT_EQ(0, tartan_context_stream(cpu.get()));
    EXPECT_EQ(nullptr, tartan_context_device(foreign));
    EXPECT_STREQ("cpu", tartan_context_device(cpu.get()));
    // A CPU context waits on the host, and nobody has to wait for it.
    EXPECT_OK(tartan_context_wait(cpu.get(), x.get()));
    EXPECT_EQ(1, tartan_dummy.synced);
    EXPECT_OK(tartan_context_wait(x.get(), cpu.get()));
    EXPECT_OK(tartan_context_wait(x.get(), x.get()));
    EXPECT_EQ(0, waits());
    tartan_dummy.lost = true;
    EXPECT_FAILS(DEVICE, "was lost", tartan_context_wait_stream(x.get(), 1, 0x900));
    EXPECT_FAILS(DEVICE, "was lost", tartan_context_signal_stream(x.get(), 1, 0x900));
    tartan_dummy.lost = false;
}

// A refused wait refuses the call and changes nothing.
TEST_F(Order, ALostDeviceRefusesTheWait) {
    const Context x = open_context("cuda:1"), y = open_context("cuda:1");
    const Matrix a = placed(x.get(), host);
    const Placed b = copy_to(x);
    Placed c = copy_to(y);
    Dense before = dense, after = dense;
    c.fetch(before);
    tartan_dummy.lost = true;
    EXPECT_FAILS(DEVICE, "was lost", multiply(y, a, b, &c));
    tartan_dummy.lost = false;
    c.fetch(after);
    EXPECT_EQ(before.memory(), after.memory());
    EXPECT_OK(multiply(y, a, b, &c));
}

// Random programs: the dummy sees every missing wait.
TEST_F(Order, RandomPrograms) {
    for (uint64_t seed = 1; seed <= rounds(20u); seed++) {
        SCOPED_TRACE(seed);
        std::mt19937_64 dice(seed);
        const auto draw = [&](size_t n) { return (size_t)(dice() % n); };
        const auto device = [](size_t i) { return i % 2 == 0 ? "cuda:0" : "cuda:1"; };
        std::vector<Context> contexts(10);
        std::vector<Matrix> matrices(6);
        std::vector<std::unique_ptr<Placed>> arrays(12);
        const auto context = [&](size_t of) -> Context & {
            Context &one = contexts[2 * draw(contexts.size() / 2) + of % 2];
            if (one == nullptr)
                one = open_context(device(of), draw(3) == 0 ? "stream=" + std::to_string(0x800 + 16 * draw(3))
                                                            : std::string());
            return one;
        };
        for (int step = 0; step < 400; step++) {
            const size_t i = draw(arrays.size()), side = i % 2, m = 2 * draw(3) + side;
            if (matrices[m] == nullptr) matrices[m] = placed(context(m).get(), host);
            for (size_t k = side; k < arrays.size(); k += 2)
                if (arrays[k] == nullptr) arrays[k] = std::make_unique<Placed>(context(k).get(), dense);
            const size_t j = (i + 2 + 2 * draw(5)) % arrays.size();
            switch (draw(8)) {
            case 0:
                contexts[draw(contexts.size())].reset();
                break;
            case 1:
                arrays[i].reset();
                break;
            case 2:
                matrices[m].reset();
                break;
            case 3:
                ASSERT_OK(tartan_context_sync(context(i).get()));
                break;
            case 4: {
                tartan_buffer *raw = nullptr;
                ASSERT_OK(tartan_buffer_from_array(context(i + 1).get(), &arrays[i]->array, &raw));
                tartan_buffer_free(raw);
                break;
            }
            case 5: {
                const tartan_array *pair[] = {&arrays[i]->array, &arrays[j]->array};
                ASSERT_OK(
                    tartan_sddmm(context(i).get(), pair[0], pair[1], 1, nullptr, 1, 0, matrices[m].get()));
                break;
            }
            default:
                ASSERT_OK(multiply(context(i), matrices[m], *arrays[j], arrays[i].get()));
            }
        }
    }
}

} // namespace
