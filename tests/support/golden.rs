//! Snapshots in separate files: tables, dry runs, pages.

use std::path::Path;

use expect_test::expect_file;

/// Compares with a file in tests/golden; `UPDATE_EXPECT=1 cargo test` rewrites it.
pub fn assert_golden(name: &str, actual: &str) {
    expect_file![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)].assert_eq(actual);
}
