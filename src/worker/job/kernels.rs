//! Choice of the kernels, identical on all ranks: compilation concurrent with the preparation of the model, cache,
//! agreement.

use std::fs;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow, ensure};
use ringmark_core::dimension::{Dtype, KernelsChoice, Layout};
use ringmark_core::file::{atomic_file, sha256};

use crate::ffi::cuda::ComputeCapability;
use crate::ffi::cuda::kernels::{Compilation, CompilerLibrary, KernelSet, LoadedKernels};
use crate::ffi::memory::element::Element;
use crate::host::facts;
use crate::job::session::Session;

pub struct PendingKernels {
    element: Element,
    /// One thread per set compiles it or reads it from the cache.
    images: Vec<(KernelSet, JoinHandle<Result<CachedImage>>)>,
}

struct CachedImage {
    bytes: Vec<u8>,
    path: Option<PathBuf>,
}

#[derive(Debug, Default)]
pub struct ChosenKernels {
    /// The resolved choice; `auto` stays `auto` on the CPU.
    pub choice: KernelsChoice,
    /// The reason for libtorch's kernels if the default is not available.
    pub remark: Option<String>,
}

/// Starts to compile on separate threads if there are kernels for this rank's device and layout.
pub fn start(choice: KernelsChoice, dtype: Dtype, layout: Layout, session: &Session) -> Result<Option<PendingKernels>> {
    let Some(capability) = session.own.compute_capability else { return Ok(None) };
    let sets: &[KernelSet] = match choice {
        KernelsChoice::Libtorch => return Ok(None),
        KernelsChoice::Norm => &[KernelSet::Norm],
        // Tensor cores round to TF32, which IEEE fp32 excludes.
        _ if dtype == Dtype::Fp32 => &[KernelSet::Norm],
        KernelsChoice::Auto | KernelsChoice::Fused => &[KernelSet::Norm, KernelSet::Pointwise],
    };
    if layout == Layout::Nchw {
        ensure!(choice == KernelsChoice::Auto, "--kernels {choice} needs --layout nhwc");
        return Ok(None);
    }
    let element = Element::from(dtype);
    let compiler = session.compiler;
    let spawn = |set| {
        let thread = thread::Builder::new().name("kernels".to_owned());
        Ok((set, thread.spawn(move || image(compiler, set, element, capability))?))
    };
    let images = sets.iter().copied().filter(|set| set.serves(capability)).map(spawn);
    Ok(Some(PendingKernels { element, images: images.collect::<Result<_>>()? }))
}

/// Waits for the compiler and activates the kernels if all ranks can.
pub fn finish(pending: Option<PendingKernels>, choice: KernelsChoice, session: &Session) -> Result<ChosenKernels> {
    let Some(device) = session.own.device_index() else { return Ok(ChosenKernels::default()) };
    let libtorch = |remark| ChosenKernels { choice: KernelsChoice::Libtorch, remark };
    let Some(PendingKernels { element, images }) = pending else { return Ok(libtorch(None)) };
    let load = |(set, image): (KernelSet, JoinHandle<Result<CachedImage>>)| {
        let CachedImage { bytes, path } = image.join().map_err(|_| anyhow!("the compiler thread panicked"))??;
        LoadedKernels::new(&bytes, set, element, device).inspect_err(|_| {
            // The next start compiles again if the cached file is damaged.
            let _ = path.map(fs::remove_file);
        })
    };
    let loaded = images.into_iter().map(load).collect::<Result<Vec<LoadedKernels>>>();
    // A single rank with slower kernels would delay all others.
    let own = loaded.as_ref().err().map_or_else(String::new, |error| format!("{error:#}"));
    let reasons = session.world.gather_text(&own);
    if let Some((rank, reason)) = reasons.iter().enumerate().find(|(_, reason)| !reason.is_empty()) {
        ensure!(
            choice == KernelsChoice::Auto,
            "cannot use --kernels {choice} on rank {rank}: {reason}; use --kernels libtorch"
        );
        let reason = format!("no fused kernels, using slower libtorch kernels: rank {rank}: {reason}");
        return Ok(libtorch(Some(reason)));
    }
    loaded?.into_iter().try_for_each(LoadedKernels::activate)?;
    let choice = if choice == KernelsChoice::Norm { choice } else { KernelsChoice::Fused };
    Ok(ChosenKernels { choice, remark: None })
}

/// Returns machine code from the cache, or compiles it, which takes seconds.
fn image(
    compiler: Option<CompilerLibrary>,
    set: KernelSet,
    element: Element,
    capability: ComputeCapability,
) -> Result<CachedImage> {
    let compiler = compiler.context("NVRTC not found (libnvrtc.so of CUDA)")?;
    let compilation = Compilation::new(compiler, set, element, capability)?;
    let name = format!("{}.cubin", sha256::hash_text(&compilation.identity()?));
    let path = cache_folder().map(|folder| folder.join(name));
    if let Some(bytes) = path.as_ref().and_then(|path| fs::read(path).ok()) {
        return Ok(CachedImage { bytes, path });
    }
    let bytes = compilation.compile()?;
    if let Some(path) = &path {
        // If the cache cannot be written, the next start compiles again; nothing else depends on it.
        let _ = path.parent().map(fs::create_dir_all);
        let _ = atomic_file::replace(path, &bytes);
    }
    Ok(CachedImage { bytes, path })
}

/// Cache folder of the user (XDG base directory specification).
fn cache_folder() -> Option<PathBuf> {
    let set = |name| facts::variable(name).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("ringmark/kernels"))
}
