# shellcheck shell=bash
# What the launchers share: finding or installing a JDK, Maven and Python, and building what they start.
# Sourced with ROOT set to the checkout. Nothing here writes to standard output. Functions leave their results in the
# variables that their comments name.
# shellcheck disable=SC2034

# JDK 17 reads and writes file names in the encoding of the locale; where none is set, that is ASCII.
case "${LC_ALL:-${LC_CTYPE:-${LANG:-}}}" in
  *[Uu][Tt][Ff]8* | *[Uu][Tt][Ff]-8*) ;;
  *) export LC_ALL=C.UTF-8 ;;
esac

MINIMUM_JDK=17
MINIMUM_MAVEN=3.8
BUILD="$ROOT/.build"
VENV="$ROOT/.venv"

say() { printf '%s\n' "$*" >&2; }

die() {
  say "$(basename "$0"): $*"
  exit 1
}

# Runs apt-get; its output goes to a log that is shown when it fails.
apt() {
  local log="$BUILD/apt.log"
  mkdir -p "$BUILD"
  if ! DEBIAN_FRONTEND=noninteractive apt-get "$@" </dev/null >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    die "apt-get $1 failed: log=$log"
  fi
}

# A fresh machine knows no packages yet. Only root can change that, so that others see what is known.
know_packages() {
  if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    say "Reading the list of packages ..."
    apt update
  fi
}

# The apt packages $2.. give $1. As root they are installed, after a question when somebody is there to answer it.
install_packages() {
  local what=$1
  shift
  if ! command -v apt-get >/dev/null; then
    die "$what is missing: install it with this system's package manager (on Debian and Ubuntu: $*)"
  fi
  if [ "$(id -u)" -ne 0 ]; then
    die "$what is missing: run 'sudo apt-get install -y $*' and start this again"
  fi
  if [ -t 0 ] && [ -t 2 ]; then
    local answer
    read -r -p "$what is missing. Install $* with apt-get? [Y/n] " answer || answer=n
    case "$answer" in
      '' | [yY] | [yY][eE][sS]) ;;
      *) die "$what is missing: run 'apt-get install -y $*' and start this again" ;;
    esac
  fi
  say "Installing $* ..."
  apt install -y --no-install-recommends "$@"
}

# Sets JDK_VERSION and JDK_MAJOR when $1 is the home of a JDK (with a compiler) that is new enough.
try_jdk() {
  local home=$1 version='' key value
  [ -x "$home/bin/javac" ] || return 1
  if [ -r "$home/release" ]; then
    while IFS='=' read -r key value; do
      if [ "$key" = JAVA_VERSION ]; then
        version=${value//\"/}
        break
      fi
    done <"$home/release"
  fi
  if [ -z "$version" ]; then
    version=$("$home/bin/javac" -version 2>&1)
    version=${version#javac }
  fi
  JDK_VERSION=$version
  JDK_MAJOR=${version%%[.+-]*}
  [[ "$JDK_MAJOR" =~ ^[0-9]+$ ]] && [ "$JDK_MAJOR" -ge "$MINIMUM_JDK" ]
}

# Looks at JAVA_HOME, then PATH, then the usual folder; sets JAVA_HOME.
find_jdk() {
  local candidate on_path
  if [ -n "${JAVA_HOME:-}" ] && try_jdk "$JAVA_HOME"; then
    return 0
  fi
  if on_path=$(command -v javac) && on_path=$(readlink -f "$on_path") && try_jdk "${on_path%/bin/javac}"; then
    export JAVA_HOME="${on_path%/bin/javac}"
    return 0
  fi
  for candidate in /usr/lib/jvm/*; do
    if try_jdk "$candidate"; then
      export JAVA_HOME="$candidate"
      return 0
    fi
  done
  return 1
}

need_jdk() {
  find_jdk && return 0
  local package="openjdk-$MINIMUM_JDK-jdk-headless"
  know_packages
  # Newer distributions drop old JDKs; their default one is newer than what is needed.
  if command -v apt-cache >/dev/null && apt-cache show default-jdk-headless >/dev/null 2>&1 \
    && ! apt-cache show "$package" >/dev/null 2>&1; then
    package=default-jdk-headless
  fi
  install_packages "A JDK $MINIMUM_JDK or newer" "$package"
  find_jdk || die "no JDK $MINIMUM_JDK or newer: $package is installed but no javac of that version was found"
}

# The system's Maven when it is new enough, otherwise the wrapper, which downloads one.
need_maven() {
  local version
  if command -v mvn >/dev/null; then
    version=$(mvn --version 2>/dev/null | grep -oE -m1 'Apache Maven [0-9]+\.[0-9]+' | grep -oE '[0-9.]+$' || true)
    if [ -n "$version" ] && [ "$(printf '%s\n' "$MINIMUM_MAVEN" "$version" | sort -V | head -n 1)" = "$MINIMUM_MAVEN" ]; then
      MAVEN=mvn
      return 0
    fi
  fi
  MAVEN="$ROOT/mvnw"
}

python_suffices() {
  "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' >/dev/null 2>&1
}

# Sets PYTHON to an interpreter that can make a virtual environment.
find_python() {
  local candidate
  for candidate in python3 /usr/bin/python3; do
    if command -v "$candidate" >/dev/null && python_suffices "$candidate"; then
      PYTHON=$candidate
      return 0
    fi
  done
  return 1
}

need_python() {
  find_python && return 0
  know_packages
  install_packages "Python 3.9 or newer with venv" python3 python3-venv
  find_python || die "no Python 3.9 or newer with venv: the packages are installed but python3 cannot make one"
}

# A hash of the content of the given files and of the text on standard input.
content_hash() { { cat; printf '%s\0' "$@"; cat -- "$@"; } | sha256sum | cut -c1-16; }

# The private environment with the Python package (editable) and what its tests need.
need_venv() {
  local stamp="$VENV/.stamp" wanted client="$ROOT/clients/python"
  local inputs=("$ROOT/tools/requirements.txt")
  [ ! -f "$client/pyproject.toml" ] || inputs+=("$client/pyproject.toml")
  if [ -x "$VENV/bin/python" ] && [ -f "$stamp" ]; then
    wanted=$(printf '%s' "$("$VENV/bin/python" --version 2>&1) $ROOT" | content_hash "${inputs[@]}")
    [ "$(cat "$stamp")" != "$wanted" ] || return 0
  fi
  need_python
  say "Setting up Python in .venv ..."
  mkdir -p "$BUILD"
  local log="$BUILD/venv.log" packages=(-r "$ROOT/tools/requirements.txt")
  [ ! -f "$client/pyproject.toml" ] || packages+=(-e "${client}[test,cuda]")
  if ! {
    "$PYTHON" -m venv --clear "$VENV" \
      && "$VENV/bin/python" -m pip --disable-pip-version-check install "${packages[@]}"
  } </dev/null >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    die "the Python environment could not be made: log=$log"
  fi
  printf '%s' "$("$VENV/bin/python" --version 2>&1) $ROOT" | content_hash "${inputs[@]}" >"$stamp"
}

# The text of a property of the root pom; the last one that is not empty.
pom_property() { sed -n "s:.*<$1>\(.\+\)</$1>.*:\1:p" "$ROOT/pom.xml" | tail -n 1; }

# Everything that the command line program is made of.
cli_sources() {
  find "$ROOT/pom.xml" "$ROOT/tools/setup.sh" "$ROOT/tools/train-cli" "$ROOT"/*/pom.xml "$ROOT"/*/src/main "$@"
}

# Builds the command line program into .build/cli/<hash> unless that is there; sets CLI to the folder.
# Unchanged sources are told by their times alone, which costs a few milliseconds.
need_cli() {
  local current="$BUILD/cli/current" hash newer
  [ -f "$ROOT/cli/pom.xml" ] || die "the command line program is not part of this checkout: cli/ is missing"
  mkdir -p "$BUILD/cli"
  if [ -f "$current" ]; then
    newer=$(cli_sources -newer "$current" -print -quit)
    CLI="$BUILD/cli/$(<"$current")"
    [ -n "$newer" ] || [ ! -f "$CLI/lib.ready" ] || return 0
  fi
  exec 9>"$BUILD/cli/lock"
  flock 9
  : >"$BUILD/cli/started"
  hash=$(cli_sources -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16)
  CLI="$BUILD/cli/$hash"
  [ -f "$CLI/lib.ready" ] || build_cli
  # Programs that run from an older folder load classes from it as long as they run, so it stays for a week.
  find "$BUILD/cli" -mindepth 1 -maxdepth 1 -type d -mtime +6 ! -name "$hash" -exec rm -rf {} +
  printf '%s' "$hash" >"$current"
  # A source edited during the build counts as newer.
  touch -r "$BUILD/cli/started" "$current"
  exec 9>&-
}

build_cli() {
  local log="$BUILD/cli/build.log" jar
  need_maven
  say "Building the command line program (once; a first build downloads its libraries) ..."
  rm -rf "$CLI"
  mkdir -p "$CLI/lib"
  if ! (cd "$ROOT" && "$MAVEN" -B -q -Dstyle.color=never -pl cli -am -DskipTests package \
    dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$CLI/lib") </dev/null >"$log" 2>&1; then
    tail -n 40 "$log" >&2
    die "the build failed: log=$log"
  fi
  for jar in "$ROOT"/cli/target/cli-*.jar; do
    case "$jar" in
      *-tests.jar | *-sources.jar | *-javadoc.jar) ;;
      *) cp "$jar" "$CLI/lib/" ;;
    esac
  done
  printf '%s' "$(pom_property jvm.flags)" >"$CLI/flags"
  printf '%s' "$(pom_property jvm.flags.jdk)" >"$CLI/flags.jdk24"
  : >"$CLI/lib.ready"
}

# Sets JAVA_COMMAND to what starts the program with exactly the flags of the root pom.
cli_command() {
  local flags jar classpath=''
  flags=$(<"$CLI/flags")
  # shellcheck disable=SC2016 # the text of the pom, not a variable
  flags=${flags//'${jvm.flags.jdk}'/}
  if [ "$JDK_MAJOR" -ge 24 ]; then
    flags+=" $(<"$CLI/flags.jdk24")"
  fi
  for jar in "$CLI"/lib/*.jar; do
    classpath+="${classpath:+:}$jar"
  done
  # A JVM writes its own warnings to standard output unless told otherwise.
  # shellcheck disable=SC2206 # the flags of the pom are words
  JAVA_COMMAND=("$JAVA_HOME/bin/java" $flags -Xlog:disable -Xlog:all=error:stderr)
  ARCHIVE="$CLI/classes-$JDK_VERSION${JAVA_HOME//\//_}.jsa"
  CLASSPATH_ARGUMENTS=(-cp "$classpath" dev.dissociated.cli.Main)
}
