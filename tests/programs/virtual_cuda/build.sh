#!/bin/sh
# Builds virtual GPUs for tests: libcuda.so.1, libnvrtc.so.13, libtorch_cuda.so, libnccl.so.2, libnvidia-ml.so.1 and
# nvidia-smi that need no GPU and no NVIDIA library.
#
# usage: build.sh LIBTORCH FOLDER     all of it
#        build.sh --driver FOLDER     only libcuda.so.1 and libnvrtc.so.13, which need no libtorch
#
# With FOLDER first on LD_LIBRARY_PATH, `ringmark-worker --device cuda` computes on 8 virtual GPUs: CPU kernels on host
# memory, on virtual time, in streams whose order is checked. A race is reported on standard error. Virtual GPUs do not
# model the speed of kernels, cuDNN, NCCL's own algorithms or drivers.
#
# settings.h    settings for a job or for a host
# clock.h       vector clocks
# memory        last access to each byte, to detect races
# machine       streams, events, virtual time; does not depend on libtorch
# allocators    device memory and pinned memory
# guard         libtorch's device guard and hooks
# aliases       device tensors as CPU tensors for a kernel, and back
# fallback      runs every operation with the CPU's kernel
# recording     captured work and its replay
# graph         CUDA graphs, under the names of libtorch_cuda
# kernels       new tensors, views, copies between devices
# meeting.h     shared memory of the ranks
# nccl          libnccl.so.2
# access_log    memory accesses of the threads of a kernel, in order
# threads       runs the threads of a kernel on one core
# kernel_image.h, launch   compiled kernels, modules, launches
# driver        libcuda.so.1
# nvrtc         libnvrtc.so.13, which calls the host's compiler
# device.h      device functions for kernels, for that compiler
# nvml          libnvidia-ml.so.1
# nvidia_smi    nvidia-smi
set -eu
libtorch=$1
folder=$(realpath -m "$2")
[ "$libtorch" = --driver ] || libtorch=$(realpath "$libtorch")
cd "$(dirname "$0")"
mkdir -p "$folder"

optimized=-O1
compile() {
    nice "${CXX:-c++}" -std=c++17 "$optimized" -fPIC -Wall -D_GLIBCXX_USE_CXX11_ABI=1 "$@"
}
with_libtorch() {
    compile -isystem "$libtorch/include" -isystem "$libtorch/include/torch/csrc/api/include" "$@"
}
# Succeeds if the object of part $1 is missing, or older than a header or than a source with name $2.
is_old() {
    [ ! -f "$folder/$1.o" ] || [ -n "$(find . -maxdepth 1 -newer "$folder/$1.o" \( -name "$2" -o -name '*.h' \))" ]
}
# $1: compile or with_libtorch; $2: part.
object() { if is_old "$2" "$2.cpp"; then "$1" -c "$2.cpp" -o "$folder/$2.o"; fi; }
# $1: library; other arguments: its objects and options. The library finds the others in its own folder.
library() {
    name=$1
    shift
    (cd "$folder" && compile -shared -Wl,-soname,"$name" -Wl,-rpath,'$ORIGIN' -Wl,--no-undefined -o "$name" "$@")
}

cp device.h kernel_image.h "$folder"
# Called for every memory access of a kernel.
optimized=-O2
for part in memory machine recording access_log threads launch driver; do
    object compile "$part"
done
compile -DHEADERS_CHECKSUM="$(cat device.h kernel_image.h nvrtc.cpp | cksum | cut -d ' ' -f 1)u" -c nvrtc.cpp -o "$folder/nvrtc.o"
optimized=-O1
# One copy per process, whichever of the other libraries are loaded.
library libvirtual_cuda.so memory.o machine.o recording.o access_log.o threads.o launch.o -ldl
library libcuda.so.1 driver.o -L. -lvirtual_cuda
library libnvrtc.so.13 nvrtc.o -ldl
[ "$libtorch" != --driver ] || exit 0

# One translation unit: parsing libtorch's headers takes longer than the code.
if is_old torch_cuda '*.cpp'; then
    printf '#include "%s.cpp"\n' allocators guard aliases fallback graph kernels >"$folder/torch_cuda.cpp"
    with_libtorch -I. -c "$folder/torch_cuda.cpp" -o "$folder/torch_cuda.o"
fi
object with_libtorch nccl
# At run time its dependencies resolve to the libtorch of the worker, which is already loaded.
library libtorch_cuda.so torch_cuda.o -L. -lvirtual_cuda -L"$libtorch/lib" -ltorch_cpu -lc10
library libnccl.so.2 nccl.o -L. -ltorch_cuda -lvirtual_cuda -lrt
compile -shared -Wl,-soname,libnvidia-ml.so.1 -o "$folder/libnvidia-ml.so.1" nvml.cpp
compile -o "$folder/nvidia-smi" nvidia_smi.cpp
