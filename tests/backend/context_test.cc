// SPDX-License-Identifier: Apache-2.0
#include "support.h"

#include <cmath>

namespace {

tartan_status create_with(void (*change)(tartan_context_options *)) {
    tartan_context_options options;
    tartan_context_options_init(&options);
    change(&options);
    tartan_context *context = (tartan_context *)&options;
    const tartan_status status = tartan_context_create(&options, &context);
    if (status != TARTAN_OK) {
        EXPECT_EQ(nullptr, context);
    }
    tartan_context_free(context);
    return status;
}

TEST(Context, DefaultsAndShortForm) {
    tartan_context *context = nullptr;
    ASSERT_OK(tartan_context_create(nullptr, &context));
    EXPECT_GE(tartan_context_threads(context), 1);
    EXPECT_OK(tartan_context_sync(context));
    tartan_context_free(context);
    for (const char *device : {"cpu", "cpu:0"}) {
        ASSERT_OK(tartan_context_open(device, 3, 7, &context));
        EXPECT_EQ(3, tartan_context_threads(context));
        tartan_context_free(context);
    }
    tartan_context_free(nullptr);
    tartan_context_options_init(nullptr);
}

TEST(Context, RefusesOptionsOutOfRange) {
    EXPECT_FAILS(ARGUMENT, "threads is -1", create_with([](tartan_context_options *o) { o->threads = -1; }));
    EXPECT_FAILS(ARGUMENT, "threads is 5000",
                 create_with([](tartan_context_options *o) { o->threads = 5000; }));
    EXPECT_FAILS(ARGUMENT, "determinism is 2",
                 create_with([](tartan_context_options *o) { o->determinism = 2; }));
    EXPECT_FAILS(ARGUMENT, "math_mode is -1",
                 create_with([](tartan_context_options *o) { o->math_mode = -1; }));
    EXPECT_FAILS(ARGUMENT, "seed is -1", create_with([](tartan_context_options *o) { o->seed = -1; }));
    EXPECT_FAILS(ARGUMENT, "allow_dense is 2, expected 0 or 1",
                 create_with([](tartan_context_options *o) { o->allow_dense = 2; }));
    EXPECT_FAILS(ARGUMENT, "struct_size is 3",
                 create_with([](tartan_context_options *o) { o->struct_size = 3; }));
    EXPECT_FAILS(DEVICE, "device type 77",
                 create_with([](tartan_context_options *o) { o->device_type = 77; }));
    EXPECT_FAILS(DEVICE, "cpu:1 is not there",
                 create_with([](tartan_context_options *o) { o->device_id = 1; }));
}

TEST(Context, RefusesDeviceNames) {
    tartan_context *context = nullptr;
    for (const char *name : {"", "gpu", "cpux", "cuda:", "cuda:-1", "cuda:1x", "cuda:99999"})
        EXPECT_FAILS(ARGUMENT, "expected \"cpu\", \"cuda\" or \"cuda:1\"",
                     tartan_context_open(name, 0, 0, &context));
    EXPECT_FAILS(DEVICE, "cuda", tartan_context_open("cuda:9999", 0, 0, &context));
    EXPECT_FAILS(HANDLE, "device is NULL", tartan_context_open(nullptr, 0, 0, &context));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_context_open("cpu", 0, 0, nullptr));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_context_create(nullptr, nullptr));
}

TEST(Context, OpenStreamTakesEveryPlainOption) {
    tartan_context *context = nullptr;
    ASSERT_OK(
        tartan_context_open_stream("cpu", 2, 7, TARTAN_MATH_TF32, TARTAN_NOT_DETERMINISTIC, 1, 0, &context));
    EXPECT_EQ(2, tartan_context_threads(context));
    tartan_context_free(context);
    EXPECT_FAILS(ARGUMENT, "threads is -1", tartan_context_open_stream("cpu", -1, 0, 0, 0, 0, 0, &context));
    EXPECT_FAILS(ARGUMENT, "seed is -1", tartan_context_open_stream("cpu", 0, -1, 0, 0, 0, 0, &context));
    EXPECT_FAILS(ARGUMENT, "math_mode is 2", tartan_context_open_stream("cpu", 0, 0, 2, 0, 0, 0, &context));
    EXPECT_FAILS(ARGUMENT, "determinism is -1",
                 tartan_context_open_stream("cpu", 0, 0, 0, -1, 0, 0, &context));
    EXPECT_FAILS(ARGUMENT, "allow_dense is -1, expected 0 or 1",
                 tartan_context_open_stream("cpu", 0, 0, 0, 0, -1, 0, &context));
    EXPECT_FAILS(ARGUMENT, "stream is 0x10, expected 0 for \"cpu\"",
                 tartan_context_open_stream("cpu", 0, 0, 0, 0, 0, 16, &context));
    EXPECT_FAILS(ARGUMENT, "device is \"gpu\"",
                 tartan_context_open_stream("gpu", 0, 0, 0, 0, 0, 0, &context));
    EXPECT_FAILS(DEVICE, "cuda", tartan_context_open_stream("cuda:9999", 0, 0, 0, 0, 0, 1, &context));
    EXPECT_FAILS(HANDLE, "device is NULL", tartan_context_open_stream(nullptr, 0, 0, 0, 0, 0, 0, &context));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_context_open_stream("cpu", 0, 0, 0, 0, 0, 0, nullptr));
    BRUTAL(tartan_context_open_stream("cpu", 0, 0, 0, 0, 0, 0, &context), tartan_context_free(context));
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

TEST(Context, PeakIsPlausible) {
    tartan_test::Context context = tartan_test::open_context();
    double f32 = 0, f64 = 0;
    ASSERT_OK(tartan_context_peak(context.get(), TARTAN_F32, &f32));
    ASSERT_OK(tartan_context_peak(context.get(), TARTAN_F64, &f64));
    EXPECT_GT(f64, 0);
    EXPECT_GT(f32, f64 / 2);
    EXPECT_FAILS(DTYPE, "3", tartan_context_peak(context.get(), TARTAN_F16, &f32));
    EXPECT_FAILS(HANDLE, "NULL", tartan_context_peak(context.get(), TARTAN_F32, nullptr));
}

TEST(Context, SurvivesFullMemory) {
    tartan_context *context = nullptr;
    char *text = nullptr;
    BRUTAL(tartan_context_open("cpu", 0, 0, &context), tartan_context_free(context));
    BRUTAL(tartan_context_create(nullptr, &context), tartan_context_free(context));
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
