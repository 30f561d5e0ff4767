#!/bin/sh
# Compile one_rank.c as strict C99 with every C compiler there is, link it with the library given, run it.
set -eu
library=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for compiler in gcc-12 clang-14; do
  "$compiler" -std=c99 -Wall -Wextra -pedantic -Werror -I "$here/../../include" -o "$work/one_rank" \
    "$here/one_rank.c" "$library" -Wl,-rpath,"$(dirname "$library")"
  "$work/one_rank"
  echo "$compiler: ok"
done
