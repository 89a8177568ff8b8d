// Tests the parts of a job over ssh that can be tested on one host. tests/launch/ssh.sh tests whole
// jobs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <stdexcept>

#include "launch/agent.h"
#include "launch/cluster.h"
#include "launch/failure_report.h"
#include "launch/starter.h"
#include "launch/strings.h"

namespace ds {
namespace {

TEST(SshStarter, RunsAnAgentOnEachHost) {
  ClusterOptions options;
  options.hosts = {{"localhost", {0}}, {"b", {0, 1}}};
  options.program = "/opt/libds";
  options.folder = "/work dir";
  options.master_port = 29500;
  options.ssh.port = 2222;
  options.extra = "-4  -C";
  std::vector<std::string> agent = {"/opt/libds", "agent",     "--world",       "localhost:1,b:2",
                                    "--folder",   "/work dir", "--master-port", "29500",
                                    "--host",     "0",         "--url",         "tcp://x",
                                    "--",         "prog",      "it's"};
  EXPECT_EQ(ssh_agent_words(options, 0, "tcp://x", {"prog", "it's"}), agent);
  std::vector<std::string> words = ssh_agent_words(options, 1, "tcp://x", {"prog", "it's"});
  ASSERT_GT(words.size(), 4u);
  EXPECT_EQ(words[0], "ssh");
  EXPECT_EQ(words[words.size() - 4], "-4");
  EXPECT_EQ(words[words.size() - 2], "b");
  std::string line = "exec";
  agent[9] = "1";
  for (const std::string& word : agent) line += " " + shell_word(word);
  EXPECT_EQ(words.back(), line);
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
}

TEST(SshAgent, VariablesArriveUnchanged) {
  Variables variables = {
      {"DS_A", "two\nlines"}, {"DS_EMPTY", ""}, {"DS_LONG", std::string(5000, 'x')}};
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::string text = packed(variables) + "i";
  ASSERT_EQ(write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  EXPECT_EQ(read_packed(ends[0]), variables);
  char order = 0;
  EXPECT_EQ(read(ends[0], &order, 1), 1);
  EXPECT_EQ(order, 'i');
  close(ends[1]);
  EXPECT_THROW(read_packed(ends[0]), std::invalid_argument);
  close(ends[0]);
}

TEST(SshAgent, AnAgentHasTheRanksOfItsHost) {
  RankPlace place = place_of_rank(parse_world("a:1,b:2"), 2, 4711, "tcp://a:4711/x");
  EXPECT_EQ(place.url, "tcp://a:4711/x");
  EXPECT_EQ(place.cross_rank, 1);
  EXPECT_EQ(place.local_rank, 1);
}

TEST(Blame, AnEarlierExitDoesNotHideADeathBySignal) {
  Blame blame;
  blame.add({0, 1, false, "answer"});
  blame.add({1, 137, true, "cause"});
  blame.add({0, 1, false, "answer"});
  EXPECT_EQ(blame.first()->text, "cause");
}

// Rank 2 lost rank 0, and rank 0 had lost rank 1, which is still running: rank 1 is the cause.
TEST(Blame, FollowsLossesToTheirCause) {
  EXPECT_EQ(cause_of({{2, 0}, {0, 1}}, 2), 1);
  EXPECT_EQ(cause_of({{2, 0}, {0, 1}}, 1), -1);
  EXPECT_EQ(cause_of({{0, 1}, {1, 0}}, 0), 1);
  EXPECT_EQ(cause_of({{2, 0}, {0, 1}, {1, 0}}, 2), 1);
  Blame blame;
  EXPECT_TRUE(blame.add({2, 1, false, "after it lost rank 0", 0}));
  EXPECT_FALSE(blame.add({3, 1, false, "after it lost rank 2", 2}));
  EXPECT_TRUE(blame.add({0, 1, false, "after it lost rank 1", 1}));
  EXPECT_FALSE(blame.add({2, 1, false, "after it lost rank 0", 0}));
  EXPECT_EQ(blame.first()->rank, 0);
  EXPECT_TRUE(blame.add({1, 5, false, "exited with code 5"}));
}

}  // namespace
}  // namespace ds
