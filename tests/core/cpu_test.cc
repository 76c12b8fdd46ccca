// SPDX-License-Identifier: Apache-2.0
#include "support.h"
#include "system_tiles.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

extern "C" {
#include "core/cpu.h"
#include "kernels/kernels.h"
}

namespace {

using tartan_test::Tiles;

TEST(Cpu, CanBeLoweredButNotRaised) {
    const tartan_i_cpu_features best = tartan_i_cpu_detect(), now = tartan_i_cpu_in_use();
    EXPECT_EQ(0u, now & ~best);
    EXPECT_EQ(0u, tartan_i_cpu_use(0));
    EXPECT_STREQ("c", tartan_cpu_kernels());
    EXPECT_EQ(best, tartan_i_cpu_use(~0u));
    EXPECT_EQ(best, tartan_i_cpu_in_use());
    tartan_i_cpu_use(now);
}

TEST(Cpu, AWishIsASetOrANameForAllUpToIt) {
    const tartan_i_cpu_features avx2 = TARTAN_I_CPU_AVX2, avx512 = TARTAN_I_CPU_AVX512,
                                bf16 = TARTAN_I_CPU_AVX512BF16, amx = TARTAN_I_CPU_AMX,
                                all = tartan_i_cpu_allowed(nullptr);
    for (int i = 0; i < TARTAN_I_CPU_FEATURES; i++) {
        EXPECT_TRUE(tartan_i_cpu_allowed(tartan_i_cpu_name(i)) >> i & 1);
        EXPECT_TRUE(all >> i & 1);
    }
    EXPECT_EQ(0u, tartan_i_cpu_allowed("c"));
    EXPECT_EQ(avx2, tartan_i_cpu_allowed("avx2"));
    EXPECT_EQ(avx2 | avx512, tartan_i_cpu_allowed("avx512"));
    EXPECT_EQ(avx2 | avx512 | bf16, tartan_i_cpu_allowed("avx512bf16"));
    EXPECT_EQ(avx2 | avx512 | bf16 | TARTAN_I_CPU_AVX512FP16 | amx, tartan_i_cpu_allowed("amx"));
    EXPECT_EQ((tartan_i_cpu_features)TARTAN_I_CPU_NEON, tartan_i_cpu_allowed("neon"));
    EXPECT_EQ(avx2 | amx, tartan_i_cpu_allowed("avx2,amx"));
    EXPECT_EQ(amx, tartan_i_cpu_allowed("amx,"));
    EXPECT_EQ(avx512, tartan_i_cpu_allowed("avx51,avx512,,avx5122,"));
    for (const char *nonsense : {"", "nonsense", "a,b", ",", "AVX2"})
        EXPECT_EQ(all, tartan_i_cpu_allowed(nonsense)) << nonsense;
}

TEST(Cpu, ListsNamesWithinTheSpaceGiven) {
    char text[64] = "";
    tartan_i_cpu_list(tartan_i_cpu_allowed(nullptr), text, sizeof text);
    EXPECT_STREQ("avx2,avx512,avx512bf16,avx512fp16,amx,neon,sve", text);
    tartan_i_cpu_list(0, text, sizeof text);
    EXPECT_STREQ("c", text);
    char tight[10] = "#########";
    tartan_i_cpu_list(TARTAN_I_CPU_AVX2 | TARTAN_I_CPU_AMX | TARTAN_I_CPU_NEON, tight, 8);
    EXPECT_STREQ("avx2,am", tight);
    EXPECT_EQ('#', tight[8]);
}

// The variable is read once a process, so each case starts the program anew ("threadsafe" death tests do). The new
// process may have another CPU: valgrind emulates one for the test, not for its children. So the child compares.
void expect_in_use(const char *wish, const char *expected) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    const auto show = [&] {
        setenv("TARTAN_CPU", wish, 1);
        const tartan_i_cpu_features all = tartan_i_cpu_detect(), set = tartan_i_cpu_in_use();
        fprintf(stderr, "kernels %s:%s%s.", tartan_cpu_kernels(), set == all ? " all" : "",
                set == (all & ~tartan_i_cpu_slow()) ? " fast" : "");
        _exit(0);
    };
    EXPECT_EXIT(show(), ::testing::ExitedWithCode(0), expected);
}

TEST(CpuDeathTest, EnvironmentLowersIt) {
    expect_in_use("c", "kernels c:");
    expect_in_use("nonsense", ": (all )?fast\\.");
    if (tartan_i_cpu_detect() & TARTAN_I_CPU_AVX2) {
        expect_in_use("avx2", "kernels avx2:");
        expect_in_use("avx2,neon", "kernels avx2:");
        expect_in_use("amx", ": all( fast)?\\."); // what is slow too, since its name says so
    }
}

// ---- AMX needs the system's help: tiles that it saves, and leave for this process to use them ----

#if defined(__x86_64__)
TEST(Cpu, TilesThatTheSystemDoesNotSaveAreNoFeature) {
    const tartan_i_cpu_features all = tartan_i_cpu_detect(), now = tartan_i_cpu_in_use(),
                                amx = TARTAN_I_CPU_AMX;
    for (Tiles answer : {Tiles::kUnknown, Tiles::kMissing}) {
        tartan_test::system_tiles = answer;
        EXPECT_EQ(all & ~amx, tartan_i_cpu_detect());
        EXPECT_EQ(all & ~amx, tartan_i_cpu_use(~0u));
    }
    tartan_test::system_tiles = Tiles::kAsItIs;
    EXPECT_EQ(all, tartan_i_cpu_use(~0u));
    tartan_i_cpu_use(now);
}

// The library asks once a process. Code that fills a table may itself use the table's instruction set, so only AMX is
// allowed, which is refused before anything is filled: any x86 can show it.
void without_permission() {
    tartan_test::system_tiles = Tiles::kRefused;
    tartan_i_kernels kernels;
    const tartan_i_cpu_features tiles = TARTAN_I_CPU_AMX;
    for (int32_t dtype : {TARTAN_F32, TARTAN_F64}) tartan_i_kernels_fill(tiles, dtype, &kernels);
    fprintf(stderr, "asked %d for reals; ", tartan_test::tiles_asked_for);
    for (int i = 0; i < 2; i++) tartan_i_kernels_fill(tiles, TARTAN_BF16, &kernels);
    fprintf(stderr, "asked %d, tiles %d, products %s, ", tartan_test::tiles_asked_for, tartan_i_cpu_tiles(),
            kernels.product.uses & TARTAN_I_CPU_AMX ? "of amx" : "without");
    fprintf(stderr, "kernels %s.", strstr(tartan_cpu_kernels(), "amx") ? "with amx" : "without");
    _exit(0);
}

TEST(CpuDeathTest, TilesThatTheSystemRefusesAreNotUsed) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(without_permission(), ::testing::ExitedWithCode(0),
                "asked 0 for reals; asked 1, tiles 0, products without, kernels without\\.");
}
#endif

} // namespace
