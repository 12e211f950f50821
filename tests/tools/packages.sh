# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034
# Debian packages, for ./demo and ./test to source.

BUILD_PACKAGES=(gcc g++ cmake make ninja-build pkg-config
    libev-dev libssl-dev zlib1g-dev liblz4-dev)

APT_INSTALL="apt-get install -y --no-install-recommends"

# missing_packages PACKAGE...: those that are not installed, one a line. On what is no Debian: none.
missing_packages() {
    command -v dpkg-query >/dev/null || return 0
    local package
    for package in "$@"; do
        case $(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null) in
            ii*) ;;
            *) printf '%s\n' "$package" ;;
        esac
    done
}

may_install() { [ "$(id -u)" -eq 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }; }

# The one line that installs PACKAGE..., for whoever we are.
install_line() {
    if [ "$(id -u)" -eq 0 ]; then
        printf 'apt-get update && %s %s\n' "$APT_INSTALL" "$*"
    elif command -v sudo >/dev/null; then
        printf 'sudo apt-get update && sudo %s %s\n' "$APT_INSTALL" "$*"
    else
        printf "su -c 'apt-get update && %s %s'\n" "$APT_INSTALL" "$*"
    fi
}

# need_packages PACKAGE...: install what is missing where we may; otherwise print the one line that does
# it and return 1. Says nothing, and needs no network, when all is there. Everything goes to stderr.
need_packages() {
    local missing=() sudo=()
    mapfile -t missing < <(missing_packages "$@")
    [ ${#missing[@]} -eq 0 ] && return 0
    if ! may_install; then
        printf 'Missing packages. Install them with:\n\n    %s\n\n' "$(install_line "${missing[@]}")" >&2
        return 1
    fi
    [ "$(id -u)" -eq 0 ] || sudo=(sudo -n)
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
    printf '\napt-get could not install them. By hand:\n\n    %s\n\n' "$(install_line "${missing[@]}")" >&2
    return 1
}

# need_tools: what builds is on the PATH (packages may be there without it, and not every system has packages
# that we know); otherwise say what is missing and what would install it, and return 1.
need_tools() {
    local missing=() tool
    for tool in cmake pkg-config "${CC:-cc}" "${CXX:-c++}"; do
        command -v "${tool%% *}" >/dev/null || missing+=("$tool")
    done
    command -v ninja >/dev/null || command -v make >/dev/null || missing+=("ninja or make")
    [ ${#missing[@]} -eq 0 ] && return 0
    local list
    list=$(printf ', %s' "${missing[@]}")
    printf 'Not found: %s. On Debian this installs all that the build needs:\n\n    %s\n\n' \
        "${list#, }" "$(install_line "${BUILD_PACKAGES[@]}")" >&2
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
