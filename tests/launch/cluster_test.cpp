// The parts of a job over several hosts that can be tested on one host. tests/launch/hosts.sh tests
// whole jobs.
#include "launch/cluster.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <stdexcept>

#include "launch/agent.h"
#include "launch/failure_report.h"
#include "launch/local_launch.h"
#include "launch/port.h"
#include "launch/pressure.h"
#include "launch/starter.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

using Words = std::vector<std::string>;

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

// Returns whether the words of `part` occur consecutively in `words`.
bool has(const Words& words, const Words& part) {
  return std::search(words.begin(), words.end(), part.begin(), part.end()) != words.end();
}

ClusterOptions two_hosts() {
  ClusterOptions options;
  options.hosts = {{"b", {0, 1}}, {"a", {3}}};
  options.program = "/opt/libds";
  options.folder = "/work dir";
  return options;
}

TEST(Starter, MpirunKeepsTheOrderOfHosts) {
  ClusterOptions options = two_hosts();
  options.ssh.port = 2222;
  options.extra = " --mca  btl tcp,self ";
  options.log_dir = "/logs";
  options.master_port = 29500;
  Words words = starter_words(options, {"DS_X"}, {"prog", "two words"});
  Words agent = {"/opt/libds",    "agent", "--world",   "b:2,a:1", "--folder", "/work dir",
                 "--master-port", "29500", "--log-dir", "/logs",   "prog",     "two words"};
  auto with_agent = [&](Words part) {
    part.insert(part.end(), agent.begin(), agent.end());
    return part;
  };
  EXPECT_EQ(words[0], "mpirun");
  EXPECT_TRUE(has(words, {"plm_rsh_args",
                          "-o BatchMode=yes -o ConnectTimeout=10 -p 2222 -o ServerAliveInterval=10 "
                          "-o ServerAliveCountMax=2"}));
  EXPECT_TRUE(has(words, {"--mca", "btl", "tcp,self"}));
  EXPECT_TRUE(has(words, with_agent({"--host", "b:2", "-n", "2", "-x", "DS_X"})));
  EXPECT_TRUE(has(words, with_agent({":", "--host", "a:1", "-n", "1", "-x", "DS_X"})));
}

TEST(Starter, SrunHasAsManyRanksOnEachHost) {
  ClusterOptions options = two_hosts();
  options.starter = Starter::srun;
  EXPECT_EQ(refusal([&] { starter_words(options, {}, {"prog"}); }),
            "srun starts the same number of ranks on each host, but 'b' has 2 slots and 'a' has 1; "
            "use --launcher mpirun or --num-ranks");
  options.hosts[1].slots = {0, 1};
  Words words = starter_words(options, {}, {"prog"});
  EXPECT_EQ(words[0], "srun");
  for (const char* word :
       {"--mpi=pmix", "--nodes=2", "--ntasks=4", "--ntasks-per-node=2", "--nodelist=b,a"}) {
    EXPECT_TRUE(has(words, {word})) << word;
  }
  EXPECT_EQ(words.back(), "prog");
}

TEST(Starter, RefusesAWordThatMpirunWouldInterpret) {
  EXPECT_EQ(refusal([] {
              starter_words(two_hosts(), {}, {"prog", ":"});
            }),
            "command: mpirun does not accept the word ':'; put the command into a script");
}

TEST(Starter, ForwardsTheVariablesOfAJob) {
  for (const char* name :
       {"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "DS_PLUGIN_PATH", "OMP_NUM_THREADS"}) {
    EXPECT_TRUE(forwarded(name)) << name;
  }
  for (const char* name : {"HOME", "PATHS", "DS_COMM_URL", "DS_LAUNCHER_PIPE", "SSH_AUTH_SOCK"}) {
    EXPECT_FALSE(forwarded(name)) << name;
  }
}

TEST(Cluster, RefusesHostsBeforeItStarts) {
  ClusterOptions options = two_hosts();
  options.hosts = {{"a", {}}, {"b", {}}};
  EXPECT_EQ(refusal([&] { launch_on_hosts(options, {"true"}); }), "no slot is left on any host");
  for (const char* name : {"-oProxyCommand=x", "a:1", "a,b", "user@a", ""}) {
    options.hosts = {{name, {0}}};
    EXPECT_EQ(refusal([&] { launch_on_hosts(options, {"true"}); }).substr(0, 6), "host '") << name;
  }
}

TEST(Agent, PlacesFollowTheHosts) {
  Hosts hosts = parse_world("b:2,a:1");
  EXPECT_EQ(world_text(hosts), "b:2,a:1");
  RankPlace place = place_of_rank(hosts, 2, 4711);
  EXPECT_EQ(variables_of(place),
            (Words{"RANK=2", "WORLD_SIZE=3", "LOCAL_RANK=0", "LOCAL_SIZE=1", "CROSS_RANK=1",
                   "CROSS_SIZE=2", "DS_COMM_URL=mpi", "MASTER_ADDR=b", "MASTER_PORT=4711",
                   "DS_OUTER_LAUNCHERS="}));
  EXPECT_EQ(place.host, "a");
  EXPECT_EQ(place_of_rank(hosts, 1, 1).local_rank, 1);
  EXPECT_EQ(refusal([&] { place_of_rank(hosts, 3, 1); }),
            "agent: rank 3 is not one of the 3 ranks of b:2,a:1");
  EXPECT_EQ(refusal([] { parse_world("a"); }), "--world must be HOST:RANKS,..., got 'a'");
}

TEST(Agent, RanksGetTheVariablesOfOuterLaunchers) {
  setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  setenv("PMIX_RANK", "1", 1);
  const Words variables = variables_of(RankPlace{});
  unsetenv("OMPI_COMM_WORLD_SIZE");
  unsetenv("PMIX_RANK");
  EXPECT_EQ(variables.back(), "DS_OUTER_LAUNCHERS=OMPI_COMM_WORLD_SIZE=2 PMIX_RANK=1");
}

TEST(Report, RecordsAreExtractedHoweverTheStreamIsSplit) {
  RankFailure failure{3, 7, false, "rank 3 exited with code 7"};
  std::string stream = "before " + report_record("secret", failure) + "after\n";
  for (size_t part = 1; part <= stream.size(); ++part) {
    ReportReader reader("secret");
    std::string passed;
    for (size_t at = 0; at < stream.size(); at += part)
      passed += reader.feed(std::string_view(stream).substr(at, part));
    passed += reader.rest();
    EXPECT_EQ(passed, "before after\n");
    ASSERT_TRUE(reader.first());
    EXPECT_EQ(reader.first()->rank, 3);
    EXPECT_EQ(reader.first()->code, 7);
    EXPECT_EQ(reader.first()->text, failure.text);
  }
}

TEST(Report, RecordsWithoutTheTokenAreIgnored) {
  ReportReader reader("secret");
  std::string other = report_record("guess", {1, 5, false, "rank 1"});
  EXPECT_EQ(reader.feed(other) + reader.rest(), other);
  EXPECT_FALSE(reader.first());
}

TEST(Report, AStopIsNotAFailure) {
  ReportReader reader("t");
  EXPECT_FALSE(reader.stopped());
  reader.feed(report_record("t", {4, 75, false, ""}));
  ASSERT_TRUE(reader.stopped());
  EXPECT_EQ(reader.stopped()->rank, 4);
  EXPECT_FALSE(reader.first());
  reader.feed(report_record("t", {2, 75, false, left_alone(2, "")}));
  ASSERT_TRUE(reader.first());
  EXPECT_EQ(reader.first()->rank, 2);
}

// If the ranks of one host were stopped and those of others keep running, that is a failure, unless
// the launcher had asked them to stop.
TEST(Report, AStopOfOneHostOnlyIsAFailure) {
  RankFailure stopped{3, 75, false, ""};
  StopDoubt calm, doubt(std::chrono::milliseconds(0)), asked(std::chrono::milliseconds(0));
  EXPECT_FALSE(calm.next(stopped, false));
  EXPECT_FALSE(asked.next(stopped, true));
  EXPECT_FALSE(doubt.next(std::nullopt, false));
  std::optional<RankFailure> failure = doubt.next(stopped, false);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, 1);
  EXPECT_EQ(failure->text, "rank 3 exited with code 75, as if stopped, while others went on");
}

TEST(Report, ASignalTakesPrecedenceOverAnExit) {
  ReportReader reader("t");
  reader.feed(report_record("t", {0, 1, false, "first"}));
  reader.feed(report_record("t", {1, 137, true, "killed"}));
  reader.feed(report_record("t", {2, 139, true, "later"}));
  EXPECT_EQ(reader.first()->text, "killed");
}

// Slurm ends the other ranks of a failed job with SIGTERM, and their records may arrive first.
TEST(Report, RanksThatWereTerminatedAreNotTheCause) {
  ReportReader reader("t");
  reader.feed(report_record("t", {0, 143, true, "told to end"}));
  EXPECT_EQ(reader.first()->text, "told to end");
  reader.feed(report_record("t", {1, 7, false, "exited"}));
  reader.feed(report_record("t", {2, 143, true, "told to end, too"}));
  EXPECT_EQ(reader.first()->text, "exited");
}

TEST(Ports, AFreePortIsFoundAndATakenOneIsRefused) {
  EXPECT_GT(free_port(), 0);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  int port = ntohs(address.sin_port);
  EXPECT_EQ(refusal([&] { launch({.ranks = 1, .master_port = port}, {"true"}); }),
            "--master-port: port " + std::to_string(port) +
                " is taken on this host; name another, or none for a free one");
  close(fd);
}

TEST(ThisHost, IsLocalhostAndItsOwnName) {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  for (const char* own : {"localhost", "127.0.0.1", static_cast<const char*>(name)}) {
    EXPECT_TRUE(is_this_host(own)) << own;
  }
  // 192.0.2.1 is reserved for documentation.
  EXPECT_FALSE(is_this_host("192.0.2.1"));
}

}  // namespace
}  // namespace ds
