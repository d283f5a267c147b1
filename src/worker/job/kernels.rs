//! The choice of kernels, made alike by all ranks: compilation beside the preparation of the model, cache, agreement.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow, bail};
use ringmark_record::dimension::dtype::Dtype;
use ringmark_record::dimension::kernels::KernelsChoice;
use ringmark_record::dimension::layout::Layout;
use ringmark_record::file::{sha256, whole_file};

use crate::ffi::kernels::{Compilation, CompilerLibrary, Element, LoadedKernels};
use crate::job::session::Session;

/// Kernels on their way to the GPU.
pub struct PendingKernels {
    element: Element,
    /// Compiles or reads the cache.
    image: JoinHandle<Result<Vec<u8>>>,
}

/// The kernels that layers use.
#[derive(Debug, Default)]
pub struct ChosenKernels {
    /// What `auto` came to; still `auto` on the CPU.
    pub choice: KernelsChoice,
    /// The reason for libtorch's kernels if the default could not be met.
    pub remark: Option<String>,
}

/// Starts to compile on a thread of its own, if this rank's device and layout have fused kernels.
pub fn start(choice: KernelsChoice, dtype: Dtype, layout: Layout, session: &Session) -> Result<Option<PendingKernels>> {
    let Some(capability) = session.own.compute_capability else { return Ok(None) };
    if choice == KernelsChoice::Libtorch {
        return Ok(None);
    }
    if layout == Layout::Nchw {
        return match choice {
            KernelsChoice::Fused => bail!("--kernels fused needs --layout nhwc"),
            _ => Ok(None),
        };
    }
    let element = match dtype {
        Dtype::Fp16 => Element::Half,
        Dtype::Bf16 => Element::BFloat16,
        Dtype::Fp32 | Dtype::Tf32 => Element::Float,
    };
    let compiler = session.compiler;
    let image =
        thread::Builder::new().name("kernels".to_owned()).spawn(move || image(compiler, element, capability))?;
    Ok(Some(PendingKernels { element, image }))
}

/// Waits for the compiler and puts the kernels into use, if every rank can.
pub fn finish(pending: Option<PendingKernels>, choice: KernelsChoice, session: &Session) -> Result<ChosenKernels> {
    let Some(device) = session.own.device_index() else { return Ok(ChosenKernels::default()) };
    let libtorch = |remark| ChosenKernels { choice: KernelsChoice::Libtorch, remark };
    let Some(PendingKernels { element, image }) = pending else { return Ok(libtorch(None)) };
    let image = image.join().map_err(|_| anyhow!("the thread of the compiler panicked")).flatten();
    let loaded = image.and_then(|image| LoadedKernels::new(&image, element, device));
    // One rank with slower kernels would hold up all.
    let own = loaded.as_ref().err().map_or_else(String::new, |error| format!("{error:#}"));
    let reasons = session.world.gather_text(&own);
    match reasons.iter().position(|reason| !reason.is_empty()) {
        None => loaded?.activate()?,
        Some(rank) if choice == KernelsChoice::Fused => {
            bail!("--kernels fused cannot be met on rank {rank}: {}; choose --kernels libtorch", reasons[rank])
        }
        Some(rank) => {
            let reason =
                format!("libtorch's kernels instead of fused ones, which costs speed: rank {rank}: {}", reasons[rank]);
            return Ok(libtorch(Some(reason)));
        }
    }
    Ok(ChosenKernels { choice: KernelsChoice::Fused, remark: None })
}

/// Machine code from the cache, or from the compiler, which takes seconds.
fn image(compiler: Option<CompilerLibrary>, element: Element, capability: (i32, i32)) -> Result<Vec<u8>> {
    let compiler = compiler.context("there is no NVRTC (libnvrtc.so of CUDA)")?;
    let compilation = Compilation::new(compiler, element, capability)?;
    let cached = cache_folder().map(|folder| {
        let name = format!("{}.cubin", sha256::of_text(&compilation.identity()?));
        anyhow::Ok(folder.join(name))
    });
    let cached = cached.transpose()?;
    if let Some(image) = cached.as_ref().and_then(|path| fs::read(path).ok()) {
        return Ok(image);
    }
    let image = compilation.compile()?;
    if let Some(path) = cached {
        // A cache that cannot be written costs the next start a compilation, and nothing else.
        let _ = path.parent().map(fs::create_dir_all);
        let _ = whole_file::replace(&path, &image);
    }
    Ok(image)
}

/// The user's own folder (XDG base directory specification), which nobody else can write to.
fn cache_folder() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("ringmark/kernels"))
}
