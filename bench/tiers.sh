#!/bin/sh
# Tokens/s of the main job's model with states in memory and on files (O_DIRECT), in turn, and their ratio.
#   bench_tiers [ROUNDS] [SUB_GROUP_SIZE]
set -e
rounds=${1:-5}
group=${2:-1000000}
for round in $(seq "$rounds"); do
  for tier in device nvme; do
    build/bin/bench_train_small 20 "$tier" 3 "$group"
  done
done | awk '{
  print
  for (i = 1; i <= NF; ++i) {
    if ($i ~ /^tier=/) { tier = $i; gsub(/tier=|:/, "", tier) }
    if ($i == "best") best = $(i + 1)
    if ($i == "median") median = $(i + 1)
  }
  if (best > top[tier]) top[tier] = best
  if (median > middle[tier]) middle[tier] = median
} END {
  printf "nvme / device: best %.2f (%d / %d tok/s), best median %.2f (%d / %d tok/s)\n", top["nvme"] / top["device"],
         top["nvme"], top["device"], middle["nvme"] / middle["device"], middle["nvme"], middle["device"]
}'
