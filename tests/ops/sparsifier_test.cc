// SPDX-License-Identifier: Apache-2.0
// Steps of sparsifiers against the programs that call tartan_layout_evolve and tartan_matrix_project themselves.
#include "sparsifier_support.h"

#include <cmath>

using namespace tartan_test;

namespace {

const tartan_shape kShape = {60, 75, 8, 16, 1}; // ragged

// ---- Equality with what is written by hand ----

struct Program {
    const char *options, *schedule; // of the sparsifier, and of tartan_layout_evolve for the same
    double density;                 // at first
    bool growth;
};
const Program kPrograms[] = {
    {"density=0.3 begin=5 end=20 every=5 score=l2", "density=0.3 begin=5 end=20 every=5", 1, false},
    {"density=0.3, begin=5, end=20, every=5, curve=linear", "density=0.3 begin=5 end=20 every=5 curve=linear",
     1, false},
    {"density=0.2 initial=0.8 end=20", "density=0.2 initial=0.8 end=20", 0.9, false},
    {"threshold=12 score=l2", "threshold=12", 1, false},
    {"swap=0.3 every=2 end=21", "swap=0.3 every=2 end=21", 0.4, true},
    {"swap=0.3 every=2 end=21 growth=random seed=4", "swap=0.3 every=2 end=21 seed=4", 0.4, false},
    {"density=0.6 initial=0.3 begin=4 every=4 end=20", "density=0.6 initial=0.3 begin=4 every=4 end=20", 0.3,
     true},
};

TEST(Sparsifier, EqualsTheProgramWrittenByHand) {
    for (const Program &p : kPrograms) {
        SCOPED_TRACE(p.options);
        const Layout first = random_layout(kShape, p.density, 3);
        const Sparsifier s = sparsifier_of(p.options, {first.get()});
        Trained ours(first.get()), theirs(first.get());
        for (int64_t step = 1; step <= 24; step++) {
            ours.learn(step);
            theirs.learn(step);
            const Layout was = layout_of(theirs.parts[0]);
            const std::vector<double> growth = p.growth ? growth_of(was.get(), step) : std::vector<double>();
            const Layout is = evolved(was.get(), norms_of(theirs.parts[0]), growth, step, p.schedule);
            for (tartan_matrix *&m : theirs.parts) {
                tartan_matrix *moved = projected(m, is.get()).release();
                tartan_matrix_free(m);
                m = moved;
            }
            if (tartan_sparsifier_needs_growth(s.get()) == 1) {
                ASSERT_OK(tartan_sparsifier_add_growth(s.get(), 0, growth.data(), (int64_t)growth.size()));
            }
            ASSERT_OK(tartan_sparsifier_step(cpu(), s.get(), ours.parts, 3));
            ASSERT_TRUE(ours == theirs) << step;
            ASSERT_TRUE(tartan_layout_equal(layout_of(s.get()).get(), is.get())) << step;
        }
        EXPECT_EQ(tartan_sparsifier_steps(s.get()), 24);
        EXPECT_FALSE(tartan_layout_equal(layout_of(s.get()).get(), first.get())); // it did something
    }
}

// Sums of scores move with the blocks; those of new blocks begin with 0.
TEST(Sparsifier, MovementPruningSumsUpScores) {
    const Layout first = random_layout(kShape, 0.8, 5);
    const char *schedule = "density=0.3 swap=0.2 begin=3 every=3 end=12";
    const Sparsifier s =
        sparsifier_of((std::string(schedule) + " score=movement growth=random").c_str(), {first.get()});
    Matrix w = normal_on(first.get(), 2);
    std::vector<double> sums((size_t)tartan_layout_blocks(first.get()));
    const double initial = (double)sums.size() / (8 * 5);
    for (int64_t step = 1; step <= 12; step++) {
        EXPECT_EQ(tartan_sparsifier_needs_norms(s.get()), 0);
        const std::vector<double> found = random_values(sums.size(), (uint64_t)step);
        for (size_t i = 0; i < sums.size(); i++) sums[i] += found[i];
        ASSERT_OK(tartan_sparsifier_add_scores(s.get(), 0, found.data(), (int64_t)found.size()));
        const Layout was = layout_of(w.get());
        char text[200];
        snprintf(text, sizeof text, "%s initial=%.17g", schedule, initial);
        const Layout is = evolved(was.get(), sums, {}, step, text);
        // A matrix of one number a block holds the sums.
        const tartan_shape thin = {8, 5, 1, 1, 1};
        const auto thin_on = [&](const Layout &l) {
            std::vector<uint8_t> mask(40);
            EXPECT_OK(tartan_layout_get_mask(l.get(), mask.data(), 40));
            return from_mask(thin, mask);
        };
        Matrix held = zeros_on(thin_on(was).get());
        tartan_array view;
        ASSERT_OK(tartan_matrix_values(held.get(), &view));
        std::memcpy(view.data, sums.data(), sums.size() * sizeof(double));
        sums = values_of(projected(held.get(), thin_on(is).get()).get());
        tartan_matrix *parts[2] = {w.release(), held.release()};
        ASSERT_OK(tartan_sparsifier_step(cpu(), s.get(), parts, 2));
        w.reset(parts[0]);
        held.reset(parts[1]);
        ASSERT_TRUE(tartan_layout_equal(layout_of(w.get()).get(), is.get())) << step;
        // Scales and other numbers of a block are moved as matrices with blocks of another size.
        ASSERT_EQ(values_of(held.get()), sums) << step;
    }
}

// ---- What else it is to do ----

TEST(Sparsifier, BlocksAreWorthTheNormThatIsNamed) {
    // Block 0 has the largest element, block 1 the largest sum, block 2 the largest sum of squares, block 3 is 0.
    const Layout l = from_mask({4, 16, 4, 4, 1}, {1, 1, 1, 1});
    const std::pair<const char *, int64_t> wanted[] = {{"max", 0}, {"l1", 1}, {"l2", 2}, {"rms", 2}};
    for (const auto &[score, winner] : wanted) {
        Matrix w = zeros_on(l.get());
        tartan_array view;
        ASSERT_OK(tartan_matrix_values(w.get(), &view));
        double *x = static_cast<double *>(view.data);
        x[0] = 3;
        for (int i = 0; i < 16; i++) x[16 + i] = 0.8;
        for (int i = 0; i < 4; i++) x[32 + i] = -2.5 + 0.1 * i;
        const Sparsifier s = sparsifier_of((std::string("density=0.25 score=") + score).c_str(), {l.get()});
        tartan_matrix *parts[1] = {w.release()};
        ASSERT_OK(tartan_sparsifier_step(cpu(), s.get(), parts, 1));
        int64_t heads, rows, cols;
        const Layout left = layout_of(parts[0]);
        tartan_matrix_free(parts[0]);
        ASSERT_EQ(tartan_layout_blocks(left.get()), 1);
        ASSERT_OK(tartan_layout_get_coordinates(left.get(), &heads, 1, &rows, 1, &cols, 1));
        EXPECT_EQ(cols, winner) << score;
    }
    // A threshold limits the root mean square: with all elements 0.8, the block's norm is 3.2.
    Matrix w = zeros_on(l.get());
    tartan_array view;
    ASSERT_OK(tartan_matrix_values(w.get(), &view));
    for (int i = 0; i < 16; i++) static_cast<double *>(view.data)[16 + i] = 0.8;
    const Sparsifier s = sparsifier_of("threshold=0.79", {l.get()});
    tartan_matrix *parts[1] = {w.release()};
    ASSERT_OK(tartan_sparsifier_step(cpu(), s.get(), parts, 1));
    EXPECT_EQ(tartan_layout_blocks(layout_of(parts[0]).get()), 1);
    tartan_matrix_free(parts[0]);
}

TEST(Sparsifier, BlocksOfAModelCompete) {
    // All blocks of a are worth less than b's, which have another size.
    const Layout a = random_layout({32, 32, 8, 8, 1}, 1, 1), b = random_layout({64, 96, 16, 4, 2}, 0.3, 1);
    ASSERT_GT(tartan_layout_blocks(b.get()), 40);
    const Sparsifier s = sparsifier_of("density=0.153846 scope=model swap=0.25 growth=random decay=constant",
                                       {a.get(), b.get()});
    Matrix small = zeros_on(a.get()), large = zeros_on(b.get());
    train(small.get(), 1, 0.5);
    train(large.get(), 2, 1.5);
    tartan_matrix *parts[2] = {small.release(), large.release()};
    ASSERT_OK(tartan_sparsifier_step(cpu(), s.get(), parts, 2));
    // Of 16 + 192 places 32 have blocks then: all of them in b, and 8 of these are new.
    EXPECT_EQ(tartan_layout_blocks(layout_of(parts[0]).get()), 0);
    EXPECT_EQ(tartan_layout_blocks(layout_of(parts[1]).get()), 32);
    int64_t zero = 0;
    for (double x : norms_of(parts[1])) zero += x == 0;
    EXPECT_EQ(zero, 8);
    tartan_matrix_free(parts[0]);
    tartan_matrix_free(parts[1]);
}

// Random places differ between weights of equal layouts, as if each had the seed of its number.
TEST(Sparsifier, WeightsHaveSeedsOfTheirOwn) {
    const Layout l = random_layout({256, 256, 8, 8, 1}, 0.2, 9);
    const Sparsifier s = sparsifier_of("swap=0.5 growth=random seed=7", {l.get(), l.get()});
    tartan_matrix *parts[2] = {normal_on(l.get(), 1).release(), normal_on(l.get(), 1).release()};
    const std::vector<double> norms = norms_of(parts[0]);
    ASSERT_OK(tartan_sparsifier_step(cpu(), s.get(), parts, 2));
    for (int i = 0; i < 2; i++) {
        const std::string schedule = "swap=0.5 seed=" + std::to_string(7 + i);
        EXPECT_TRUE(tartan_layout_equal(layout_of(parts[i]).get(),
                                        evolved(l.get(), norms, {}, 1, schedule.c_str()).get()));
        tartan_matrix_free(parts[i]);
    }
}

TEST(Sparsifier, FreshBlocksHaveARateOfTheirOwn) {
    const Layout l = random_layout({64, 64, 8, 8, 1}, 0.3, 2);
    const Sparsifier s =
        sparsifier_of("swap=0.5 begin=2 every=100 growth=random fresh_rate=2.5 fresh_steps=3", {l.get()});
    tartan_matrix *parts[1] = {normal_on(l.get(), 1).release()};
    const auto rates = [&] {
        std::vector<double> out((size_t)tartan_layout_blocks(layout_of(s.get()).get()));
        EXPECT_OK(tartan_sparsifier_get_rates(s.get(), 0, out.data(), (int64_t)out.size()));
        return out;
    };
    const auto fresh = [&] {
        int64_t count = 0;
        for (double r : rates()) count += r == 2.5;
        return count;
    };
    const int64_t swapped = tartan_layout_blocks(l.get()) / 2;
    std::vector<int64_t> counts;
    for (int64_t step = 1; step <= 6; step++) {
        counts.push_back(fresh()); // as the optimiser of this step sees them
        if (step == 3) {           // new blocks are all zeros
            const std::vector<double> norms = norms_of(parts[0]), r = rates();
            for (size_t i = 0; i < r.size(); i++) EXPECT_EQ(r[i], norms[i] == 0 ? 2.5 : 1);
        }
        ASSERT_OK(tartan_sparsifier_step(cpu(), s.get(), parts, 1));
    }
    EXPECT_EQ(counts, (std::vector<int64_t>{0, 0, swapped, swapped, swapped, 0}));
    tartan_matrix_free(parts[0]);
}

// Adafactor's means and scales of 8 bits: matrices on the same blocks of another size; any dtype and order.
TEST(Sparsifier, MovesMatricesOfOtherBlockSizesAndDtypes) {
    const Layout l = random_layout({64, 96, 8, 16, 1}, 1, 2);
    const Layout rows = random_layout({64, 6, 8, 1, 1}, 1, 2), cols = random_layout({8, 96, 1, 16, 1}, 1, 2);
    const Sparsifier s = sparsifier_of("density=0.25", {l.get()});
    tartan_matrix *parts[5] = {normal_on(l.get(), 1).release(), normal_on(rows.get(), 2).release(),
                               normal_on(cols.get(), 3).release(),
                               normal_on(l.get(), 4, TARTAN_F32).release(), nullptr};
    const Matrix row_squares = projected(parts[1], rows.get()), col_squares = projected(parts[2], cols.get());
    ASSERT_OK(tartan_sparsifier_step(cpu(), s.get(), parts, 5));
    EXPECT_EQ(parts[4], nullptr);
    std::vector<uint8_t> mask(48);
    ASSERT_OK(tartan_layout_get_mask(layout_of(s.get()).get(), mask.data(), 48));
    const Layout row_layout = from_mask({64, 6, 8, 1, 1}, mask),
                 col_layout = from_mask({8, 96, 1, 16, 1}, mask);
    EXPECT_EQ(values_of(parts[1]), values_of(projected(row_squares.get(), row_layout.get()).get()));
    EXPECT_EQ(values_of(parts[2]), values_of(projected(col_squares.get(), col_layout.get()).get()));
    EXPECT_EQ(tartan_matrix_dtype(parts[3]), TARTAN_F32);
    for (tartan_matrix *m : parts) {
        if (m != nullptr) {
            EXPECT_EQ(tartan_layout_blocks(layout_of(m).get()), 12);
        }
        tartan_matrix_free(m);
    }
}

// ---- The same in parts ----

TEST(Sparsifier, AStepInPartsIsTheSameStep) {
    const Layout l = random_layout(kShape, 1, 2);
    const char *options = "density=0.4 swap=0.2 every=2 growth=random";
    const Sparsifier whole = sparsifier_of(options, {l.get()}), parts = sparsifier_of(options, {l.get()});
    Trained a(l.get()), b(l.get());
    for (int64_t step = 1; step <= 4; step++) {
        ASSERT_OK(tartan_sparsifier_step(cpu(), whole.get(), a.parts, 3));
        if (tartan_sparsifier_needs_norms(parts.get()) == 1) {
            ASSERT_OK(tartan_sparsifier_measure(cpu(), parts.get(), 0, b.parts[0]));
        }
        ASSERT_OK(tartan_sparsifier_prepare(parts.get()));
        ASSERT_OK(tartan_sparsifier_prepare(parts.get())); // again: in place of the first
        EXPECT_EQ(tartan_sparsifier_changes(parts.get(), 0), step % 2 == 0);
        tartan_layout *next = nullptr;
        ASSERT_OK(tartan_sparsifier_get_next(parts.get(), 0, &next));
        std::vector<int64_t> sources((size_t)tartan_layout_blocks(next));
        ASSERT_OK(tartan_sparsifier_get_sources(parts.get(), 0, sources.data(), (int64_t)sources.size()));
        for (int i = 0; i < 3; i++) {
            tartan_matrix *moved = nullptr, *rearranged = nullptr;
            ASSERT_OK(tartan_sparsifier_move(cpu(), parts.get(), 0, b.parts[i], &moved));
            ASSERT_OK(tartan_matrix_rearrange(cpu(), b.parts[i], next, sources.data(),
                                              (int64_t)sources.size(), &rearranged));
            EXPECT_EQ(values_of(moved), values_of(rearranged));
            tartan_matrix_free(rearranged);
            tartan_matrix_free(b.parts[i]);
            b.parts[i] = moved;
        }
        tartan_layout_free(next);
        EXPECT_EQ(tartan_sparsifier_steps(parts.get()), step - 1); // nothing has changed yet
        ASSERT_OK(tartan_sparsifier_commit(parts.get()));
        EXPECT_TRUE(a == b);
    }
}

TEST(Sparsifier, TellsItsOptions) {
    const Sparsifier s = sparsifier_of("  density=0.5,end=10 \t growth=random", {});
    EXPECT_STREQ(tartan_sparsifier_options(s.get()), "density=0.5 end=10 growth=random");
    EXPECT_STREQ(tartan_sparsifier_options(sparsifier_of(nullptr, {}).get()), "");
    EXPECT_EQ(tartan_sparsifier_weights(s.get()), 0);
    EXPECT_EQ(tartan_sparsifier_options(nullptr), nullptr);
    EXPECT_EQ(tartan_sparsifier_weights(nullptr), -1);
    EXPECT_EQ(tartan_sparsifier_steps(nullptr), -1);
    EXPECT_EQ(tartan_sparsifier_needs_norms(nullptr), -1);
    EXPECT_EQ(tartan_sparsifier_needs_growth(nullptr), -1);
    EXPECT_EQ(tartan_sparsifier_changes(nullptr, 0), -1);
    tartan_sparsifier_free(nullptr);
}

TEST(Sparsifier, EmptyGridsAndLayouts) {
    const Layout none = from_mask({0, 4, 2, 2, 1}, {}), empty = from_mask({4, 4, 2, 2, 1}, {0, 0, 0, 0});
    for (const char *scope : {"layer", "model"}) {
        const Sparsifier s =
            sparsifier_of((std::string("density=0.5 swap=0.5 growth=random scope=") + scope).c_str(),
                          {none.get(), empty.get()});
        tartan_matrix *parts[2] = {zeros_on(none.get()).release(), zeros_on(empty.get()).release()};
        ASSERT_OK(tartan_sparsifier_step(cpu(), s.get(), parts, 2));
        // Alone it grows to its density; in a model blocks only compete.
        EXPECT_EQ(tartan_layout_blocks(layout_of(parts[1]).get()), std::string(scope) == "layer" ? 2 : 0);
        tartan_matrix_free(parts[0]);
        tartan_matrix_free(parts[1]);
    }
}

} // namespace
