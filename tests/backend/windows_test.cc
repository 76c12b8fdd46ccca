// SPDX-License-Identifier: Apache-2.0
// What every backend does with windows of images: the very bits that plain loops give.
#include "../device/dynamic.h"
#include "../ops/window_support.h"
#include "explained.h"

namespace {

using namespace tartan_test;

class BackendWindows : public OnBackend {
  protected:
    std::mt19937_64 random{1};

    Layout layout_of(const Windows &w, int64_t images, const std::vector<uint8_t> &mask, bool dynamic) {
        const tartan_shape frame = w.frame(images);
        if (!dynamic || mask.empty()) return from_mask(frame, mask);
        Dynamic d(context.get(), frame, mask, 0, false);
        return std::move(d.layout);
    }
    Dense filled(int32_t dtype, const Shape &shape) {
        Dense d = image_of(dtype, shape, (int)below(random, kOrders));
        d.fill(random, -4, 4);
        return d;
    }
    // Gathers into blocks of the layout's capacity; those past the last window keep their values.
    void gather(const Windows &w, const std::vector<uint8_t> &mask, bool dynamic, const Dense &x) {
        const Layout active = layout_of(w, x.array.shape[0], mask, dynamic);
        const Dense room = filled(x.array.dtype, w.blocks_shape(active->blocks, x.array.shape[1]));
        Placed from(context.get(), x), to(context.get(), room);
        const tartan_status status =
            tartan_window_gather(context.get(), active.get(), w.text().c_str(), &from.array, &to.array);
        if (is_refused(status)) return;
        ASSERT_EQ(TARTAN_OK, status) << tartan_last_error();
        Dense got = room;
        to.fetch(got);
        EXPECT_TRUE(same_bits(gathered(w, mask, x, room), got)) << w.text();
    }
    enum Base { kInPlace, kCopied };
    void scatter(const Windows &w, const std::vector<uint8_t> &mask, bool dynamic, const Dense &y, bool add,
                 bool zeros, Base base) {
        const Layout active = layout_of(w, y.array.shape[0], mask, dynamic);
        Dense blocks = filled(y.array.dtype, w.blocks_shape(active->blocks, y.array.shape[1]));
        Shape shape(y.array.shape, y.array.shape + y.array.ndim);
        const Dense start = filled(y.array.dtype, shape);
        Placed from(context.get(), blocks), first(context.get(), start), to(context.get(), y);
        const tartan_status status = tartan_window_scatter(
            context.get(), active.get(), w.text().c_str(), zeros ? nullptr : &from.array,
            base == kCopied ? &first.array : nullptr, add ? "add=1" : nullptr, &to.array);
        if (is_refused(status)) return;
        ASSERT_EQ(TARTAN_OK, status) << tartan_last_error();
        Dense got = y, want = y;
        to.fetch(got);
        for (int64_t i = 0; base == kCopied && i < y.elements(); i++) want.set(i, start.get(i));
        EXPECT_TRUE(same_bits(scattered(w, mask, zeros ? nullptr : &blocks, add, want), got)) << w.text();
    }
    // The layout that a mask gives, here or there.
    std::vector<uint8_t> pool(const Windows &w, const Dense &mask, const std::string &options,
                              bool on_host_memory) {
        const Placed there(context.get(), mask);
        const tartan_array *array = on_host_memory ? &mask.array : &there.array;
        tartan_layout *raw = nullptr;
        const tartan_status status =
            tartan_layout_from_windows(context.get(), array, w.text().c_str(), options.c_str(), &raw);
        EXPECT_OK(status);
        const Layout layout(raw);
        return raw != nullptr ? mask_of(layout) : std::vector<uint8_t>();
    }
    std::vector<uint8_t> mask_of(const Layout &layout) {
        tartan_layout *raw = nullptr;
        EXPECT_OK(tartan_layout_to_host(context.get(), layout.get(), &raw));
        const Layout now(raw);
        std::vector<uint8_t> mask((size_t)(now->shape.heads * now->grid_rows * now->grid_cols));
        EXPECT_OK(tartan_layout_get_mask(now.get(), mask.data(), (int64_t)mask.size()));
        return mask;
    }
    Dense some_image_mask(const WindowCase &p, int32_t dtype) {
        Shape shape = p.image_shape();
        shape.erase(shape.begin() + 1);
        Dense mask =
            dtype == TARTAN_U8 ? bytes_image(shape) : image_of(dtype, shape, (int)below(random, kOrders));
        const double density = pick(random, {0.0, 0.02, 0.2, 0.6});
        for (int64_t i = 0; i < mask.elements(); i++) {
            const bool on = std::generate_canonical<double, 32>(random) < density;
            mask_set(mask, i,
                     on ? dtype == TARTAN_U8 ? 1 + (double)below(random, 9)
                                             : (double)below(random, 64) / 16 - 1
                        : 0);
        }
        return mask;
    }
};
INSTANTIATE_TEST_SUITE_P(Each, BackendWindows, ::testing::ValuesIn(backends()),
                         [](const auto &info) { return info.param; });

TEST_P(BackendWindows, GatherOfRandomWindows) {
    for (uint64_t seed = 0; seed < rounds(200u) && !HasFailure(); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        random.seed(seed);
        const WindowCase p = random_windows(random, true);
        gather(p.w, p.mask, seed % 3 == 0, filled(kDtypes[seed % 4], p.image_shape()));
    }
}

TEST_P(BackendWindows, ScatterOfRandomWindows) {
    for (uint64_t seed = 1000; seed < 1000 + rounds(240u) && !HasFailure(); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        random.seed(seed);
        const bool add = random() % 2;
        const WindowCase p = random_windows(random, add);
        scatter(p.w, p.mask, seed % 3 == 0, filled(kDtypes[seed % 4], p.image_shape()), add,
                !add && random() % 4 == 0, random() % 2 ? kCopied : kInPlace);
    }
}

// Sizes for which kernels move several elements at once, in both orders of both sides.
TEST_P(BackendWindows, WideChannelsInAllOrders) {
    const Windows halo({3, 3}, {10, 18}, {8, 16}, {-1, -1}), apart({3, 3}, {8, 16});
    std::vector<uint8_t> mask(18);
    for (auto &m : mask) m = random() % 3 == 0;
    for (const int64_t channels : {1, 8, 37, 64})
        for (int32_t dtype : kDtypes)
            for (int order = 0; order < 4; order++) {
                SCOPED_TRACE(::testing::Message() << channels << " dtype " << dtype << " order " << order);
                const Shape shape = {2, channels, 25, 40};
                const Layout active = from_mask(halo.frame(2), mask);
                Dense x = image_of(dtype, shape, order % 2), y = image_of(dtype, shape, order % 2);
                Dense blocks = image_of(dtype, halo.blocks_shape(active->blocks, channels), order / 2);
                Dense small = image_of(dtype, apart.blocks_shape(active->blocks, channels), order / 2);
                for (Dense *d : {&x, &y, &blocks, &small}) d->fill(random);
                Placed from(context.get(), x), room(context.get(), blocks), to(context.get(), y),
                    part(context.get(), small);
                ASSERT_OK(tartan_window_gather(context.get(), active.get(), halo.text().c_str(), &from.array,
                                               &room.array));
                Dense got = blocks;
                room.fetch(got);
                EXPECT_TRUE(same_bits(gathered(halo, mask, x, blocks), got));
                ASSERT_OK(tartan_window_scatter(context.get(), active.get(), apart.text().c_str(),
                                                &part.array, nullptr, nullptr, &to.array));
                got = y;
                to.fetch(got);
                EXPECT_TRUE(same_bits(scattered(apart, mask, &small, false, y), got));
                const Placed again(context.get(), y);
                to = Placed(context.get(), y);
                ASSERT_OK(tartan_window_scatter(context.get(), active.get(), halo.text().c_str(), &room.array,
                                                nullptr, "add=1", &to.array));
                got = y;
                to.fetch(got);
                Dense sums = blocks;
                room.fetch(sums);
                EXPECT_TRUE(same_bits(scattered(halo, mask, &sums, true, y), got));
                if (HasFailure()) return;
            }
}

// The sizes of SBNet's tests, with windows that overlap, leave gaps or reach beyond the image.
TEST_P(BackendWindows, KnownSizes) {
    const struct {
        Shape image; // n, channels, rows, columns
        Shape size, stride, offset;
        double density;
    } cases[] = {
        {{1, 1, 2, 3}, {2, 3}, {3, 4}, {0, 0}, 1},
        {{1, 2, 2, 3}, {2, 3}, {3, 4}, {0, 0}, 1},
        {{1, 1, 5, 5}, {3, 3}, {1, 1}, {0, 0}, 0.6},
        {{1, 32, 200, 300}, {3, 4}, {2, 3}, {0, 0}, 0.05},
        {{1, 15, 380, 480}, {18, 18}, {18, 18}, {0, 0}, 0.05},
        {{1, 64, 380, 480}, {18, 18}, {18, 18}, {0, 0}, 0.02},
        {{1, 32, 200, 300}, {16, 16}, {16, 16}, {0, 0}, 0.05},
        {{1, 1, 1, 1}, {1, 1}, {1, 1}, {0, 0}, 1},
        {{7, 7, 3, 2}, {2, 2}, {2, 2}, {0, 0}, 0.5},
        {{1, 50176, 1, 1}, {1, 1}, {1, 1}, {0, 0}, 1},
        {{7, 5017, 1, 1}, {1, 1}, {1, 1}, {0, 0}, 0.5},
        {{1, 1, 8, 10}, {3, 4}, {3, 4}, {0, 0}, 0.5},
        {{1, 7, 8, 10}, {3, 4}, {4, 5}, {0, 0}, 0.5},
        {{1, 1, 5, 5}, {3, 2}, {3, 2}, {-1, -2}, 0.7},
        {{1, 1, 13, 12}, {2, 3}, {1, 2}, {0, 0}, 0.7},
        {{1, 1, 2048, 2048}, {1500, 490}, {300, 390}, {0, 0}, 0.1},
        {{2, 3, 20, 20}, {4, 4}, {4, 4}, {0, 0}, 0},
    };
    bool last = false; // channels-last memory for every second case
    for (const auto &one : cases) {
        last = !last;
        Shape count;
        for (size_t d = 0; d < 2; d++)
            count.push_back((one.image[2 + d] - one.offset[d] + one.stride[d] - 1) / one.stride[d]);
        const Windows w(count, one.size, one.stride, one.offset);
        SCOPED_TRACE(::testing::Message() << w.text() << " channels " << one.image[1]);
        std::vector<uint8_t> mask((size_t)(one.image[0] * w.number()));
        for (auto &m : mask) m = std::generate_canonical<double, 32>(random) < one.density;
        Dense x = image_of(TARTAN_F32, one.image, last ? kChannelsLast : kChannelsFirst);
        x.fill(random);
        gather(w, mask, false, x);
        scatter(w, mask, false, x, true, false, kInPlace);
        if (!tartan_i_windows_overlap(&w.w)) scatter(w, mask, false, x, false, false, kCopied);
        if (HasFailure()) return;
    }
}

TEST_P(BackendWindows, MasksOfAllKinds) {
    const int32_t dtypes[] = {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16, TARTAN_U8};
    for (uint64_t seed = 2000; seed < 2000 + rounds(200u) && !HasFailure(); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        random.seed(seed);
        const WindowCase p = random_windows(random, true);
        const int32_t dtype = dtypes[seed % 5];
        const Dense mask = some_image_mask(p, dtype);
        const bool average = random() % 2;
        const double tolerance = pick(random, {0.0, 0.05, 0.25, 1.5, -0.5});
        char options[64];
        std::snprintf(options, sizeof options, "pool=%s tolerance=%g", average ? "average" : "max",
                      tolerance);
        const double limit = dtype == TARTAN_U8 ? tolerance : rounded(dtype, tolerance);
        EXPECT_EQ(pooled(p.w, mask, average, limit), pool(p.w, mask, options, seed % 4 == 0))
            << p.w.text() << options;
    }
}

// What has to be right is the comparison: a window is active above the tolerance alone.
TEST_P(BackendWindows, TheToleranceItselfIsNotAbove) {
    const Windows w({1, 3}, {2, 2});
    for (int32_t dtype : kDtypes) {
        Dense mask(dtype, {1, 2, 6});
        for (int64_t i = 0; i < 12; i++)
            mask.set(i, i == 2 || i == 3 || i == 8 || i == 9 ? 0.05 : i % 6 > 3 ? 0.06 : 0);
        EXPECT_EQ((std::vector<uint8_t>{0, 0, 1}), pool(w, mask, "tolerance=0.05", false));
        EXPECT_EQ((std::vector<uint8_t>{0, 0, 1}), pool(w, mask, "tolerance=0.05 pool=average", false));
        EXPECT_EQ((std::vector<uint8_t>{0, 1, 1}), pool(w, mask, "", false));
    }
}

TEST_P(BackendWindows, NanIsAboveTheToleranceOnADevice) {
    const Windows w({2, 2}, {4, 4});
    for (int32_t dtype : kDtypes)
        for (const char *options : {"", "pool=average"}) {
            Dense mask(dtype, {1, 8, 8});
            for (int64_t i = 0; i < 64; i++) mask.set(i, -1);
            mask.set(13, NAN);
            if (on_host()) {
                tartan_layout *out = nullptr;
                EXPECT_FAILS(
                    ARGUMENT, "mask holds NaN",
                    tartan_layout_from_windows(context.get(), &mask.array, w.text().c_str(), options, &out));
                EXPECT_EQ(nullptr, out);
            } else {
                EXPECT_EQ((std::vector<uint8_t>{0, 1, 0, 0}), pool(w, mask, options, false));
                EXPECT_EQ((std::vector<uint8_t>{0, 1, 0, 0}), pool(w, mask, options, true));
            }
        }
}

// Masks of frame after frame, into layouts made by windows and by bytes.
TEST_P(BackendWindows, FramesUpdateALayout) {
    const Windows w({3, 4}, {5, 6}, {4, 6}, {-1, 2});
    const tartan_shape frame = w.frame(2);
    std::vector<uint8_t> all(24, 1);
    Dynamic bytes(context.get(), frame, all, 0, false);
    tartan_layout *raw = nullptr;
    const Dense first(TARTAN_F32, {2, 1, 14, 25});
    if (!on_host()) {
        const Placed there(context.get(), first);
        ASSERT_OK(
            tartan_layout_from_windows(context.get(), &there.array, w.text().c_str(), "capacity=20", &raw));
        EXPECT_EQ(20, tartan_layout_blocks(raw));
        EXPECT_EQ(1, tartan_layout_is_dynamic(raw));
    }
    const Layout made(raw);
    for (int frames = 0; frames < 12; frames++) {
        Dense mask(TARTAN_F32, {2, 1, 14, 25});
        for (int64_t i = 0; i < mask.elements(); i++) mask.set(i, random() % 40 == 0);
        Dense plain = mask;
        plain.array.ndim = 3;
        for (int d = 1; d < 3; d++)
            plain.array.shape[d] = mask.array.shape[d + 1],
            plain.array.strides[d] = mask.array.strides[d + 1];
        const std::vector<uint8_t> want = pooled(w, plain, false, 0);
        const Placed there(context.get(), mask);
        const tartan_array *array = frames % 3 == 0 ? &mask.array : &there.array;
        ASSERT_OK(tartan_layout_update_windows(context.get(), bytes.layout.get(), array, w.text().c_str(),
                                               nullptr));
        EXPECT_EQ(want, mask_of(bytes.layout));
        if (made == nullptr) continue;
        ASSERT_OK(tartan_layout_update_windows(context.get(), made.get(), array, w.text().c_str(), nullptr));
        if (count_of(want) <= 20) {
            EXPECT_EQ(want, mask_of(made));
        }
    }
}

// A mask with more active windows than the layout has room for: none, and nothing is written.
TEST_P(BackendWindows, TooManyWindowsAreNone) {
    if (on_host()) return;
    const Windows w({2, 2}, {2, 2});
    Dense mask(TARTAN_F32, {1, 4, 4}), y(TARTAN_F32, {1, 1, 4, 4}), blocks(TARTAN_F32, {3, 1, 2, 2});
    for (int64_t i = 0; i < 16; i++) mask.set(i, 1), y.set(i, (double)i);
    const Placed there(context.get(), mask), from(context.get(), blocks);
    Placed to(context.get(), y);
    tartan_layout *raw = nullptr;
    ASSERT_OK(tartan_layout_from_windows(context.get(), &there.array, w.text().c_str(), "capacity=3", &raw));
    const Layout active(raw);
    ASSERT_OK(tartan_window_scatter(context.get(), active.get(), w.text().c_str(), &from.array, nullptr,
                                    nullptr, &to.array));
    Dense got = y;
    to.fetch(got);
    EXPECT_TRUE(same_bits(y, got));
}

TEST_P(BackendWindows, ExplainThemselves) {
    const Windows w({2, 2}, {2, 2});
    const Layout active = from_mask(w.frame(1), {1, 0, 1, 1});
    const Dense image(TARTAN_F32, {1, 5, 4, 4}), blocks(TARTAN_F32, {3, 5, 2, 2});
    Placed y(context.get(), image), b(context.get(), blocks);
    const std::string text = explained([&] {
        EXPECT_OK(tartan_window_gather(context.get(), active.get(), w.text().c_str(), &y.array, &b.array));
        return tartan_window_scatter(context.get(), active.get(), w.text().c_str(), &b.array, nullptr,
                                     "add=1", &y.array);
    });
    for (const char *part : {"[{\"operation\": \"window_gather\"", "}, {\"operation\": \"window_scatter\"",
                             "\"flops\": 60,", "\"bytes\": 560", "\"name\": \"active\"", "\"kernel\": \""})
        EXPECT_NE(std::string::npos, text.find(part)) << part << " in " << text;
}

} // namespace
