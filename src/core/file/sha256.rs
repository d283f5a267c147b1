//! SHA-256 of a file or text, in the format of `sha256sum`.

use std::io::{self, ErrorKind};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::file::atomic_file;

/// Returns the hash of the contents of `file`.
pub fn hash_file(file: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    io::copy(&mut atomic_file::open(file)?, &mut hash)?;
    Ok(format!("{:x}", hash.finalize()))
}

/// Returns the hash of a text.
pub fn hash_text(text: &str) -> String {
    format!("{:x}", Sha256::digest(text))
}

/// Compares `file` with `hash`; returns `None` if it is unchanged, otherwise a description of the change.
pub fn describe_change(file: &Path, hash: &str) -> Option<String> {
    match hash_file(file) {
        Ok(now) if now == hash => None,
        Ok(_) => Some("the file was changed or damaged after the run (SHA-256 differs from the manifest)".to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => Some("the file is missing".to_owned()),
        Err(error) => Some(format!("the file cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn additional_byte_changes_the_hash() {
        let folder = std::env::temp_dir().join(format!("ringmark-sha256-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("file");
        fs::write(&file, "abc").expect("written");
        // The first example of FIPS 180-2.
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!((hash_file(&file).expect("read").as_str(), describe_change(&file, hash)), (hash, None));
        assert_eq!(hash_text("abc"), hash);
        fs::write(&file, "abcd").expect("written");
        assert!(describe_change(&file, hash).expect("changed").contains("was changed"));
        fs::remove_dir_all(&folder).expect("removed");
        assert_eq!(describe_change(&file, hash).as_deref(), Some("the file is missing"));
    }
}
