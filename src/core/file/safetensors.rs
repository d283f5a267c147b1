//! Checks of a safetensors file before the tensors are read: its header against its size, and its tensors against the hashes
//! that a checkpoint contains.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Map, Value};
use xxhash_rust::xxh3::Xxh3;

use crate::dimension::Bytes;
use crate::file::atomic_file;

/// Tensor of a checkpoint with the hashes of the others: bytes of a JSON object from names to [`hash_text`].
pub const HASHES: &str = "ringmark.xxh3";

/// Bytes that are read at once.
const BLOCK: u64 = 16 << 20;

/// Maximum header length that the format allows.
const MAX_HEADER_LENGTH: u64 = 100_000_000;

/// Refuses a path that is not a regular file, a file whose size differs from that in its header, and one that does not
/// fit into `memory` twice: its bytes and its tensors are in memory at the same time.
pub fn check(path: &Path, memory: Bytes) -> Result<()> {
    let file = atomic_file::open(path)?;
    let length = file.metadata()?.len();
    let difference = compare_length(&file, &header(&file, length)?)?;
    ensure!(difference.is_none(), "{}: copy it again", difference.unwrap_or_default());
    ensure!(
        length.saturating_mul(2) <= memory.0,
        "reading {length} bytes takes twice as much memory, but {} bytes are available: use a host with more memory",
        memory.0
    );
    Ok(())
}

/// Refuses a damaged checkpoint: a file with a wrong header or length, and one whose tensors differ from their hashes.
/// Files of earlier versions have no hashes.
pub fn verify(path: &Path) -> Result<()> {
    let file = atomic_file::open(path)?;
    let header = header(&file, file.metadata()?.len())?;
    compare_length(&file, &header)?.map_or(Ok(()), |difference| Err(anyhow!(difference)))?;
    let start = start_of_tensors(&file)?;
    let range = |tensor: &Value| {
        let offset = |index: usize| start.checked_add(tensor.get("data_offsets")?.get(index)?.as_u64()?);
        offset(0).zip(offset(1)).filter(|(begin, end)| begin <= end)
    };
    let Some(hashes) = header.get(HASHES) else { return Ok(()) };
    let hashes = range(hashes).context("the hashes of the tensors have no data_offsets").and_then(|(begin, end)| {
        let mut text = vec![0; usize::try_from((end - begin).min(MAX_HEADER_LENGTH))?];
        file.read_exact_at(&mut text, begin)?;
        Ok(serde_json::from_slice::<BTreeMap<String, String>>(&text)?)
    });
    for (name, expected) in hashes.context("the hashes of the tensors cannot be read")? {
        let (begin, end) = header.get(&name).and_then(range).with_context(|| format!("tensor {name:?} is missing"))?;
        let found = hash_range(&file, begin, end)?;
        ensure!(found == expected, "tensor {name:?} differs from its hash");
    }
    Ok(())
}

/// Compares the length of the file with the header; returns the difference, if any.
fn compare_length(file: &File, header: &Map<String, Value>) -> Result<Option<String>> {
    let end = |tensor: &Value| tensor.get("data_offsets")?.get(1)?.as_u64();
    let named = header.iter().filter(|(name, _)| *name != "__metadata__").map(|(name, tensor)| {
        end(tensor).with_context(|| format!("tensor {name:?} has no data_offsets: the file is damaged"))
    });
    let named = named.collect::<Result<Vec<u64>>>()?.into_iter().max().unwrap_or_default();
    let found = file.metadata()?.len() - start_of_tensors(file)?;
    Ok((named != found).then(|| {
        format!(
            "the header describes {named} bytes of tensors, but {found} follow, so the file is truncated or damaged"
        )
    }))
}

/// Returns the text of a hash in [`HASHES`].
pub fn hash_text(hash: &Xxh3) -> String {
    format!("{:016x}", hash.digest())
}

fn hash_range(file: &File, mut begin: u64, end: u64) -> Result<String> {
    let (mut hash, mut block) = (Xxh3::new(), Vec::new());
    while begin < end {
        block.resize((end - begin).min(BLOCK) as usize, 0);
        file.read_exact_at(&mut block, begin)?;
        hash.update(&block);
        begin += block.len() as u64;
    }
    Ok(hash_text(&hash))
}

fn start_of_tensors(file: &File) -> Result<u64> {
    let mut size = [0; 8];
    file.read_exact_at(&mut size, 0).context("the file is shorter than the 8 bytes that begin a safetensors file")?;
    Ok(u64::from_le_bytes(size).saturating_add(8))
}

fn header(file: &File, length: u64) -> Result<Map<String, Value>> {
    let end = start_of_tensors(file)?;
    ensure!(
        end <= length && end - 8 <= MAX_HEADER_LENGTH,
        "the first 8 bytes declare a header of {} bytes, but the file has {length}: it is damaged or not a \
         safetensors file",
        end - 8
    );
    let mut header = vec![0; (end - 8) as usize];
    file.read_exact_at(&mut header, 8)?;
    serde_json::from_slice(&header).context("the header is not JSON: the file is damaged or not a safetensors file")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn damaged_file_is_rejected_before_reading_tensors() {
        let folder = std::env::temp_dir().join(format!("ringmark-safetensors-{}", std::process::id()));
        fs::create_dir(&folder).expect("made");
        let path = folder.join("a.safetensors");
        let file = |header: &str, tensors: usize| {
            [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![7; tensors][..]].concat()
        };
        let header = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
        let refused = |bytes: &[u8], memory| {
            fs::write(&path, bytes).expect("written");
            check(&path, Bytes(memory)).map_err(|error| format!("{error:#}"))
        };
        let sound = file(header, 8);
        assert_eq!(refused(&sound, 1000), Ok(()));
        for (bytes, memory, reason) in [
            (&sound[..7], 1000, "the file is shorter than the 8 bytes that begin a safetensors file"),
            (&sound[..20], 1000, "the first 8 bytes declare a header of 85 bytes, but the file has 20"),
            (&[0xff; 40], 1000, "the first 8 bytes declare a header of 18446744073709551607 bytes"),
            (&[0; 40], 1000, "the header is not JSON"),
            (&file(header, 7), 1000, "the header describes 8 bytes of tensors, but 7 follow, so the file is truncated"),
            (&file(header, 9), 1000, "the header describes 8 bytes of tensors, but 9 follow"),
            (&file(r#"{"a":{}}"#, 0), 1000, "tensor \"a\" has no data_offsets"),
            (&sound, 200, "reading 101 bytes takes twice as much memory, but 200 bytes are available"),
        ] {
            let error = refused(bytes, memory).expect_err(reason);
            assert!(error.starts_with(reason), "{error}");
        }
        let error = check(Path::new("/dev/zero"), Bytes(1000)).expect_err("a device").to_string();
        assert_eq!(error, "not a regular file (a pipe, socket or device)");

        // Each tensor is compared with its hash.
        let mut hash = Xxh3::new();
        hash.update(&[7; 8]);
        let hashes = format!(r#"{{"a":"{}"}}"#, hash_text(&hash));
        let end = 8 + hashes.len();
        let header = format!(
            r#"{{"a":{{"dtype":"F32","shape":[2],"data_offsets":[0,8]}},"{HASHES}":{{"data_offsets":[8,{end}]}}}}"#
        );
        let whole = [&file(&header, 8), hashes.as_bytes()].concat();
        let refused = |bytes: &[u8]| {
            fs::write(&path, bytes).expect("written");
            verify(&path).map_err(|error| format!("{error:#}"))
        };
        assert_eq!((refused(&whole), refused(&sound)), (Ok(()), Ok(())));
        let changed = |at: usize| {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            refused(&bytes).expect_err("damaged")
        };
        let start = 8 + header.len();
        assert_eq!(changed(start + 3), "tensor \"a\" differs from its hash");
        assert!(changed(start + 8).starts_with("the hashes of the tensors cannot be read: "), "{}", changed(start + 8));
        assert_eq!(changed(start + end - 3), "tensor \"a\" differs from its hash");
        fs::remove_dir_all(&folder).expect("removed");
    }
}
