// SPDX-License-Identifier: Apache-2.0
// What the tests of files share.
#ifndef TARTAN_TESTS_IO_SUPPORT_H
#define TARTAN_TESTS_IO_SUPPORT_H

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>

#include "support.h"
extern "C" {
#include "core/dtype.h"
#include "io/seal.h"
}

namespace tartan_test {

using Bytes = std::vector<unsigned char>;

// A folder that goes away with the test.
class Folder {
  public:
    Folder() {
        std::string name = (std::filesystem::temp_directory_path() / "tartan-io-XXXXXX").string();
        path_ = mkdtemp(name.data());
    }
    ~Folder() { std::filesystem::remove_all(path_); }
    std::string operator/(const std::string &name) const { return (path_ / name).string(); }
    // Names of all that is in it.
    std::vector<std::string> names() const {
        std::vector<std::string> found;
        for (const auto &entry : std::filesystem::directory_iterator(path_))
            found.push_back(entry.path().filename().string());
        return found;
    }

  private:
    std::filesystem::path path_;
};

inline Bytes read_bytes(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    return Bytes(std::istreambuf_iterator<char>(in), {});
}

inline void write_bytes(const std::string &path, const Bytes &bytes) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char *>(bytes.data()), (long)bytes.size());
}

inline File new_file() {
    tartan_file *file = nullptr;
    EXPECT_OK(tartan_file_create(&file));
    return File(file);
}

inline File open_file(const std::string &path) {
    tartan_file *file = nullptr;
    EXPECT_OK(tartan_file_open(path.c_str(), &file));
    return File(file);
}

inline Layout get_layout(tartan_file *file, const std::string &name) {
    tartan_layout *layout = nullptr;
    EXPECT_OK(tartan_file_get_layout(file, name.c_str(), &layout));
    return Layout(layout);
}

inline Matrix get_matrix(tartan_file *file, const std::string &name) {
    tartan_matrix *matrix = nullptr;
    EXPECT_OK(tartan_file_get_matrix(file, name.c_str(), &matrix));
    return Matrix(matrix);
}

// The elements of an array as they are in row-major order.
inline Bytes get_array(tartan_file *file, const std::string &name) {
    int64_t about[11] = {}, count = 1;
    EXPECT_OK(tartan_file_describe(file, name.c_str(), about, 11));
    EXPECT_EQ(about[0], TARTAN_KIND_ARRAY);
    const int32_t dtype = (int32_t)about[1], ndim = (int32_t)about[2];
    const int64_t *shape = about + 3;
    for (int32_t d = 0; d < ndim; d++) count *= shape[d];
    std::vector<int64_t> room((size_t)(count + 1)); // aligned for any dtype
    tartan_array out;
    EXPECT_OK(tartan_array_init(room.data(), dtype, ndim, shape, nullptr, &out));
    EXPECT_OK(tartan_file_get_array(file, name.c_str(), 0, &out));
    const auto *bytes = reinterpret_cast<const unsigned char *>(room.data());
    return Bytes(bytes, bytes + count * tartan_dtype_bytes(dtype));
}

inline Layout layout_of(const tartan_matrix *matrix) {
    tartan_layout *layout = nullptr;
    EXPECT_OK(tartan_matrix_get_layout(matrix, &layout));
    return Layout(layout);
}

inline tartan_array values_of(tartan_matrix *matrix) {
    tartan_array view;
    EXPECT_OK(tartan_matrix_values(matrix, &view));
    return view;
}

// Element i of block id has value(i-th element counted over rows x cols of the layout's blocks); padding is zero.
inline Matrix make_matrix(tartan_layout *layout, int32_t dtype, int32_t order,
                          const std::function<double(int64_t)> &value) {
    tartan_matrix *made = nullptr;
    EXPECT_OK(tartan_matrix_create(layout, dtype, order, &made));
    tartan_array v = values_of(made);
    const int64_t n = v.shape[0];
    std::vector<int64_t> heads(n), rows(n), cols(n);
    EXPECT_OK(tartan_layout_get_coordinates(layout, heads.data(), n, rows.data(), n, cols.data(), n));
    const int64_t br = v.shape[1], bc = v.shape[2];
    for (int64_t id = 0; id < n; id++)
        for (int64_t r = 0; r < br; r++)
            for (int64_t c = 0; c < bc; c++)
                if (rows[id] * br + r < tartan_layout_rows(layout) &&
                    cols[id] * bc + c < tartan_layout_cols(layout))
                    tartan_i_store(v.data, dtype, id * v.strides[0] + r * v.strides[1] + c * v.strides[2],
                                   value((id * br + r) * bc + c));
    return Matrix(made);
}

inline Matrix random_matrix(tartan_layout *layout, int32_t dtype, int32_t order, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> uniform(-2, 2);
    return make_matrix(layout, dtype, order, [&](int64_t) { return uniform(random); });
}

// Same blocks, dtype, order, and bits of every value.
inline void expect_same(tartan_matrix *a, tartan_matrix *b) {
    ASSERT_NE(a, nullptr);
    ASSERT_NE(b, nullptr);
    ASSERT_EQ(tartan_layout_equal(layout_of(a).get(), layout_of(b).get()), 1);
    ASSERT_EQ(tartan_matrix_dtype(a), tartan_matrix_dtype(b));
    ASSERT_EQ(tartan_matrix_block_order(a), tartan_matrix_block_order(b));
    tartan_array x = values_of(a), y = values_of(b);
    const size_t bytes = (size_t)(x.shape[0] * x.shape[1] * x.shape[2] * tartan_dtype_bytes(x.dtype));
    ASSERT_EQ(bytes == 0 ? 0 : std::memcmp(x.data, y.data, bytes), 0);
}

// The numbers of each object of a file, by kind and name.
using Contents = std::map<std::string, Bytes>;
inline Contents content(const std::string &path) {
    Contents all;
    File file = open_file(path);
    for (int64_t i = 0; i < tartan_file_count(file.get()); i++) {
        const std::string name = tartan_file_name(file.get(), i);
        const auto add = [](Bytes *to, const void *bytes, size_t size) {
            to->insert(to->end(), (const unsigned char *)bytes, (const unsigned char *)bytes + size);
        };
        if (tartan_file_kind(file.get(), i) == TARTAN_KIND_LAYOUT) {
            add(&all["layout " + name], tartan_layout_identity(get_layout(file.get(), name).get()), 32);
            continue;
        }
        if (tartan_file_kind(file.get(), i) == TARTAN_KIND_ARRAY) {
            all["array " + name] = get_array(file.get(), name);
            continue;
        }
        Bytes *bytes = &all["matrix " + name];
        Matrix matrix = get_matrix(file.get(), name);
        add(bytes, tartan_layout_identity(layout_of(matrix.get()).get()), 32);
        const tartan_array v = values_of(matrix.get());
        add(bytes, v.data, (size_t)(v.shape[0] * v.shape[1] * v.shape[2] * tartan_dtype_bytes(v.dtype)));
        if (!tartan_file_has_gates(file.get(), name.c_str())) continue;
        std::vector<double> gates((size_t)v.shape[0]);
        EXPECT_OK(tartan_file_get_gates(file.get(), name.c_str(), gates.data(), v.shape[0]));
        add(bytes, gates.data(), gates.size() * sizeof(double));
    }
    return all;
}

// The HDF5 part of a sealed file, which is a file without a seal.
inline void strip_seal(const std::string &from, const std::string &to) {
    Bytes bytes = read_bytes(from);
    bytes.erase(bytes.begin(), bytes.begin() + TARTAN_I_SEAL_BYTES);
    write_bytes(to, bytes);
}

// A small file with a bit of everything; fills `layout` and `matrix` where wanted.
inline void write_sample(const std::string &path, uint64_t seed, int32_t compression = TARTAN_KEEP_PLAIN) {
    File file = new_file();
    Layout layout = random_layout({40, 39, 4, 4, 1}, 0.5, seed),
           heads = random_layout({24, 24, 4, 2, 3}, 0.4, seed + 1),
           few = random_layout({7, 9, 4, 4, 1}, 0.8, seed + 6);
    Matrix a = random_matrix(layout.get(), TARTAN_F32, TARTAN_ROW_MAJOR, seed + 2);
    Matrix b = random_matrix(layout.get(), TARTAN_BF16, TARTAN_COL_MAJOR, seed + 3);
    Matrix c = random_matrix(heads.get(), TARTAN_F64, TARTAN_ROW_MAJOR, seed + 4);
    Matrix d =
        random_matrix(few.get(), TARTAN_F32, TARTAN_COL_MAJOR, seed + 7); // small: a dataset of its own
    std::vector<double> gates = random_values((size_t)tartan_layout_blocks(layout.get()), seed + 5);
    const int64_t n = (int64_t)gates.size();
    tartan_array gate_array;
    ASSERT_OK(tartan_array_init(gates.data(), TARTAN_F64, 1, &n, nullptr, &gate_array));
    ASSERT_OK(tartan_file_put_layout(file.get(), "pattern", layout.get(), "{\"by\":\"test\"}"));
    ASSERT_OK(tartan_file_put_matrix(file.get(), "a", a.get(), &gate_array, nullptr));
    ASSERT_OK(tartan_file_put_matrix(file.get(), "b", b.get(), nullptr, "{\"step\":1}"));
    ASSERT_OK(tartan_file_put_matrix(file.get(), "c", c.get(), nullptr, nullptr));
    ASSERT_OK(tartan_file_put_matrix(file.get(), "d", d.get(), nullptr, "[1]"));
    ASSERT_OK(tartan_file_put_array(file.get(), "e", &gate_array, 0, "[2]"));
    ASSERT_OK(tartan_file_save(file.get(), path.c_str(), compression));
}

} // namespace tartan_test

#endif
