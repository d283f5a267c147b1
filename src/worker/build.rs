//! Compiles the shim against libtorch's headers and sets the RPATH of the binary, so that it starts without
//! LD_LIBRARY_PATH.

#![allow(clippy::disallowed_methods, reason = "reads variables of cargo")]

use std::path::{Path, PathBuf};
use std::{env, fs};

const TORCH_VERSION: &str = "2.11.0";
const SOURCES: [&str; 10] = [
    "ffi/torch/batch_norm.cpp",
    "ffi/torch/batch_norm_cuda.cpp",
    "ffi/torch/graph.cpp",
    "ffi/torch/kernels.cpp",
    "ffi/torch/packed.cpp",
    "ffi/torch/pointwise_cuda.cpp",
    "ffi/torch/profiler.cpp",
    "ffi/torch/shim.cpp",
    "ffi/torch/transformer.cpp",
    "ffi/torch/update_cuda.cpp",
];

fn main() {
    if let Err(message) = build() {
        println!("cargo::error={message}");
    }
}

fn build() -> Result<(), String> {
    println!("cargo::rerun-if-env-changed=LIBTORCH");
    for file in SOURCES.iter().chain(&[
        "ffi/torch/guarded.h",
        "ffi/torch/autograd_cuda.h",
        "ffi/torch/batch_norm.h",
        "ffi/torch/kernels.h",
        "ffi/torch/update.h",
    ]) {
        println!("cargo::rerun-if-changed={file}");
    }
    let link = PathBuf::from(env::var_os("LIBTORCH").ok_or("LIBTORCH is not set: build inside the repository")?);
    // Resolved: libtorch finds NVIDIA's libraries relative to its own folder.
    let libtorch =
        link.canonicalize().map_err(|_| format!("libtorch not found at {}: run scripts/setup.sh", link.display()))?;
    check_version(&libtorch)?;

    // One translation unit: parsing libtorch's headers takes longer than all of our code, and happens once instead of
    // ten times.
    let folder = env::current_dir().map_err(|error| error.to_string())?;
    let unit = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?).join("shim.cpp");
    let includes = SOURCES.map(|source| format!("#include \"{}\"\n", folder.join(source).display())).concat();
    fs::write(&unit, includes).map_err(|error| format!("{}: {error}", unit.display()))?;

    let include = libtorch.join("include");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .warnings(false)
        .define("_GLIBCXX_USE_CXX11_ABI", "1")
        .include(&include)
        .include(include.join("torch/csrc/api/include"))
        .opt_level(3)
        // libtorch's threads are OpenMP's; its header falls back to one thread without this flag.
        .flag("-fopenmp")
        .file(unit)
        .compile("ringmark_shim");

    let mut folders = vec![libtorch.join("lib")];
    if let Some(packages) = libtorch.parent() {
        // The CUDA build of libtorch_cpu needs libcudart and libcupti, which are in separate wheels next to it.
        for nvidia in ["nvidia/cu13/lib", "nvidia/cuda_runtime/lib", "nvidia/cuda_cupti/lib"] {
            folders.push(packages.join(nvidia));
        }
    }
    for folder in folders.iter().filter(|folder| folder.is_dir()) {
        // The folder next to the binary comes first: `ringmark sweep --sync` copies the libraries there in the same
        // layout, and a copy must not load other versions that a host has at the build path.
        if let Some(relative) = libtorch.parent().and_then(|packages| folder.strip_prefix(packages).ok()) {
            println!("cargo::rustc-link-arg=-Wl,-rpath,$ORIGIN/{}", relative.display());
        }
        println!("cargo::rustc-link-search=native={}", folder.display());
        println!("cargo::rustc-link-arg=-Wl,-rpath,{}", folder.display());
        println!("cargo::rustc-link-arg=-Wl,-rpath-link,{}", folder.display());
    }
    println!("cargo::rustc-link-lib=gomp");
    // Before torch-sys's list. GNU ld would otherwise take a symbol that libtorch_cpu needs from libtorch, which loads all of
    // NVIDIA's libraries; lld, the default on x86-64, ignores what libraries need.
    println!("cargo::rustc-link-lib=c10");
    // Open MPI must resolve the binary's own definition: see ffi/process/waiting.rs.
    println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=sched_yield");
    Ok(())
}

/// Checks the version of libtorch. The wheel has it in `version.py`, the zip in `build-version`.
fn check_version(libtorch: &Path) -> Result<(), String> {
    let read = |name| {
        let path = libtorch.join(name);
        // Cargo treats a missing file as changed: every build would compile the shim again.
        if path.is_file() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
        fs::read_to_string(path).unwrap_or_default()
    };
    let python = read("version.py");
    let from_wheel = python.lines().find_map(|line| line.strip_prefix("__version__ = '"));
    let zip = read("build-version");
    let found = from_wheel.unwrap_or(&zip).split(['+', '\'']).next().unwrap_or_default().trim();
    if found == TORCH_VERSION {
        return Ok(());
    }
    let found = if found.is_empty() { "no version" } else { found };
    Err(format!(
        "ringmark needs libtorch {TORCH_VERSION}, {} has {found}: remove .libtorch and run scripts/setup.sh",
        libtorch.display()
    ))
}
