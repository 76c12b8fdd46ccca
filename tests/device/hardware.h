// SPDX-License-Identifier: Apache-2.0
// What tests of real GPUs need: functions of the CUDA driver, found at run time so that the tests are built
// anywhere, and operands that lie on one device with the calls that can be made with them.
#ifndef TARTAN_TESTS_HARDWARE_H
#define TARTAN_TESTS_HARDWARE_H

#include "dynamic.h"

#include <dlfcn.h>

namespace tartan_test {

// Handles are pointers, results and devices ints: 0 is success.
struct Driver {
    int (*init)(unsigned flags);
    int (*count)(int *out);
    int (*name)(char *text, int size, int device);
    int (*get_current)(void **context);
    int (*set_current)(void *context);
    int (*retain)(void **context, int device); // the context that the library uses, too
    int (*release)(int device);
    int (*create_stream)(void **stream, unsigned flags);
    int (*destroy_stream)(void *stream);
    int (*call_in_order)(void *stream, void (*function)(void *), void *data);
    int (*load)(void **module, const void *text);
    int (*find)(void **function, void *module, const char *name);
    int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                  unsigned bz, unsigned shared, void *stream, void **parameters, void **extra);

    // NULL where there is none.
    static const Driver *get() {
        static const Driver driver = open();
        return driver.launch != nullptr ? &driver : nullptr;
    }

  private:
    static Driver open() {
        Driver d = {};
        void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        const auto find = [&](const char *symbol, auto *out) {
            *(void **)out = library != nullptr ? dlsym(library, symbol) : nullptr;
            return *out != nullptr;
        };
        const bool all =
            find("cuInit", &d.init) && find("cuDeviceGetCount", &d.count) &&
            find("cuDeviceGetName", &d.name) && find("cuCtxGetCurrent", &d.get_current) &&
            find("cuCtxSetCurrent", &d.set_current) && find("cuDevicePrimaryCtxRetain", &d.retain) &&
            find("cuDevicePrimaryCtxRelease_v2", &d.release) && find("cuStreamCreate", &d.create_stream) &&
            find("cuStreamDestroy_v2", &d.destroy_stream) && find("cuLaunchHostFunc", &d.call_in_order) &&
            find("cuModuleLoadData", &d.load) && find("cuModuleGetFunction", &d.find) &&
            find("cuLaunchKernel", &d.launch);
        if (!all || d.init(0) != 0) d.launch = nullptr;
        return d;
    }
};

// A device's context of the driver, current in this thread while it lives.
class Current {
  public:
    explicit Current(int device) : device_(device) {
        EXPECT_EQ(0, Driver::get()->get_current(&before_));
        EXPECT_EQ(0, Driver::get()->retain(&context, device));
        EXPECT_EQ(0, Driver::get()->set_current(context));
    }
    ~Current() {
        (void)Driver::get()->set_current(before_);
        (void)Driver::get()->release(device_);
    }
    Current(const Current &) = delete;
    Current &operator=(const Current &) = delete;
    void *context = nullptr;

  private:
    void *before_ = nullptr;
    int device_;
};

inline Context open_on(const std::string &device, int64_t stream = 0) {
    return open_context(device.c_str(), "stream=" + std::to_string(stream));
}

// Operands of a spmm of either op and of a sddmm, in host memory. Sums of the whole numbers are exact.
struct Inputs {
    int32_t dtype;
    Layout layout;
    Matrix a;
    Dense b, c, x, y;

    Inputs(int32_t dtype_, int64_t block, int64_t n, bool whole, uint64_t seed)
        : dtype(dtype_), layout(random_layout({512, 512, block, block, 1}, 0.3, seed)), b(dtype_, {512, n}),
          c(is_f8() ? (int32_t)TARTAN_BF16 : dtype_, {512, n}), x(dtype_, {512, 128}), y(dtype_, {128, 512}) {
        std::mt19937_64 random(seed);
        const auto number = [&] {
            return whole ? (double)(random() % 5) - 2 : 2 * std::generate_canonical<double, 53>(random) - 1;
        };
        tartan_matrix *raw = nullptr;
        EXPECT_OK(tartan_matrix_create(layout.get(), dtype, TARTAN_ROW_MAJOR, &raw));
        a.reset(raw);
        for (int64_t i = 0; i < layout->blocks * block * block; i++)
            tartan_i_store(a->values, dtype, i, number());
        for (Dense *dense : {&b, &c, &x, &y})
            for (int64_t i = 0; i < dense->elements(); i++) dense->set(i, number());
    }
    bool is_f8() const { return dtype == TARTAN_F8E4M3; } // of no sddmm
};

using Results = std::vector<std::vector<char>>;

// The products of them on the device of a context.
class Work {
  public:
    Work(tartan_context *context, const Inputs &in)
        : context_(context), in_(in), a_(placed(context, in.a)), s_(placed(context, in.a)), b_(context, in.b),
          x_(context, in.x), y_(context, in.y), c_{Placed(context, in.c), Placed(context, in.c)} {}
    void ask() {
        for (int32_t op : {0, 1})
            EXPECT_OK(tartan_spmm(context_, a_.get(), nullptr, &b_.array, 1, 0, spmm_options(kLeft, op),
                                  &c_[op].array));
        if (in_.is_f8()) return;
        EXPECT_OK(tartan_sddmm(context_, &x_.array, &y_.array, 1, nullptr, 1, 0, s_.get()));
    }
    Results fetch() const {
        Results results;
        for (const Placed &c : c_) {
            Dense got = in_.c;
            c.fetch(got);
            results.push_back(got.memory());
        }
        const Matrix s = fetched(context_, s_);
        if (s == nullptr) return {}; // which has been told
        const char *values = (const char *)s->values;
        results.emplace_back(values, values + s->layout->blocks * tartan_i_block_elements(s.get()) *
                                                  tartan_dtype_bytes(s->dtype));
        return results;
    }

  private:
    tartan_context *context_;
    const Inputs &in_;
    Matrix a_, s_;
    Placed b_, x_, y_;
    Placed c_[2];
};

inline Results products(tartan_context *context, const Inputs &in) {
    Work work(context, in);
    work.ask();
    return work.fetch();
}

// What can be asked of a context, with operands and results of one device.
struct Operands {
    Layout layout = from_mask({16, 16, 8, 8, 1}, {1, 0, 1, 1});
    std::vector<uint8_t> mask = {1, 0, 1, 1};
    std::mt19937_64 random{1};
    Matrix host = random_matrix(layout, TARTAN_F32, 0, random), a, s;
    Dense square = Dense(TARTAN_F32, {16, 16}), list = Dense(TARTAN_F32, {3}),
          grid = Dense(TARTAN_F32, {2, 2});
    Placed b, c, gates, sums, scores;
    PlacedMask bytes;
    Dynamic dynamic;
    Buffer buffer;
    explicit Operands(tartan_context *x)
        : a(placed(x, host)), s(placed(x, host)), b(x, square), c(x, square), gates(x, list), sums(x, list),
          scores(x, grid), bytes(x, shape(), mask, false), dynamic(x, shape(), mask, 0, false) {
        tartan_buffer *raw = nullptr;
        EXPECT_OK(tartan_buffer_from_array(x, &square.array, &raw));
        buffer.reset(raw);
    }
    static const tartan_shape &shape() {
        static const tartan_shape shape = {16, 16, 8, 8, 1};
        return shape;
    }
};

// Each public function that works with a context, on operands of any place. What it makes is freed.
struct Calls {
    tartan_context *x;
    Operands &o;
    tartan_status spmm(const tartan_matrix *a, const tartan_array *gates, const tartan_array &b,
                       tartan_array c) const {
        return tartan_spmm(x, a, gates, &b, 1, 0, nullptr, &c);
    }
    tartan_status sddmm(const tartan_array &left, const tartan_array &right, tartan_matrix *s) const {
        return tartan_sddmm(x, &left, &right, 1, nullptr, 1, 0, s);
    }
    tartan_status gradient(const tartan_matrix *w, tartan_matrix *dw, tartan_array out) const {
        return tartan_gate_gradient(x, w, nullptr, dw, &out);
    }
    tartan_status growth(const tartan_array &left, const tartan_array &right, tartan_array score) const {
        const int64_t block[] = {Operands::shape().block_rows, Operands::shape().block_cols};
        return tartan_growth_score(x, &left, &right, 1, block, 2, "norm=l2", &score);
    }
    tartan_status norms(const tartan_matrix *matrix) const {
        double room[3];
        return tartan_matrix_block_norms(x, matrix, TARTAN_NORM_L2, room, 3);
    }
    tartan_status scatter(const tartan_matrix *from, tartan_matrix *to) const {
        const int64_t targets[] = {2, 1, -1};
        return tartan_matrix_scatter(x, from, targets, 3, to);
    }
    template <typename Make, typename... Rest> tartan_status matrix(Make make, Rest... rest) const {
        tartan_matrix *out = nullptr;
        const tartan_status status = make(x, rest..., &out);
        EXPECT_EQ(status == TARTAN_OK, out != nullptr);
        tartan_matrix_free(out);
        return status;
    }
    tartan_status buffer_of(const tartan_array &array) const {
        tartan_buffer *out = nullptr;
        const tartan_status status = tartan_buffer_from_array(x, &array, &out);
        EXPECT_EQ(status == TARTAN_OK, out != nullptr);
        tartan_buffer_free(out);
        return status;
    }
    tartan_status fetch(const Buffer &buffer) const {
        Dense target = o.square;
        const tartan_status status = tartan_buffer_to_array(x, buffer.get(), &target.array);
        EXPECT_EQ(o.square.memory(), target.memory());
        return status;
    }
    tartan_status layout_of(const tartan_array &mask) const {
        tartan_layout *out = nullptr;
        const tartan_status status = tartan_layout_from_device_mask(x, &Operands::shape(), &mask, 0, &out);
        tartan_layout_free(out);
        return status;
    }
    tartan_status update(const Layout &layout, const tartan_array &mask) const {
        return tartan_layout_update_device_mask(x, layout.get(), &mask);
    }
    tartan_status layout_of_scores(const tartan_array &array) const {
        tartan_layout *out = nullptr;
        const tartan_status status = tartan_layout_from_device_scores(x, &Operands::shape(), &array, 1, &out);
        tartan_layout_free(out);
        return status;
    }
    tartan_status update_by(const Layout &layout, const tartan_array &array) const {
        return tartan_layout_update_device_scores(x, layout.get(), &array, 1);
    }
    tartan_status layout_to_host(const Layout &layout) const {
        tartan_layout *out = nullptr;
        const tartan_status status = tartan_layout_to_host(x, layout.get(), &out);
        tartan_layout_free(out);
        return status;
    }
};

} // namespace tartan_test

#endif
