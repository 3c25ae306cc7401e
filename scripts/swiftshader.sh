#!/bin/sh
# Prints the path to put into VK_DRIVER_FILES for SwiftShader, a Vulkan driver on the CPU that Dawn accepts.
# It is taken out of Debian's chromium-common into .swiftshader/ at the first call; nothing is installed.
set -eu
cd "$(dirname "$0")/.."
folder=$PWD/.swiftshader

if [ ! -e "$folder/vk_swiftshader_icd.json" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    fetch() { apt-get download -qq -o APT::Sandbox::User=root chromium-common; }
    cd "$work"
    # Without package lists, or with old ones, the first try fails; bringing them up to date needs root.
    { fetch || { apt-get update -qq && fetch; }; } >log 2>&1 || { cat log >&2; exit 1; }
    dpkg-deb --fsys-tarfile chromium-common_*.deb | tar -x --wildcards '*vk_swiftshader*'
    mkdir -p "$folder"
    for name in libvk_swiftshader.so vk_swiftshader_icd.json; do # the marker of success last
        mv "usr/lib/chromium/$name" "$folder/$name"
    done
fi
printf '%s\n' "$folder/vk_swiftshader_icd.json"
