# Source this file in shell tests that train a short run. $libds, $source and $PWD must be set. make_training writes text and
# config.json to the current folder and sets $train to the command of the run. hash_of FOLDER prints the payload hash of a run.
make_training() {
  mkdir text
  cp "$source"/docs/*/*.md text
  cat > config.json << 'END'
{"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true},
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "zero_optimization": {"stage": 3},
 "model": {"family": "gpt", "layers": 2, "hidden": 64, "heads": 2, "dropout": 0.1},
 "run": {"sequence": 32, "steps": 6, "threads": 1, "sample_tokens": 0, "seed": 3}}
END
  train="$libds train --config config.json --data text --quiet"
}
hash_of() { "$libds" verify --hash "$1" | cut -d' ' -f1; }
