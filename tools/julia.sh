#!/bin/bash
# Unpacks Debian 11's Julia 1.5.3 into a folder of its own and leaves the system as it is: bookworm has none.
#   tools/julia.sh FOLDER      then FOLDER/usr/bin/julia runs
#
# apt chooses the packages beside what is installed, from lists of its own; nothing is installed. Julia comes with
# the libunwind of its release: beside bookworm's a failed dlopen ends in a segmentation fault. Some of its links name
# libraries that lie elsewhere here, and run paths lead to the rest. That libunwind has functions of the names of
# libgcc's unwinder, with which C++ libraries throw, and Julia's executable would find them first: with them an exception
# inside such a library ends the process. So the executable needs libgcc, before all others.
set -euo pipefail
mirror=$(sh "$(dirname "$0")/mirror.sh")
folder=$(mkdir -p "$1" && cd "$1" && pwd)
own=$folder/apt machine=$(uname -m)-linux-gnu keys=/usr/share/keyrings/debian-archive-keyring.gpg
mkdir -p "$own"/state/lists/partial "$own"/cache/archives/partial "$folder/packages"
for suite in bookworm bullseye; do echo "deb [signed-by=$keys] $mirror $suite main"; done > "$own/sources.list"
printf 'Package: *\nPin: release n=bullseye\nPin-Priority: 100\n' > "$own/preferences"
cat > "$own/apt.conf" << END
Dir::State "$own/state"; Dir::State::status "/var/lib/dpkg/status"; Dir::Cache "$own/cache";
Dir::Etc::sourcelist "$own/sources.list"; Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "$own/preferences"; Dir::Etc::preferencesparts "/dev/null";
APT::Install-Recommends "false"; APT::Sandbox::User "root";
END
export APT_CONFIG=$own/apt.conf
apt-get -qq update
packages=$(apt-get -s install julia=1.5.3+dfsg-3 | awk '/^Inst/ {print $2}')
# shellcheck disable=SC2086
(cd "$folder/packages" && apt-get -qq download $packages libunwind8/bullseye)
for package in "$folder"/packages/*.deb; do dpkg -x "$package" "$folder"; done
find "$folder/usr/lib/$machine/julia" -xtype l | while read -r link; do
  ln -sf "/usr/lib/$machine/$(basename "$(readlink "$link")")" "$link"
done
patchelf --set-rpath '$ORIGIN' "$folder/usr/lib/$machine/libLLVM-9.so.1"
patchelf --force-rpath --set-rpath "\$ORIGIN/../lib/$machine:\$ORIGIN/../lib/$machine/julia" "$folder/usr/bin/julia"
patchelf --add-needed libgcc_s.so.1 "$folder/usr/bin/julia"
rm -rf "$own" "$folder/packages"
"$folder/usr/bin/julia" --version
