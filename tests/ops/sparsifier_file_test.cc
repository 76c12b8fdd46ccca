// SPDX-License-Identifier: Apache-2.0
// Training that was killed and goes on from a file has the same bits.
#include <cmath>
#include <filesystem>

#include <unistd.h>

#include "sparsifier_support.h"

using namespace tartan_test;

namespace {

File new_file() {
    tartan_file *file = nullptr;
    EXPECT_OK(tartan_file_create(&file));
    return File(file);
}
std::string temporary(const char *name) {
    return (std::filesystem::temp_directory_path() / (std::string(name) + std::to_string(getpid()))).string();
}
Sparsifier loaded(tartan_file *file, const char *name) {
    tartan_sparsifier *s = nullptr;
    EXPECT_OK(tartan_sparsifier_load(file, name, &s));
    return Sparsifier(s);
}

const char *const kRuns[] = {
    "density=0.3 begin=4 end=16 every=4",
    "density=0.4 swap=0.3 every=3 end=18 fresh_rate=2 fresh_steps=5",
    "density=0.3 swap=0.3 end=20 growth=random seed=3 scope=model",
    "density=0.3 swap=0.2 every=2 end=18 score=movement growth=random",
    "threshold=0.9 begin=7",
    "score=gate gate_rate=0.4 l0=20 every=5 swap=0.2 growth=random",
};

// A step of the two weights with their moments: scores or growth, then the sparsifier.
void step(const Sparsifier &s, Trained &a, Trained &b) {
    const int64_t number = tartan_sparsifier_steps(s.get()) + 1;
    Trained *both[2] = {&a, &b};
    for (int64_t i = 0; i < 2; i++) {
        both[i]->learn(number + 100 * i);
        const Layout l = layout_of(both[i]->parts[0]);
        const std::string options = tartan_sparsifier_options(s.get());
        if (options.find("movement") != std::string::npos || options.find("gate") != std::string::npos) {
            const auto scores =
                random_values((size_t)tartan_layout_blocks(l.get()), (uint64_t)(number + 50 * i));
            ASSERT_OK(tartan_sparsifier_add_scores(s.get(), i, scores.data(), (int64_t)scores.size()));
        }
        if (tartan_sparsifier_needs_growth(s.get()) == 1) {
            const auto growth = growth_of(l.get(), number + 50 * i);
            ASSERT_OK(tartan_sparsifier_add_growth(s.get(), i, growth.data(), (int64_t)growth.size()));
        }
    }
    tartan_matrix *parts[6] = {a.parts[0], b.parts[0], a.parts[1], b.parts[1], a.parts[2], b.parts[2]};
    ASSERT_OK(tartan_sparsifier_step(cpu(), s.get(), parts, 6));
    for (int i = 0; i < 6; i++) both[i % 2]->parts[i / 2] = parts[i];
}
std::vector<double> rates_of(const Sparsifier &s, int64_t i) {
    std::vector<double> out((size_t)tartan_layout_blocks(layout_of(s.get(), i).get()));
    EXPECT_OK(tartan_sparsifier_get_rates(s.get(), i, out.data(), (int64_t)out.size()));
    return out;
}

TEST(SparsifierFile, KilledTrainingGoesOnWithTheSameBits) {
    const Layout l = random_layout({60, 75, 8, 16, 1}, 1, 3), k = random_layout({32, 32, 8, 8, 2}, 0.9, 4);
    for (const char *options : kRuns) {
        for (int64_t killed : {1, 4, 5, 9, 17}) {
            SCOPED_TRACE(std::string(options) + " killed after " + std::to_string(killed));
            const Sparsifier s = sparsifier_of(options, {l.get(), k.get()});
            Trained a(l.get(), 1), b(k.get(), 2);
            for (int64_t i = 1; i <= killed; i++) step(s, a, b);
            const std::string path = temporary("sparsifier");
            {
                const File file = new_file();
                ASSERT_OK(tartan_sparsifier_save(s.get(), file.get(), "s"));
                const char *names[6] = {"a", "a mean", "a square", "b", "b mean", "b square"};
                for (int i = 0; i < 6; i++)
                    ASSERT_OK(tartan_file_put_matrix(file.get(), names[i], (i < 3 ? a : b).parts[i % 3],
                                                     nullptr, nullptr));
                ASSERT_OK(tartan_file_save(file.get(), path.c_str(), TARTAN_KEEP_PLAIN));
            }
            tartan_file *opened = nullptr;
            ASSERT_OK(tartan_file_open(path.c_str(), &opened));
            const File file(opened);
            const Sparsifier t = loaded(file.get(), "s");
            EXPECT_STREQ(tartan_sparsifier_options(t.get()), options);
            EXPECT_EQ(tartan_sparsifier_weights(t.get()), 2);
            EXPECT_EQ(tartan_sparsifier_steps(t.get()), killed);
            const auto matrix = [&](const char *name) {
                tartan_matrix *out = nullptr;
                EXPECT_OK(tartan_file_get_matrix(file.get(), name, &out));
                return out;
            };
            Trained c(matrix("a"), matrix("a mean"), matrix("a square")),
                d(matrix("b"), matrix("b mean"), matrix("b square"));
            for (int64_t i = killed + 1; i <= 24; i++) {
                step(s, a, b);
                step(t, c, d);
                ASSERT_EQ(rates_of(s, 0), rates_of(t, 0)) << i;
            }
            EXPECT_TRUE(a == c && b == d);
            EXPECT_FALSE(tartan_layout_equal(layout_of(s.get()).get(), l.get()));
            std::filesystem::remove(path);
        }
    }
}

// Between growth and its step, in a collection that never was a file, and a second time in place of the first.
TEST(SparsifierFile, GrowthIsKeptToo) {
    const Layout l = random_layout({64, 64, 8, 8, 1}, 0.4, 3);
    const Sparsifier s = sparsifier_of("swap=0.5", {l.get()});
    const std::vector<double> growth = growth_of(l.get(), 1);
    const File file = new_file();
    ASSERT_OK(tartan_sparsifier_save(s.get(), file.get(), "s"));
    ASSERT_OK(tartan_sparsifier_add_growth(s.get(), 0, growth.data(), 64));
    ASSERT_OK(tartan_sparsifier_save(s.get(), file.get(), "s"));
    EXPECT_EQ(tartan_file_count(file.get()), 3); // s, and of its weight a layout and an array
    const Sparsifier t = loaded(file.get(), "s");
    Trained a(l.get()), b(l.get());
    ASSERT_OK(tartan_sparsifier_step(cpu(), s.get(), a.parts, 3));
    ASSERT_OK(tartan_sparsifier_step(cpu(), t.get(), b.parts, 3));
    EXPECT_TRUE(a == b);
}

// Between the gradient of gates and its step.
TEST(SparsifierFile, GatesAreKeptToo) {
    const Layout l = random_layout({64, 64, 8, 8, 1}, 0.4, 3);
    const Sparsifier s = sparsifier_of("score=gate l0=1", {l.get()});
    const int64_t blocks = tartan_layout_blocks(l.get());
    std::vector<double> numbers = random_values((size_t)blocks, 1), other(numbers);
    const auto gates = [&](const Sparsifier &x) {
        EXPECT_OK(tartan_sparsifier_get_gates(x.get(), 0, 1, other.data(), blocks));
        return other;
    };
    const File file = new_file();
    ASSERT_OK(tartan_sparsifier_add_scores(s.get(), 0, numbers.data(), blocks));
    ASSERT_OK(tartan_sparsifier_save(s.get(), file.get(), "s"));
    const Sparsifier t = loaded(file.get(), "s");
    EXPECT_EQ(gates(s), gates(t));
    for (int step = 0; step < 2; step++)
        for (const Sparsifier *x : {&s, &t}) {
            ASSERT_OK(tartan_sparsifier_prepare(x->get()));
            ASSERT_OK(tartan_sparsifier_commit(x->get()));
        }
    EXPECT_EQ(gates(s), gates(t));
}

tartan_array array_of_list(std::vector<double> &list) {
    tartan_array out;
    const int64_t n = (int64_t)list.size();
    EXPECT_OK(tartan_array_init(list.data(), TARTAN_F64, 1, &n, nullptr, &out));
    return out;
}

TEST(SparsifierFile, Refusals) {
    const Layout l = from_mask({16, 16, 8, 8, 1}, {1, 0, 0, 1});
    const Sparsifier s = sparsifier_of("density=0.5", {l.get()});
    const File file = new_file();
    tartan_sparsifier *out = nullptr;
    EXPECT_FAILS(HANDLE, "sparsifier is NULL", tartan_sparsifier_save(nullptr, file.get(), "s"));
    EXPECT_FAILS(HANDLE, "file is NULL", tartan_sparsifier_save(s.get(), nullptr, "s"));
    EXPECT_FAILS(HANDLE, "name is NULL", tartan_sparsifier_save(s.get(), file.get(), nullptr));
    EXPECT_FAILS(ARGUMENT, "name",
                 tartan_sparsifier_save(s.get(), file.get(), std::string(255, 'x').c_str()));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_sparsifier_load(file.get(), "s", nullptr));
    EXPECT_FAILS(HANDLE, "file is NULL", tartan_sparsifier_load(nullptr, "s", &out));
    EXPECT_FAILS(HANDLE, "name is NULL", tartan_sparsifier_load(file.get(), nullptr, &out));
    EXPECT_FAILS(NOT_FOUND, "no array \"s\", expected that of a sparsifier",
                 tartan_sparsifier_load(file.get(), "s", &out));
    ASSERT_OK(tartan_sparsifier_save(s.get(), file.get(), "s"));

    // What other programs may have put there instead.
    const auto head = [&](std::vector<double> list, const char *metadata) {
        const tartan_array array = array_of_list(list);
        ASSERT_OK(tartan_file_put_array(file.get(), "s", &array, 0, metadata));
    };
    const char *good = "{\"sparsifier\": \"density=0.5\"}";
    const std::pair<std::vector<double>, const char *> heads[] = {
        {{1, 0, 1}, nullptr}, {{1, 0, 1}, "{}"},        {{1, 0, 1}, "{\"sparsifier\": 3}"},
        {{2, 0, 1}, good},    {{1, -1, 1}, good},       {{1, 0.5, 1}, good},
        {{1, NAN, 1}, good},  {{1, 0, INFINITY}, good}, {{1, 0, -1}, good},
    };
    for (const auto &[list, metadata] : heads) {
        head(list, metadata);
        EXPECT_FAILS(FORMAT, "array \"s\" is not that of a sparsifier",
                     tartan_sparsifier_load(file.get(), "s", &out));
    }
    head({1, 0, 1}, "{\"sparsifier\": \"destiny=0.5\"}");
    EXPECT_FAILS(FORMAT, "array \"s\" has options 'destiny=0.5', expected those of a sparsifier",
                 tartan_sparsifier_load(file.get(), "s", &out));
    head({1, 0}, good);
    EXPECT_FAILS(
        FORMAT,
        "array \"s\" is of float64 with 1 dimensions and 2 numbers, expected a list of float64, 3 or more",
        tartan_sparsifier_load(file.get(), "s", &out));
    head({1, 0, 2}, good);
    EXPECT_FAILS(NOT_FOUND, "s/1", tartan_sparsifier_load(file.get(), "s", &out));
    head({1, 0, 1}, good);
    EXPECT_EQ(tartan_sparsifier_weights(loaded(file.get(), "s").get()), 1);

    const auto part = [&](std::vector<double> list) {
        const tartan_array array = array_of_list(list);
        ASSERT_OK(tartan_file_put_array(file.get(), "s/0", &array, 0, nullptr));
    };
    part({0.5, 0, 0, 1, 1, 0});
    EXPECT_FAILS(FORMAT, "array \"s/0\" has 6 numbers, expected 7 for 2 blocks",
                 tartan_sparsifier_load(file.get(), "s", &out));
    for (const std::vector<double> &list : {std::vector<double>{0.5, 0, 0, NAN, 1, 0, 0},
                                            {2, 0, 0, 1, 1, 0, 0},
                                            {NAN, 0, 0, 1, 1, 0, 0},
                                            {0.5, 0, 0, 1, 1, 1, 0},
                                            {0.5, 0, 0, 1, 1, 0.5, 0},
                                            {0.5, 0, 1, 1, 1, 0, 0, 1, 2, 3, NAN}}) {
        part(list);
        EXPECT_FAILS(FORMAT, "array \"s/0\" has numbers that no sparsifier has",
                     tartan_sparsifier_load(file.get(), "s", &out));
    }
    head({1, 0, 1}, "{\"sparsifier\": \"score=gate\"}");
    part({0.5, 0, 0, 1, 1, 0, 0, 1, 1, 1});
    EXPECT_FAILS(FORMAT, "array \"s/0\" has 10 numbers, expected 11 for 2 blocks",
                 tartan_sparsifier_load(file.get(), "s", &out));
    part({0.5, 1, 0, 1, 1, 0, 0, 1, 1, 1, 1});
    EXPECT_FAILS(FORMAT, "array \"s/0\" has 11 numbers, expected 13 for 2 blocks",
                 tartan_sparsifier_load(file.get(), "s", &out));
    for (const std::vector<double> &list : {std::vector<double>{0.5, 0, 0, INFINITY, 1, 0, 0, 1, 1, 1, 1},
                                            {0.5, 0, 0, 1, 1, 0, 0, NAN, 1, 1, 1},
                                            {0.5, 0, 0, 1, 1, 0, 0, 1, 1, -1, 1},
                                            {0.5, 1, 0, 1, 1, 0, 0, 1, 1, 1, 1, INFINITY, 1}}) {
        part(list);
        EXPECT_FAILS(FORMAT, "array \"s/0\" has numbers that no sparsifier has",
                     tartan_sparsifier_load(file.get(), "s", &out));
    }
    head({1, 0, 1}, good);
    part({0.5, 0, 0, 1, 1, 0, 0});
    const Layout variable = with_boundaries(l, {0, 3, 10}, {});
    ASSERT_OK(tartan_file_put_layout(file.get(), "s/0", variable.get(), nullptr));
    EXPECT_FAILS(FORMAT, "layout \"s/0\" has blocks of different sizes, expected that of a sparsifier",
                 tartan_sparsifier_load(file.get(), "s", &out));
    EXPECT_EQ(out, nullptr);
}

// Saves into a new collection, so that each attempt begins alike.
tartan_status save_to_new(const tartan_sparsifier *s) {
    tartan_file *file = nullptr;
    tartan_status status = tartan_file_create(&file);
    if (status == TARTAN_OK) status = tartan_sparsifier_save(s, file, "s");
    tartan_file_free(file);
    return status;
}

TEST(SparsifierFile, EveryAllocationMayFail) {
    const Layout l = random_layout({64, 64, 8, 8, 1}, 0.4, 3);
    const Sparsifier s = sparsifier_of("swap=0.5", {l.get()});
    const std::vector<double> growth = growth_of(l.get(), 1);
    ASSERT_OK(tartan_sparsifier_add_growth(s.get(), 0, growth.data(), 64));
    BRUTAL(save_to_new(s.get()), );
}

TEST(SparsifierFile, EveryAllocationOfLoadingMayFail) {
    const Layout l = random_layout({64, 64, 8, 8, 1}, 0.4, 3);
    const Sparsifier s = sparsifier_of("swap=0.5 score=gate", {l.get()});
    const std::vector<double> growth = growth_of(l.get(), 1);
    ASSERT_OK(tartan_sparsifier_add_growth(s.get(), 0, growth.data(), 64));
    ASSERT_OK(tartan_sparsifier_add_scores(s.get(), 0, growth.data(), tartan_layout_blocks(l.get())));
    const File file = new_file();
    ASSERT_OK(tartan_sparsifier_save(s.get(), file.get(), "s"));
    tartan_sparsifier *out = nullptr;
    BRUTAL(tartan_sparsifier_load(file.get(), "s", &out), tartan_sparsifier_free(out));
}

} // namespace
