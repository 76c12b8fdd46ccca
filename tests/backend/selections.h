// SPDX-License-Identifier: Apache-2.0
// What the tests of selections share: lines of numbers, and indices.
#ifndef TARTAN_TESTS_BACKEND_SELECTIONS_H
#define TARTAN_TESTS_BACKEND_SELECTIONS_H

#include "called.h"

namespace tartan_test {

class WithIndices : public OnBackend {
  protected:
    std::mt19937_64 random{11};

    Dense numbers(int32_t dtype, const std::vector<int64_t> &shape, bool written) {
        const Style other = (Style)below(random, written ? kRepeated : kStyles);
        Dense made(dtype, shape, pick<Style>(random, {kRows, kColumns, other}));
        made.fill(random, -4, 4);
        return made;
    }
    Dense indices(const std::vector<int64_t> &shape) {
        return Dense(pick<int32_t>(random, {TARTAN_I64, TARTAN_I32}), shape, (Style)below(random, kRepeated));
    }
};

inline const std::vector<std::vector<int64_t>> kLineShapes = {
    {1},       {3, 5},    {4, 31},   {2, 3, 33}, {7, 1},     {300, 7},   {40, 64}, {2, 1000},
    {70, 900}, {3, 1025}, {2, 4099}, {2, 9000},  {3, 20000}, {1, 50257}, {0, 4}};

} // namespace tartan_test

#endif
