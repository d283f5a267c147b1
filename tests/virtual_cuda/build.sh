#!/bin/sh
# Builds virtual GPUs for tests: libcuda.so.1, libtorch_cuda.so, libnccl.so.2, libnvidia-ml.so.1 and nvidia-smi that need no
# GPU and no NVIDIA library.
#
# usage: build.sh LIBTORCH FOLDER
#
# With FOLDER first on LD_LIBRARY_PATH, `ringmark-worker --device cuda` computes on 8 virtual GPUs: CPU kernels on host
# memory, on virtual time, in streams whose order is checked. A race is a line on standard error. It says nothing of
# speed, cuDNN, NCCL's own algorithms or drivers.
#
# settings.h    what can be set, for a job or for a host
# clock.h       vector clocks
# memory        who touched which bytes last: races
# machine       streams, events, virtual time; knows nothing of libtorch
# allocators    device memory and pinned memory
# guard         libtorch's device guard and hooks
# aliases       device tensors as CPU tensors for a kernel, and back
# fallback      every operation: the CPU's kernel
# graph         CUDA graphs: what a stream is given is kept and run again
# kernels       new tensors, views, copies between devices
# meeting.h     shared memory of the ranks
# nccl          libnccl.so.2
# driver        libcuda.so.1
# nvml          libnvidia-ml.so.1
# nvidia_smi    nvidia-smi
set -eu
libtorch=$(realpath "$1")
folder=$(realpath -m "$2")
cd "$(dirname "$0")"
mkdir -p "$folder"

compile() {
    nice "${CXX:-c++}" -std=c++17 -O1 -fPIC -Wall -D_GLIBCXX_USE_CXX11_ABI=1 \
        -isystem "$libtorch/include" -isystem "$libtorch/include/torch/csrc/api/include" "$@"
}

for part in memory machine allocators guard aliases fallback graph kernels nccl; do
    # One at a time: each takes a gigabyte.
    if [ ! -f "$folder/$part.o" ] || [ -n "$(find . -newer "$folder/$part.o" \( -name "$part.cpp" -o -name '*.h' \))" ]; then
        compile -c "$part.cpp" -o "$folder/$part.o"
    fi
done
cd "$folder"
# Found by the worker's own libtorch: it is loaded already.
compile -shared -Wl,-soname,libtorch_cuda.so -o libtorch_cuda.so \
    memory.o machine.o allocators.o guard.o aliases.o fallback.o graph.o kernels.o -L"$libtorch/lib" -ltorch_cpu -lc10
compile -shared -Wl,-soname,libnccl.so.2 -o libnccl.so.2 nccl.o -L. -ltorch_cuda
cd - >/dev/null
compile -shared -Wl,-soname,libcuda.so.1 -o "$folder/libcuda.so.1" driver.cpp
compile -shared -Wl,-soname,libnvidia-ml.so.1 -o "$folder/libnvidia-ml.so.1" nvml.cpp
compile -o "$folder/nvidia-smi" nvidia_smi.cpp
