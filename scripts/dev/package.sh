#!/usr/bin/env bash
# Builds the release files in target/release/package: a Debian package, whose `ringmark-setup` installs libtorch, and a
# tarball that includes libtorch's libraries, has the layout of `ringmark sweep --sync` and needs only Open MPI.
#
#   scripts/dev/package.sh                     builds both, a list of dependencies (SBOM, CycloneDX) and SHA256SUMS
#   scripts/dev/package.sh check [RELEASE...]  runs the package and the tarball, each in a clean system that debootstrap
#                                              creates, and times them; default: Debian's bookworm (Open MPI 4) and
#                                              trixie (Open MPI 5); noble is Ubuntu 24.04. Needs root and 5 GB in TMPDIR
#   scripts/dev/package.sh reproduce           builds the commit again in another folder and compares every file; needs
#                                              5 GB in TMPDIR
set -euo pipefail

# shellcheck source=scripts/dev/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"

readonly RELEASE=${CARGO_TARGET_DIR:-$root/target}/release
readonly OUT=$RELEASE/package TREE=$RELEASE/package/tree
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
architecture=$(dpkg --print-architecture)
readonly PACKAGE=$OUT/ringmark_${version}-1_$architecture.deb

# --- build ---------------------------------------------------------------------------------------------------------

missing_packages() {
    command -v patchelf >/dev/null || echo patchelf
    command -v rsync >/dev/null || echo rsync
}

# Prints cuda if NVIDIA's libraries are installed, which libtorch's CUDA part requires; otherwise cpu.
kind() {
    if [[ -d .libtorch/torch/../nvidia/cudnn ]]; then echo cuda; else echo cpu; fi
}

# Writes the stripped worker to $1. It looks for libraries relative to its own folder, not in the build folder.
copy_worker() {
    local relative_paths
    strip --strip-debug -o "$1" "$RELEASE/ringmark-worker"
    relative_paths=$(patchelf --print-rpath "$1" | tr : '\n' | grep '^\$ORIGIN/' | paste -sd :)
    patchelf --set-rpath "$relative_paths" "$1"
}

# Creates the files of the Debian package in their installed layout. Cargo.toml lists them.
make_tree() {
    local bin=$TREE/usr/bin library=$TREE/usr/lib/ringmark share=$TREE/usr/share
    rm -rf "$TREE"
    mkdir -p "$bin" "$library" "$share/completions"
    strip --strip-debug -o "$bin/ringmark" "$RELEASE/ringmark"
    copy_worker "$library/ringmark-worker"
    # The file is next to libtorch; the link is next to `ringmark`.
    ln -s ../lib/ringmark/ringmark-worker "$bin/ringmark-worker"
    "$bin/ringmark" man "$share/man"
    gzip --best --no-name "$share"/man/*.1
    local shell
    for shell in bash zsh fish; do "$bin/ringmark" completions "$shell" >"$share/completions/$shell"; done
}

make_package() {
    command -v cargo-deb >/dev/null || cargo install cargo-deb --locked --version 3.8.0
    make_tree
    # The programs are already built and stripped.
    cargo deb --no-build --no-strip --quiet --output "$PACKAGE"
}

make_tarball() {
    local name stage device copy licenses
    name=ringmark-$version-$(uname -m)-$(kind)
    stage=$OUT/$name
    rm -rf "$stage"
    if [[ $(kind) == cuda ]]; then device=auto; else device=cpu; fi
    # Run the copy command of --sync, so that the layout is the same.
    copy=$("$RELEASE/ringmark" sweep --dry-run --hosts localhost:1 --cases 1n1g --runs 1 --device "$device" \
        --sync "$stage" --worker "$RELEASE/ringmark-worker" --out "$OUT/unused" | sed -n '/^mkdir /p')
    [[ -n $copy ]] || fail "ringmark sweep --dry-run --sync printed no copy command"
    bash -c "$copy" >/dev/null
    copy_worker "$stage/ringmark-worker"
    strip --strip-debug -o "$stage/ringmark" "$RELEASE/ringmark"
    cp LICENSE README.md "$stage/"
    licenses=$(realpath .libtorch/torch/..)
    (cd "$licenses" && find torch-*.dist-info nvidia_*.dist-info -type f \( -ipath '*licen[sc]e*' -o -name NOTICE \) \
        -exec cp --parents -t "$stage" {} + 2>/dev/null) || true
    tar --create --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=root --group=root --numeric-owner --directory="$OUT" \
        "$name" | gzip --best --no-name >"$OUT/$name.tar.gz"
    rm -rf "$stage"
    echo "$OUT/$name.tar.gz"
}

# Writes a reproducible SBOM: in sorted order, with the time of the commit, and without the random number, user and folder
# names that cargo-sbom adds.
make_sbom() {
    cargo sbom --output-format cyclone_dx_json_1_4 | python3 -c '
import datetime, json, os, sys

bom = json.load(sys.stdin)
bom.pop("serialNumber")
bom["metadata"].pop("authors")
bom["metadata"]["component"].update(name="ringmark", version=sys.argv[1])
date = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
bom["metadata"]["timestamp"] = date.strftime("%Y-%m-%dT%H:%M:%SZ")
bom["components"].sort(key=lambda component: component["bom-ref"])
bom["dependencies"].sort(key=lambda dependency: dependency["ref"])
for dependency in bom["dependencies"]:
    dependency["dependsOn"] = sorted(dependency.get("dependsOn", []))
json.dump(bom, sys.stdout, indent=2)
' "$version" >"$OUT/ringmark-$version.cdx.json"
}

# Builds all files in $OUT.
make_all() {
    # Timestamps are those of the commit, so builds of one commit are reproducible. The C compiler uses it for __TIME__,
    # which mimalloc contains.
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || date +%s)
    export SOURCE_DATE_EPOCH
    # An earlier build of another commit has that commit's time.
    cargo clean --quiet --release --package libmimalloc-sys
    cargo build --release --locked
    mkdir -p "$OUT"
    make_package
    make_tarball
    command -v cargo-sbom >/dev/null || cargo install cargo-sbom --locked --version 0.10.0
    make_sbom
    (cd "$OUT" && sha256sum ./*.deb ./*.tar.gz ./*.cdx.json | tee SHA256SUMS)
}

build() {
    ((EUID != 0)) || install_packages missing_packages
    [[ -z $(missing_packages) ]] ||
        fail "packages are missing. Run as root: apt-get install --no-install-recommends $(missing_packages | xargs)"
    scripts/setup.sh
    # The programs contain paths of libtorch's headers, and the length of their library path. Always build in the same folder.
    local namespaces=(--mount)
    ((EUID == 0)) || namespaces+=(--map-root-user)
    # shellcheck disable=SC2016 # expanded in the namespace, whose mounts end with it
    unshare "${namespaces[@]}" bash -euc '
        mount -t tmpfs ringmark /mnt
        mkdir /mnt/ringmark
        # Relative: the tmpfs may hide the absolute path.
        mount --no-canonicalize --bind . /mnt/ringmark
        exec /mnt/ringmark/scripts/dev/package.sh make-all
    '
}

# --- check ---------------------------------------------------------------------------------------------------------

# In Ubuntu's package ubuntu-keyring and some Debian releases' ubuntu-archive-keyring.
readonly UBUNTU_KEYS=/usr/share/keyrings/ubuntu-archive-keyring.gpg

missing_for_check() { command -v debootstrap >/dev/null || echo debootstrap; }

# Runs shell script $2 with root folder $1, without this machine's environment.
in_root() {
    # shellcheck disable=SC2016 # expanded in the namespace, whose mounts end with it
    unshare --mount --pid --fork --kill-child bash -euo pipefail -c '
        mount -t proc proc "$1/proc"
        mount --rbind /dev "$1/dev"
        chroot "$1" /usr/bin/env -i HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -euo pipefail -c "$2"
    ' - "$1" "$2"
}

# Creates root folder $1 with a minimal system of release $2 that can reach package servers as this machine does.
make_root() {
    local file target options=() origin=()
    if [[ ! -e /usr/share/debootstrap/scripts/$2 ]]; then
        # Ubuntu: Open MPI is in universe. debootstrap may not have the release, but all releases use the script of gutsy.
        options=("--components=main,universe" "--keyring=$UBUNTU_KEYS")
        origin=(http://archive.ubuntu.com/ubuntu gutsy)
    fi
    debootstrap --force-check-gpg --variant=minbase --include=ca-certificates "${options[@]}" "$2" "$1" "${origin[@]}" \
        >"$1.log" || { tail "$1.log" >&2; fail "could not install $2 in $1"; }
    cp /etc/resolv.conf /etc/hosts "$1/etc/"
    while IFS=: read -r file target; do
        install -D -m 644 "$file" "$1$target"
    done < <(package_server_files "$(dirname "$1")")
    in_root "$1" 'apt-get update' >"$1.log" 2>&1 || { tail "$1.log" >&2; fail "could not reach the package servers from $1"; }
}

check_package() {
    say "checking the Debian package"
    cp "$PACKAGE" "$1/ringmark.deb"
    cp -r results/suite-2-cores "$1/root/result"
    in_root "$1" '
        apt-get install -y --no-install-recommends /ringmark.deb >/dev/null
        ringmark --help | head -n 1
        ls /usr/share/man/man1/ringmark-sweep.1.gz /usr/share/bash-completion/completions/ringmark
        ringmark extract /root/result --out /root/read | head -n 4
        echo "before ringmark-setup:"
        ! ringmark sweep --quick --out /root/too-early 2>&1 || exit 1
        ringmark-setup
        ringmark sweep --quick --device cpu --out /root/first
        ringmark extract /root/first
        apt-get purge -y ringmark >/dev/null
        ! ls /usr/lib/ringmark 2>/dev/null || exit 1'
}

check_tarball() {
    say "checking the tarball"
    local tarball
    tarball=$(compgen -G "$OUT/ringmark-$version-*.tar.gz")
    cp "$tarball" "$1/root/"
    # The README's package and commands for a release file, with the names of this one.
    {
        echo "apt-get install --yes --no-install-recommends openmpi-bin"
        sed -n '/^Or with a release file/,/^[^`]*ringmark extract/{/^tar\|^\.\/ringmark/p}' README.md
    } | sed "s/ringmark-[0-9][^ ]*-cpu/$(basename "$tarball" .tar.gz)/g" >"$1/root/commands"
    grep -q '^\./ringmark sweep' "$1/root/commands" || fail "README.md contains no commands for a release file"
    in_root "$1" '
        ! command -v python3 cc || exit 1
        cd /root
        # The CPU time does not depend on other programs of this machine.
        readonly TIMES="%1R s, CPU time %1U s + %1S s in the kernel"
        time {
            while IFS= read -r -u 9 line; do
                TIMEFORMAT="$line: $TIMES"
                time eval "$line"
            done 9<commands
            TIMEFORMAT="from the release file to the table: $TIMES"
        }
        ./ringmark --version
        ! ldd ringmark-worker | grep "not found" || exit 1
        mpirun --allow-run-as-root --oversubscribe -np 2 ./ringmark-worker train --batch-size 2 --image-size 64 --iters 4 \
            --warmup 1 --threads 1' |
        grep -vE '^(Get|Selecting|Preparing|Unpacking|Setting up|Processing)'
}

check() {
    ((EUID == 0)) || fail "check needs root, because debootstrap does"
    [[ -e $PACKAGE ]] || fail "$PACKAGE not found: build it with scripts/dev/package.sh"
    install_packages missing_for_check
    local scratch
    scratch=$(mktemp -d)
    # shellcheck disable=SC2064 # expanded immediately
    trap "rm -rf --one-file-system '$scratch'" EXIT
    local release
    for release; do
        make_root "$scratch/clean" "$release"
        cp -a "$scratch/clean" "$scratch/with-package"
        check_tarball "$scratch/clean"
        rm -rf --one-file-system "$scratch/clean"
        check_package "$scratch/with-package"
        rm -rf --one-file-system "$scratch/with-package"
        say "both work on $release"
    done
}

# --- reproduce -----------------------------------------------------------------------------------------------------

reproduce() {
    [[ -e $OUT/SHA256SUMS ]] || fail "$OUT/SHA256SUMS not found: run scripts/dev/package.sh first"
    local scratch
    scratch=$(mktemp -d)
    # shellcheck disable=SC2064 # expanded immediately
    trap "rm -rf --one-file-system '$scratch'" EXIT
    git clone --quiet . "$scratch/again"
    cp -a "$(realpath .libtorch)" "$scratch/again/.libtorch"
    (unset CARGO_TARGET_DIR && "$scratch/again/scripts/dev/package.sh" >/dev/null)
    diff "$OUT/SHA256SUMS" "$scratch/again/target/release/package/SHA256SUMS" || fail "the second build differs"
    say "both builds have the same files"
}

case ${1:-} in
    '') build ;;
    make-all) make_all ;;
    reproduce) reproduce ;;
    check)
        shift
        (($#)) || set -- bookworm trixie
        check "$@"
        ;;
    -h | --help) usage 0 ;;
    *) usage 2 >&2 ;;
esac
