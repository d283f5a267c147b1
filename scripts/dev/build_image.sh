#!/usr/bin/env bash
# Builds the image of the Dockerfile with docker, podman or buildah: the first that works, or --engine.
#
#   scripts/dev/build_image.sh [--variant cu130|cu126|cpu] [--tag NAME] [--ssh-port PORT] [--engine NAME] [--check]
#
# --check runs scripts/dev/check_image.sh on the finished image.
#
# buildah needs no daemon. If it cannot pull the base images, it creates them: Debian with debootstrap, Rust from the
# toolchain of this machine. Set STORAGE_DRIVER=vfs if overlays are forbidden, as in some containers.
set -euo pipefail

# shellcheck source=scripts/dev/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"

variant=cu130 tag='' port=2222 engine='' check=no
while (($#)); do
    case $1 in
        --variant) variant=${2:?--variant needs cu130, cu126 or cpu}; shift 2 ;;
        --tag) tag=${2:?--tag needs a name}; shift 2 ;;
        --ssh-port) port=${2:?--ssh-port needs a number}; shift 2 ;;
        --engine) engine=${2:?--engine needs docker, podman or buildah}; shift 2 ;;
        --check) check=yes; shift ;;
        --help | -h) usage 0 ;;
        *) fail "unknown option $1. Options: --variant cu130|cu126|cpu, --tag NAME, --ssh-port PORT, \
--engine docker|podman|buildah, --check" ;;
    esac
done
[[ $variant =~ ^(cu130|cu126|cpu)$ ]] || fail "--variant $variant: it can be cu130, cu126 or cpu"
tag=${tag:-ringmark:$variant}

answers() { "$1" info >/dev/null 2>&1; }
if [[ -n $engine ]]; then
    [[ $engine =~ ^(docker|podman|buildah)$ ]] || fail "--engine $engine: it can be docker, podman or buildah"
    answers "$engine" || fail "$engine does not answer: does \`$engine info\` work?"
else
    for engine in docker podman buildah none; do
        if answers "$engine"; then break; fi
    done
    [[ $engine != none ]] || fail "neither docker, podman nor buildah answers: start one of them, or: \
apt-get install -y --no-install-recommends buildah debootstrap"
fi
# Options that work without a daemon, also inside another container.
if [[ $engine == buildah ]]; then export BUILDAH_ISOLATION=chroot; fi

scratch=$(mktemp -d)
container=
clean_up() {
    [[ -z $container ]] || buildah rm "$container" >/dev/null || true
    rm -rf "$scratch"
}
trap clean_up EXIT

# Runs the other arguments as a command on the mounted file tree of a new container from $1, and commits it as image $2.
make_base() {
    local from=$1 name=$2
    shift 2
    container=$(buildah from "$from")
    "$@" "$(buildah mount "$container")" >"$scratch/log" 2>&1 || { tail "$scratch/log" >&2; fail "could not make $name"; }
    buildah umount "$container" >/dev/null
    buildah commit --quiet --rm "$container" "$name" >/dev/null
    container=
}

add_rust() {
    local toolchain
    toolchain=$(rustc --print sysroot)
    mkdir -p "$1/usr/local/rust"
    cp -r "$toolchain/bin" "$toolchain/lib" "$1/usr/local/rust/"
    buildah config --env CARGO_HOME=/usr/local/cargo \
        --env PATH=/usr/local/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
}

# Base images of the Dockerfile, created here if they cannot be pulled.
provide_bases() {
    local rust debian
    { read -r rust; read -r debian; } < <(sed -n 's/^FROM \([^ ]*\).*/\1/p' Dockerfile)
    if ! buildah inspect "$debian" >/dev/null 2>&1 && ! buildah pull --quiet "$debian" >/dev/null 2>&1; then
        ((EUID == 0)) || fail "$debian cannot be pulled, and only root can make it"
        command -v debootstrap >/dev/null || fail "$debian cannot be pulled; to make it: apt-get install -y debootstrap"
        say "making $debian by debootstrap"
        make_base scratch "$debian" debootstrap --variant=minbase --include=ca-certificates bookworm
    fi
    if ! buildah inspect "$rust" >/dev/null 2>&1 && ! buildah pull --quiet "$rust" >/dev/null 2>&1; then
        say "making $rust from $debian and $(rustc --version)"
        make_base "$debian" "$rust" add_rust
    fi
}

words=(--network host --build-arg "TORCH_VARIANT=$variant" --build-arg "SSH_PORT=$port" --tag "$tag" --file Dockerfile)
say "building $tag with $engine"
if [[ $engine == buildah ]]; then
    provide_bases
    # Available to the build, not part of the image.
    mapfile -t settings < <(lent_settings "$scratch" | sed 's/.*/--volume=&:ro/')
    buildah bud "${settings[@]}" "${words[@]}" .
else
    "$engine" build "${words[@]}" .
fi
say "built $tag"

if [[ $check == yes ]]; then scripts/dev/check_image.sh "$tag"; fi
