#!/usr/bin/env bash
# shellcheck disable=SC2034 # UCX_PROBLEM is for who sources this
# A private copy of UCX with its headers and tools, in .build/ucx/<version>/{lib,include,bin}. Nothing of the system is
# touched. Comes from the wheel in tools/ucx.txt, which is built for Linux on amd64 and works without CUDA.
#
#   tools/ucx.sh               puts it there unless it is, and prints the folder
#   . tools/ucx.sh; use_ucx    does the same and sets the environment; or returns 1 and says why in UCX_PROBLEM
#
# Who has a UCX of his own (built for his network cards, say) names its folder in DISSOCIATED_UCX_HOME.

if [ -z "${ROOT:-}" ]; then
  ROOT=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
fi
# shellcheck source=tools/setup.sh
. "$ROOT/tools/setup.sh"

UCX_WHEEL="$ROOT/tools/ucx.txt"

# Sets DISSOCIATED_UCX_HOME when UCX is there already. Takes a few milliseconds.
find_ucx() {
  local version
  if [ -z "${DISSOCIATED_UCX_HOME:-}" ]; then
    version=$(sed -n 's/^libucx-cu12==\([^ ]*\).*/\1/p' "$UCX_WHEEL")
    DISSOCIATED_UCX_HOME="$BUILD/ucx/$version"
    if [ ! -f "$DISSOCIATED_UCX_HOME/lib/libucp.so.0" ]; then
      UCX_MISSING=$DISSOCIATED_UCX_HOME
      unset DISSOCIATED_UCX_HOME
      UCX_PROBLEM="UCX is not installed: run tools/ucx.sh"
      return 1
    fi
  elif [ ! -f "$DISSOCIATED_UCX_HOME/lib/libucp.so.0" ]; then
    UCX_PROBLEM="no UCX in DISSOCIATED_UCX_HOME: missing=$DISSOCIATED_UCX_HOME/lib/libucp.so.0"
    return 1
  fi
  export DISSOCIATED_UCX_HOME
  # UCX would replace the handlers by which a JVM turns signals into exceptions.
  export UCX_HANDLE_ERRORS="${UCX_HANDLE_ERRORS:-none}"
}

# Finds UCX or fetches it.
use_ucx() {
  UCX_MISSING=''
  find_ucx && return 0
  [ -n "$UCX_MISSING" ] || return 1
  if [ "$(uname -sm)" != "Linux x86_64" ]; then
    UCX_PROBLEM="UCX is to be had for Linux x86_64 only, and this is $(uname -sm)"
    return 1
  fi
  mkdir -p "$BUILD/ucx"
  # The subshell holds the lock; who waited for it finds the work done.
  (
    flock 9
    [ -f "$UCX_MISSING/lib/libucp.so.0" ] || fetch_ucx "$UCX_MISSING"
  ) 9>"$BUILD/ucx/lock" || {
    UCX_PROBLEM="UCX could not be fetched: $(tail -n 1 "$BUILD/ucx/fetch.log"), log=.build/ucx/fetch.log"
    return 1
  }
  find_ucx
}

# Sets PIP to a pip: of the project's Python, of the system's, or of an environment made for this one call in $1.
find_pip() {
  local candidate
  for candidate in "$VENV/bin/python" python3; do
    if "$candidate" -m pip --version >/dev/null 2>&1; then
      PIP=("$candidate" -m pip)
      return 0
    fi
  done
  if ! find_python || ! "$PYTHON" -m venv "$1" 9>&-; then
    echo "no Python with pip or venv"
    return 1
  fi
  PIP=("$1/bin/python" -m pip)
}

# Unpacks beside the place and moves the whole there, so that half a copy is never found.
fetch_ucx() {
  local place=$1 new="$BUILD/ucx/new.$$" status=0
  say "Fetching UCX ..."
  {
    rm -rf "$BUILD"/ucx/new.* && mkdir -p "$new" && find_pip "$new/venv" \
      && "${PIP[@]}" --disable-pip-version-check install -q --root-user-action=ignore --no-deps --require-hashes \
        --only-binary :all: --target "$new/wheel" -r "$UCX_WHEEL" 9>&- \
      && arrange_ucx "$new" && mv -T "$new/wheel/libucx" "$place"
  } </dev/null >"$BUILD/ucx/fetch.log" 2>&1 || status=1
  rm -rf "$new"
  return "$status"
}

arrange_ucx() {
  local home="$1/wheel/libucx" library
  [ -f "$home/lib/libucp.so.0.0.0" ] && [ -f "$home/include/ucp/api/ucp.h" ] || return 1
  # What a wheel's libraries need lies beside the package; here it lies beside them.
  cp "$1"/wheel/libucx_cu12.libs/* "$home/lib/" || return 1
  # Static libraries are most of the bytes, and the build files name folders of another machine.
  find "$home" \( -name '*.a' -o -name '*.la' \) -delete
  rm -rf "$home"/lib/cmake "$home"/lib/pkgconfig "$home"/*.py "$home"/__pycache__
  # A wheel holds no links but three copies, and a process that found two of them would have two UCX.
  find "$home/lib" -name '*.so.0.0.0' | while read -r library; do
    ln -sf "${library##*/}" "${library%.0.0}"
    ln -sf "${library##*/}" "${library%.0.0.0}"
  done
  chmod +x "$home"/bin/*
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  set -euo pipefail
  use_ucx || die "$UCX_PROBLEM"
  printf '%s\n' "$DISSOCIATED_UCX_HOME"
fi
