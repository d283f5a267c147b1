#!/usr/bin/env bash
# Builds the image of the Dockerfile with --engine, or with the first of docker, podman and buildah that works.
#
#   scripts/dev/build_image.sh [--variant cu130|cu126|cpu] [--tag NAME] [--ssh-port PORT] [--engine NAME] [--check]
#
# --check runs scripts/dev/check_image.sh on the built image.
#
# buildah needs no daemon. If it cannot pull the base images, the script creates them: Debian with debootstrap, Rust from
# this machine's toolchain. Set STORAGE_DRIVER=vfs if overlay mounts are not permitted, as in some containers.
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
[[ $variant =~ ^(cu130|cu126|cpu)$ ]] || fail "--variant $variant: use cu130, cu126 or cpu"
tag=${tag:-ringmark:$variant}

works() { "$1" info >/dev/null 2>&1; }
if [[ -n $engine ]]; then
    [[ $engine =~ ^(docker|podman|buildah)$ ]] || fail "--engine $engine: use docker, podman or buildah"
    works "$engine" || fail "\`$engine info\` failed: install $engine or start its daemon"
else
    for engine in docker podman buildah none; do
        if works "$engine"; then break; fi
    done
    [[ $engine != none ]] || fail "docker, podman and buildah are not available: start one of them, or run \
apt-get install -y --no-install-recommends buildah debootstrap"
fi
# chroot isolation also works inside another container.
if [[ $engine == buildah ]]; then export BUILDAH_ISOLATION=chroot; fi

scratch=$(mktemp -d)
container=
clean_up() {
    [[ -z $container ]] || buildah rm "$container" >/dev/null || true
    rm -rf "$scratch"
}
trap clean_up EXIT

# Creates a container from image $1, runs command $3... with the path of its mounted root appended, and commits the result
# as image $2.
make_base() {
    local from=$1 name=$2
    shift 2
    container=$(buildah from "$from")
    "$@" "$(buildah mount "$container")" >"$scratch/log" 2>&1 || { tail "$scratch/log" >&2; fail "could not create $name"; }
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

# Pulls the base images of the Dockerfile, or creates them if that fails.
provide_bases() {
    local rust debian
    { read -r rust; read -r debian; } < <(sed -n 's/^FROM \([^ ]*\).*/\1/p' Dockerfile)
    if ! buildah inspect "$debian" >/dev/null 2>&1 && ! buildah pull --quiet "$debian" >/dev/null 2>&1; then
        ((EUID == 0)) || fail "cannot pull $debian, and only root can create it"
        command -v debootstrap >/dev/null || fail "cannot pull $debian. To create it, run: apt-get install -y debootstrap"
        say "creating $debian with debootstrap"
        make_base scratch "$debian" debootstrap --variant=minbase --include=ca-certificates bookworm
    fi
    if ! buildah inspect "$rust" >/dev/null 2>&1 && ! buildah pull --quiet "$rust" >/dev/null 2>&1; then
        say "creating $rust from $debian and $(rustc --version)"
        make_base "$debian" "$rust" add_rust
    fi
}

arguments=(--network host --build-arg "TORCH_VARIANT=$variant" --build-arg "SSH_PORT=$port" --tag "$tag" --file Dockerfile)
say "building $tag with $engine"
if [[ $engine == buildah ]]; then
    provide_bases
    # These mounts are available during the build and not part of the image.
    mapfile -t volumes < <(package_server_files "$scratch" | sed 's/.*/--volume=&:ro/')
    buildah bud "${volumes[@]}" "${arguments[@]}" .
else
    "$engine" build "${arguments[@]}" .
fi
say "built $tag"

if [[ $check == yes ]]; then scripts/dev/check_image.sh "$tag"; fi
