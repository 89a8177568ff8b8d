#!/bin/sh
# Checks that bad input ends with the right exit code and exactly one line on stderr that names the error.
# usage: errors.sh LIBDS
libds=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
bad=0

# refused CODE TEXT ARGUMENT...
refused() {
  code=$1
  text=$2
  shift 2
  "$libds" "$@" > out 2> err
  got=$?
  if [ $got -ne "$code" ] || [ "$(wc -l < err)" -ne 1 ] || ! grep -q '^libds: ' err || ! grep -q -- "$text" err; then
    echo "libds $*: exit code $got (want $code), stderr (want one line with '$text'):"
    cat err
    bad=1
  fi
}

printf '{"run": {"stepz": 3}, "train_micro_batch_size_per_gpu": 1}\n' > misspelt.json
printf '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 2}\n' > batch.json
printf '{"train_micro_batch_size_per_gpu": 1}\n' > no_model.json
printf '{"run": \n' > broken.json
: > empty.txt
: > empty.json
mkfifo pipe && mkdir odd_run && mkfifo odd_run/config.json || exit 1
printf 'a slots=1\nb\n' > bad_hosts
printf 'a slots=1\nb slots=1\n' > good_hosts

refused 2 resume train
refused 2 "'trian' is not a command; did you mean train?" trian --config x
refused 2 "'deploy' is not a command$" deploy
refused 2 "steps: must be an integer from 0 to 2147483647, got 99999999999999999999" train --config "$here/tiny.json" --steps 99999999999999999999
refused 2 "steps: must be an integer from 0 to 2147483647, got -3" train --config "$here/tiny.json" --steps -3
refused 2 "seed: must be an integer from 0 to 9223372036854775807, got -1" generate somewhere --prompt x --seed -1
refused 2 "temperature: must be a number from 0 to 1000000, got -0.5" generate somewhere --prompt x --temperature -0.5
refused 2 "n: must be an integer from 1 to 4096, got -2" launch -n -2 true
refused 2 "n: must be an integer from 1 to 2147483647, got -1" plan --config "$here/tiny.json" -n -1
refused 2 "config is required" audit
refused 2 "n: must be an integer from 1 to 512, got 513" audit --config "$here/tiny.json" -n 513
refused 2 "steps: must be an integer from 1 to 1000000, got 0" audit --config "$here/tiny.json" --steps 0
refused 2 "top: must be an integer from 0 to 1000000, got -1" audit --config "$here/tiny.json" --top -1
refused 1 "'nowhere.json': No such file" audit --config nowhere.json
refused 1 "run.stepz" audit --config misspelt.json
refused 1 "model" audit --config no_model.json -n 2
refused 2 nonsense train --config "$here/tiny.json" --nonsense
refused 2 steps train --config "$here/tiny.json" --steps x
refused 2 "a command" launch -n 2
refused 2 "a command" launch -n 2 --
refused 2 "launch: one of -n and --hostfile" launch true
refused 2 "launch: one of -n and --hostfile" launch -n 2 --hostfile hosts true
refused 2 "include: works only with --hostfile" launch -n 2 --include a true
refused 2 "launcher: must be mpirun, srun or ssh, got pdsh" launch --hostfile hosts --launcher pdsh true
refused 2 "launch: one of -n and --hostfile" launch --launcher ssh true
unset SLURM_JOB_ID
refused 2 "launcher: srun without --hostfile uses the hosts of a Slurm job (sbatch, salloc), but SLURM_JOB_ID is not set" launch --launcher srun true
refused 2 "min-ranks: works only with --restarts" launch -n 2 --min-ranks 1 true
refused 2 "min-ranks: must be at most the 2 ranks of the job, got 3" launch -n 2 --restarts 1 --min-ranks 3 true
refused 2 "min-ranks: must be at most the 2 ranks of the job, got 3" launch --hostfile good_hosts --restarts 1 --min-ranks 3 true
refused 2 "restarts: must be an integer from 0 to 1000000, got -1" launch -n 2 --restarts -1 true
refused 1 "run.resume needs run.dir, which is not given" train --config "$here/tiny.json" --data text.txt --set run.resume=name
export DS_RESTART=0
refused 2 "resume must name a run folder under libds launch --restarts, got 'r/checkpoints/step-1-1'" train --resume r/checkpoints/step-1-1
unset DS_RESTART
refused 2 "num-ranks: exclude --include and --exclude" launch --hostfile hosts --num-ranks 2 --include a true
refused 2 "master-port: must be an integer from 1 to 65535, got 0" launch -n 2 --master-port 0 true
refused 1 "hostfile 'hosts': No such file or directory" launch --hostfile hosts true
refused 1 "hostfile 'pipe': must be a regular file" launch --hostfile pipe true
refused 1 "hostfile '~/hosts': No such file or directory; only a shell replaces ~" launch --hostfile '~/hosts' true
refused 2 "log-dir: 's3://bucket/logs' cannot be created; it is an address" launch -n 1 --log-dir s3://bucket/logs true
refused 1 "unexpected end of input" train --config pipe
refused 1 "'/dev/zero': has more than 16777216 bytes" train --config /dev/zero
refused 1 "odd_run/config.json: must be a regular file, but is a pipe" train --resume odd_run
refused 1 "odd_run/config.json: must be a regular file, but is a pipe" generate odd_run --ids 1
refused 1 "hostfile 'empty.txt': must have a line 'HOST slots=N', has none" launch --hostfile empty.txt true
refused 1 "hostfile 'bad_hosts', line 2: must be 'HOST slots=N', got 'b'" launch --hostfile bad_hosts true
refused 1 "include: host 'c' is not in the hostfile" launch --hostfile good_hosts --include c true
refused 2 prompt generate somewhere
refused 2 'ids: number 1 must be an integer from 0 to 2147483647, got ""' generate somewhere --ids ""
refused 2 'ids: number 2 must be an integer from 0 to 2147483647, got ""' generate somewhere --ids 1,,2
refused 2 'ids: number 2 must be an integer from 0 to 2147483647, got "x"' generate somewhere --ids 1,x
refused 2 'ids: number 1 must be an integer from 0 to 2147483647, got "0x10"' generate somewhere --ids 0x10
# Lack of memory is an error, never a crash (127 is the exit code of the loader).
echo "one line of text, long enough for a sample or two: shards, buckets and granules" > small.txt
for kb in 56000 64000 72000 85000 100000; do
  (ulimit -v $kb && exec "$libds" train --config "$here/tiny.json" --data small.txt --dir small --steps 1) > out 2> err
  [ $? -le 127 ] || { echo "$kb KiB of address space: crash: $(cat err)"; bad=1; }
  rm -rf small
done

latin=$(printf 'caf\351')
refused 2 "dir: must be UTF-8, got 'caf.xe9'" train --config "$here/tiny.json" --dir "$latin"
refused 2 "data: must be UTF-8, got 'caf.xe9'" train --config "$here/tiny.json" --data "$latin"
refused 2 "nvme-path: must be UTF-8, got 'caf.xe9'" verify somewhere --nvme-path "$latin"
refused 1 nope.json train --config nope.json
refused 1 "'empty.json': line 1, column 1.*it is empty" train --config empty.json
refused 1 "'.': Is a directory" train --config .
# Files and folders of the wrong kind are named.
mkdir pointer adapter && printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12345\n' > pointer/config.json
cp pointer/config.json pointer.json && printf '{"peft_type": "LORA"}\n' > adapter/adapter_config.json
printf 'distributed_type: FSDP\n' > fsdp.yaml && printf '{ bf16: {enabled: true} }\n' > bare.hjson
refused 1 "pointer/config.json: is a Git LFS pointer, which stands for a file of 12.1 KiB" generate pointer --ids 1
refused 1 "'pointer.json': is a Git LFS pointer" train --config pointer.json
refused 1 "it is an adapter of PEFT" generate adapter --ids 1
refused 1 "hf download owner/model" generate owner/model --ids 1
# Every argument that is a path has the same errors. PLACE is an option, or the arguments before the path.
printf 'GGUF\003\000\000\000' > m.gguf && ln -s ../blobs/abc dangling && printf 'Entry not found' > answer
printf '{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}' > header
{ printf '\065\0\0\0\0\0\0\0'; cat header; printf x; } > weights.safetensors
everywhere() {
  what=$1
  path=$2
  for place in "generate --ids 1" "verify" "verify --hash" "train --resume" "profile --model" "config" \
    "train --config" "plan --config" "audit --config" "plan --config no_model.json --model" \
    "train --config $here/tiny.json --data" "tokenize --data $here/tiny.json --out x.tokens --tokenizer"; do
    case $path.$place in  # a damaged model is one that is read
      m.gguf.generate* | m.gguf.verify | m.gguf.*--model | m.gguf.*--tokenizer) continue ;;
    esac
    refused 1 "$what" $place "$path"
  done
  [ "$path" = m.gguf ] || refused 1 "$what" convert "$path" target
}
everywhere "a GGUF file of llama.cpp" m.gguf
damaged="m.gguf: the number of tensors needs 8 bytes at byte 8 of 8: the end of the file is missing"
for place in "generate --ids 1" "profile --model" "plan --config no_model.json --model" \
  "tokenize --data $here/tiny.json --out x.tokens --tokenizer"; do
  refused 1 "$damaged" $place m.gguf
done
refused 1 "$damaged" convert m.gguf target
refused 1 "no recorded numbers: './golden.json' does not exist" verify m.gguf
refused 1 "m.gguf' is a GGUF file, which becomes a model folder or another GGUF file .to .model. or .gguf.., got .fp32." \
  convert m.gguf target --to fp32
refused 1 "the base of adapter 'adapter' must be a model folder or a GGUF file, got ''; name it with --base or --like" \
  convert adapter target.gguf
everywhere "a safetensors file" weights.safetensors
everywhere "is an adapter of PEFT" adapter
everywhere "hf download owner/name" owner/name
everywhere "hf download owner/name" https://huggingface.co/owner/name
everywhere "symbolic link to '../blobs/abc', which does not exist" dangling
refused 1 "an answer of the hub" config answer
refused 1 "like: 'adapter' has no weights of a model; it is an adapter of PEFT" \
  convert "$here/../data/deepspeed/zero2_f32" target --to fp32 --like adapter
"$libds" config no_model.json --model owner/name > out 2> err
[ $? -eq 1 ] && grep -q "model.folder: owner/name/config.json.*hf download owner/name" out && [ ! -s err ] ||
  { echo "config does not look at the model: $(cat out err)"; bad=1; }
"$libds" config no_model.json --set model.folder=adapter > out 2> err
[ $? -eq 1 ] && grep -q "model.folder: adapter/config.json.*adapter of PEFT" out ||
  { echo "config does not look at model.folder: $(cat out err)"; bad=1; }
for text in '[1]' 3 null; do
  printf '%s' "$text" > odd.json
  refused 1 "'odd.json': must be an object" config odd.json
done
# An empty text is a value; it does not mean that the option is missing.
for line in "train --config" "train --config $here/tiny.json --data" "train --config $here/tiny.json --dir" \
  "train --config $here/tiny.json --model" "train --resume" config "config no_model.json --model" \
  "plan --config no_model.json --svg" "plan --config no_model.json --certificate" "audit --config" \
  "generate --ids 1" "generate x --ids 1 --device" verify "verify --hash" "verify x --nvme-path" "convert x" \
  "convert x y --like" "convert x y --tag" "tokenize --out" "tokenize --out x --tokenizer" "tokenize --out x --data" \
  "profile --model" "profile --config" env "launch --hostfile" "launch -n 1 --log-dir"; do
  refused 2 "must not be empty (is a variable of the shell unset?)" $line ""
done
refused 1 "'fsdp.yaml': is YAML without a section deepspeed_config" config fsdp.yaml
refused 1 "'bare.hjson': line 1, column 3.*double quotes" config bare.hjson
refused 1 "zero_optimization.stage: 5 is above 3 (it must be 0 to 3)" train --config "$here/tiny.json" --set zero_optimization.stage=5
refused 1 "run.stepz: unknown key; did you mean run.steps" plan --config "$here/tiny.json" --set run.stepz=5
refused 2 'set: must be KEY=VALUE, got "run.steps"' train --config "$here/tiny.json" --set run.steps
refused 1 "line" train --config broken.json
refused 1 run.stepz train --config misspelt.json
refused 1 train_batch_size train --config batch.json
refused 1 no/such/text train --config "$here/tiny.json" --data no/such/text
refused 1 "text" train --config "$here/tiny.json" --data empty.txt
refused 1 "data.paths" train --config "$here/tiny.json"
refused 1 "not a run folder" train --resume .
refused 1 nowhere generate nowhere --prompt x
refused 1 nowhere verify --hash nowhere
refused 2 "model folder or --hash" verify
refused 2 gpu verify nowhere --tier gpu
refused 1 "nvme_path: 'no/such' is not a folder" verify "$here/../data/models/gpt2" --tier nvme --nvme-path no/such
refused 1 "nvme_path: '~/scratch' is not a folder; only a shell replaces ~" verify "$here/../data/models/gpt2" --tier nvme --nvme-path '~/scratch'
refused 1 "is not a run folder; it is the folder of a Hugging Face model" train --resume "$here/../data/models/gpt2"
refused 1 "'s3://bucket/plan.svg' cannot be created; it is an address" plan --config "$here/tiny.json" --svg s3://bucket/plan.svg
[ ! -e no ] || { echo "verify made a folder"; bad=1; }
refused 1 nowhere/golden.json verify nowhere
refused 1 "'nowhere' is not a checkpoint of DeepSpeed or libds, nor a folder with one (DeepSpeed's has a file 'latest' that names it)" convert nowhere target
refused 2 "to: pt not in" convert nowhere target --to pt
refused 2 "TO is required" convert nowhere
cp -r "$here/../data/deepspeed/zero2_f32" cut && rm cut/global_step5/zero_pp_rank_1_mp_rank_00_optim_states.pt
refused 1 "zero_pp_rank_1_mp_rank_00_optim_states.pt' does not exist: the checkpoint was saved by 2 ranks" convert cut target
refused 1 "'cut' must be empty" convert cut cut --to universal
[ ! -e target ] || { echo "a refused conversion left target/"; bad=1; }
refused 2 "--config or --model" profile
refused 2 f64 profile --model nowhere --dtype f64
refused 1 nowhere profile --model nowhere
refused 2 "1 to" profile --model nowhere --steps 0
refused 1 "data path 'pipe' is neither a file nor a folder" train --config "$here/tiny.json" --data pipe
refused 2 "--out" tokenize --data "$here/tiny.json"
refused 1 "data.paths" tokenize --out none.tokens
refused 1 "data.format: \"xml\" is unknown" tokenize --data "$here/tiny.json" --format xml --out none.tokens
mkdir odd
echo '{}' > odd/config.json
refused 1 "odd/config.json: the member" train --resume odd

# Every rank names the mistake.
echo "a line of text about ranks" > text.txt
RANK=1 WORLD_SIZE=2 "$libds" train --config nope.json 2> err
grep -q "^libds: rank 1: 'nope.json': No such file" err || { echo "no word of rank 1: $(cat err)"; bad=1; }
"$libds" launch -n 2 sh -c '[ "$RANK" = 0 ] || exec "$0" train --config misspelt.json; exec "$0" train --config "$1" --data text.txt' \
  "$libds" "$here/tiny.json" > out 2> err
grep -q "^libds: rank 1: run.stepz: unknown key" err || { echo "no word of rank 1: $(cat err)"; bad=1; }
[ "$(grep -c "^libds: rank 0: " err)" -eq 1 ] || { echo "no word of rank 0: $(cat err)"; bad=1; }

[ ! -e runs ] || { echo "a refused run left runs/: $(ls runs)"; bad=1; }
mkdir runs
refused 1 "data.paths" train --config "$here/tiny.json"
[ -d runs ] || { echo "a refused run has removed a folder that was there"; bad=1; }
exit $bad
