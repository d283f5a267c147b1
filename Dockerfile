# Image of ringmark for GPU clusters: both programs, libtorch with NVIDIA's libraries, Open MPI, and an sshd through which
# mpirun starts ranks in other containers of the image without a password. Build it with scripts/dev/build_image.sh.
#
#   on every host:  docker run -d --name ringmark --gpus all --network host --ipc host --ulimit memlock=-1 \
#                       --device=/dev/infiniband --cap-add=IPC_LOCK --volume "$PWD/results:/workspace/results" ringmark:cu130
#   on one host:    docker exec ringmark ringmark sweep --hosts a:8,b:8 --ssh-port 2222 --out results/first
#
# --device and --cap-add allow access to InfiniBand and RoCE devices and locked memory. Without them, NCCL silently falls
# back to TCP (`ringmark doctor` warns). Omit them if a host has no /dev/infiniband.
#
# The build creates the key pair that the containers use to reach each other, and the image contains the private key.
# Keep the image in a private registry, or mount another key pair over /root/.ssh, as the Kubernetes MPI Operator does.

FROM rust:1.95-bookworm AS build
# cu130: CUDA 13.0, Turing and newer, driver 580 or newer. cu126: CUDA 12.6, V100 (sm_70) too, driver 525 or newer.
# cpu: no GPU. scripts/setup.sh has the table.
ARG TORCH_VARIANT=cu130
ENV PIP_NO_CACHE_DIR=1
# The programs look for libtorch in the folder where it was linked, so the final stage has it in the same folder.
WORKDIR /opt/ringmark

# Install the wheels before copying the sources, which change more often.
COPY Cargo.toml ./
COPY scripts/setup.sh scripts/
RUN RINGMARK_TORCH=$TORCH_VARIANT scripts/setup.sh

COPY . .
RUN cargo build --release --locked \
    && strip --strip-debug target/release/ringmark target/release/ringmark-worker \
    && readelf --dynamic target/release/ringmark-worker | grep -F ":$(realpath .libtorch/torch)/lib" \
    && ! readelf --dynamic target/release/ringmark-worker | grep -E 'NEEDED.*(cuda|nccl)' \
    && ! readelf --dynamic target/release/ringmark | grep -E 'NEEDED.*(torch|mpi)'

# The final stage contains only the shared libraries and licenses of the wheels: no headers, no Python.
RUN packages=$(realpath --relative-to=/ .libtorch/torch/..) \
    && cd / && mkdir /run-stage \
    && if [ "$TORCH_VARIANT" = cpu ]; then unused='lib*_cuda*.so'; else unused=; fi \
    && find "$packages/torch/lib" "$packages/nvidia" "$packages"/torch-*.dist-info "$packages"/nvidia_*.dist-info -not -type d \
        \( -name '*.so' -o -name '*.so.*' -o -ipath '*licen[sc]e*' -o -name NOTICE \) \
        -not -name 'libtorch_python.so' -not -name "$unused" -print0 \
    | tar --create --null --files-from=- | tar --extract --directory=/run-stage \
    && install -D -t /run-stage/usr/local/bin /opt/ringmark/target/release/ringmark \
        /opt/ringmark/target/release/ringmark-worker


FROM debian:bookworm-slim
# Not 22: a container that shares the host's network would conflict with the host's sshd.
ARG SSH_PORT=2222

# ibverbs-providers: InfiniBand and RoCE for NCCL. hwloc-nox: topology for the records of CPU runs.
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        hwloc-nox ibverbs-providers openmpi-bin openssh-client openssh-server rsync \
    && rm -rf /var/lib/apt/lists/*

# All containers of the image share one host key and one user key. The host key is known, so ssh does not prompt, but
# still rejects unknown hosts. Without PAM, sessions inherit sshd's limits, including locked memory for InfiniBand.
RUN rm -f /etc/ssh/ssh_host_* \
    && ssh-keygen -q -t ed25519 -N '' -C ringmark -f /etc/ssh/ssh_host_ed25519_key \
    && echo "* $(cat /etc/ssh/ssh_host_ed25519_key.pub)" >/etc/ssh/ssh_known_hosts \
    && install -d -m 700 /root/.ssh \
    && ssh-keygen -q -t ed25519 -N '' -C ringmark -f /root/.ssh/id_ed25519 \
    && cp /root/.ssh/id_ed25519.pub /root/.ssh/authorized_keys \
    && printf '%s\n' "Port $SSH_PORT" 'PermitRootLogin prohibit-password' 'PasswordAuthentication no' \
        'KbdInteractiveAuthentication no' 'UsePAM no' 'StrictModes no' 'MaxStartups 256' \
        >/etc/ssh/sshd_config.d/ringmark.conf \
    && printf '%s\n' 'Host *' "    Port $SSH_PORT" '    StrictHostKeyChecking yes' '    LogLevel ERROR' \
        >/etc/ssh/ssh_config.d/ringmark.conf \
    && mkdir -p /run/sshd && /usr/sbin/sshd -t

COPY --from=build /run-stage/ /

# Detect missing libraries now rather than on the cluster. Only the driver's libcuda.so.1 comes from the host.
RUN ringmark --version && ringmark-worker --version \
    && libraries=$(ldd /usr/local/bin/ringmark-worker $(find /opt/ringmark -name 'libtorch_cuda*.so')) \
    && ! echo "$libraries" | grep 'not found' | grep -v libcuda.so.1

ENV OMPI_ALLOW_RUN_AS_ROOT=1 \
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    OMPI_MCA_btl_vader_single_copy_mechanism=none \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

WORKDIR /workspace
EXPOSE $SSH_PORT
CMD ["/usr/sbin/sshd", "-De"]
