// SPDX-License-Identifier: Apache-2.0
// What the tests of kernels share.
#ifndef TARTAN_TESTS_KERNELS_TABLES_H
#define TARTAN_TESTS_KERNELS_TABLES_H

#include "feature_sets.h"
#include "support.h"

#include <cmath>
#include <cstring>

namespace tartan_test {

// A buffer with guards on both sides, begun at any element.
template <typename T> class Guarded {
  public:
    Guarded(size_t n, size_t shift)
        : n_(n), shift_(shift), bytes_((n + shift + 2 * kGuard) * sizeof(T), kMark) {}
    T *data() { return reinterpret_cast<T *>(bytes_.data()) + kGuard + shift_; }
    bool intact() const {
        const size_t begin = (kGuard + shift_) * sizeof(T), end = begin + n_ * sizeof(T);
        for (size_t i = 0; i < bytes_.size(); i++)
            if ((i < begin || i >= end) && bytes_[i] != kMark) return false;
        return true;
    }

  private:
    static constexpr size_t kGuard = 64;
    static constexpr unsigned char kMark = 0xa5;
    size_t n_, shift_;
    std::vector<unsigned char> bytes_;
};

// Values over many binary orders and both signs, now and then zero.
template <typename T> void fill(T *p, size_t n, std::mt19937_64 &random) {
    std::uniform_real_distribution<double> mantissa(-1, 1);
    for (size_t i = 0; i < n; i++)
        p[i] = random() % 16 == 0 ? T(0) : T(std::ldexp(mantissa(random), (int)(random() % 40) - 20));
}

inline size_t below(std::mt19937_64 &random, size_t n) {
    return random() % n;
}

template <typename T> struct Tables {
    static constexpr int32_t kDtype = sizeof(T) == 8 ? TARTAN_F64 : TARTAN_F32;
    tartan_i_kernels c, best;
    explicit Tables(tartan_i_cpu_features set) {
        tartan_i_kernels_fill(0, kDtype, &c);
        tartan_i_kernels_fill(set, kDtype, &best);
    }
};

} // namespace tartan_test

// No elements may have no memory.
#define EXPECT_SAME_BITS(n, a, b) EXPECT_EQ(0, (n) == 0 ? 0 : std::memcmp(a, b, (n) * sizeof *(a)))

#endif
