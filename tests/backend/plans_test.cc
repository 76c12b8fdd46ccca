// SPDX-License-Identifier: Apache-2.0
// What backends keep in layouts and masks.
#include "support.h"

#include <atomic>
#include <thread>

extern "C" {
#include "layout/plans.h"
}

namespace {

using namespace tartan_test;

std::atomic<int> made, released;
std::atomic<int> at_the_lock; // how often the library asked for a lock
const int makers[2] = {};
const void *const maker = &makers[0], *const other_maker = &makers[1];

tartan_status make(const tartan_layout *layout, void *user, void **out) {
    if (user != nullptr && *(bool *)user)
        return tartan_i_fail(TARTAN_ERR_DEVICE, "make", "told to fail for %" PRId64 " blocks",
                             layout->blocks);
    int64_t *plan = nullptr;
    PASS(tartan_i_allocate(&plan, 1, sizeof *plan));
    *plan = layout->blocks + made++;
    *out = plan;
    return TARTAN_OK;
}
void release(void *plan) {
    released++;
    tartan_i_free(plan);
}

class Plans : public ::testing::Test {
  protected:
    void SetUp() override { made = released = 0; }
    Layout layout = random_layout({20, 20, 4, 4, 1}, 0.5, 1);
    tartan_status get(const tartan_i_plan_key &key, void **out, bool *fails = nullptr) {
        return tartan_i_layout_plan(layout.get(), &key, make, fails, release, out);
    }
};

TEST_F(Plans, AreMadeOnceForEachKeyAndReleasedWithTheLayout) {
    const tartan_i_plan_key keys[] = {{maker, 0, 0}, {maker, 0, 1}, {maker, 1, 0}, {other_maker, 0, 0}};
    void *first[4] = {}, *again = nullptr;
    for (int i = 0; i < 4; i++) ASSERT_OK(get(keys[i], &first[i]));
    for (int i = 0; i < 4; i++) {
        ASSERT_OK(get(keys[i], &again));
        EXPECT_EQ(first[i], again);
        for (int j = 0; j < i; j++) EXPECT_NE(first[i], first[j]);
    }
    EXPECT_EQ(4, made);
    tartan_layout *shared = tartan_layout_retain(layout.get());
    layout.reset();
    EXPECT_EQ(0, released); // somebody still has it
    tartan_layout_free(shared);
    EXPECT_EQ(4, released);
}

// Masks of one layout have plans of their own, which end with the mask.
TEST_F(Plans, OfMasksAreMadeOnceAndReleasedWithTheMask) {
    const tartan_i_plan_key key = {maker, 0, 0};
    const auto keep = [](void *, int64_t, int64_t row, int64_t) -> int32_t { return row % 2 == 0; };
    tartan_block_mask *masks[2] = {};
    void *of_layout = nullptr, *of_masks[2] = {}, *again = nullptr;
    ASSERT_OK(get(key, &of_layout));
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(tartan_block_mask_from_rule(layout.get(), keep, nullptr, &masks[i]));
        ASSERT_OK(tartan_i_block_mask_plan(masks[i], &key, make, nullptr, release, &of_masks[i]));
        ASSERT_OK(tartan_i_block_mask_plan(masks[i], &key, make, nullptr, release, &again));
        EXPECT_EQ(of_masks[i], again);
        EXPECT_NE(of_masks[i], of_layout);
    }
    EXPECT_NE(of_masks[0], of_masks[1]);
    EXPECT_EQ(3, made);
    tartan_block_mask_free(masks[0]);
    EXPECT_EQ(1, released);
    for (int64_t n = 0; n < 2; n++) { // a mask that may have the address of the old one starts without plans
        ASSERT_OK(tartan_block_mask_from_rule(layout.get(), keep, nullptr, &masks[0]));
        tartan_i_memory_fail_at(n);
        EXPECT_EQ(TARTAN_ERR_MEMORY,
                  tartan_i_block_mask_plan(masks[0], &key, make, nullptr, release, &again));
        tartan_i_memory_fail_at(-1);
        EXPECT_EQ(nullptr, again);
        tartan_block_mask_free(masks[0]);
    }
    EXPECT_EQ(3, made);
    layout.reset(); // the other mask has a reference
    EXPECT_EQ(1, released);
    tartan_block_mask_free(masks[1]);
    EXPECT_EQ(3, released);
}

TEST_F(Plans, NothingIsKeptOfAFailure) {
    void *plan = &made;
    bool fails = true;
    EXPECT_FAILS(DEVICE, "told to fail", get({maker, 0, 0}, &plan, &fails));
    EXPECT_EQ(nullptr, plan);
    fails = false;
    ASSERT_OK(get({maker, 0, 0}, &plan, &fails));
    EXPECT_NE(nullptr, plan);
    EXPECT_EQ(1, made);
}

// The first allocation is the library's, the second the maker's.
TEST_F(Plans, SurviveFullMemory) {
    for (int64_t n = 0; n < 2; n++) {
        void *plan = &made;
        const int64_t live = tartan_i_memory_live();
        tartan_i_memory_fail_at(n);
        EXPECT_EQ(TARTAN_ERR_MEMORY, get({maker, 0, 0}, &plan));
        tartan_i_memory_fail_at(-1);
        EXPECT_EQ(nullptr, plan);
        EXPECT_EQ(live, tartan_i_memory_live());
    }
    void *plan = nullptr;
    EXPECT_OK(get({maker, 0, 0}, &plan));
}

// A thread that found no plan, and then waits while another makes it, takes that one.
TEST_F(Plans, ThreadThatComesSecondMakesNone) {
    struct Race {
        std::thread second;
        void *found = nullptr;
    } race;
    const tartan_i_plan_key key = {maker, 0, 0};
    // The first thread makes its plan, with the lock held, only when the second has come to the lock.
    const auto make_late = [](const tartan_layout *l, void *user, void **out) {
        Race *r = (Race *)user;
        const int before = at_the_lock;
        r->second = std::thread([r, l] {
            const tartan_i_plan_key same = {maker, 0, 0};
            EXPECT_OK(tartan_i_layout_plan(l, &same, make, nullptr, release, &r->found));
        });
        while (at_the_lock == before) std::this_thread::yield();
        return make(l, nullptr, out);
    };
    void *plan = nullptr;
    ASSERT_OK(tartan_i_layout_plan(layout.get(), &key, make_late, &race, release, &plan));
    race.second.join();
    EXPECT_EQ(plan, race.found);
    EXPECT_EQ(1, made);
}

TEST_F(Plans, ThreadsThatRaceGetTheSame) {
    void *plans[8] = {};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; t++)
        threads.emplace_back([&, t] {
            for (int32_t variant = 0; variant < 200; variant++) {
                void *plan = nullptr;
                if (get({maker, 0, variant}, &plan) != TARTAN_OK) return;
                if (variant == 77) plans[t] = plan;
            }
        });
    for (auto &thread : threads) thread.join();
    EXPECT_EQ(200, made);
    for (void *plan : plans) EXPECT_EQ(plans[0], plan);
    layout.reset();
    EXPECT_EQ(200, released);
}

} // namespace

extern "C" {
int __real_pthread_mutex_lock(pthread_mutex_t *);

// Stands for pthread_mutex_lock in the library (--wrap).
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock) {
    at_the_lock++;
    return __real_pthread_mutex_lock(lock);
}
}
