// SPDX-License-Identifier: Apache-2.0
// The shared case of training in C: sparsifiers that were saved by another language go on, are saved and loaded once more, and end with
// the listed checksums.
#include "../ops/sparsifier_support.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <unistd.h>

namespace {

using namespace tartan_test;

struct Case {
    std::string name, checksums[4]; // of weights 0 and 1, then of velocities
    int64_t first, stop, last;
};

std::vector<Case> read_cases() {
    std::ifstream in(TARTAN_CASES "/training.csv");
    std::vector<Case> cases;
    std::string line, f[8];
    std::getline(in, line);
    while (std::getline(in, line)) {
        std::istringstream fields(line);
        for (auto &field : f) std::getline(fields, field, ',');
        cases.push_back(
            {f[0], {f[4], f[5], f[6], f[7]}, std::stoll(f[1]), std::stoll(f[2]), std::stoll(f[3])});
    }
    return cases;
}

File opened(const std::string &path) {
    tartan_file *file = nullptr;
    EXPECT_OK(tartan_file_open(path.c_str(), &file));
    return File(file);
}
Sparsifier loaded(const File &file, const std::string &name) {
    tartan_sparsifier *s = nullptr;
    EXPECT_OK(tartan_sparsifier_load(file.get(), name.c_str(), &s));
    return Sparsifier(s);
}
tartan_matrix *matrix(const File &file, const std::string &name) {
    tartan_matrix *m = nullptr;
    EXPECT_OK(tartan_file_get_matrix(file.get(), name.c_str(), &m));
    return m;
}
// An array [rows, cols] of the file.
struct Table {
    std::vector<double> values;
    tartan_array array = {};
    Table(const File &file, const std::string &name) {
        int64_t about[11];
        EXPECT_OK(tartan_file_describe(file.get(), name.c_str(), about, 11));
        values.resize((size_t)(about[3] * about[4]));
        EXPECT_OK(tartan_array_init(values.data(), TARTAN_F64, 2, about + 3, nullptr, &array));
        EXPECT_OK(tartan_file_get_array(file.get(), name.c_str(), 0, &array));
    }
};

// parts: weights 0 and 1, velocities 0 and 1.
void step(tartan_context *context, const File &file, const Sparsifier &s, tartan_matrix **parts) {
    const std::string number = std::to_string(tartan_sparsifier_steps(s.get()) + 1);
    tartan_array values[4], gradients[2], rates[2];
    std::vector<double> factors[2];
    Matrix held[2];
    for (int i = 0; i < 4; i++) ASSERT_OK(tartan_matrix_values(parts[i], &values[i]));
    for (int i = 0; i < 2; i++) {
        const Table dense(file, "gradient " + number + " " + std::to_string(i));
        const Layout layout = layout_of(parts[i]);
        const int64_t blocks = tartan_layout_blocks(layout.get());
        tartan_matrix *gradient = nullptr;
        ASSERT_OK(tartan_matrix_from_dense(layout.get(), &dense.array, 0, tartan_matrix_block_order(parts[i]),
                                           &gradient));
        held[i].reset(gradient);
        ASSERT_OK(tartan_matrix_values(gradient, &gradients[i]));
        factors[i].resize((size_t)blocks);
        ASSERT_OK(tartan_array_init(factors[i].data(), TARTAN_F64, 1, &blocks, nullptr, &rates[i]));
        const std::string about = tartan_sparsifier_options(s.get());
        if (about.find("score=movement") != std::string::npos ||
            about.find("score=gate") != std::string::npos) {
            ASSERT_OK(tartan_gate_gradient(context, parts[i], nullptr, gradient, &rates[i]));
            for (double &x : factors[i]) x = -x;
            ASSERT_OK(tartan_sparsifier_add_scores(s.get(), i, factors[i].data(), blocks));
        }
        ASSERT_OK(tartan_sparsifier_get_rates(s.get(), i, factors[i].data(), blocks));
    }
    tartan_sgd_arguments sgd = {};
    sgd.parameters = values, sgd.gradients = gradients, sgd.rates = rates, sgd.velocities = values + 2;
    sgd.count = 2;
    const std::string options = "rate=0.1 momentum=0.9 step=" + number;
    sgd.options = options.c_str();
    ASSERT_OK(tartan_sgd(context, &sgd));
    for (int i = 0; i < 2 && tartan_sparsifier_needs_growth(s.get()) == 1; i++) {
        const Table growth(file, "growth " + number + " " + std::to_string(i));
        ASSERT_OK(
            tartan_sparsifier_add_growth(s.get(), i, growth.values.data(), (int64_t)growth.values.size()));
    }
    ASSERT_OK(tartan_sparsifier_step(context, s.get(), parts, 4));
}

TEST(Training, GoesOnWithTheBitsOfTheOtherLanguages) {
    const File file = opened(TARTAN_CASES "/training.h5");
    const std::vector<Case> cases = read_cases();
    ASSERT_GE(cases.size(), 4u);
    const std::string path =
        (std::filesystem::temp_directory_path() / ("training" + std::to_string(getpid()))).string();
    const Context context = open_context(2);
    for (const Case &one : cases) {
        SCOPED_TRACE(one.name);
        Sparsifier s = loaded(file, one.name);
        EXPECT_EQ(tartan_sparsifier_steps(s.get()) + 1, one.first);
        tartan_matrix *parts[4] = {matrix(file, one.name + " w 0"), matrix(file, one.name + " w 1"),
                                   matrix(file, one.name + " velocity 0"),
                                   matrix(file, one.name + " velocity 1")};
        for (int64_t i = one.first; i <= one.last; i++) {
            step(context.get(), file, s, parts);
            if (HasFatalFailure()) return;
            if (i != one.stop) continue;
            tartan_file *made = nullptr;
            ASSERT_OK(tartan_file_create(&made));
            const File out(made);
            ASSERT_OK(tartan_sparsifier_save(s.get(), made, "s"));
            for (int k = 0; k < 4; k++)
                ASSERT_OK(
                    tartan_file_put_matrix(made, std::to_string(k).c_str(), parts[k], nullptr, nullptr));
            ASSERT_OK(tartan_file_save(made, path.c_str(), TARTAN_KEEP_PLAIN));
            const File again = opened(path);
            s = loaded(again, "s");
            for (int k = 0; k < 4; k++) {
                tartan_matrix_free(parts[k]);
                parts[k] = matrix(again, std::to_string(k));
            }
        }
        for (int k = 0; k < 4; k++) {
            std::vector<double> dense = tartan_test::dense_of(parts[k]);
            const Layout layout = layout_of(parts[k]);
            const int64_t shape[] = {tartan_layout_rows(layout.get()), tartan_layout_cols(layout.get())};
            tartan_array array;
            char *text = nullptr;
            ASSERT_OK(tartan_array_init(dense.data(), TARTAN_F64, 2, shape, nullptr, &array));
            ASSERT_OK(tartan_array_checksum(&array, &text));
            EXPECT_EQ(text, one.checksums[k]) << k;
            tartan_text_free(text);
            tartan_matrix_free(parts[k]);
        }
    }
    std::filesystem::remove(path);
}

} // namespace
