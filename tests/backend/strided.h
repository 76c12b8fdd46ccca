// SPDX-License-Identifier: Apache-2.0
// Dense arrays with strides of all kinds, for operations on arrays of any shape.
#ifndef TARTAN_TESTS_STRIDED_H
#define TARTAN_TESTS_STRIDED_H

#include "support.h"

#include <algorithm>
#include <cstring>
#include <numeric>

extern "C" {
#include "core/array.h"
}

namespace tartan_test {

using Shape = std::vector<int64_t>;

inline int64_t elements_of(const Shape &shape) {
    return std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<int64_t>());
}

// An array whose dimensions lie in any order in memory, some of them reversed or with gaps. Memory between elements keeps a mark.
class Strided {
  public:
    tartan_array array = {};

    Strided() = default;
    Strided(int32_t dtype, const Shape &shape, std::mt19937_64 &random, bool plain = false) {
        const size_t n = shape.size();
        array.dtype = dtype, array.device_type = TARTAN_CPU, array.ndim = (int32_t)n;
        std::vector<size_t> order(n);
        std::iota(order.begin(), order.end(), size_t(0)); // from the slowest to the fastest
        const size_t kind = plain ? 0 : random() % 4;
        if (kind == 1) std::reverse(order.begin(), order.end());
        if (kind == 2) std::shuffle(order.begin(), order.end(), random);
        int64_t step = kind == 3 ? 2 : 1, first = 0;
        for (size_t k = n; k-- > 0;) {
            const size_t d = order[k];
            array.shape[d] = shape[d];
            array.strides[d] = step;
            step *= std::max<int64_t>(shape[d], 1);
            if (!plain && random() % 4 == 0) step += 3;
            if (!plain && random() % 6 == 0 && shape[d] > 0) { // reversed
                first += array.strides[d] * (shape[d] - 1);
                array.strides[d] = -array.strides[d];
            }
        }
        memory_.assign((size_t)(step + 8) * (size_t)tartan_dtype_bytes(dtype), kMark);
        array.data = memory_.data() + (size_t)first * (size_t)tartan_dtype_bytes(dtype);
    }
    Strided(const Strided &other) { *this = other; }
    Strided &operator=(const Strided &other) {
        array = other.array, memory_ = other.memory_;
        if (array.data != nullptr)
            array.data = memory_.data() + ((const char *)other.array.data - other.memory_.data());
        return *this;
    }

    Shape shape() const { return Shape(array.shape, array.shape + array.ndim); }
    int64_t size() const { return elements_of(shape()); }

    // The place of the element with number `i` in row-major order of the indices.
    int64_t place(int64_t i) const {
        int64_t at = 0;
        for (int32_t d = array.ndim; d-- > 0;)
            at += i % array.shape[d] * array.strides[d], i /= array.shape[d];
        return at;
    }
    double get(int64_t i) const { return tartan_i_load(array.data, array.dtype, place(i)); }
    void set(int64_t i, double value) { tartan_i_store(array.data, array.dtype, place(i), value); }
    Strided &fill(std::mt19937_64 &random, double low = -2, double high = 2) {
        std::uniform_real_distribution<double> uniform(low, high);
        for (int64_t i = 0; i < size(); i++) set(i, uniform(random));
        return *this;
    }
    // As if all elements were marks, equal memory means that nothing else was written.
    bool only_elements_differ(const Strided &other) const {
        Strided a = *this, b = other;
        for (int64_t i = 0; i < size(); i++) a.set(i, 0), b.set(i, 0);
        return a.memory_ == b.memory_;
    }
    bool same_bits(const Strided &other) const { return memory_ == other.memory_; }

  private:
    static constexpr char kMark = 0x5a;
    std::vector<char> memory_;
};

// The number, in `part`, of the element that meets element `i` of `whole`: dimensions of length 1 and missing ones are repeated.
inline int64_t met_by(const Shape &whole, const Shape &part, int64_t i) {
    int64_t number = 0, step = 1;
    for (size_t k = 0; k < part.size(); k++) { // from the last dimension on
        const int64_t length = part[part.size() - 1 - k], all = whole[whole.size() - 1 - k];
        if (length != 1) number += i % all * step;
        step *= length;
        i /= all;
    }
    return number;
}

// A shape of up to `most` dimensions and a few thousand elements.
inline Shape any_shape(std::mt19937_64 &random, size_t most) {
    Shape shape(random() % (most + 1));
    const int64_t lengths[] = {1, 1, 2, 3, 5, 8, 17, 33, 70, 300};
    for (int64_t &length : shape) length = lengths[random() % 10];
    if (random() % 30 == 0 && !shape.empty()) shape[random() % shape.size()] = 0;
    while (elements_of(shape) > 6000) {
        int64_t &longest = *std::max_element(shape.begin(), shape.end());
        longest = longest / 3 + 1;
    }
    return shape;
}

} // namespace tartan_test

#endif
