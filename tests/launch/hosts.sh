#!/bin/sh
# Tests jobs over two hosts, a and b, that mpirun starts by ssh: the places of ranks, logs, bits, how jobs end, and bad input.
# usage: hosts.sh BUILD SCRATCH
. "$(dirname "$0")/namespaces.sh"
for tool in mpirun orted; do
  command -v $tool > /dev/null || skip "$tool is not installed"
done
host a 10.77.0.1 yes
host b 10.77.0.2 yes
host c 10.77.0.3 no
output=$(on a timeout 20 ssh -o BatchMode=yes b true 2>&1) || skip "this system's sshd lets root not in: $output"

# ---- places ------------------------------------------------------------------------------------------------------

printf 'a slots=1\nb slots=1\n' > two
printf 'b slots=1\na slots=2\n' > three
printf 'a slots=2\nb slots=2\n' > four
place='echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_SIZE $CROSS_RANK/$CROSS_SIZE $(hostname) $MASTER_ADDR:$MASTER_PORT'
launch --hostfile three --master-port 4711 sh -c "$place" | sort > out
printf '0/3 0/1 0/2 b b:4711\n1/3 0/2 1/2 a b:4711\n2/3 1/2 1/2 a b:4711\n' > want
cmp -s out want || { cat out; die "the places of ranks differ from the hostfile's order"; }
launch --hostfile four --exclude a:1@b:0 sh -c "$place" | sed 's/:[1-9][0-9]*$/:PORT/' | sort > out
printf '0/2 0/1 0/2 a a:PORT\n1/2 0/1 1/2 b a:PORT\n' > want
cmp -s out want || { cat out; die "the places of ranks differ from --exclude's"; }

printf 'GREETING = good day\n' > .deepspeed_env
launch --hostfile two --log-dir logs sh -c 'echo $GREETING from $(hostname) in $PWD; echo and more >&2' > out
[ ! -s out ] || die "ranks with logs wrote to the terminal: $(cat out)"
printf 'good day from b in %s\nand more\n' "$scratch" > want
cmp -s logs/rank_1.log want || { cat logs/rank_1.log; die "the log of rank 1"; }
rm .deepspeed_env

# shellcheck disable=SC2016
no_key_to_see='[ ${#DS_JOB_KEY} -eq 64 ] && case "$(cat /proc/[0-9]*/cmdline | tr "\0" " ")" in *"$DS_JOB_KEY"*) exit 9 ;; esac'
launch --hostfile two sh -c "$no_key_to_see" > log 2>&1 || { cat log; die "the key of a job over mpirun can be seen"; }

# ---- training: the bits of one host ------------------------------------------------------------------------------

make_training
for ranks in 2 4; do
  [ $ranks = 2 ] && file=two || file=four
  # shellcheck disable=SC2086
  launch -n $ranks $train --dir local$ranks > log 2>&1 || { cat log; die "$ranks ranks of one host"; }
  # shellcheck disable=SC2086
  launch --hostfile $file $train --dir hosts$ranks > log 2>&1 || { cat log; die "$ranks ranks of two hosts"; }
  one=$(hash_of local$ranks)
  [ -n "$one" ] && [ "$one" = "$(hash_of hosts$ranks)" ] || die "payload hashes of $ranks ranks differ"
done
require_quiet "training"

# ---- ends ---------------------------------------------------------------------------------------------------------

end_runs --hostfile two
fails 7 "libds launch: rank 1 on host 'b' exited with code 7" --hostfile two sh -c '[ $RANK = 0 ] || exit 7; sleep 30'

# ---- bad input ------------------------------------------------------------------------------------------------------

printf 'a slots=1\nc slots=1\n' > refusing
printf 'a slots=1\nd slots=1\n' > absent
printf 'a slots=1\nnobody slots=1\n' > unknown
printf 'a slots=1\n-oProxyCommand=x slots=1\n' > evil
printf 'a slots=1\nb slots=1\na slots=2\n' > double
fails 1 "cannot log in to host 'c' by ssh: ssh: connect to host c port 22: Connection refused" --hostfile refusing true
fails 1 "cannot log in to host 'd' by ssh: ssh: connect to host d port 22: No route to host" --hostfile absent true
fails 1 "cannot log in to host 'nobody' by ssh: ssh: Could not resolve hostname nobody" --hostfile unknown true
fails 1 "host '-oProxyCommand=x': must be a name" --hostfile evil true
fails 1 "hostfile 'double', line 3: host 'a' is in line 1, too" --hostfile double true
fails 1 "--master-port: port 22 is taken on this host" --hostfile two --master-port 22 true
fails 1 "no slot is left on any host" --hostfile two --exclude a@b true
on a cp /bin/true /dev/shm/only_here
code=0
launch --hostfile two /dev/shm/only_here 2> err || code=$?
on a rm /dev/shm/only_here
[ $code -eq 127 ] && grep -q "^libds launch: '/dev/shm/only_here' cannot be run on host 'b': No such file" err ||
  { cat err; die "a program that only host a has: code $code"; }
require_quiet "a program that only host a has"
on a sh -c "cp '$libds' '$build'/lib/libds.so* /dev/shm"
code=0
on a env LD_LIBRARY_PATH=/dev/shm /dev/shm/libds launch --hostfile two true 2> err || code=$?
on a sh -c 'rm /dev/shm/libds*'
[ $code -eq 1 ] && grep -q "^libds: host 'b' has no program '/dev/shm/libds'$" err ||
  { cat err; die "libds that only host a has: code $code"; }
echo "hosts: 2 hosts, 2 and 4 ranks"
