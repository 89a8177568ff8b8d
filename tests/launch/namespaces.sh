# Tests that need hosts source this file. A host is a set of namespaces of network, host name, mounts and processes, with an
# sshd and a private /dev/shm. All hosts are on one bridge, in an outer set of namespaces, so that no process outlives the test
# and its ports and addresses are private. The caller's arguments are BUILD SCRATCH, and $transport may name the transport that
# the hosts need (by default mpi). Skips the test (code 77) if anything required is missing. Afterwards $build, $source,
# $scratch, $libds, the functions below and those of training.sh are defined, and $scratch is the working folder.
set -eu
skip() { echo "skipped: $*"; exit 77; }
die() { echo "$(basename "$0"): $*" >&2; exit 1; }

if [ "${1:-}" != --inside ]; then
  build=$(cd "$1" && pwd)
  [ "$(id -u)" = 0 ] || skip "namespaces of hosts need root, this is user $(id -un)"
  for tool in ssh ssh-keygen ip nsenter unshare /usr/sbin/sshd; do
    command -v $tool > /dev/null || skip "$tool is not installed"
  done
  [ -e "$build/lib/libds_${transport:=mpi}.so" ] || skip "the transport $transport is not built"
  probe='ip link add br0 type bridge && ip link add eth0 type veth peer name to_a && mount -t tmpfs none /dev/shm &&
    hostname a && cat /proc/$$/task/$$/children'
  output=$(unshare --mount --net --uts --pid --fork --mount-proc sh -c "$probe" 2>&1) ||
    skip "this system gives no namespaces to make hosts of: $output"
  rm -rf "$2"
  mkdir -p "$2"
  exec unshare --mount --net --uts --pid --fork --kill-child --mount-proc sh "$0" --inside "$build" "$2"
fi
build=$2
source=$(cd "$(dirname "$0")/../.." && pwd)
cd "$3"
scratch=$PWD
libds=$build/bin/libds

# ---- the hosts --------------------------------------------------------------------------------------------------

mkdir ssh
ssh-keygen -q -t ed25519 -N '' -f ssh/id_ed25519
cp ssh/id_ed25519.pub ssh/authorized_keys
ssh-keygen -q -t ed25519 -N '' -f host_key
for name in a b c d; do echo "$name $(cut -d' ' -f1,2 host_key.pub)"; done > ssh/known_hosts
printf '127.0.0.1 localhost\n10.77.0.1 a\n10.77.0.2 b\n10.77.0.3 c\n10.77.0.9 d\n' > etc_hosts
cat > sshd_config << END
HostKey $scratch/host_key
AuthorizedKeysFile $scratch/ssh/authorized_keys
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PidFile none
END

# host NAME ADDRESS SSHD: starts a host and writes the id of its first process to pid.NAME.
host() {
  unshare --mount --net --uts --pid --fork --kill-child --mount-proc \
    sh "$source/tests/launch/host.sh" "$1" "$2" etc_hosts "$3" &
  first=
  until [ -n "$first" ]; do first=$(cat "/proc/$!/task/$!/children"); sleep 0.05; done
  echo "${first% }" > "pid.$1"
  ip link add "to_$1" type veth peer name eth0 netns "${first% }"
  ip link set "to_$1" master br0 up
  tries=0
  until [ -e "up.$1" ]; do
    tries=$((tries + 1))
    [ $tries -lt 200 ] || skip "host $1 does not come up on this system"
    sleep 0.05
  done
}
on() {
  name=$1
  shift
  nsenter --all --target "$(cat "pid.$name")" --wd="$scratch" "$@"
}

ip link add br0 type bridge
ip link set br0 up

# ---- what jobs leave behind --------------------------------------------------------------------------------------

busy() { ps -eo stat=,comm= | grep -qE '^[^Z]\S* +(libds|mpirun|orted|ssh)$'; }
# require_quiet WHAT: waits until no process of a job runs and /dev/shm of the hosts is empty; fails after ten seconds.
require_quiet() {
  tries=0
  while busy || [ -n "$(on a ls /dev/shm)$(on b ls /dev/shm)" ]; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { ps -ef; on a ls /dev/shm; on b ls /dev/shm; die "$1: processes or shared memory are left"; }
    sleep 0.1
  done
}
# wait_for WHAT COMMAND...: waits a minute for COMMAND to succeed.
wait_for() {
  what=$1
  shift
  tries=0
  until "$@" > /dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || { cat err out; die "waited in vain: $what"; }
    sleep 0.1
  done
}
launch() { on a timeout -k 5 60 "$libds" launch "$@"; }

# fails CODE TEXT OPTION...: runs libds launch with the options. Expects exit code CODE, one line on stderr that contains TEXT,
# and no process or file afterwards.
fails() {
  want=$1
  text=$2
  shift 2
  code=0
  launch "$@" > out 2> all || code=$?
  # Open MPI prints this warning when its child is faster than it is.
  grep -v 'plm:rsh: Warning: setpgid' all > err || true
  if [ $code -ne "$want" ] || [ "$(wc -l < err)" -ne 1 ] || ! grep -qF -- "$text" err; then
    cat err
    die "launch $*: code $code (want $want), stderr above (want one line with '$text')"
  fi
  require_quiet "launch $*"
}

. "$source/tests/support/training.sh"

# ---- how jobs over a and b end ------------------------------------------------------------------------------------

# long_run DIR OPTION...: starts a run in the background, waits for its step 10, and sets $job to the id of its launcher.
long_run() {
  run=$1
  shift
  # wait_for must not read the output of the previous run.
  : > out
  # shellcheck disable=SC2086
  on a "$libds" launch "$@" $train --steps 100000 --dir "$run" > out 2> err &
  wait_for "step 10 of $run" grep -q 'step *10/' out
  job=$(pgrep -o -x -f "$libds launch .*")
}
end_of_run() { code=0; wait $! || code=$?; }

# end_runs OPTION...: checks four jobs. In the first a rank is killed, in the second the launcher is interrupted, in the third
# it is killed, and in the fourth a rank exits with 75 although nobody has asked the job to stop.
end_runs() {
  long_run killed "$@"
  on b pkill -KILL -f "^$libds train"
  end_of_run
  [ $code -eq 137 ] || { cat err; die "a rank that is killed ends the job with code $code"; }
  grep -q "^libds launch: rank 1 on host 'b' was killed by signal 9$" err || { cat err; die "the dead rank is not named"; }
  require_quiet "a rank that is killed"

  long_run stopped "$@"
  kill -INT "$job"
  end_of_run
  [ $code -eq 75 ] || { cat err out; die "an interrupted run ends with code $code"; }
  grep -q 'go on with --resume stopped' out || { cat out; die "an interrupted run is not saved"; }
  require_quiet "an interrupted run"

  long_run orphaned "$@"
  kill -KILL "$job"
  end_of_run
  require_quiet "a launcher that is killed"

  fails 1 'rank 1 exited with code 75, as if stopped, while others went on' "$@" \
    sh -c '[ $RANK = 1 ] && exit 75; exec sleep 60'
}
