#!/bin/sh
# Prepare this machine for the purposes named (build, test, lint, fuzz): Debian packages of tools/packages.txt, and
# .venv with the requirements of pyproject.toml. What is there already stays; run again, it does nothing.
set -eu
cd "$(dirname "$0")/.."

missing=""
for purpose in build "$@"; do
  for package in $(awk -v purpose="$purpose" '$1 == purpose { print $2 }' tools/packages.txt); do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
  done
done
if [ -n "$missing" ]; then
  echo "setup: installing Debian packages:$missing"
  sudo=""
  [ "$(id -u)" -eq 0 ] || sudo=sudo
  $sudo apt-get update -qq
  # shellcheck disable=SC2086
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi

if [ ! -x .venv/bin/python ]; then
  echo "setup: making .venv"
  "${PYTHON:-/usr/bin/python3}" -m venv .venv
fi
for purpose in build run "$@"; do
  stamp=.venv/requirements-$purpose.txt
  .venv/bin/python tools/requirements.py "$purpose" >"$stamp.wanted"
  if grep -q . "$stamp.wanted" && ! cmp -s "$stamp.wanted" "$stamp"; then
    echo "setup: installing into .venv for $purpose: $(tr '\n' ' ' <"$stamp.wanted")"
    .venv/bin/pip install --quiet --disable-pip-version-check -r "$stamp.wanted"
    mv "$stamp.wanted" "$stamp"
  fi
done
