#!/bin/sh
# Tests jobs over two hosts, a and b, by ssh and TCP without MPI: the places of ranks, bits, how jobs end, and bad input.
# usage: ssh.sh BUILD SCRATCH
transport=tcp
. "$(dirname "$0")/namespaces.sh"
host a 10.77.0.1 yes
host b 10.77.0.2 yes
output=$(on a timeout 20 ssh -o BatchMode=yes b true 2>&1) || skip "this system's sshd lets root not in: $output"
by_ssh="--launcher ssh --hostfile"

# ---- places, variables, words -------------------------------------------------------------------------------------

printf 'a slots=1\nb slots=1\n' > two
printf 'a slots=2\nb slots=2\n' > four
printf 'b slots=1\na slots=2\n' > three
place='echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_SIZE $CROSS_RANK/$CROSS_SIZE $(hostname) $MASTER_ADDR:$MASTER_PORT'
# shellcheck disable=SC2086
launch $by_ssh three --master-port 4711 sh -c "$place" | sort > out
printf '0/3 0/1 0/2 b b:4711\n1/3 0/2 1/2 a b:4711\n2/3 1/2 1/2 a b:4711\n' > want
cmp -s out want || { cat out; die "the places of ranks differ from the hostfile's order"; }
printf "GREETING = it's a good day\n" > .deepspeed_env
# shellcheck disable=SC2086,SC2016
launch $by_ssh two --log-dir logs sh -c 'echo "$GREETING, $1" from $(hostname) in $PWD; echo and more >&2' sh "two  words'" > out
[ ! -s out ] || die "ranks with logs wrote to the terminal: $(cat out)"
printf "it's a good day, two  words' from b in %s\nand more\n" "$scratch" > want
cmp -s logs/rank_1.log want || { cat logs/rank_1.log; die "the log of rank 1"; }
rm .deepspeed_env
require_quiet "places"

# ---- training: the bits of one host --------------------------------------------------------------------------------

make_training
for ranks in 2 4; do
  [ $ranks = 2 ] && file=two || file=four
  # shellcheck disable=SC2086
  launch -n $ranks $train --dir local$ranks > log 2>&1 || { cat log; die "$ranks ranks of one host"; }
  # shellcheck disable=SC2086
  launch $by_ssh $file $train --dir hosts$ranks > log 2>&1 || { cat log; die "$ranks ranks of two hosts"; }
  one=$(hash_of local$ranks)
  [ -n "$one" ] && [ "$one" = "$(hash_of hosts$ranks)" ] || die "payload hashes of $ranks ranks differ"
done
require_quiet "training"

# The ranks have a key, which is on no command line of either host.
# shellcheck disable=SC2016
no_key_to_see='[ ${#DS_JOB_KEY} -eq 64 ] && case "$(cat /proc/[0-9]*/cmdline | tr "\0" " ")" in *"$DS_JOB_KEY"*) exit 9 ;; esac'
# shellcheck disable=SC2086
launch $by_ssh four sh -c "$no_key_to_see" > log 2>&1 || { cat log; die "the key of a job over ssh can be seen"; }

# A launcher like torch's starts one rank on each host. Ranks on two hosts need a key.
as_torchrun="WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=a MASTER_PORT=4712 TORCHELASTIC_RUN_ID=x TORCHELASTIC_RESTART_COUNT=0"
code=0
# shellcheck disable=SC2086
on b env RANK=1 $as_torchrun timeout 20 $train --dir torchrun > log 2>&1 || code=$?
[ $code -eq 1 ] && grep -q "host 'a' is not this host: ranks on several hosts need a key. Set DS_JOB_KEY" log ||
  { cat log; die "ranks of two hosts without a key: code $code"; }
printf 'a key that is secret enough\n' > key
chmod 600 key
started=
for rank in 0 1; do
  [ $rank = 0 ] && name=a || name=b
  # shellcheck disable=SC2086
  on $name env RANK=$rank $as_torchrun DS_JOB_KEY_FILE=$PWD/key timeout 60 $train --dir torchrun > log$rank 2>&1 &
  started="$started $!"
done
for process in $started; do wait "$process" || { cat log0 log1; die "ranks under torchrun's variables"; }; done
[ "$(hash_of local2)" = "$(hash_of torchrun)" ] ||
  die "payload hashes under torchrun's variables differ"

# ---- ends ---------------------------------------------------------------------------------------------------------

# shellcheck disable=SC2086
end_runs $by_ssh two
# shellcheck disable=SC2086
long_run cut $by_ssh two
on a pkill -KILL -x ssh
end_of_run
[ $code -ne 0 ] || die "a connection that is cut ends the job with code 0"
grep -q "host 'b'\|rank 0 on host 'a'" err || { cat err; die "a connection that is cut is not named"; }
require_quiet "a connection that is cut"

fails 7 "libds launch: rank 1 on host 'b' exited with code 7" $by_ssh two sh -c '[ $RANK = 0 ] || exit 7; sleep 30'
fails 7 "libds launch: rank 0 on host 'a' exited with code 7" $by_ssh two sh -c '[ $RANK = 1 ] || exit 7; sleep 30'

# ---- bad input ---------------------------------------------------------------------------------------------------------

printf 'a slots=1\nd slots=1\n' > absent
fails 1 "cannot log in to host 'd' by ssh: ssh: connect to host d port 22: No route to host" $by_ssh absent true
fails 1 "--master-port: port 22 is taken on this host" $by_ssh two --master-port 22 true
on a cp /bin/true /dev/shm/only_here
code=0
# shellcheck disable=SC2086
launch $by_ssh two /dev/shm/only_here 2> err || code=$?
on a rm /dev/shm/only_here
[ $code -eq 127 ] && grep -q "^libds launch: '/dev/shm/only_here' cannot be run on host 'b': No such file" err ||
  { cat err; die "a program that only host a has: code $code"; }
require_quiet "bad input"
echo "ssh: 2 hosts, 2 and 4 ranks"
