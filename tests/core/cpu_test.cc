// SPDX-License-Identifier: Apache-2.0
#include "support.h"

#include <unistd.h>

#include <cstdlib>

extern "C" {
#include "core/cpu.h"
}

namespace {

TEST(Cpu, CanBeLoweredButNotRaised) {
    const tartan_i_cpu_level best = tartan_i_cpu_detect(), now = tartan_i_cpu_level_in_use();
    EXPECT_LE(now, best);
    EXPECT_EQ(TARTAN_I_CPU_C, tartan_i_cpu_lower(TARTAN_I_CPU_C));
    EXPECT_STREQ("c", tartan_cpu_level());
    EXPECT_EQ(best, tartan_i_cpu_lower(TARTAN_I_CPU_AMX));
    tartan_i_cpu_lower(now);
}

// The variable is read once a process, so each case starts the program anew ("threadsafe" death tests do).
void expect_level(const char *wish, const char *expected) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(
        {
            setenv("TARTAN_CPU", wish, 1);
            const bool best = tartan_i_cpu_level_in_use() == tartan_i_cpu_detect();
            fprintf(stderr, "level %s %s.", tartan_cpu_level(), best ? "best" : "lowered");
            _exit(0);
        },
        ::testing::ExitedWithCode(0), expected);
}

TEST(CpuDeathTest, EnvironmentLowersIt) {
    expect_level("c", "level c ");
    expect_level("amx", "best\\.");
    expect_level("nonsense", "best\\.");
}

} // namespace
