// SPDX-License-Identifier: Apache-2.0
#include "support.h"

#include <cmath>

namespace {

using tartan_test::open_context;

tartan_status create(const char *device, const char *options, const tartan_hooks *hooks = nullptr) {
    tartan_context *context = (tartan_context *)&hooks;
    const tartan_status status = tartan_context_create(device, options, hooks, &context);
    if (status != TARTAN_OK) {
        EXPECT_EQ(nullptr, context);
    }
    tartan_context_free(context);
    return status;
}

TEST(Context, DefaultsAndOptions) {
    EXPECT_GE(tartan_context_threads(open_context("cpu").get()), 1);
    EXPECT_OK(create("cpu", nullptr));
    EXPECT_OK(create("cpu:0", " ,\t\n"));
    for (const char *options : {"threads=3", " threads=3,seed=9223372036854775807", "math=exact threads=0x3",
                                "allow_dense=1\tmath=tf32 threads=3 stream=0 "})
        EXPECT_EQ(3, tartan_context_threads(open_context("cpu", options).get())) << options;
    EXPECT_EQ(4096, tartan_context_threads(open_context("cpu", "threads=4096").get()));
    EXPECT_OK(tartan_context_sync(open_context("cpu").get()));
    tartan_context_free(nullptr);
}

TEST(Context, RefusesOptions) {
    for (const char *value :
         {"-1", "4097", "", "x", "1x", "0x", "1.0", "1e3", "0x1001", "99999999999999999999"})
        EXPECT_FAILS(ARGUMENT, "threads is " + std::string(value) + ", expected a whole number 0 .. 4096",
                     create("cpu", ("threads=" + std::string(value)).c_str()));
    EXPECT_FAILS(ARGUMENT, "seed is -1", create("cpu", "threads=1 seed=-1"));
    EXPECT_FAILS(ARGUMENT, "seed is 9223372036854775808, expected",
                 create("cpu", "seed=9223372036854775808"));
    EXPECT_FAILS(ARGUMENT, "math is 'fast', expected exact, tf32, bf16x3 or bf16x6",
                 create("cpu", "math=fast"));
    EXPECT_FAILS(ARGUMENT, "math is '', expected", create("cpu", "math="));
    EXPECT_FAILS(ARGUMENT, "math is 'bf16x', expected", create("cpu", "math=bf16x"));
    EXPECT_FAILS(ARGUMENT, "allow_dense is 2, expected a whole number 0 .. 1",
                 create("cpu", "allow_dense=2"));
    EXPECT_FAILS(ARGUMENT, "stream is 0x10, expected 0 for \"cpu\"", create("cpu", "stream=0x10"));
    EXPECT_FAILS(ARGUMENT, "stream is -0x10, expected", create("cpu", "stream=-0x10"));
    EXPECT_FAILS(ARGUMENT,
                 "options has 'colour=1', expected one of threads, seed, math, allow_dense and stream",
                 create("cpu", "threads=1 colour=1"));
    EXPECT_FAILS(ARGUMENT, "options has 'thread=1', expected one of", create("cpu", "thread=1"));
    EXPECT_FAILS(ARGUMENT, "options has 'threads', expected name=value", create("cpu", "threads"));
    EXPECT_FAILS(ARGUMENT, "options has '=1', expected one of", create("cpu", "=1"));
    EXPECT_FAILS(ARGUMENT, "options has seed twice, expected it once", create("cpu", "seed=1 seed=1"));
    const std::string longest(5000, 'x');
    EXPECT_FAILS(ARGUMENT, "options has 'xxx", create("cpu", longest.c_str()));
    EXPECT_FAILS(ARGUMENT, "threads is xxx", create("cpu", ("threads=" + longest).c_str()));
}

TEST(Context, RefusesDeviceNames) {
    tartan_context *context = nullptr;
    for (const char *name : {"", "gpu", "cpux", "cuda:", "cuda:-1", "cuda:1x", "cuda:99999"})
        EXPECT_FAILS(ARGUMENT, "expected \"cpu\", \"cuda\" or \"cuda:1\"", create(name, nullptr));
    EXPECT_FAILS(DEVICE, "cpu:1 does not exist", create("cpu:1", nullptr));
    EXPECT_FAILS(DEVICE, "cuda", create("cuda:9999", nullptr));
    EXPECT_FAILS(DEVICE, "cuda", create("cuda:9999", "stream=1"));
    EXPECT_FAILS(HANDLE, "device is NULL", tartan_context_create(nullptr, nullptr, nullptr, &context));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_context_create("cpu", nullptr, nullptr, nullptr));
}

void in_order(void *user, int32_t workers, tartan_task task, void *data) {
    if (user != nullptr) ++*(int *)user;
    for (int32_t w = 0; w < workers; w++) task(data, w);
}

// The number of times that the loop of the hooks was told of its user while a matrix was filled; -1: it was not called.
int loops(tartan_hooks *hooks, const char *options) {
    int user = 0;
    hooks->parallel_for = in_order;
    hooks->parallel_user = &user;
    const tartan_test::Context context = open_context("cpu", options, hooks);
    const tartan_test::Layout layout = tartan_test::random_layout({64, 64, 8, 8, 1}, 1, 1);
    tartan_matrix *raw = nullptr;
    EXPECT_OK(tartan_matrix_create(layout.get(), TARTAN_F64, TARTAN_ROW_MAJOR, &raw));
    const tartan_test::Matrix matrix(raw);
    EXPECT_OK(tartan_matrix_fill_normal(context.get(), raw, 1, 1));
    return user;
}

// Programs compiled with an older, smaller struct, and with a newer, larger one.
TEST(Context, HooksOfOtherVersions) {
    struct {
        tartan_hooks hooks;
        int64_t more[2];
    } x = {};
    x.hooks.struct_size = sizeof(tartan_hooks);
    EXPECT_LT(0, loops(&x.hooks, "threads=3"));
    x.hooks.struct_size = sizeof x;
    EXPECT_LT(0, loops(&x.hooks, "threads=3"));
    x.hooks.struct_size = 16; // without parallel_user
    EXPECT_EQ(0, loops(&x.hooks, "threads=3"));
    x.hooks.struct_size = 8; // without either
    EXPECT_EQ(0, loops(&x.hooks, "threads=3"));
    x.hooks.struct_size = sizeof x;
    x.more[1] = 1;
    EXPECT_FAILS(ARGUMENT, "hooks has 40 bytes, not all of them 0 after the first 24",
                 create("cpu", nullptr, &x.hooks));
    for (int64_t size : {-8, 0, 7, 9, 25, 4104}) {
        x.hooks.struct_size = size;
        EXPECT_FAILS(ARGUMENT,
                     "hooks->struct_size is " + std::to_string(size) + ", expected sizeof(tartan_hooks)",
                     create("cpu", nullptr, &x.hooks));
    }
}

TEST(Context, RefusesForeignHandles) {
    int64_t other[8] = {42};
    auto *foreign = (tartan_context *)other;
    double rate;
    EXPECT_FAILS(HANDLE, "closed or not one of Tartan's", tartan_context_sync(foreign));
    EXPECT_FAILS(HANDLE, "NULL", tartan_context_sync(nullptr));
    EXPECT_FAILS(HANDLE, "NULL", tartan_context_peak(nullptr, TARTAN_F32, &rate));
    EXPECT_EQ(-1, tartan_context_threads(foreign));
    EXPECT_EQ(-1, tartan_context_threads(nullptr));
    tartan_context_free(foreign);
    EXPECT_EQ(42, other[0]);
}

// The rates themselves, and how they compare, are left to benchmarks: on a busy machine nothing is sure.
TEST(Context, PeakIsARate) {
    tartan_test::Context context = tartan_test::open_context();
    double f32 = 0, f64 = 0;
    ASSERT_OK(tartan_context_peak(context.get(), TARTAN_F32, &f32));
    ASSERT_OK(tartan_context_peak(context.get(), TARTAN_F64, &f64));
    EXPECT_GT(f64, 0);
    EXPECT_GT(f32, 0);
    for (int32_t dtype : {TARTAN_F16, TARTAN_BF16}) {
        double rate = 0;
        ASSERT_OK(tartan_context_peak(context.get(), dtype, &rate));
        EXPECT_GT(rate, 0);
    }
    EXPECT_FAILS(DTYPE, "dtype is 7", tartan_context_peak(context.get(), TARTAN_U8, &f32));
    EXPECT_FAILS(HANDLE, "NULL", tartan_context_peak(context.get(), TARTAN_F32, nullptr));
}

TEST(Context, SurvivesFullMemory) {
    tartan_context *context = nullptr;
    char *text = nullptr;
    BRUTAL(tartan_context_create("cpu", "threads=2", nullptr, &context), tartan_context_free(context));
    BRUTAL(tartan_info(&text), tartan_text_free(text));
}

TEST(Info, TellsBackendsAndWhyOneIsNotThere) {
    char *text = nullptr;
    ASSERT_OK(tartan_info(&text));
    const std::string info = text;
    tartan_text_free(text);
    EXPECT_NE(std::string::npos, info.find("\"name\": \"cpu\", \"loaded\": true"));
    EXPECT_NE(std::string::npos, info.find("\"name\": \"cuda\""));
    EXPECT_NE(std::string::npos, info.find(tartan_cpu_kernels()));
    EXPECT_FAILS(HANDLE, "out_text is NULL", tartan_info(nullptr));
}

} // namespace
