# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Debian packages, for ./demo and ./test to source.

BUILD_PACKAGES=(gcc g++ cmake make ninja-build pkg-config
    libev-dev libssl-dev zlib1g-dev liblz4-dev)

# need_packages PACKAGE...: install what is missing where we may; otherwise print the one line that does
# it and return 1. Says nothing, and needs no network, when all is there. Everything goes to stderr.
need_packages() {
    command -v dpkg-query >/dev/null || return 0 # not a Debian: cmake will say what it misses
    local missing=() package sudo=()
    for package in "$@"; do
        case $(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null) in
            ii*) ;;
            *) missing+=("$package") ;;
        esac
    done
    [ ${#missing[@]} -eq 0 ] && return 0
    if [ "$(id -u)" -ne 0 ]; then
        if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
            sudo=(sudo -n)
        else
            printf 'Missing packages. Install them with:\n\n    sudo apt-get install -y %s\n\n' "${missing[*]}" >&2
            return 1
        fi
    fi
    printf 'installing %s\n' "${missing[*]}" >&2
    local apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
    local log
    log=$(mktemp)
    if "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >"$log" 2>&1 </dev/null ||
        { "${apt[@]}" update >"$log" 2>&1 </dev/null &&
            "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1 </dev/null; }; then
        rm -f "$log"
        return 0
    fi
    tail -n 15 "$log" >&2
    rm -f "$log"
    printf '\napt-get could not install them. By hand:\n\n    apt-get update && apt-get install -y %s\n\n' "${missing[*]}" >&2
    return 1
}

# configure PRESET [CMAKE_ARGUMENT...]: build/PRESET, with ninja where there is one.
configure() {
    local preset=$1 generator=()
    shift
    # A tree that was moved or copied with its build folder starts it anew.
    if [ -f "build/$preset/CMakeCache.txt" ] &&
        ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "build/$preset/CMakeCache.txt"; then
        rm -rf "build/$preset"
    fi
    if [ ! -f "build/$preset/CMakeCache.txt" ] && command -v ninja >/dev/null; then
        generator=(-G Ninja)
    fi
    cmake --preset "$preset" "${generator[@]}" "$@"
}

JOBS=${CQLRING_JOBS:-$(nproc)}
