#!/bin/sh
# Sets up a virtual environment in .venv with the package and the extras named by the arguments,
# and a Vulkan driver when this machine has none and one may be installed.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

say() { printf '%s\n' "$*" >&2; }

may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; }

install() {
    log=$(mktemp)
    (
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@"
    ) >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
    rm -f "$log"
}

has_vulkan() {
    [ "$(uname -s)" != Linux ] && return 0 # Metal and D3D12 come with the system
    [ -n "${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}" ] && return 0
    ldconfig -p 2>/dev/null | grep -q 'libvulkan\.so\.1' || return 1
    for file in /usr/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json /usr/local/share/vulkan/icd.d/*.json; do
        [ -e "$file" ] && return 0
    done
    return 1
}

if ! has_vulkan; then
    if may_install; then
        say "No Vulkan driver found: installing Mesa's software driver."
        install libvulkan1 mesa-vulkan-drivers
    else
        say "No Vulkan driver found, and without root and apt-get none is installed here."
        say "The WebGPU backend will be unavailable; everything else works. On Debian or Ubuntu:"
        say "    sudo apt-get install libvulkan1 mesa-vulkan-drivers"
    fi
fi

if [ ! -x .venv/bin/python ]; then
    say "Setting up .venv with the package and its dependencies."
    if ! "$python" -m venv .venv 2>/dev/null; then
        may_install || { say "python3 -m venv does not work; install python3-venv"; exit 1; }
        install python3-venv
        rm -rf .venv && "$python" -m venv .venv
    fi
fi
.venv/bin/python -m pip install -qq --disable-pip-version-check -e ".[$1]"
