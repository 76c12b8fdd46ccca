// SPDX-License-Identifier: Apache-2.0
// What is reported for old drivers, small devices and errors of the runtime, by their numbers alone.
#include "support.h"

#include <cstring>

extern "C" {
#include "usable.h"
}

using namespace tartan_test;

namespace {

std::string refusal(int32_t driver, int32_t runtime) {
    char text[256];
    tartan_cuda_driver_refusal(driver, runtime, text, sizeof text);
    return text;
}

tartan_status fail(int32_t error, int32_t driver = 0) {
    return tartan_cuda_fail(&tartan_i_host, "f", "copying", error, "the text", driver, 13000);
}

TEST(CudaUsable, DriversTooOldOrNone) {
    EXPECT_EQ("there is no CUDA driver", refusal(0, 13000));
    EXPECT_EQ("the CUDA driver is for version 12.4, expected 13.0 or later", refusal(12040, 13000));
    EXPECT_EQ("the CUDA driver is for version 11.8, expected 12.10 or later", refusal(11080, 12100));
    char small[10];
    tartan_cuda_driver_refusal(0, 13000, small, sizeof small);
    EXPECT_STREQ("there is ", small);
}

TEST(CudaUsable, ChipsBelowTheLeast) {
    for (int capability : {80, 89, 90, 100, 121}) {
        const tartan_cuda_chip chip = {capability / 10, capability % 10, 100, 100000, nullptr};
        EXPECT_OK(tartan_cuda_check_chip(&tartan_i_host, "f", 0, &chip));
    }
    const tartan_cuda_chip turing = {7, 5, 72, 65536, nullptr};
    EXPECT_FAILS(DEVICE, "f: device cuda:3 has compute capability 7.5, expected 8.0 or more",
                 tartan_cuda_check_chip(&tartan_i_host, "f", 3, &turing));
}

TEST(CudaUsable, CardsAreDescribed) {
    tartan_cuda_card card = {"NVIDIA H200", 1, 9, 0, 132, 62914560, 13000, 12080, int64_t(150) << 30};
    char text[512];
    tartan_cuda_describe(&card, text, sizeof text);
    EXPECT_STREQ("{\"device\": 1, \"name\": \"NVIDIA H200\", \"compute_capability\": \"9.0\", "
                 "\"multiprocessors\": 132, \"memory_bytes\": 161061273600, \"l2_bytes\": 62914560, "
                 "\"driver\": \"13.0\", \"runtime\": \"12.8\"}",
                 text);
    card.major = 7, card.minor = 5;
    tartan_cuda_describe(&card, text, sizeof text);
    EXPECT_NE(nullptr, strstr(text, "\"compute_capability\": \"7.5\""));
    EXPECT_NE(nullptr, strstr(text, ", \"unusable\": \"compute capability below 8.0\"}"));
}

TEST(CudaUsable, ErrorsOfTheRuntimeAreToldApart) {
    EXPECT_FAILS(MEMORY, "f: copying: the text", fail(2));
    EXPECT_FAILS(DEVICE, "f: copying: the text (the CUDA driver is for version 12.2, expected 13.0 or later)",
                 fail(35, 12020));
    EXPECT_FAILS(DEVICE, "f: copying: the text (there is no CUDA driver)", fail(35));
    // Uncorrectable memory or links; bad addresses, instructions and traps of kernels; a device that is gone.
    for (int32_t fault :
         {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911, 999}) {
        EXPECT_EQ(TARTAN_CUDA_FAULT, tartan_cuda_trouble_of(fault)) << fault;
        EXPECT_FAILS(DEVICE,
                     "f: copying: the text; this process cannot use CUDA any more (CPU contexts still "
                     "work): restart it",
                     fail(fault));
    }
    // A bad value or handle, no device, too large a launch, a broken capture: the next call may succeed.
    for (int32_t error : {1, 3, 46, 98, 100, 101, 209, 400, 600, 701, 720, 800, 801, 900, 901}) {
        EXPECT_EQ(TARTAN_CUDA_OTHER, tartan_cuda_trouble_of(error)) << error;
        EXPECT_FAILS(DEVICE, "f: copying: the text", fail(error));
        EXPECT_EQ(std::string::npos, std::string(tartan_last_error()).find("any more"));
    }
}

} // namespace
