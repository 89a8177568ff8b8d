#!/bin/sh
# Runs the commands of docs/guides/hosts.md on two hosts, a and b.
# usage: guide.sh BUILD SCRATCH
transport=tcp
. "$(dirname "$0")/namespaces.sh"
host a 10.77.0.1 yes
host b 10.77.0.2 yes
output=$(on a timeout 20 ssh -o BatchMode=yes b true 2>&1) || skip "this system's sshd lets root not in: $output"
on a python3 "$source/tests/readme/pages.py" "$source" "$build" "$source/docs/guides/hosts.md" ${RENEW:+--renew}
require_quiet "the guide"
