#!/bin/bash
# Unpacks Debian 11's Julia 1.5.3 into a folder of its own without changing the system, because bookworm has no Julia.
#   tools/julia.sh FOLDER      then FOLDER/usr/bin/julia runs
#
# apt chooses the packages in addition to the installed ones, from its own lists, and installs nothing. Julia comes with the libunwind of
# its release, because with bookworm's a failed dlopen ends in a segmentation fault. Some links are changed to point to libraries in other
# places, and run paths lead to the other libraries. That libunwind has functions with the names of libgcc's unwinder, by which C++
# libraries throw. If Julia's executable found them first, an exception inside such a library would end the process, so the executable gets
# libgcc as its first dependency.
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
