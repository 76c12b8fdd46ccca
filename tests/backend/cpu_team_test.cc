// SPDX-License-Identifier: Apache-2.0
// How the workers of a product on the CPU share it.
#include "support.h"

#include <atomic>
#include <thread>

extern "C" {
#include "backend/cpu.h"
}

namespace {

using namespace tartan_test;

struct Team {
    Context context;
    tartan_i_cpu_team team{};
    std::vector<char> room;
    Team(int32_t threads, const tartan_i_cpu_traffic &traffic, int64_t block_rows, double work)
        : context(open_context(threads)) {
        tartan_i_cpu_team_plan(&team, context.get(), &traffic, block_rows, work);
        room.resize((size_t)tartan_i_cpu_team_bytes(team.cols));
        team.taken = (struct tartan_i_cpu_taken *)(void *)room.data();
        tartan_i_cpu_team_start(&team);
    }
    int32_t workers() const { return team.rows * team.cols; }
};

const tartan_i_cpu_traffic few_columns{1e6, 1e7, 1e5, 8e6, 1};
const tartan_i_cpu_traffic many_columns{7e6, 1e8, 8e6, 8e6, 12};

TEST(CpuTeam, EachBlockRowOfEachRangeIsTakenOnce) {
    for (const int32_t threads : {1, 2, 3, 16}) {
        for (const int64_t block_rows : {1, 2, 7, 128}) {
            for (const double work : {1e3, 1e7, 1e9}) {
                Team t(threads, many_columns, block_rows, work);
                ASSERT_GE(threads, t.workers());
                std::vector<std::atomic<int>> taken((size_t)(t.team.cols * block_rows));
                std::vector<std::thread> all;
                for (int32_t worker = 0; worker < t.workers(); worker++)
                    all.emplace_back([&, worker] {
                        int32_t finished = 0, range;
                        int64_t begin, end;
                        while (tartan_i_cpu_team_take(&t.team, worker, &finished, &range, &begin, &end))
                            for (int64_t row = begin; row < end; row++)
                                taken[(size_t)(range * block_rows + row)]++;
                    });
                for (std::thread &thread : all) thread.join();
                for (const std::atomic<int> &times : taken) ASSERT_EQ(1, times);
            }
        }
    }
}

TEST(CpuTeam, AWorkerBeginsInItsOwnRangeAndHelpsInTheOthers) {
    Team t(16, many_columns, 128, 1e9);
    ASSERT_LT(1, t.team.cols);
    const int32_t last = t.workers() - 1;
    std::vector<int32_t> ranges;
    int32_t finished = 0, range;
    int64_t begin, end;
    while (tartan_i_cpu_team_take(&t.team, last, &finished, &range, &begin, &end))
        if (ranges.empty() || ranges.back() != range) ranges.push_back(range);
    ASSERT_EQ((size_t)t.team.cols, ranges.size()); // alone, it does everything
    EXPECT_EQ(t.team.cols - 1, ranges[0]);
    EXPECT_EQ(0, ranges[1]);
    EXPECT_FALSE(tartan_i_cpu_team_take(&t.team, 0, &(finished = 0), &range, &begin, &end));
    tartan_i_cpu_team_start(&t.team);
    EXPECT_TRUE(tartan_i_cpu_team_take(&t.team, 0, &(finished = 0), &range, &begin, &end));
}

TEST(CpuTeam, ColumnsAreSharedWhereThatSavesTraffic) {
    EXPECT_EQ(1, Team(16, few_columns, 128, 1e9).team.cols);            // one range at most
    EXPECT_EQ(1, Team(1, many_columns, 128, 1e9).team.cols);            // one worker
    EXPECT_LT(1, Team(16, many_columns, 128, 1e9).team.cols);           // panels that fit in L2
    EXPECT_EQ(12, Team(16, many_columns, 1, 1e9).team.cols);            // nothing else to share
    EXPECT_EQ(1, Team(16, {7e6, 1e8, 0, 8e6, 12}, 128, 1e9).team.cols); // read in place
}

TEST(CpuTeam, PanelsAreWhatIsPackedAtATime) {
    EXPECT_EQ(1, Team(1, {1, 1, 8e6, 8e6, 1}, 1, 1).team.panels);
    EXPECT_EQ(2, Team(1, {1, 1, 8.1e6, 8e6, 1}, 1, 1).team.panels);
    EXPECT_EQ(1, Team(1, {1, 1, 0, 8e6, 1}, 1, 1).team.panels);
}

} // namespace
