// SPDX-License-Identifier: Apache-2.0
// A real GPU that is lost, and none: each in a process of its own, which works on without a GPU.
#include "hardware.h"

#include <cstdio>
#include <unistd.h>

namespace {

using namespace tartan_test;

// Kernels that end their context for good.
const char kFaults[] = R"(.version 7.0
.target sm_80
.address_size 64
.visible .entry stop()
{
    trap;
    ret;
}
.visible .entry stray()
{
    .reg .b64 %at;
    .reg .b32 %value;
    mov.u64 %at, 16;
    mov.u32 %value, 1;
    st.global.u32 [%at], %value;
    ret;
}
)";

// What the process says of itself; the printer of its tests is silent.
int problems = 0;

void expect(bool good, const char *what) {
    if (good) return;
    problems++;
    std::fprintf(stderr, "%s: %s\n", what, tartan_last_error());
}

void expect_lost(const char *what, tartan_status status) {
    const std::string text = tartan_last_error();
    expect(status == TARTAN_ERR_DEVICE && text.find(what) == 0 &&
               text.find("this process cannot use CUDA any more") != std::string::npos,
           what);
}

[[noreturn]] void leave() {
    std::fprintf(stderr,
                 problems == 0 && !::testing::Test::HasFailure() ? "all as it should be\n" : "wrong\n");
    std::exit(problems == 0 && !::testing::Test::HasFailure() ? 0 : 1);
}

void expect_all_lost(tartan_context *x, Operands &o) {
    const Calls call = {x, o};
    const tartan_array &b = o.b.array, &c = o.c.array;
    expect_lost("tartan_context_sync", tartan_context_sync(x));
    expect_lost("tartan_spmm", call.spmm(o.a.get(), &o.gates.array, b, c));
    expect_lost("tartan_sddmm", call.sddmm(b, b, o.s.get()));
    expect_lost("tartan_gate_gradient", call.gradient(o.a.get(), o.s.get(), o.sums.array));
    expect_lost("tartan_growth_score", call.growth(b, b, o.scores.array));
    expect_lost("tartan_matrix_copy", call.matrix(tartan_matrix_copy, o.a.get()));
    expect_lost("tartan_matrix_cast",
                call.matrix(tartan_matrix_cast, o.a.get(), (int32_t)TARTAN_F64, (int32_t)TARTAN_COL_MAJOR));
    expect_lost("tartan_matrix_transpose", call.matrix(tartan_matrix_transpose, o.a.get()));
    expect_lost("tartan_matrix_block_norms", call.norms(o.a.get()));
    expect_lost("tartan_matrix_scatter", call.scatter(o.a.get(), o.s.get()));
    expect_lost("tartan_matrix_to_device", call.matrix(tartan_matrix_to_device, o.host.get()));
    expect_lost("tartan_matrix_to_device", call.matrix(tartan_matrix_to_device, o.a.get()));
    expect_lost("tartan_matrix_to_host", call.matrix(tartan_matrix_to_host, o.a.get()));
    expect_lost("tartan_buffer_from_array", call.buffer_of(o.square.array));
    expect_lost("tartan_buffer_from_array", call.buffer_of(b));
    expect_lost("tartan_buffer_to_array", call.fetch(o.buffer));
    expect_lost("tartan_layout_from_device_mask", call.layout_of(o.bytes.array));
    expect_lost("tartan_layout_update_device_mask", call.update(o.dynamic.layout, o.bytes.array));
    expect_lost("tartan_layout_from_device_scores", call.layout_of_scores(o.scores.array));
    expect_lost("tartan_layout_update_device_scores", call.update_by(o.dynamic.layout, o.scores.array));
    expect_lost("tartan_layout_to_host", call.layout_to_host(o.dynamic.layout));
    expect_lost("tartan_context_sync", tartan_context_sync(x));
    char *text = nullptr; // what asks nothing of the device
    expect(tartan_explain_begin() == TARTAN_OK, "tartan_explain_begin");
    expect(call.spmm(o.a.get(), nullptr, b, o.c.array) == TARTAN_OK, "tartan_spmm that explains");
    expect(tartan_explain_end(&text) == TARTAN_OK, "tartan_explain_end");
    tartan_text_free(text);
    expect(tartan_info(&text) == TARTAN_OK, "info");
    tartan_text_free(text);
}

void expect_none_opened() {
    tartan_context *out = nullptr;
    const tartan_status status = tartan_context_create("cuda:0", nullptr, nullptr, &out);
    expect(status == TARTAN_ERR_DEVICE && out == nullptr, "tartan_context_create");
}

// A kernel of the caller's fails on the stream that the context was given, behind work of the library.
void lose(const char *kernel) {
    const Driver &driver = *Driver::get();
    const Inputs in(TARTAN_BF16, 64, 256, true, 3);
    const Current current(0);
    void *stream = nullptr, *module = nullptr, *function = nullptr;
    expect(driver.create_stream(&stream, 1) == 0, "a stream");
    {
        const Context context = open_on("cuda:0", (int64_t)(intptr_t)stream);
        Operands o(context.get());
        Work work(context.get(), in);
        work.ask();
        expect(work.fetch() == products(cpu(), in), "work before the loss");
        work.ask();
        expect(driver.load(&module, kFaults) == 0 && driver.find(&function, module, kernel) == 0,
               "the kernel");
        expect(driver.launch(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr) == 0, "its launch");
        expect_all_lost(context.get(), o);
        expect_none_opened();
    }
    (void)driver.destroy_stream(stream);
}

[[noreturn]] void lose_and_go_on(const char *kernel) {
    alarm(300);
    const Inputs in(TARTAN_F32, 16, 40, true, 4);
    const Results want = products(cpu(), in);
    const int64_t live = tartan_i_memory_live();
    lose(kernel);
    expect(tartan_i_memory_live() == live, "memory is left behind");
    expect(products(cpu(), in) == want, "the CPU");
    expect_none_opened();
    leave();
}

// Today's drivers end the use of all GPUs when one is lost; one that does not has to give right results.
[[noreturn]] void lose_one_of_two() {
    alarm(300);
    const Inputs in(TARTAN_F16, 32, 64, true, 4);
    const Results want = products(cpu(), in);
    {
        const Context other = open_on("cuda:1");
        Operands o(other.get());
        expect(products(other.get(), in) == want, "the other before the loss");
        lose("stray");
        if (tartan_context_sync(other.get()) != TARTAN_OK)
            expect_all_lost(other.get(), o);
        else
            expect(products(other.get(), in) == want, "the other");
    }
    expect(products(cpu(), in) == want, "the CPU");
    leave();
}

[[noreturn]] void hide() {
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    const Inputs in(TARTAN_F32, 16, 40, true, 4);
    const Results want = products(cpu(), in);
    for (int i = 0; i < 2; i++) {
        expect_none_opened();
        std::fprintf(stderr, "%s\n", tartan_last_error());
    }
    expect(products(cpu(), in) == want, "the CPU");
    char *text = nullptr;
    expect(tartan_info(&text) == TARTAN_OK, "info");
    expect(strstr(text, "\"name\": \"cuda\", \"loaded\": true, \"devices\": [], \"reason\": \"") != nullptr,
           text);
    tartan_text_free(text);
    leave();
}

class HardwareLoss : public ::testing::Test {
  protected:
    void SetUp() override {
        GTEST_FLAG_SET(death_test_style, "threadsafe");
        if (!has_hardware()) GTEST_SKIP() << "TARTAN_DEVICE=cuda is not in the environment";
        ASSERT_NE(nullptr, Driver::get()) << "there is no CUDA driver";
    }
};

TEST_F(HardwareLoss, ByATrap) {
    EXPECT_EXIT(lose_and_go_on("stop"), ::testing::ExitedWithCode(0), "all as it should be");
}

TEST_F(HardwareLoss, ByAStrayAddress) {
    EXPECT_EXIT(lose_and_go_on("stray"), ::testing::ExitedWithCode(0), "all as it should be");
}

TEST_F(HardwareLoss, TheOtherGpuWorksOnOrIsLostToo) {
    int count = 0;
    ASSERT_EQ(0, Driver::get()->count(&count));
    if (count < 2) GTEST_SKIP() << "there is one GPU, expected two";
    EXPECT_EXIT(lose_one_of_two(), ::testing::ExitedWithCode(0), "all as it should be");
}

// Needs the plug-in and no GPU: where there are some, they are hidden.
TEST(HardwareNone, IsSaid) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const char *reason = nullptr;
    if (tartan_i_backend_find(TARTAN_CUDA, &reason) == nullptr) GTEST_SKIP() << reason;
    EXPECT_EXIT(hide(), ::testing::ExitedWithCode(0),
                "device cuda:0 does not exist: 0 devices: "
                "(no CUDA-capable device is detected|the CUDA driver sees no device|there is no CUDA driver|"
                "the CUDA driver is for version)");
}

} // namespace
