// SPDX-License-Identifier: Apache-2.0
// Operands on the device of a backend under test, and copies back.
#ifndef TARTAN_TESTS_PLACED_H
#define TARTAN_TESTS_PLACED_H

#include "../ops/products.h"
#include "dummy_backend.h"

#include <cstdio>
#include <cstdlib>
#include <thread>

namespace tartan_test {

struct FreeBuffer {
    void operator()(tartan_buffer *p) const { tartan_buffer_free(p); }
};
using Buffer = std::unique_ptr<tartan_buffer, FreeBuffer>;

// Installs the dummy, in its initial state, as the TARTAN_CUDA backend while this object lives.
struct DummyInstalled {
    DummyInstalled() {
        tartan_dummy = tartan_dummy_state{};
        tartan_dummy.fail_at = -1;
        tartan_i_backend_install(TARTAN_CUDA, tartan_plugin_get(&tartan_i_host));
    }
    ~DummyInstalled() {
        EXPECT_EQ(0, tartan_dummy.live) << "memory of the device was not released";
        EXPECT_EQ(tartan_dummy.opened, tartan_dummy.closed);
        tartan_i_backend_install(TARTAN_CUDA, nullptr);
    }
};

// Whether TARTAN_DEVICE=cuda is set in the environment: the real device is present and is tested.
inline bool has_hardware() {
    const char *device = std::getenv("TARTAN_DEVICE");
    return device != nullptr && std::string(device) == "cuda";
}

// The CPU, the dummy, and the real device.
inline std::vector<std::string> backends() {
    std::vector<std::string> all = {"cpu", "dummy"};
    if (has_hardware()) all.push_back("cuda");
    return all;
}

// Leaves out a case that the backend refuses, if TARTAN_TEST_PARTIAL=1 in the environment allows refusals (to
// test a backend that does not do everything). Any other error fails the test.
#define RUN_OR_NEXT(call)                                                                                    \
    if (const tartan_status run_status = (call); is_refused(run_status))                                     \
        continue;                                                                                            \
    else                                                                                                     \
        ASSERT_EQ(TARTAN_OK, run_status) << tartan_last_error()

// A test on one of them, with a context.
class OnBackend : public ::testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        if (dummy()) installed = std::make_unique<DummyInstalled>();
        context = open();
        ASSERT_NE(nullptr, context);
    }
    void TearDown() override {
        context.reset();
        installed.reset();
        if (refused > 0) std::printf("[ REFUSED  ] %d cases, such as: %s\n", refused, reason.c_str());
    }
    bool is_refused(tartan_status status) {
        const std::string text = tartan_last_error();
        if (status != TARTAN_ERR_UNSUPPORTED || text.find(": backend ") == std::string::npos ||
            std::getenv("TARTAN_TEST_PARTIAL") == nullptr)
            return false;
        if (reason.empty()) reason = text;
        refused++;
        return true;
    }
    bool dummy() const { return GetParam() == "dummy"; }
    bool on_host() const { return GetParam() == "cpu"; }
    const char *device() const { return dummy() ? "cuda:1" : on_host() ? "cpu" : "cuda"; }
    Context open(const char *options = "") const {
        return open_context(device(), std::string("threads=2 ") + options);
    }

    std::unique_ptr<DummyInstalled> installed;
    Context context;
    int refused = 0;
    std::string reason; // for the first refusal
};

inline tartan_array array_of(void *data, int32_t dtype, const std::vector<int64_t> &shape) {
    tartan_array a = {};
    EXPECT_OK(tartan_array_init(data, dtype, (int32_t)shape.size(), shape.data(), nullptr, &a));
    return a;
}

// The whole memory of a Dense on the device, and the descriptor of its elements there, with the same strides.
class Placed {
  public:
    tartan_array array = {};

    Placed() = default;
    Placed(tartan_context *context, const Dense &dense) : array(dense.array), context_(context) {
        const tartan_array bytes = whole(dense);
        tartan_buffer *raw = nullptr;
        EXPECT_OK(tartan_buffer_from_array(context, &bytes, &raw));
        buffer_.reset(raw);
        tartan_array view = {};
        EXPECT_OK(tartan_buffer_view(raw, &view));
        array.data = (char *)view.data + ((const char *)dense.array.data - dense.memory().data());
        array.device_type = view.device_type;
        array.device_id = view.device_id;
    }
    // Copies the memory back to an equally made Dense.
    void fetch(Dense &dense) const {
        tartan_array bytes = whole(dense);
        EXPECT_OK(tartan_buffer_to_array(context_, buffer_.get(), &bytes));
    }

  private:
    static tartan_array whole(const Dense &dense) {
        return array_of(const_cast<char *>(dense.memory().data()), TARTAN_F16,
                        {(int64_t)dense.memory().size() / 2});
    }
    tartan_context *context_ = nullptr;
    Buffer buffer_;
};

inline Matrix placed(tartan_context *context, const Matrix &matrix) {
    tartan_matrix *raw = nullptr;
    EXPECT_OK(tartan_matrix_to_device(context, matrix.get(), &raw));
    return Matrix(raw);
}
inline Matrix fetched(tartan_context *context, const Matrix &matrix) {
    tartan_matrix *raw = nullptr;
    EXPECT_OK(tartan_matrix_to_host(context, matrix.get(), &raw));
    return Matrix(raw);
}

} // namespace tartan_test

#endif
