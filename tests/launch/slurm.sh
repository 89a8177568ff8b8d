#!/bin/sh
# Tests ranks that srun starts on two hosts of a private Slurm: by `libds launch --launcher srun`, by plain srun with PMIx over
# both hosts, and without PMIx on one host. They must have the bits of one host, and a rank that fails must be named. Also tests
# the hosts of a job, and the script of docs/guides/hosts.md, which is started again after the loss of a rank and of a host.
# usage: slurm.sh BUILD SCRATCH
. "$(dirname "$0")/namespaces.sh"
for tool in srun salloc sbatch slurmctld slurmd munged; do
  command -v $tool > /dev/null || skip "$tool is not installed"
done
host a 10.77.0.1 no
host b 10.77.0.2 no

# ---- Slurm ---------------------------------------------------------------------------------------------------------

head -c 1024 /dev/urandom > munge.key
chmod 400 munge.key
mkdir state spool.a spool.b
cat > slurm.conf << END
ClusterName=test
SlurmctldHost=a
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=/run/munge.socket,cred_expire=3
StateSaveLocation=$scratch/state
SlurmdSpoolDir=$scratch/spool.%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=$scratch/slurmctld.log
SlurmdLogFile=$scratch/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/linear
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=2
NodeName=a,b CPUs=2 State=UNKNOWN
PartitionName=all Nodes=a,b Default=YES State=UP OverSubscribe=FORCE
END
echo "PMIxCliTmpDirBase=/run" > mpi.conf
export SLURM_CONF=$scratch/slurm.conf
srun --mpi=list 2>&1 | grep -q pmix || skip "this srun has no PMIx"
for name in a b; do
  on $name munged --force --key-file="$scratch/munge.key" --socket=/run/munge.socket --pid-file=/run/munged.pid \
    --log-file=/run/munged.log --seed-file=/run/munged.seed > /dev/null 2>&1 || skip "munged does not start as root"
done
on a slurmctld || skip "slurmctld does not start"
on a slurmd -N a || skip "slurmd does not start"
on b slurmd -N b || skip "slurmd does not start"
ready() { [ "$(on a sinfo -h -t idle -o %D)" = 2 ]; }
tries=0
until ready; do
  tries=$((tries + 1))
  [ $tries -lt 100 ] || { tail -n 5 slurm*.log; skip "this Slurm's hosts do not become idle"; }
  sleep 0.1
done

# ---- ranks ----------------------------------------------------------------------------------------------------------

printf 'a slots=1\nb slots=1\n' > two
place='echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_SIZE $CROSS_RANK/$CROSS_SIZE $(hostname) $DS_COMM_URL'
launch --hostfile two --launcher srun sh -c "$place" | sort > out
printf '0/2 0/1 0/2 a mpi\n1/2 0/1 1/2 b mpi\n' > want
cmp -s out want || { cat out; die "the places of ranks"; }

make_training
# shellcheck disable=SC2086
{
  launch -n 2 $train --dir local > log 2>&1 || { cat log; die "2 ranks of one host"; }
  launch --hostfile two --launcher srun $train --dir launched > log 2>&1 || { cat log; die "libds launch over srun"; }
  on a timeout -k 5 60 srun --mpi=pmix -N 2 -n 2 $train --dir plain > log 2>&1 || { cat log; die "srun --mpi=pmix"; }
  on a timeout -k 5 60 srun --mpi=none -N 1 -n 2 $train --dir shared > log 2>&1 || { cat log; die "srun of one host"; }
}
one=$(hash_of local)
for run in launched plain shared; do
  [ -n "$one" ] && [ "$one" = "$(hash_of $run)" ] || die "the payload hash of '$run' differs"
done
code=0
# shellcheck disable=SC2086
on a timeout -k 5 60 srun --mpi=none -N 2 -n 2 $train --dir refused > log 2>&1 || code=$?
[ $code -ne 0 ] && grep -q 'srun started 2 ranks on 2 hosts without PMIx: add --mpi=pmix to srun' log ||
  { cat log; die "srun without PMIx over two hosts"; }
# srun prints other lines, too.
code=0
launch --hostfile two --launcher srun sh -c '[ $RANK = 0 ] || exit 7; sleep 30' 2> err || code=$?
[ $code -eq 7 ] && grep -q "^libds launch: rank 1 on host 'b' exited with code 7$" err ||
  { cat err; die "a rank that fails: code $code"; }
require_quiet "a rank that fails"
printf 'b slots=1\na slots=1\n' > unsorted
code=0
launch --hostfile unsorted --launcher srun true 2> err || code=$?
[ $code -eq 1 ] && grep -q "^libds launch: Slurm runs rank . on host '.', but the hostfile has it on '.': list hosts" err ||
  { cat err; die "hosts in another order than Slurm's: code $code"; }
require_quiet "hosts in another order than Slurm's"

# ---- the hosts of a job ----------------------------------------------------------------------------------------------

in_job() { on a timeout -k 5 60 salloc --quiet "$@"; }
printf '0/2 0/1 0/2 a mpi\n1/2 0/1 1/2 b mpi\n' > want
in_job --nodes=2 "$libds" launch --launcher srun sh -c "$place" | sort > out
cmp -s out want || { cat out; die "a job without a number of tasks has not one rank on each host"; }
printf '0/4 0/2 0/2 a mpi\n1/4 1/2 0/2 a mpi\n2/4 0/2 1/2 b mpi\n3/4 1/2 1/2 b mpi\n' > want
in_job --nodes=2 --ntasks-per-node=2 "$libds" launch --launcher srun sh -c "$place" | sort > out
cmp -s out want || { cat out; die "a job of two tasks on each host"; }
printf '0/1 0/1 0/1 b mpi\n' > want
in_job --nodes=2 "$libds" launch --launcher srun --exclude a sh -c "$place" > out
cmp -s out want || { cat out; die "a job without its first host"; }
require_quiet "the hosts of a job"

# ---- restarts --------------------------------------------------------------------------------------------------------

awk '/^```/ { shown = 0 } shown; /`train.sbatch`:$/ { next_one = 1 } next_one && /^```sh$/ { shown = 1; next_one = 0 }' \
  "$source/docs/guides/hosts.md" > train.sbatch
grep -q 'launcher srun' train.sbatch || die "docs/guides/hosts.md has no train.sbatch"
sed -i 's/"steps": 6/"steps": 120, "save_every": 20/; s/^{/{"data": {"paths": "text"}, /' config.json
launch -n 4 "$libds" train --config config.json --dir local4 --quiet > log 2>&1 || { cat log; die "4 ranks of one host"; }
job=$(on a env PATH="$build/bin:$PATH" sbatch --parsable --output=batch.out train.sbatch)
saved() { [ -e "slurm_run/checkpoints/step-$1-$2/manifest.json" ]; }
wait_for "a checkpoint of a job" saved 00000020 1
on b pkill -KILL -f '^libds train'
wait_for "the restart of a job" grep -q "^libds launch: rank [23] on host 'b' was killed by signal 9; restart 1 of 5 on 4 ranks in 1 s$" batch.out
wait_for "a checkpoint after the restart" sh -c 'ls slurm_run/checkpoints | grep -v "step-00000020-1"'
# A fast machine would finish all steps before Slurm has taken the host away.
on b pkill -STOP -f '^libds train'
on a scontrol update nodename=b state=down reason=test
wait_for "the requeue of a job" grep -q "ranks are left, 4 are needed (--min-ranks); Slurm starts job $job again when it has hosts for it" batch.out
on b pkill -CONT -f '^libds train' || true
[ "$(cat ".libds-restarts-$job")" = "1 0" ] || die "the restart before the requeue is not noted"
# This fails if the host has already registered again.
on a scontrol update nodename=b state=resume 2> err || true
# Slurm delays a requeued job for two minutes from the time of the requeue, so `ended` repeatedly sets its start time. A start
# fails while the hosts still remember that the job was revoked (cred_expire), hence the wait. squeue does not list a job while
# it is being requeued, so `ended` asks scontrol.
sleep 6
ended() {
  on a scontrol show job "$job" > shown
  grep -q "JobState=COMPLETED" shown && return 0
  ! grep -q "JobState=PENDING" shown || on a scontrol update jobid="$job" starttime=now 2> err || true
  return 1
}
wait_for "the end of the job" ended
grep -q 'step 120/120' batch.out || { cat batch.out; die "the job has not made its steps"; }
[ ! -e ".libds-restarts-$job" ] || die "the note of a job that has ended is there"
[ "$(hash_of local4)" = "$(hash_of slurm_run)" ] || die "the payload hash of a job that was started again differs"
require_quiet "a job that was started again"
echo "slurm: 2 hosts"
