// SPDX-License-Identifier: Apache-2.0
// Images, their windows, and what masks, gathers and scatters of them must give, element by element.
#ifndef TARTAN_TESTS_WINDOW_SUPPORT_H
#define TARTAN_TESTS_WINDOW_SUPPORT_H

#include "products.h"

extern "C" {
#include "conv/windows.h"
}

namespace tartan_test {

using Shape = std::vector<int64_t>;

enum Order { kChannelsFirst, kChannelsLast, kWithGaps, kBackwards, kOrders };

// An array [n, channels, spatial...] whose memory is in one of these orders.
inline Dense image_of(int32_t dtype, const Shape &shape, int order) {
    if (order != kChannelsLast || shape.size() < 3)
        return Dense(dtype, shape, order == kWithGaps ? kGaps : order == kBackwards ? kReversed : kRows);
    Shape memory = shape;
    memory.erase(memory.begin() + 1);
    memory.push_back(shape[1]);
    Dense d(dtype, memory);
    tartan_array a = d.array;
    const int32_t last = a.ndim - 1;
    a.shape[1] = d.array.shape[last], a.strides[1] = d.array.strides[last];
    for (int32_t i = 2; i <= last; i++)
        a.shape[i] = d.array.shape[i - 1], a.strides[i] = d.array.strides[i - 1];
    d.array = a;
    return d;
}

// Bytes as an array of masks: Dense has numbers only.
inline Dense bytes_image(const Shape &shape) {
    Dense d(TARTAN_F8E4M3, shape);
    d.array.dtype = TARTAN_U8;
    return d;
}
inline double mask_get(const Dense &d, int64_t i) {
    return d.array.dtype == TARTAN_U8 ? (double)((const uint8_t *)d.array.data)[d.offset(i)] : d.get(i);
}
inline void mask_set(Dense &d, int64_t i, double value) {
    if (d.array.dtype == TARTAN_U8)
        ((uint8_t *)d.array.data)[d.offset(i)] = (uint8_t)value;
    else
        d.set(i, value);
}

// Windows of images [n, channels, spatial...].
struct Windows {
    tartan_i_windows w = {};

    Windows(Shape count, Shape size, Shape stride = {}, Shape offset = {}) {
        w.dims = (int32_t)count.size();
        for (int d = 0; d < 3; d++) w.count[d] = w.size[d] = w.stride[d] = 1;
        for (size_t d = 0; d < count.size(); d++) {
            w.count[d] = count[d], w.size[d] = size[d];
            w.stride[d] = stride.empty() ? size[d] : stride[d];
            w.offset[d] = offset.empty() ? 0 : offset[d];
        }
    }
    std::string text() const {
        char text[TARTAN_I_WINDOWS_TEXT];
        return tartan_i_windows_text(&w, text);
    }
    int64_t number() const { return w.count[0] * w.count[1] * w.count[2]; }
    int64_t positions() const { return w.size[0] * w.size[1] * w.size[2]; }
    tartan_shape frame(int64_t images) const {
        int64_t rows = 0, cols = 0;
        tartan_i_windows_grid(&w, &rows, &cols);
        return {rows, cols, 1, 1, images};
    }
    Shape blocks_shape(int64_t blocks, int64_t channels) const {
        Shape shape = {blocks, channels};
        for (int d = 0; d < w.dims; d++) shape.push_back(w.size[d]);
        return shape;
    }
    // Position `at` (row-major) of window `number` in an image of these lengths, row-major; -1 outside of it.
    int64_t in_image(int64_t number, int64_t at, const int64_t *lengths) const {
        int64_t result = 0, step = 1;
        for (int d = w.dims - 1; d >= 0; d--) {
            const int64_t i = w.offset[d] + number % w.count[d] * w.stride[d] + at % w.size[d];
            if (i < 0 || i >= lengths[d]) return -1;
            result += i * step;
            step *= lengths[d];
            number /= w.count[d];
            at /= w.size[d];
        }
        return result;
    }
};

inline int64_t spatial(const tartan_array &image, int32_t first = 2) {
    int64_t all = 1;
    for (int32_t d = first; d < image.ndim; d++) all *= image.shape[d];
    return all;
}

// Calls f(block, position in it, channel, index of the element in the image or -1) for all elements of active windows.
template <typename F>
void each_window(const Windows &w, const std::vector<uint8_t> &mask, const tartan_array &image, F f) {
    const int64_t channels = image.shape[1], all = spatial(image), number = w.number();
    int64_t block = 0;
    for (int64_t i = 0; i < (int64_t)mask.size(); i++) {
        if (mask[(size_t)i] == 0) continue;
        for (int64_t p = 0; p < w.positions(); p++) {
            const int64_t at = w.in_image(i % number, p, image.shape + 2);
            for (int64_t c = 0; c < channels; c++)
                f(block, p, c, at < 0 ? -1 : (i / number * channels + c) * all + at);
        }
        block++;
    }
}

inline int64_t count_of(const std::vector<uint8_t> &mask) {
    return std::count_if(mask.begin(), mask.end(), [](uint8_t m) { return m != 0; });
}

// Number of a block's element in an array [blocks, channels, size...].
inline int64_t block_index(const Windows &w, const tartan_array &image, int64_t block, int64_t p, int64_t c) {
    return (block * image.shape[1] + c) * w.positions() + p;
}

inline Dense gathered(const Windows &w, const std::vector<uint8_t> &mask, const Dense &x, Dense blocks) {
    each_window(w, mask, x.array, [&](int64_t b, int64_t p, int64_t c, int64_t at) {
        blocks.set(block_index(w, x.array, b, p, c), at < 0 ? 0 : x.get(at));
    });
    return blocks;
}

// Sums in the order of ids, in the type of the sums, rounded once.
inline Dense scattered(const Windows &w, const std::vector<uint8_t> &mask, const Dense *blocks, bool add,
                       Dense y) {
    std::vector<double> sums;
    std::vector<uint8_t> touched((size_t)y.elements(), 0);
    for (int64_t i = 0; i < y.elements(); i++) sums.push_back(y.get(i));
    each_window(w, mask, y.array, [&](int64_t b, int64_t p, int64_t c, int64_t at) {
        if (at < 0) return;
        const double value = blocks == nullptr ? 0 : blocks->get(block_index(w, y.array, b, p, c));
        double &sum = sums[(size_t)at];
        touched[(size_t)at] = 1;
        sum = !add ? value : y.array.dtype == TARTAN_F64 ? sum + value : (double)((float)sum + (float)value);
    });
    for (int64_t i = 0; i < y.elements(); i++)
        if (touched[(size_t)i]) y.set(i, sums[(size_t)i]);
    return y;
}

// Active windows of a mask [n, spatial...].
inline std::vector<uint8_t> pooled(const Windows &w, const Dense &mask, bool average, double tolerance) {
    std::vector<uint8_t> active;
    const int64_t all = spatial(mask.array, 1);
    for (int64_t n = 0; n < mask.array.shape[0]; n++)
        for (int64_t i = 0; i < w.number(); i++) {
            double most = -INFINITY, sum = 0;
            for (int64_t p = 0; p < w.positions(); p++) {
                const int64_t at = w.in_image(i, p, mask.array.shape + 1);
                const double value = at < 0 ? 0 : mask_get(mask, n * all + at);
                sum += value;
                if (at >= 0 && !(value <= most)) most = value;
                if (std::isnan(most)) break;
            }
            const double result = average ? sum / (double)w.positions() : most;
            active.push_back(!(result <= tolerance));
        }
    return active;
}

// The same bits, marks between the elements included.
inline ::testing::AssertionResult same_bits(const Dense &want, const Dense &got) {
    if (want.memory() == got.memory()) return ::testing::AssertionSuccess();
    for (int64_t i = 0; i < want.elements(); i++)
        if (want.get(i) != got.get(i))
            return ::testing::AssertionFailure()
                   << "element " << i << " is " << got.get(i) << ", expected " << want.get(i);
    return ::testing::AssertionFailure() << "memory between the elements was written";
}

// A problem with random sizes.
struct WindowCase {
    Windows w;
    int64_t images, channels;
    Shape lengths; // of images
    std::vector<uint8_t> mask;
    Shape image_shape() const {
        Shape shape = {images, channels};
        shape.insert(shape.end(), lengths.begin(), lengths.end());
        return shape;
    }
};
inline WindowCase random_windows(std::mt19937_64 &random, bool may_overlap) {
    const int dims = pick(random, {1, 2, 2, 2, 3});
    const int64_t most = dims == 3 ? 6 : dims == 2 ? 12 : 40;
    Shape lengths, count, size, stride, offset;
    for (int d = 0; d < dims; d++) {
        lengths.push_back((int64_t)below(random, (size_t)most) + (random() % 8 != 0));
        count.push_back((int64_t)below(random, 5) + (random() % 8 != 0));
        size.push_back(1 + (int64_t)below(random, 6));
        stride.push_back(may_overlap ? 1 + (int64_t)below(random, 7)
                                     : size.back() + (int64_t)below(random, 3));
        offset.push_back((int64_t)below(random, 7) - 4);
    }
    WindowCase p = {Windows(count, size, stride, offset),
                    1 + (int64_t)below(random, 2),
                    pick<int64_t>(random, {1, 1, 2, 3, 7, 16, 33}),
                    lengths,
                    {}};
    const double density = pick(random, {0.0, 0.3, 0.7, 1.0});
    p.mask.resize((size_t)(p.images * p.w.number()));
    for (auto &m : p.mask) m = std::generate_canonical<double, 32>(random) < density;
    return p;
}

} // namespace tartan_test

#endif
