// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <set>

#include "layouts.h"

using namespace tartan_test;

namespace {

struct Csr {
    Indices pointers, cols;
};

// CSR of n rows from edges, each entered once, its entries in random order.
Csr csr_of(int64_t n, std::vector<std::pair<int64_t, int64_t>> edges, std::mt19937_64 &random) {
    std::shuffle(edges.begin(), edges.end(), random);
    std::stable_sort(edges.begin(), edges.end(), [](auto &a, auto &b) { return a.first < b.first; });
    Csr csr{Indices((size_t)n + 1, 0), {}};
    for (auto &e : edges) {
        csr.pointers[(size_t)e.first + 1]++;
        csr.cols.push_back(e.second);
    }
    std::partial_sum(csr.pointers.begin(), csr.pointers.end(), csr.pointers.begin());
    return csr;
}

tartan_status rcm(const Csr &csr, Indices &order) {
    return tartan_reorder_rcm(lists_of(csr.pointers, csr.cols), order.data(), (int64_t)order.size());
}

int64_t bandwidth(const Csr &csr, const Indices &order) {
    Indices place(order.size());
    for (size_t i = 0; i < order.size(); i++) place[(size_t)order[i]] = (int64_t)i;
    int64_t width = 0;
    for (size_t i = 0; i < order.size(); i++)
        for (int64_t k = csr.pointers[i]; k < csr.pointers[i + 1]; k++)
            width = std::max(width, std::abs(place[i] - place[(size_t)csr.cols[(size_t)k]]));
    return width;
}

bool is_permutation(Indices order) {
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < order.size(); i++)
        if (order[i] != (int64_t)i) return false;
    return true;
}

// A p x q grid graph with its vertices shuffled. No order has a bandwidth below w = min(p, q). Cuthill-
// McKee starts at a corner, so that its levels are the antidiagonals, of at most w vertices, and neighbours
// stand at the same place of their levels or one beside it: at most w + 1, and which of the two depends on
// how the shuffle breaks ties.
TEST(Rcm, ShuffledGridGraphs) {
    std::mt19937_64 random(70);
    for (auto [p, q] : {std::pair<int64_t, int64_t>{1, 30}, {2, 17}, {5, 5}, {7, 20}, {30, 31}}) {
        int64_t n = p * q;
        Indices name((size_t)n), order((size_t)n);
        std::iota(name.begin(), name.end(), 0);
        std::shuffle(name.begin(), name.end(), random);
        std::vector<std::pair<int64_t, int64_t>> edges;
        for (int64_t i = 0; i < p; i++)
            for (int64_t j = 0; j < q; j++) {
                size_t v = (size_t)(i * q + j);
                edges.push_back({name[v], name[v]});
                if (i + 1 < p) edges.push_back({name[v], name[v + (size_t)q]});
                if (j + 1 < q) edges.push_back({name[v + 1], name[v]});
            }
        Csr csr = csr_of(n, edges, random);
        ASSERT_OK(rcm(csr, order));
        ASSERT_TRUE(is_permutation(order));
        int64_t w = std::min(p, q);
        EXPECT_GE(bandwidth(csr, order), w);
        EXPECT_LE(bandwidth(csr, order), w == 1 ? 1 : w + 1) << p << " x " << q;
    }
}

// An independent, slow statement of the algorithm.
struct Slow {
    std::vector<std::set<int64_t>> next;
    int64_t degree(int64_t v) const { return (int64_t)next[(size_t)v].size(); }
    std::pair<int64_t, int64_t> rank(int64_t v) const { return {degree(v), v}; }

    explicit Slow(const Csr &csr) : next(csr.pointers.size() - 1) {
        for (size_t i = 0; i < next.size(); i++)
            for (int64_t k = csr.pointers[i]; k < csr.pointers[i + 1]; k++)
                if (int64_t j = csr.cols[(size_t)k]; j != (int64_t)i) {
                    next[i].insert(j);
                    next[(size_t)j].insert((int64_t)i);
                }
    }

    std::vector<Indices> levels(int64_t start) const {
        std::vector<Indices> result{{start}};
        std::set<int64_t> seen{start};
        for (;;) {
            Indices level;
            for (int64_t v : result.back()) {
                Indices fresh;
                for (int64_t u : next[(size_t)v])
                    if (seen.insert(u).second) fresh.push_back(u);
                std::sort(fresh.begin(), fresh.end(),
                          [&](int64_t a, int64_t b) { return rank(a) < rank(b); });
                level.insert(level.end(), fresh.begin(), fresh.end());
            }
            if (level.empty()) return result;
            result.push_back(level);
        }
    }

    Indices order() const {
        Indices all, start(next.size());
        std::iota(start.begin(), start.end(), 0);
        std::sort(start.begin(), start.end(), [&](int64_t a, int64_t b) { return rank(a) < rank(b); });
        std::set<int64_t> done;
        for (int64_t s : start) {
            if (done.count(s)) continue;
            auto found = levels(s);
            for (;;) {
                auto &last = found.back();
                int64_t far = *std::min_element(last.begin(), last.end(),
                                                [&](int64_t a, int64_t b) { return rank(a) < rank(b); });
                auto farther = levels(far);
                bool grew = farther.size() > found.size();
                found = farther;
                if (!grew) break;
            }
            for (auto &level : found)
                for (int64_t v : level) {
                    all.push_back(v);
                    done.insert(v);
                }
        }
        std::reverse(all.begin(), all.end());
        return all;
    }
};

TEST(Rcm, AgreesWithASlowStatementOfIt) {
    std::mt19937_64 random(71);
    for (int i = 0; i < rounds(1000); i++) {
        int64_t n = (int64_t)(random() % 25);
        std::vector<std::pair<int64_t, int64_t>> edges;
        for (size_t k = n == 0 ? 0 : random() % 60; k > 0; k--) // repeats, loops and one-way edges among them
            edges.push_back({(int64_t)(random() % (uint64_t)n), (int64_t)(random() % (uint64_t)n)});
        Csr csr = csr_of(n, edges, random);
        Indices order((size_t)n, -1);
        ASSERT_OK(rcm(csr, order));
        ASSERT_EQ(order, Slow(csr).order()) << "case " << i;
    }
}

TEST(Rcm, MakesLayoutsOfSparseMatricesSmaller) {
    std::mt19937_64 random(72);
    const int64_t p = 40, n = p * p;
    Indices name((size_t)n), order((size_t)n), place((size_t)n);
    std::iota(name.begin(), name.end(), 0);
    std::shuffle(name.begin(), name.end(), random);
    std::vector<std::pair<int64_t, int64_t>> edges;
    for (int64_t v = 0; v < n; v++) {
        if (v % p + 1 < p) edges.push_back({name[(size_t)v], name[(size_t)v + 1]});
        if (v + p < n) edges.push_back({name[(size_t)v], name[(size_t)(v + p)]});
    }
    Csr csr = csr_of(n, edges, random);
    ASSERT_OK(rcm(csr, order));
    for (size_t i = 0; i < (size_t)n; i++) place[(size_t)order[i]] = (int64_t)i;
    auto blocks = [&](bool reordered) {
        Indices rows, cols;
        for (auto &e : edges) {
            rows.push_back(reordered ? place[(size_t)e.first] : e.first);
            cols.push_back(reordered ? place[(size_t)e.second] : e.second);
        }
        tartan_shape s{n, n, 16, 16, 1};
        tartan_layout *out = nullptr;
        EXPECT_OK(tartan_layout_from_entries(
            &s, places_of(nullptr, rows.data(), cols.data(), (int64_t)rows.size()), &out));
        int64_t count = tartan_layout_blocks(out);
        tartan_layout_free(out);
        return count;
    };
    EXPECT_LT(5 * blocks(true), blocks(false));
}

TEST(Rcm, Refusals) {
    Indices out(2, -7), three(3);
    EXPECT_FAILS(HANDLE, "lists is NULL", tartan_reorder_rcm(nullptr, out.data(), 2));
    EXPECT_FAILS(SHAPE, "pointers has 0 entries, expected 1",
                 tartan_reorder_rcm(lists_of(three.data(), 0, nullptr, 0), nullptr, 0));
    EXPECT_FAILS(SHAPE, "indices has -1 entries",
                 tartan_reorder_rcm(lists_of(three.data(), 3, out.data(), -1), out.data(), 2));
    EXPECT_FAILS(HANDLE, "pointers is NULL",
                 tartan_reorder_rcm(lists_of(nullptr, 3, three.data(), 2), out.data(), 2));
    EXPECT_FAILS(HANDLE, "indices is NULL",
                 tartan_reorder_rcm(lists_of(three.data(), 3, nullptr, 2), out.data(), 2));
    EXPECT_FAILS(HANDLE, "out_order is NULL",
                 tartan_reorder_rcm(lists_of(three.data(), 3, nullptr, 0), nullptr, 2));
    EXPECT_FAILS(SHAPE, "pointers has 3 entries, expected 4 (one more than out_order)",
                 rcm({{0, 1, 2}, {1, 0}}, three));
    EXPECT_FAILS(LAYOUT, "pointers go from 1 to 2", rcm({{1, 1, 2}, {1, 0}}, out));
    EXPECT_FAILS(LAYOUT, "pointers go from 0 to 3, expected 0 to 2", rcm({{0, 1, 3}, {1, 0}}, out));
    EXPECT_FAILS(LAYOUT, "pointers[2] is 2 after 3", rcm({{0, 3, 2}, {1, 0}}, out));
    EXPECT_FAILS(LAYOUT, "indices[1] is 2, expected 0 .. 1", rcm({{0, 1, 2}, {1, 2}}, out));
    EXPECT_FAILS(LAYOUT, "indices[0] is -1", rcm({{0, 1, 2}, {-1, 0}}, out));
    EXPECT_FAILS(SHAPE, "out_order has -1 entries", tartan_reorder_rcm(lists_of({0}, {}), out.data(), -1));
    EXPECT_EQ(out, Indices(2, -7));
}

TEST(Rcm, EveryAllocationMayFail) {
    Indices out(4);
    BRUTAL(rcm({{0, 1, 2, 3, 3}, {2, 3, 1}}, out), );
}

} // namespace
