//! Texts that stay as they are until somebody means to change them.

use std::fs;
use std::path::Path;

/// Compares with a file in tests/golden; `UPDATE_GOLDEN=1 cargo test` writes it anew.
pub fn assert_golden(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().expect("a folder")).expect("a writable working tree");
        fs::write(&path, actual).expect("a writable working tree");
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    assert!(golden == actual, "{name} is not as it was:\n{actual}");
}
