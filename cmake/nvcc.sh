#!/bin/sh
# Runs a compiler of the device. The output goes to LOG, and is shown if the compiler fails.
# usage: nvcc.sh LOG COMMAND...
set -eu
log=$1
shift
"$@" > "$log" 2>&1 || { cat "$log" >&2; exit 1; }
