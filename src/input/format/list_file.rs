//! List of the images of a `.rec` file, the `.lst` of MXNet's im2rec.py, with one image per line:
//! `id<TAB>label[<TAB>label..]<TAB>path below the root`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::byte_source::Location;
use crate::format::text_lines;

/// A line of the list.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedImage {
    /// Number of the image.
    pub id: u64,
    /// One or more labels.
    pub labels: Vec<f32>,
    /// Path below the root.
    pub path: PathBuf,
}

/// Reads a list in file order.
pub fn read(path: &Path) -> Result<Vec<ListedImage>> {
    parse(&text_lines::read(path)?, path)
}

/// Parses the bytes of `file` like [`read`]. Does not check that the images exist.
pub fn parse(text: &[u8], file: &Path) -> Result<Vec<ListedImage>> {
    let mut images: Vec<ListedImage> = Vec::new();
    let mut lines_by_id = HashMap::new();
    for (number, line) in text_lines::lines(text) {
        let place = || Location::line(file, number).to_string();
        let image = image(line).with_context(place)?;
        if let Some(before) = lines_by_id.insert(image.id, number) {
            anyhow::bail!(
                "{}: id {} is also that of line {before}: use a different id for every \
                           image",
                place(),
                image.id
            );
        }
        images.push(image);
    }
    ensure!(!images.is_empty(), "{} is empty: use a list of images", file.display());
    Ok(images)
}

fn image(line: &[u8]) -> Result<ListedImage> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b'\t').map(<[u8]>::trim_ascii).collect();
    let [id, labels @ .., path] = fields.as_slice() else { anyhow::bail!(too_few(line, fields.len())) };
    ensure!(!labels.is_empty(), too_few(line, fields.len()));
    ensure!(!path.is_empty(), "the path after the last tab is empty: add the image file");
    let label = |field: &&[u8]| {
        let label = str::from_utf8(field).ok().and_then(|text| text.parse::<f32>().ok());
        let label = label.filter(|label| label.is_finite());
        label.with_context(|| format!("the label {:?} is not a number", text_lines::display_text(field)))
    };
    Ok(ListedImage {
        id: text_lines::number(id, "id")?,
        labels: labels.iter().map(label).collect::<Result<_>>()?,
        path: OsStr::from_bytes(path).into(),
    })
}

fn too_few(line: &[u8], fields: usize) -> String {
    format!(
        "{:?} has {fields} fields, but needs at least 3 separated by tabs: id, label, \
             path",
        text_lines::display_text(line)
    )
}

/// Writes the lines as im2rec.py does, labels with six decimals.
pub fn write(images: &[ListedImage], output: &mut impl Write) -> Result<()> {
    for ListedImage { id, labels, path } in images {
        let path = path.as_os_str().as_bytes();
        ensure!(
            !path.contains(&b'\t') && !path.contains(&b'\n') && path.trim_ascii() == path,
            "{:?} contains a tab, a line break or a final blank, which a .lst cannot store: rename the file",
            text_lines::display_text(path)
        );
        write!(output, "{id}\t")?;
        for label in labels {
            write!(output, "{label:.6}\t")?;
        }
        output.write_all(path)?;
        output.write_all(b"\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn lines_match_im2rec_and_round_trip() {
        let image = |id, labels: &[f32], path: &str| ListedImage { id, labels: labels.to_vec(), path: path.into() };
        let images = [image(42, &[464.0], "n02/a b.jpg"), image(0, &[1.0, 0.25], "c.png")];
        let mut text = Vec::new();
        write(&images, &mut text).expect("an in-memory write succeeds");
        assert_eq!(String::from_utf8_lossy(&text), "42\t464.000000\tn02/a b.jpg\n0\t1.000000\t0.250000\tc.png\n");
        assert_eq!(parse(&text, Path::new("a.lst")).expect("read"), images);
        let windows = b" 42 \t464\tn02/a b.jpg\r\n\n0\t1\t.25\tc.png";
        assert_eq!(parse(windows, Path::new("a.lst")).expect("read"), images);
    }

    #[test]
    fn every_fault_is_reported_with_its_line() {
        let errors = [
            "0\t1\ta.jpg\n1\tb.jpg\n",
            "0 1 a.jpg\n",
            "a\t1\ta.jpg\n",
            "0\tcat\ta.jpg\n",
            "0\tnan\ta.jpg\n",
            "0\t1\ta.jpg\n\n0\t1\tb.jpg\n",
            "\n",
        ]
        .map(|text| format!("{:#}", parse(text.as_bytes(), Path::new("a.lst")).expect_err(text)));
        expect![[r#"
            a.lst, line 2: "1\tb.jpg" has 2 fields, but needs at least 3 separated by tabs: id, label, path
            a.lst, line 1: "0 1 a.jpg" has 1 fields, but needs at least 3 separated by tabs: id, label, path
            a.lst, line 1: the id "a" is not a whole number of at least 0
            a.lst, line 1: the label "cat" is not a number
            a.lst, line 1: the label "nan" is not a number
            a.lst, line 3: id 0 is also that of line 1: use a different id for every image
            a.lst is empty: use a list of images"#]]
        .assert_eq(&errors.join("\n"));
    }

    #[test]
    fn unsupported_file_names_are_rejected() {
        let errors = ["a\tb.jpg", "a\nb.jpg", "a.jpg "].map(|path| {
            let image = ListedImage { id: 0, labels: vec![0.0], path: path.into() };
            write(&[image], &mut Vec::new()).expect_err(path).to_string()
        });
        expect![[r#"
            "a\tb.jpg" contains a tab, a line break or a final blank, which a .lst cannot store: rename the file
            "a\nb.jpg" contains a tab, a line break or a final blank, which a .lst cannot store: rename the file
            "a.jpg " contains a tab, a line break or a final blank, which a .lst cannot store: rename the file"#]]
        .assert_eq(&errors.join("\n"));
    }
}
