#!/usr/bin/env bash
# Checks a built image on CPUs: trains with one rank and with two ranks in a container, then runs the doctor and a sweep
# between two containers, through the image's sshd. No process may remain in the containers.
#
#   scripts/dev/check_image.sh [IMAGE=ringmark:cpu]
#
# Uses whichever of docker, podman and buildah has the image. Two containers need docker or podman, and run in a separate
# network. Everything is removed at the end.
set -euo pipefail

# shellcheck source=scripts/dev/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
case ${1:-} in
    -h | --help) usage 0 ;;
    -*) usage 2 >&2 ;;
esac
(($# <= 1)) || usage 2 >&2
image=${1:-ringmark:cpu}

if docker image inspect "$image" >/dev/null 2>&1; then engine=docker
elif podman image inspect "$image" >/dev/null 2>&1; then engine=podman
elif buildah inspect --type image "$image" >/dev/null 2>&1; then engine=buildah
else fail "image $image not found: build it with scripts/dev/build_image.sh"
fi

name=ringmark-check-$$
container=
clean_up() {
    if [[ $engine == buildah ]]; then
        [[ -z $container ]] || buildah rm "$container" >/dev/null || true
    else
        "$engine" rm --force "$name-1" "$name-2" >/dev/null 2>&1 || true
        "$engine" network rm "$name" >/dev/null 2>&1 || true
    fi
}
trap clean_up EXIT

# --- one container -------------------------------------------------------------------------------------------------

# Runs shell script $1 in a container of the image.
in_image() {
    if [[ $engine != buildah ]]; then
        "$engine" run --rm "$image" bash -euo pipefail -c "$1"
        return
    fi
    [[ -n $container ]] || container=$(buildah from --pull-never "$image")
    buildah run --isolation chroot "$container" -- bash -euo pipefail -c "$1"
}

train='ringmark-worker train --device cpu --batch-size 2 --image-size 64 --iters 4 --warmup 1'
say "one rank"
in_image "$train"
say "two ranks"
in_image "mpirun -np 2 --oversubscribe --bind-to none $train --threads 1"
if [[ $engine == buildah ]]; then
    say "login without a password"
    # shellcheck disable=SC2016 # expanded in the container
    in_image '/usr/sbin/sshd -De & sshd=$!; trap "kill $sshd" EXIT
        for try in 1 2 3 4 5 6 7 8 9 10; do ssh -o BatchMode=yes localhost ringmark --version && exit; sleep 0.5; done
        exit 1'
    say "$image works in one container; to check two, start docker or podman"
    exit
fi

# --- two containers ------------------------------------------------------------------------------------------------

# Runs shell script $2 in container $1.
in_container() { "$engine" exec "$name-$1" bash -euo pipefail -c "$2"; }

say "two containers"
"$engine" network create --internal "$name" >/dev/null
for number in 1 2; do
    "$engine" run --detach --name "$name-$number" --hostname "c$number" --network "$name" "$image" >/dev/null
done
# Some engines' networks do not resolve names.
hosts=$(for number in 1 2; do
    "$engine" inspect --format "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}} c$number" "$name-$number"
done)
for number in 1 2; do in_container "$number" "echo '$hosts' >>/etc/hosts"; done

# shellcheck disable=SC2016 # expanded in the container
in_container 1 '
    port=$(ssh -G c2 | sed -n "s/^port //p")
    for try in 1 2 3 4 5 6 7 8 9 10; do
        if ssh -o BatchMode=yes c1 true && ssh -o BatchMode=yes c2 true; then break; fi
        sleep 0.5
    done
    ringmark doctor --device cpu --hosts c1:1,c2:1 --ssh-port "$port"
    ringmark sweep --quick --device cpu --model resnet18 --image-size 64 --hosts c1:1,c2:1 --cases 1n1g,2n1g \
        --ssh-port "$port" --out results/check
    ringmark extract results/check
    cut -d " " -f 1-9 results/check/2n1g/*_1.log | grep "^# rank [01]: host c[12] "'

say "remaining processes and files"
for number in 1 2; do
    # sshd is the container's main process; the other names belong to this check.
    # shellcheck disable=SC2016 # expanded in the container
    left=$(in_container "$number" 'cat /proc/[0-9]*/comm | grep -vxE "sshd|bash|cat|grep|ls" || true; ls /dev/shm /tmp -A | grep -v : || true')
    [[ -z $left ]] || fail "container $number still contains: $left"
done
say "none; $image works"
