//! Weights in safetensors files, with the tensor names of the network's source and including buffers, so that a
//! torchvision checkpoint loads.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use ringmark_core::dimension::Source;
use ringmark_core::file::atomic_file::{self, WrittenFile};
use ringmark_core::file::safetensors;
use ringmark_core::host::memory;
use serde::Deserialize;
use tch::{Device, Kind, TchError, Tensor};

use ::safetensors::SafeTensorError;

use crate::ffi::torch::host_array::HostArray;
use crate::host::file_system;
use crate::model::network::{NamedTensor, NamedTensors};
use crate::model::tensor_hash::TensorHash;

/// Batch counter that torchvision stores with every pair of running statistics; it is not used here.
const BATCH_COUNT: &str = "num_batches_tracked";

/// Prefix of tensors that are not part of the network: the state of its training.
const STATE_PREFIX: &str = "ringmark.";

/// Contents of a file in addition to the network's parameters and buffers.
#[derive(Default)]
pub struct TrainingState {
    /// Batches in the running statistics; 0 if the file does not contain the number.
    pub batches: i64,
    /// Training state by name.
    pub entries: HashMap<String, Tensor>,
}

/// Loads every parameter and buffer of the network named `network` in its source from `path`, a safetensors file or an
/// index of several, and returns the other contents. Fails on missing, unknown and differently shaped tensors.
pub fn load(path: &Path, tensors: &NamedTensors, network: &str) -> Result<TrainingState> {
    let all = || tensors.parameters.iter().chain(&tensors.buffers);
    let places: HashMap<&str, &Tensor> = all().map(|named| (named.name.as_str(), &named.tensor)).collect();
    let (mut state, mut found, mut unknown) = (TrainingState::default(), HashMap::new(), Vec::new());
    let _no_gradient = tch::no_grad_guard();
    // One file after the other, because those of a large model do not fit into memory together.
    for file in files(path)? {
        for (name, value) in read(&file)? {
            if let Some(entry) = name.strip_prefix(STATE_PREFIX) {
                state.entries.insert(entry.to_owned(), value);
                continue;
            }
            if name.ends_with(BATCH_COUNT) {
                let count = i64::try_from(&value).with_context(|| format!("{BATCH_COUNT} in {}", file.display()))?;
                state.batches = state.batches.max(count);
                continue;
            }
            let Some(name) = name_in_model(name, tensors.source(), |name| places.contains_key(name)) else { continue };
            let Some(tensor) = places.get(name.as_str()) else {
                unknown.push((name, file.clone()));
                continue;
            };
            if value.size() == tensor.size() {
                tensor.shallow_clone().f_copy_(&value)?;
            }
            found.insert(name, (value.size(), file.clone()));
        }
    }
    for NamedTensor { name, tensor, .. } in all() {
        let Some((size, file)) = found.get(name) else {
            bail!("{} has no tensor {name}: expected {}'s {network}", path.display(), tensors.source().name());
        };
        ensure!(
            *size == tensor.size(),
            "{name} has shape {size:?} in {}, but {:?} in the model",
            file.display(),
            tensor.size()
        );
    }
    if let Some((name, file)) = unknown.iter().min() {
        bail!("{} contains {name}, which {network} does not have", file.display());
    }
    Ok(state)
}

/// Ending of the index that Hugging Face writes next to the files of a large model.
const INDEX_ENDING: &str = "json";

/// Maximum length of an index: a hundred times that of a model with 100,000 tensors.
const MAX_INDEX_LENGTH: u64 = 1_000_000_000;

/// Index of a model in several files.
#[derive(Deserialize)]
struct Index {
    /// File next to the index for the name of each tensor.
    weight_map: BTreeMap<String, String>,
}

/// Returns the safetensors files with the weights of `path`: itself, or those of an index.
fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if path.extension().is_none_or(|ending| ending != INDEX_ENDING) {
        return Ok(vec![path.to_owned()]);
    }
    let unreadable = || format!("cannot read {} as an index of safetensors files", path.display());
    let file = atomic_file::open(path).with_context(unreadable)?;
    let index: Index = serde_json::from_reader(file.take(MAX_INDEX_LENGTH)).with_context(unreadable)?;
    let names: BTreeSet<&str> = index.weight_map.values().map(String::as_str).collect();
    ensure!(!names.is_empty(), "{}: its weight_map is empty", unreadable());
    let next_to_it = |name: &&str| {
        ensure!(
            Path::new(name).file_name() == Some(name.as_ref()),
            "{}: {name:?} is not the name of a file next to it",
            unreadable()
        );
        Ok(path.with_file_name(name))
    };
    names.iter().map(next_to_it).collect()
}

/// Returns the name in a model of the tensor `name` of a file, or `None` if the model does not
/// need it.
///
/// Hugging Face's files of GPT-2 lack the prefix `transformer.` and contain causal masks; files converted from a
/// `state_dict` contain a tied output layer twice.
fn name_in_model(name: String, source: Source, is_in_model: impl Fn(&str) -> bool) -> Option<String> {
    if source != Source::HuggingFace || is_in_model(&name) {
        return Some(name);
    }
    let is_mask = name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
    if is_mask || name == "lm_head.weight" {
        return None;
    }
    Some(format!("transformer.{name}")).filter(|prefixed| is_in_model(prefixed)).or(Some(name))
}

/// Tensors of a file with their names, in host memory.
pub type HostTensors = Vec<(String, Tensor)>;

/// Saves every parameter and buffer as contiguous fp32, and `training_state`; the file is written atomically.
pub fn save(path: &Path, tensors: &NamedTensors, training_state: &TrainingState) -> Result<WrittenFile> {
    let content = content(tensors, training_state, in_host_memory)?;
    atomic_file::write_by_name(path, |part| Tensor::write_safetensors(&content, part).map_err(plain)).context("weights")
}

/// Returns `tensor` in host memory, contiguous; itself if it is that already.
pub fn in_host_memory(_: &str, tensor: &Tensor) -> Result<Tensor> {
    Ok(tensor.f_to_device(Device::Cpu)?.f_contiguous()?)
}

/// Returns the tensors that [`save`] writes, each moved to host memory by `on_host`, which receives its name.
pub fn content(
    tensors: &NamedTensors,
    training_state: &TrainingState,
    mut on_host: impl FnMut(&str, &Tensor) -> Result<Tensor>,
) -> Result<HostTensors> {
    let TrainingState { batches, entries } = training_state;
    let mut on_host = |name: String, tensor: &Tensor| -> Result<(String, Tensor)> {
        let moved = on_host(&name, &tensor.f_detach()?)?;
        Ok((name, moved))
    };
    let entries = entries.iter().map(|(name, tensor)| on_host(format!("{STATE_PREFIX}{name}"), tensor));
    let mut file: HostTensors = entries.collect::<Result<_>>()?;
    for NamedTensor { name, tensor, .. } in tensors.parameters.iter().chain(&tensors.buffers) {
        file.push(on_host(name.clone(), tensor)?);
        if let Some(layer) = name.strip_suffix("running_var") {
            file.push((format!("{layer}{BATCH_COUNT}"), Tensor::from(*batches)));
        }
    }
    Ok(file)
}

/// Writes a checkpoint atomically, with hashes of its tensors that [`safetensors::verify`] checks.
///
/// # Errors
///
/// If the file system is full, the message contains the free space and the size of the checkpoint.
pub fn write_checkpoint(path: &Path, mut content: HostTensors) -> Result<WrittenFile> {
    let size: usize = content.iter().map(|(_, tensor)| tensor.numel() * tensor.kind().elt_size_in_bytes()).sum();
    let write = |part: &Path| {
        content.push((safetensors::HASHES.to_owned(), hashes(&content)?));
        Tensor::write_safetensors(&content, part).map_err(plain)
    };
    let written = atomic_file::write_by_name(path, write);
    written.map_err(|error| with_free_space(error, path, size)).context("checkpoint")
}

/// Returns the hash of each tensor by its name, as JSON in bytes.
fn hashes(content: &[(String, Tensor)]) -> Result<Tensor> {
    let hash = |(name, tensor): &(String, Tensor)| {
        let mut hash = TensorHash::default();
        hash.add(tensor)?;
        Ok((name.clone(), hash.text()))
    };
    let hashes = content.iter().map(hash).collect::<Result<BTreeMap<String, String>>>()?;
    Ok(Tensor::from_slice(&serde_json::to_vec(&hashes)?).f_to_kind(Kind::Uint8)?)
}

/// Adds the free space and the `size` of a checkpoint to the error of a full file system.
fn with_free_space(error: anyhow::Error, path: &Path, size: usize) -> anyhow::Error {
    let is_full = error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::StorageFull);
    let free = || file_system::free_space(atomic_file::folder_of(path)).ok();
    let Some(free) = is_full.then(free).flatten() else { return error };
    anyhow!(
        "{error:#}: {:.1} MB are free and it needs {:.1} MB beside the previous checkpoint, which is kept: free some space",
        free.0 as f64 / 1e6,
        size as f64 / 1e6
    )
}

/// Host memory for copies of tensors, by name; pinned for tensors on a GPU. Each copy replaces the previous one.
#[derive(Default)]
pub struct HostCopies(HashMap<String, Tensor>);

impl HostCopies {
    /// Returns a contiguous copy of `tensor`, which no later change of `tensor` affects.
    pub fn copy(&mut self, name: &str, tensor: &Tensor) -> Result<Tensor> {
        let (size, kind) = (tensor.size(), tensor.kind());
        let earlier = self.0.remove(name).filter(|copy| copy.size() == size && copy.kind() == kind);
        let copy = match earlier {
            Some(copy) => copy,
            None if tensor.device().is_cuda() => HostArray::pinned(tensor.numel(), kind)?.tensor().f_view(&size[..])?,
            None => Tensor::f_empty(&size[..], (kind, Device::Cpu))?,
        };
        copy.shallow_clone().f_copy_(tensor)?;
        self.0.insert(name.to_owned(), copy.shallow_clone());
        Ok(copy)
    }
}

/// Reads every tensor of a safetensors file by name, into host memory.
pub fn read(path: &Path) -> Result<Vec<(String, Tensor)>> {
    let unreadable = || format!("cannot read {} as safetensors", path.display());
    // Fails here for a pipe, before a read blocks on it.
    atomic_file::open(path).with_context(unreadable)?;
    ensure!(
        !is_pickle(path),
        "{file} is a PyTorch pickle, not safetensors: convert it in Python with \
         safetensors.torch.save_file(torch.load({file:?}), \"weights.safetensors\"); from a checkpoint, save only its \
         state_dict (often torch.load(..)[\"model\"] or [\"state_dict\"])",
        file = path.display().to_string()
    );
    safetensors::check(path, memory::available()).with_context(unreadable)?;
    let file = Tensor::read_safetensors(path).map_err(plain).with_context(unreadable)?;
    for (name, tensor) in &file {
        ensure!(tensor.kind() != Kind::Double, "{name} in {} is fp64: save it as fp32", path.display());
    }
    Ok(file)
}

/// Replaces the library's error, which prints Rust debug text, with a sentence.
fn plain(error: TchError) -> anyhow::Error {
    let TchError::SafeTensorError { err, .. } = error else { return error.into() };
    match err {
        SafeTensorError::IoError(error) => error.into(),
        SafeTensorError::JsonError(error) => anyhow!("the header is not JSON: {error}"),
        SafeTensorError::InvalidHeader => anyhow!("the header is not UTF-8"),
        SafeTensorError::InvalidHeaderStart => anyhow!("the header does not start with a brace"),
        SafeTensorError::InvalidHeaderDeserialization => anyhow!("the header is not a JSON list of tensors"),
        SafeTensorError::HeaderTooLarge => anyhow!("the header is larger than 100 MB"),
        SafeTensorError::HeaderTooSmall => anyhow!("the file is shorter than the 8-byte length at its start"),
        SafeTensorError::InvalidHeaderLength => anyhow!("the header is longer than the file"),
        SafeTensorError::TensorNotFound(name) => anyhow!("tensor {name} not found"),
        SafeTensorError::TensorInvalidInfo => anyhow!("shape, type and size of a tensor disagree"),
        SafeTensorError::InvalidOffset(name) => anyhow!("tensor {name} is outside the file or overlaps another"),
        SafeTensorError::InvalidTensorView(_, shape, bytes) => anyhow!("shape {shape:?} does not match {bytes} bytes"),
        SafeTensorError::MetadataIncompleteBuffer => anyhow!("the tensors do not fill the file: it is truncated"),
        SafeTensorError::ValidationOverflow => anyhow!("the size of a tensor exceeds 64 bits"),
    }
}

/// Returns true if the file begins like one of `torch.save`: a zip archive since PyTorch 1.6, a bare pickle before.
fn is_pickle(path: &Path) -> bool {
    let mut head = Vec::new();
    // The next reader reports read errors.
    let _ = File::open(path).and_then(|file| file.take(9).read_to_end(&mut head));
    // Safetensors files may begin with the same bytes, such as a length of 640, but JSON follows after all eight.
    let is_safetensors = head.get(8) == Some(&b'{');
    head.starts_with(b"PK\x03\x04") || (matches!(head[..], [0x80, 2..=5, ..]) && !is_safetensors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temporary_folder::without_folder;
    use crate::testing::seeded;
    use expect_test::expect;

    #[test]
    fn safetensors_errors_contain_no_debug_text() {
        let folder = tempfile::tempdir().expect("a folder");
        let message = |error: anyhow::Error| format!("{error:#}");
        let error = message(read(folder.path()).expect_err("a folder"));
        expect!["cannot read DIR as safetensors: path is a folder"].assert_eq(&without_folder(&error));
        let from_library = |path: &Path| message(Tensor::read_safetensors(path).map_err(plain).expect_err("refused"));
        expect!["Is a directory (os error 21)"].assert_eq(&from_library(folder.path()));
        let file = folder.path().join("weights.safetensors");
        // A file that is too short, a header longer than the file, a header that is not JSON, and bytes of no tensor.
        let errors = [
            &b""[..],
            b"\xff\xff\x00\x00\x00\x00\x00\x00{}",
            b"\x02\x00\x00\x00\x00\x00\x00\x00{]",
            b"\x02\x00\x00\x00\x00\x00\x00\x00{}more",
        ]
        .map(|bytes| {
            std::fs::write(&file, bytes).expect("written");
            from_library(&file)
        });
        expect![[r#"
            the file is shorter than the 8-byte length at its start
            the header is longer than the file
            the header is not a JSON list of tensors
            the tensors do not fill the file: it is truncated"#]]
        .assert_eq(&errors.join("\n"));
        let missing = folder.path().join("none/weights.safetensors");
        let tensors = NamedTensors::new(Source::Torchvision, Device::Cpu);
        let error = message(save(&missing, &tensors, &TrainingState::default()).expect_err("no folder"));
        expect!["weights: DIR/none/weights.safetensors cannot be written: No such file or directory (os error 2)"]
            .assert_eq(&without_folder(&error));
    }

    #[test]
    fn pickles_and_safetensors_are_distinguished() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        for (bytes, expected) in [
            (&b"PK\x03\x04\x00\x00"[..], true),
            (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j", true),
            (b"\x80\x04\x95", true),
            (b"\x80\x02\x00\x00\x00\x00\x00\x00{\"__metadata__", false),
            (b"\x40\x00\x00\x00\x00\x00\x00\x00{", false),
            (b"", false),
        ] {
            std::fs::write(file.path(), bytes).expect("written");
            assert_eq!(is_pickle(file.path()), expected, "{bytes:?}");
        }
    }

    #[test]
    fn copies_are_independent_of_their_tensors() {
        let mut copies = HostCopies::default();
        let weights = Tensor::ones([2, 3], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let transposed = weights.detach().tr();
        let first = copies.copy("weights", &transposed).expect("copied");
        let address = first.data_ptr();
        let _ = weights.detach().fill_(7.0);
        assert_eq!(first, Tensor::ones([3, 2], (Kind::Float, Device::Cpu)));
        assert!(first.is_contiguous());
        let second = copies.copy("weights", &transposed).expect("copied");
        assert_eq!((second.data_ptr(), second.double_value(&[0, 0])), (address, 7.0), "the same memory");
        let other = copies.copy("weights", &Tensor::ones([4], (Kind::Int64, Device::Cpu))).expect("copied");
        assert_eq!((other.size(), other.kind()), (vec![4], Kind::Int64));
    }

    /// Public files of Llama contain bf16; those of the small networks have no head, because it is tied.
    #[test]
    fn public_files_of_llama_are_read_by_name() {
        use crate::model::networks::decoder::Decoder;
        use ringmark_core::dimension::DecoderShape;
        const TIED: DecoderShape = DecoderShape { has_tied_head: true, ..DecoderShape::LLAMA_TINY };
        for shape in [&DecoderShape::LLAMA_TINY, &TIED] {
            let model = || {
                let mut tensors = NamedTensors::new(Source::HuggingFace, Device::Cpu);
                Decoder::new(&mut tensors, shape, false);
                tensors.initialize();
                tensors
            };
            let _generator = seeded(2);
            let (saved, loaded) = (model(), model());
            let half = |tensor: &Tensor| tensor.detach().to_kind(Kind::BFloat16);
            let file: Vec<(String, Tensor)> =
                saved.parameters.iter().map(|named| (named.name.clone(), half(&named.tensor))).collect();
            assert_eq!(file.iter().any(|(name, _)| name == "lm_head.weight"), !shape.has_tied_head);
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("model.safetensors");
            Tensor::write_safetensors(&file, &path).expect("written");
            load(&path, &loaded, "llama").expect("the public names");
            for (loaded, (name, expected)) in loaded.parameters.iter().zip(&file) {
                assert_eq!(loaded.tensor, expected.to_kind(Kind::Float), "{name}");
            }
        }
    }

    #[test]
    fn public_files_of_gpt2_are_read_by_name() {
        use crate::model::networks::decoder::Decoder;
        use ringmark_core::dimension::DecoderShape;
        let model = || {
            let mut tensors = NamedTensors::new(Source::HuggingFace, Device::Cpu);
            Decoder::new(&mut tensors, &DecoderShape::GPT2_TINY, false);
            tensors.initialize();
            tensors
        };
        let _generator = seeded(2);
        let (saved, loaded) = (model(), model());
        let value = |tensor: &Tensor| tensor.detach().copy();
        let named = |named: &NamedTensor| (named.name["transformer.".len()..].to_owned(), value(&named.tensor));
        let mut file: Vec<(String, Tensor)> = saved.parameters.iter().map(named).collect();
        let mask = Tensor::ones([1, 1, 256, 256], (Kind::Float, Device::Cpu)).tril(0);
        file.extend((0..2).map(|layer| (format!("h.{layer}.attn.bias"), mask.shallow_clone())));
        file.push(("lm_head.weight".to_owned(), value(&saved.parameters[0].tensor)));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("model.safetensors");
        Tensor::write_safetensors(&file, &path).expect("written");
        assert_ne!(loaded.parameters[0].tensor, saved.parameters[0].tensor);
        load(&path, &loaded, "gpt2").expect("the public names");
        for (loaded, saved) in loaded.parameters.iter().zip(&saved.parameters) {
            assert_eq!(loaded.tensor, saved.tensor, "{}", saved.name);
        }
        let again = model();
        let names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
        let (first, second) = file.split_at(5);
        for (name, part) in names.iter().zip([first, second]) {
            Tensor::write_safetensors(part, folder.path().join(name)).expect("written");
        }
        let index = folder.path().join("model.safetensors.index.json");
        let list = |named: &[(String, Tensor)], file: &str| {
            named.iter().map(|(name, _)| (name.clone(), file.into())).collect::<serde_json::Map<String, _>>()
        };
        let mut map = list(first, names[0]);
        map.extend(list(second, names[1]));
        let write = |map: &serde_json::Map<String, serde_json::Value>| {
            let text = serde_json::json!({"metadata": {"total_size": 1}, "weight_map": map}).to_string();
            std::fs::write(&index, text).expect("written");
        };
        write(&map);
        load(&index, &again, "gpt2").expect("two files");
        for (loaded, saved) in again.parameters.iter().zip(&saved.parameters) {
            assert_eq!(loaded.tensor, saved.tensor, "{}", saved.name);
        }
        let refusal = || {
            let error = load(&index, &again, "gpt2").map(drop).expect_err("an unusable index");
            without_folder(&format!("{error:#}\n"))
        };
        let mut errors = Vec::new();
        write(&list(second, names[1]));
        errors.push(refusal());
        map.insert("wte.weight".to_owned(), "../model.safetensors".into());
        write(&map);
        errors.push(refusal());
        map.insert("wte.weight".to_owned(), "model-00003-of-00002.safetensors".into());
        write(&map);
        errors.push(refusal());
        write(&serde_json::Map::new());
        errors.push(refusal());
        std::fs::write(&index, "{}").expect("written");
        errors.push(refusal());
        expect![[r#"
            DIR/model.safetensors.index.json has no tensor transformer.wte.weight: expected Hugging Face's gpt2
            cannot read DIR/model.safetensors.index.json as an index of safetensors files: "../model.safetensors" is not the name of a file next to it
            cannot read DIR/model-00003-of-00002.safetensors as safetensors: No such file or directory (os error 2)
            cannot read DIR/model.safetensors.index.json as an index of safetensors files: its weight_map is empty
            cannot read DIR/model.safetensors.index.json as an index of safetensors files: missing field `weight_map` at line 1 column 2
        "#]].assert_eq(&errors.concat());
        file.push(("h.2.ln_1.weight".to_owned(), Tensor::ones([64], (Kind::Float, Device::Cpu))));
        Tensor::write_safetensors(&file, &path).expect("written");
        let error =
            without_folder(&format!("{:#}", load(&path, &loaded, "gpt2").map(drop).expect_err("a third layer")));
        expect!["DIR/model.safetensors contains h.2.ln_1.weight, which gpt2 does not have"].assert_eq(&error);
    }
}
