// SPDX-License-Identifier: Apache-2.0
#include "support.h"

extern "C" {
#include "core/memory.h"
}

namespace {

TEST(Memory, IsAlignedCountedAndNeverNull) {
    const int64_t before = tartan_i_memory_live();
    for (int64_t bytes : {0, 1, 63, 64, 65, 4096}) {
        char *p = nullptr;
        ASSERT_OK(tartan_i_allocate(&p, bytes, 1));
        ASSERT_NE(p, nullptr);
        EXPECT_EQ(0u, (uintptr_t)p % 64);
        EXPECT_EQ(before + 1, tartan_i_memory_live());
        tartan_i_free(p);
    }
    tartan_i_free(nullptr);
    EXPECT_EQ(before, tartan_i_memory_live());
}

TEST(Memory, ZeroedIsZero) {
    int32_t *p = nullptr;
    ASSERT_OK(tartan_i_allocate_zeroed(&p, 1000, sizeof *p));
    for (int i = 0; i < 1000; i++) ASSERT_EQ(0, p[i]);
    tartan_i_free(p);
}

TEST(Memory, RefusesSizesThatOverflow) {
    void *p = &p;
    EXPECT_FAILS(OVERFLOW, "exceed", tartan_i_allocate(&p, INT64_MAX / 4, 8));
    EXPECT_EQ(nullptr, p);
    EXPECT_FAILS(OVERFLOW, "exceed", tartan_i_allocate(&p, INT64_MAX, 1));
    EXPECT_FAILS(OVERFLOW, "exceed", tartan_i_allocate(&p, -1, 8));
    EXPECT_FAILS(MEMORY, "could not get", tartan_i_allocate(&p, INT64_MAX / 4, 1));
}

TEST(Memory, TheChosenAllocationFails) {
    void *p = nullptr;
    tartan_i_memory_fail_at(1);
    ASSERT_OK(tartan_i_allocate(&p, 8, 1));
    tartan_i_free(p);
    EXPECT_FAILS(MEMORY, "could not get 8 bytes", tartan_i_allocate(&p, 8, 1));
    ASSERT_OK(tartan_i_allocate(&p, 8, 1));
    tartan_i_free(p);
    EXPECT_EQ(3, tartan_i_memory_asked());
    tartan_i_memory_fail_at(-1);
}

TEST(Text, GrowsAndEscapes) {
    tartan_i_text text = {};
    std::string expected;
    for (int i = 0; i < 500; i++) {
        tartan_i_text_add(&text, "%d ", i);
        expected += std::to_string(i) + " ";
    }
    tartan_i_text_add_json(&text, "a\"b\\c\n\xc3\xa9");
    expected += "\"a\\\"b\\\\c\\u000a\xc3\xa9\"";
    ASSERT_EQ(TARTAN_OK, text.status);
    EXPECT_EQ(expected, text.data);
    EXPECT_EQ((int64_t)expected.size(), text.length);
    tartan_text_free(text.data);
}

// Every length meets every fill of the buffer, the one that leaves room for all but the final zero too.
TEST(Text, AlwaysHasRoomForTheFinalZero) {
    for (int first = 0; first < 600; first += 7)
        for (int next = 0; next < 600; next++) {
            tartan_i_text text = {};
            tartan_i_text_add(&text, "%*s", first, "");
            tartan_i_text_add(&text, "%*s", next, "");
            ASSERT_EQ(first + next, text.length);
            ASSERT_LT(text.length, text.capacity);
            tartan_text_free(text.data);
        }
}

TEST(Text, KeepsTheFirstFailure) {
    tartan_i_text text = {};
    tartan_i_memory_fail_at(0);
    tartan_i_text_add(&text, "x");
    tartan_i_memory_fail_at(-1);
    tartan_i_text_add(&text, "y");
    EXPECT_EQ(TARTAN_ERR_MEMORY, text.status);
    EXPECT_EQ(nullptr, text.data);
}

} // namespace
