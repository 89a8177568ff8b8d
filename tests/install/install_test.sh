#!/bin/sh
# Installs to a scratch prefix, then builds programs with the installed library, by find_package and by pkg-config, and runs
# them.
# usage: install_test.sh SOURCE_DIR BUILD
set -eu
source=$1
build=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/prefix
here=$source/tests/install

# The library of another program must stay unchanged.
mkdir -p "$prefix/lib"
printf foreign > "$prefix/lib/libdsother.so"
cmake --install "$build" --prefix "$prefix" > "$scratch/install.log"
[ "$(cat "$prefix/lib/libdsother.so")" = foreign ] || { echo "an installed library of another program was changed"; exit 1; }
doc=share/doc/libds
for file in include/ds.h include/ds_ops.h bin/libds lib/libds_text.so $doc/LICENSE $doc/README.md $doc/docs/README.md $doc/docs/guides/memory.md \
  $doc/docs/reference/config.md $doc/docs/images/plan.svg $doc/examples/finetune.json $doc/examples/quickstart.py; do
  [ -e "$prefix/$file" ] || { echo "not installed: $file"; exit 1; }
done
"$prefix/bin/libds" --help > /dev/null
# The libraries are stripped, but a debugger still finds the lines of the source.
for file in "$prefix"/lib/libds.so.0 "$prefix"/lib/libds_*.so "$prefix"/bin/libds; do
  [ -e "$file" ] || continue
  ! readelf -S "$file" | grep -q '\.debug_info' || { echo "not stripped: $file"; exit 1; }
  link=$(readelf -p .gnu_debuglink "$file" | sed -n 's/^ *\[ *0\] *//p')
  readelf -S "$(dirname "$file")/.debug/$link" 2> /dev/null | grep -q '\.debug_line' || { echo "no debug file: $file"; exit 1; }
done
if [ -d "$prefix/lib/python3/dist-packages/libds" ]; then
  (cd "$scratch" && PYTHONPATH="$prefix/lib/python3/dist-packages" /usr/bin/python3 "$source/examples/quickstart.py" > /dev/null)
fi
python3 - "$prefix/$doc" << 'END'
import pathlib, re, sys
dead = [f"{page}: {link}" for page in pathlib.Path(sys.argv[1]).rglob("*.md")
        for link in re.findall(r"\]\(([^()#: ]+)(?:#[^()]*)?\)", page.read_text()) if not (page.parent / link).exists()]
sys.exit("\n".join(["dead links in the installed documentation:", *dead]) if dead else 0)
END

mkdir "$scratch/outside"
cp "$here/consumer/CMakeLists.txt" "$here/consumer/version.c" "$scratch/outside"
# The first program of docs/start/c_program.md must be examples/quickstart.c.
awk '/^```c$/ { inside = 1; next } /^```$/ && inside { exit } inside' "$source/docs/start/c_program.md" > "$scratch/outside/quickstart.c"
cmp "$source/examples/quickstart.c" "$scratch/outside/quickstart.c" || { echo "c_program.md does not show examples/quickstart.c"; exit 1; }

cmake -S "$scratch/outside" -B "$scratch/outside/build" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" > "$scratch/cmake.log" ||
  { cat "$scratch/cmake.log"; exit 1; }
ninja -C "$scratch/outside/build" > "$scratch/ninja.log" || { cat "$scratch/ninja.log"; exit 1; }

pc=$(dirname "$(find "$prefix" -name ds.pc)")
export PKG_CONFIG_PATH="$pc"
libdir=$(pkg-config --variable=libdir ds)
for example in quickstart mlp delegate; do
  # shellcheck disable=SC2046
  cc -std=c99 -Wall -Wextra -pedantic -Werror "$prefix/$doc/examples/$example.c" $(pkg-config --cflags --libs ds) \
    "-Wl,-rpath,$libdir" -o "$scratch/example"
  "$scratch/example" > "$scratch/example.out" || { cat "$scratch/example.out"; echo "installed example $example"; exit 1; }
done
for program in version quickstart; do
  # shellcheck disable=SC2046
  cc -std=c99 -Wall -Wextra -pedantic -Werror "$scratch/outside/$program.c" $(pkg-config --cflags --libs ds) -lm \
    "-Wl,-rpath,$libdir" -o "$scratch/$program"
  (cd "$scratch" && "./$program" > "$program.pkg-config" && "./outside/build/$program" > "$program.cmake")
  cmp "$scratch/$program.pkg-config" "$scratch/$program.cmake"
done
grep -qx "$(pkg-config --modversion ds)" "$scratch/version.cmake"
