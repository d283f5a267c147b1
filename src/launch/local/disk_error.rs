//! Advice for file system errors.

use std::io::{self, ErrorKind};

/// Returns advice for this error; `None` if there is none.
pub fn fix(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Some("free some space, or choose another --out"),
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => {
            Some("make it writable, or choose another --out")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn full_and_read_only_disks_have_different_fixes() {
        let fixes = [28, 30].map(|code| fix(&io::Error::from_raw_os_error(code)).expect("a fix"));
        expect![[r#"
            free some space, or choose another --out
            make it writable, or choose another --out"#]]
        .assert_eq(&fixes.join("\n"));
        assert_eq!(fix(&io::Error::from_raw_os_error(5)), None);
    }
}
