// SPDX-License-Identifier: Apache-2.0
#include "layouts.h"

extern "C" {
#include "layout/column_set.h"
}

#include <set>

using namespace tartan_test;

namespace {

TEST(ColumnSet, GivesColumnsInOrderAndIsEmptyThen) {
    std::mt19937_64 random(1);
    for (int n = 0; n < rounds(300); n++) {
        const int64_t cols = n == 0   ? 0
                             : n == 1 ? INT32_MAX / 64
                                      : 1 + (int64_t)(random() % (1u << (n % 20)));
        tartan_i_column_set set = {};
        ASSERT_OK(tartan_i_column_set_begin(&set, cols));
        for (int round = 0; round < 3; round++) {
            std::set<int32_t> want;
            for (size_t i = random() % 200; cols > 0 && i > 0; i--) {
                const int32_t col = (int32_t)(random() % (uint64_t)cols);
                want.insert(col);
                tartan_i_column_set_add(&set, col);
            }
            std::vector<int32_t> got(want.size() + 1, -1);
            ASSERT_EQ((int64_t)want.size(), tartan_i_column_set_take(&set, got.data()));
            got.pop_back();
            ASSERT_EQ(std::vector<int32_t>(want.begin(), want.end()), got);
        }
        tartan_i_column_set_end(&set);
    }
}

TEST(ColumnSet, AllocationMayFail) {
    tartan_i_column_set set = {};
    BRUTAL(tartan_i_column_set_begin(&set, 5000), tartan_i_column_set_end(&set));
}

} // namespace
