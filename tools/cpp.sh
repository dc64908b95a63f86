#!/usr/bin/env bash
# shellcheck disable=SC2034 # CPP_PROBLEM is for who sources this
# Builds the C++ peer into .build/cpp, against Arrow of the project's Python and UCX of tools/ucx.sh.
#
#   tools/cpp.sh               builds it unless it is up to date, and prints the program
#   . tools/cpp.sh; use_cpp    does the same and sets DISSOCIATED_CPP; or returns 1 and says why in CPP_PROBLEM,
#                              with CPP_BROKEN set where everything needed was there

if [ -z "${ROOT:-}" ]; then
  ROOT=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd)
fi
# shellcheck source=tools/ucx.sh
. "$ROOT/tools/ucx.sh"

has_compiler() {
  command -v g++ >/dev/null && command -v cmake >/dev/null && { command -v ninja || command -v make; } >/dev/null \
    && echo 'int main() {}' | g++ -std=c++20 -fsyntax-only -x c++ - 2>/dev/null
}

# As root a compiler is installed; others are told. The subshells keep a failure from ending who asked.
use_compiler() {
  has_compiler && return 0
  if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    (know_packages && install_packages "A C++20 compiler with CMake" g++ cmake make) || true
  fi
  has_compiler && return 0
  CPP_PROBLEM="no C++20 compiler with CMake: on Debian and Ubuntu install g++ cmake make"
  return 1
}

use_cpp() {
  local log="$BUILD/cpp.log"
  if ! use_ucx; then
    CPP_PROBLEM=$UCX_PROBLEM
    return 1
  fi
  use_compiler || return 1
  if ! (need_venv); then
    CPP_PROBLEM="Python with pyarrow is missing"
    return 1
  fi
  mkdir -p "$BUILD"
  (
    flock 9
    [ -x "$BUILD/cpp/dissociated-cpp" ] || say "Building the C++ peer ..."
    # The compiler's children must not keep the lock.
    cmake -S "$ROOT/clients/cpp" -B "$BUILD/cpp" -DPYTHON="$VENV/bin/python" -DUCX_HOME="$DISSOCIATED_UCX_HOME" 9>&- \
      && cmake --build "$BUILD/cpp" --parallel 2 9>&-
  ) 9>"$BUILD/cpp.lock" </dev/null >"$log" 2>&1 || {
    tail -n 30 "$log" >&2
    CPP_BROKEN=yes CPP_PROBLEM="the C++ peer was not built: log=.build/cpp.log"
    return 1
  }
  export DISSOCIATED_CPP="$BUILD/cpp/dissociated-cpp"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  set -euo pipefail
  use_cpp || die "$CPP_PROBLEM"
  printf '%s\n' "$DISSOCIATED_CPP"
fi
