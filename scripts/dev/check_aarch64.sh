#!/usr/bin/env bash
# Compiles and links everything for aarch64 on x86-64 Debian or Ubuntu. Runs the unit tests of all packages except the
# worker, and a training of two iterations, with qemu-user.
#
#   scripts/dev/check_aarch64.sh [check]     check: only compiles and lints
#
# Unpacks Debian's libraries and libtorch's wheels for aarch64 in target/aarch64 (0.6 GB download, 10 GB on disk). Needs
# root to install missing packages and to register qemu as the kernel's interpreter for aarch64 programs.
set -euo pipefail

# shellcheck source=scripts/dev/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"

readonly FOLDER=${CARGO_TARGET_DIR:-$root/target}/aarch64
readonly SYSROOT=$FOLDER/sysroot WHEELS=$FOLDER/wheels TRIPLE=aarch64-linux-gnu
readonly LIBRARIES=$SYSROOT/usr/lib/$TRIPLE
readonly KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
readonly TARGET=aarch64-unknown-linux-gnu

missing_packages() {
    command -v $TRIPLE-g++ >/dev/null || echo g++-$TRIPLE
    command -v qemu-aarch64-static >/dev/null || echo qemu-user-static
    [[ -e $KEYRING ]] || echo debian-archive-keyring
}

# Unpacks Debian 12's Open MPI packages for arm64 and all their dependencies. Does not change this system's apt.
make_sysroot() {
    local apt=$FOLDER/apt package
    rm -rf "$apt" "$SYSROOT"
    mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$SYSROOT"
    : >"$apt/status"
    echo "deb [signed-by=$KEYRING] http://deb.debian.org/debian bookworm main" >"$apt/sources.list"
    cat >"$apt/apt.conf" <<SETTINGS
APT::Architecture "arm64";
APT::Architectures "arm64";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::Cache::archives "$apt/archives";
SETTINGS
    APT_CONFIG=$apt/apt.conf apt-get update --quiet
    APT_CONFIG=$apt/apt.conf apt-get install --quiet --yes --download-only --no-install-recommends libopenmpi-dev openmpi-bin
    for package in "$apt"/archives/*.deb; do dpkg --extract "$package" "$SYSROOT"; done
    cp -a "$SYSROOT/lib/." "$SYSROOT/usr/lib/"
    rm -rf "$apt" "${SYSROOT:?}/lib"
    ln -s usr/lib "$SYSROOT/lib"
}

# Unpacks the wheels that setup.sh would install on an aarch64 machine without a GPU.
make_wheels() {
    local wheels downloaded
    # shellcheck disable=SC1090 # TORCH and CPU_WHEELS from setup.sh
    source <(sed -n '/^readonly \(TORCH\|CPU_WHEELS\)=/p' scripts/setup.sh)
    downloaded=$(mktemp -d)
    wheels=$WHEELS.new
    rm -rf "$wheels"
    mkdir -p "$wheels"
    .libtorch/venv/bin/python -m pip download --quiet --no-deps --only-binary :all: --python-version 3.11 \
        --platform manylinux_2_28_aarch64 --platform manylinux_2_25_aarch64 --platform manylinux2014_aarch64 \
        --dest "$downloaded" "${CPU_WHEELS[@]}"
    for wheel in "$downloaded"/*.whl; do python3 -m zipfile --extract "$wheel" "$wheels"; done
    rm -rf "$downloaded" "$wheels"/torch/lib/libtorch_cuda*.so
    mv "$wheels" "$WHEELS"
}

# Writes cargo's settings, and a replacement for the sysroot's mpicc, which is an aarch64 program.
configure() {
    cat >"$FOLDER/mpicc" <<SCRIPT
#!/bin/sh
flags="-I$LIBRARIES/openmpi/include -I$LIBRARIES/openmpi/include/openmpi -L$LIBRARIES/openmpi/lib"
if [ "\$1" = -show ]; then echo "$TRIPLE-gcc \$flags -lmpi"; else exec $TRIPLE-gcc \$flags "\$@"; fi
SCRIPT
    chmod +x "$FOLDER/mpicc"
    cat >"$FOLDER/cargo.toml" <<SETTINGS
[env]
LIBTORCH = { value = "$WHEELS/torch", force = true }
MPICC = "$FOLDER/mpicc"
QEMU_LD_PREFIX = "$SYSROOT"
[target.$TARGET]
linker = "$TRIPLE-gcc"
rustflags = ["-C", "link-arg=-Wl,-rpath-link,$LIBRARIES"]
SETTINGS
}

# Registers qemu for aarch64 programs until the next boot, because the tests start programs that they have built.
register_qemu() {
    local registered=/proc/sys/fs/binfmt_misc
    [[ ! -e $registered/qemu-aarch64 ]] || return 0
    ((EUID == 0)) || fail "only root can register qemu-aarch64-static with the kernel"
    [[ -e $registered/register ]] || mount -t binfmt_misc binfmt_misc "$registered"
    # Matches the ELF header of a 64-bit little-endian program or library for machine 183 (aarch64). F: opens qemu now.
    printf '%s' ':qemu-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:' \
        '\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:' \
        "$(command -v qemu-aarch64-static):F" >"$registered/register"
}

for_aarch64() { cargo "$1" --config "$FOLDER/cargo.toml" --target "$TARGET" "${@:2}"; }

case ${1:-} in
    '' | check) ;;
    -h | --help) usage 0 ;;
    *) usage 2 >&2 ;;
esac
((EUID != 0)) || install_packages missing_packages
[[ -z $(missing_packages) ]] ||
    fail "packages are missing. Run as root: apt-get install --no-install-recommends $(missing_packages | xargs)"
scripts/setup.sh
rustup target add $TARGET
mkdir -p "$FOLDER"
[[ -e $SYSROOT/lib/ld-linux-aarch64.so.1 ]] || make_sysroot
[[ -d $WHEELS ]] || make_wheels
configure

say "compiling everything for aarch64"
for_aarch64 clippy --workspace --all-targets -- --deny warnings
[[ ${1:-} != check ]] || exit 0

register_qemu
say "linking everything"
for_aarch64 build --workspace --bins --tests
worker=$FOLDER/../$TARGET/debug/ringmark-worker
# GNU ld links it here. On machines without a GPU, libraries of CUDA are missing.
if "$TRIPLE-readelf" --dynamic "$worker" | grep -E 'NEEDED.*(libtorch\.so|cuda|nccl)'; then
    fail "the worker needs libraries of CUDA: check the order of libraries in src/worker/build.rs"
fi
say "running the unit tests of all packages except the worker"
# qemu replaces the contents of /proc/self/maps, but not those of /proc/self/mem.
for_aarch64 test --workspace --exclude ringmark-worker --lib -- --skip disk_error_is_reported_with_its_byte
say "training with the worker"
# Open MPI expects its files at the prefix of its build. Its daemon cannot be started here.
QEMU_LD_PREFIX=$SYSROOT OPAL_PREFIX=$SYSROOT/usr OMPI_MCA_ess_singleton_isolated=1 \
    "$worker" train --device cpu --model mxnet-lenet --batch-size 2 --iters 2 --warmup 0 --threads 1
