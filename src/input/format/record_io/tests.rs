//! Tests of RecordIO: bytes as dmlc-core writes them, reading back, and every kind of damage.

use std::os::unix::fs::FileExt;
use std::path::Path;

use expect_test::expect;
use ringmark_core::dimension::OverLimit;

use super::*;
use crate::testing::temporary_folder::without_folder;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn written(records: &[&[u8]]) -> Vec<u8> {
    let mut file = Vec::new();
    for record in records {
        let before = file.len() as u64;
        let count = write_record(record, &mut file).expect("an in-memory write succeeds");
        assert_eq!(file.len() as u64, before + count);
    }
    file
}

fn source(bytes: &[u8]) -> ByteSource {
    ByteSource::from_memory(Path::new("a.rec"), bytes.to_vec())
}

/// Returns every record with its offset.
fn all(source: &ByteSource) -> Result<Vec<(u64, Vec<u8>)>> {
    let mut reader = RecordReader::from_source(source);
    let mut records = Vec::new();
    while let Some(Record { offset, bytes }) = reader.next_record()? {
        records.push((offset, bytes.to_vec()));
    }
    Ok(records)
}

/// Returns the offsets of the records, found by their headers alone.
fn starts(source: &ByteSource) -> Result<Vec<u64>> {
    let mut heads = RecordHeads::new(source, 0..source.length());
    let mut starts = vec![0];
    while heads.pass()? {
        starts.push(heads.offset());
    }
    starts.pop();
    Ok(starts)
}

/// Returns the error message for the bytes, which must be the same for sequential reading, headers and offsets.
fn refused(bytes: &[u8]) -> String {
    let source = source(bytes);
    let by_heads = format!("{:#}", starts(&source).expect_err("damaged"));

    let in_turn = format!("{:#}", all(&source).expect_err("damaged"));
    let by_offset = read_record(&source, 0, u64::MAX, &ImageLimits::default(), &mut Vec::new())
        .map_err(|error| format!("{error:#}"));
    assert!(by_offset.is_ok() || by_offset == Err(in_turn.clone()), "{in_turn}, {by_offset:?}");
    assert_eq!(by_heads, in_turn);
    in_turn
}

/// Returns records with the magic number at every position and in every quantity.
fn with_magic() -> Vec<Vec<u8>> {
    let mut records: Vec<Vec<u8>> = (0..40).map(|length| vec![b'x'; length]).collect();
    for length in 0..24 {
        for at in 0..=length {
            let mut record = vec![b'y'; length];
            record.splice(at..at, MAGIC);
            records.push(record.clone());
            record.extend(MAGIC);
            records.push(record);
        }
    }
    records.extend((1..6).map(|count| MAGIC.repeat(count)));
    records
}

#[test]
fn bytes_match_dmlc_core() {
    let magic = MAGIC.as_slice();
    let around = [b"abcd".as_slice(), magic, b"ef"].concat();
    for (record, bytes) in [
        (b"record_0".as_slice(), "0a23d7ce080000007265636f72645f30"),
        (b"abcde", "0a23d7ce050000006162636465000000"),
        (&around, "0a23d7ce04000020616263640a23d7ce0200006065660000"),
        (magic, "0a23d7ce000000200a23d7ce00000060"),
    ] {
        let file = written(&[record]);
        assert_eq!(hex(&file), bytes);
        assert_eq!(all(&source(&file)).expect("read"), [(0, record.to_vec())]);
    }
}

#[test]
fn records_are_read_in_order_and_by_offset() {
    let records = with_magic();
    let file = written(&records.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let source = source(&file);
    let found = all(&source).expect("read");
    assert_eq!(found.iter().map(|(_, bytes)| bytes.clone()).collect::<Vec<_>>(), records);
    assert_eq!(starts(&source).expect("sound"), found.iter().map(|(offset, _)| *offset).collect::<Vec<_>>());
    let mut buffer = Vec::new();
    for (number, (offset, bytes)) in found.iter().enumerate() {
        let end = found.get(number + 1).map_or(source.length(), |next| next.0);
        for expected in [0, end - offset, u64::MAX] {
            let range = read_record(&source, *offset, expected, &ImageLimits::default(), &mut buffer).expect("read");
            assert_eq!(&buffer[range], bytes);
        }
        assert_eq!(next_record_start(&source, *offset).expect("found"), *offset);
        assert_eq!(next_record_start(&source, offset + 1).expect("found"), end);
    }
}

#[test]
fn records_across_buffer_edges_are_complete() {
    let mut large = vec![b'a'; BUFFER + 3];
    large[4096..4100].copy_from_slice(&MAGIC);
    let many_parts = MAGIC.repeat(300_000);
    for edge in [BUFFER - 24, BUFFER - 20, BUFFER - 16, BUFFER - 12, BUFFER - 8] {
        let first = vec![b'b'; edge];
        let records: [&[u8]; 5] = [&first, b"behind it", &large, &many_parts, b"last"];
        let source = source(&written(&records));
        let found = all(&source).expect("read");
        assert!(found.iter().map(|(_, bytes)| bytes.as_slice()).eq(records), "{edge}");
        let mut buffer = Vec::new();
        for ((offset, _), record) in found.iter().zip(records) {
            let range = read_record(&source, *offset, 0, &ImageLimits::default(), &mut buffer).expect("read");
            assert_eq!(&buffer[range], record);
        }
    }
}

#[test]
fn record_start_is_found_after_a_search_window() {
    for length in [65_536 - 24, 65_536 - 20, 65_536 - 16, 65_536 - 12, 200_000] {
        let file = written(&[&vec![b'a'; length], b"next"]);
        let next = next_record_start(&source(&file), 4).expect("found");
        assert_eq!(next, 8 + length as u64);
    }
}

#[test]
fn truncated_file_is_reported_at_the_last_record() {
    let file = written(&[b"record_0", b"record_1"]);
    let error = refused(&file[..28]);
    expect![
        "a.rec, byte 16: the record has at least 16 bytes, but the file ends after 12: the file is truncated, or \
             the record is incomplete: create or copy it again"
    ]
    .assert_eq(&error);
    // Cut within the header of a part.
    let error = refused(&file[..20]);
    expect![
        "a.rec, byte 16: the record has at least 8 bytes, but the file ends after 4: the file is truncated, or \
             the record is incomplete: create or copy it again"
    ]
    .assert_eq(&error);
    // A split record whose last part is missing.
    let file = written(&[&[b"abcd".as_slice(), &MAGIC, b"ef"].concat()]);
    let error = refused(&file[..12]);
    expect![
        "a.rec, byte 0: the record has at least 20 bytes, but the file ends after 12: the file is truncated, or \
             the record is incomplete: create or copy it again"
    ]
    .assert_eq(&error);
    // A length that no file of this size can hold allocates no memory.
    let error = refused(&[&MAGIC[..], &[0xff, 0xff, 0xff, 0x1f]].concat());
    expect![
        "a.rec, byte 0: the record has at least 536870920 bytes, but the file ends after 8: the file is \
             truncated, or the record is incomplete: create or copy it again"
    ]
    .assert_eq(&error);
}

#[test]
fn non_records_are_reported_with_their_bytes() {
    let mut file = written(&[b"record_0", b"record_1"]);
    file[16] = b'!';
    let error = refused(&file);
    expect![
        "a.rec, byte 16: found 2123d7ce instead of the start of a record, 0a23d7ce: the file is damaged or not a \
             RecordIO file: create it again"
    ]
    .assert_eq(&error);
    let mut file = written(&[b"record_0"]);
    file[7] = 0x80;
    expect!["a.rec, byte 0: invalid part flag 4 (valid: 0 to 3), so the file is damaged: create it again"]
        .assert_eq(&refused(&file));
}

#[test]
fn mismatched_parts_are_rejected() {
    let split = written(&[&[b"abcd".as_slice(), &MAGIC, b"ef"].concat()]);
    let error = refused(&split[12..]);
    expect![
        "a.rec, byte 0: a record begins with a middle part (flag 3); the file is damaged or its .idx is \
             for another file: create both again"
    ]
    .assert_eq(&error);
    let error = refused(&[&split[..12], &written(&[b"next"])].concat());
    expect![
        "a.rec, byte 12: another record begins (flag 0), but that of byte 0 is incomplete; the file is damaged: \
             create it again"
    ]
    .assert_eq(&error);
    let mut file = split;
    file[4] = 3;
    expect![
        "a.rec, byte 0: a part of 3 bytes is neither its record's last nor a multiple of 4; the file is damaged: create it again"
    ]
    .assert_eq(&refused(&file));
}

#[test]
fn failed_reads_fail_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.rec");
    // The second record is read into the same buffer as the first, and what follows it looks like a record.
    let large = vec![b'a'; BUFFER - 100];
    std::fs::write(&path, written(&[&large, &large, &large])).expect("written");
    let source = open(&path).expect("opened");
    let mut reader = RecordReader::from_source(&source);
    reader.next_record().expect("read").expect("the first");
    std::fs::OpenOptions::new().write(true).open(&path).expect("opened").set_len(BUFFER as u64 + 4096).expect("cut");
    let mut errors =
        [(); 3].map(|()| without_folder(&format!("{:#}", reader.next_record().expect_err("cut")))).to_vec();
    errors.dedup();
    expect![
        "DIR/a.rec, byte 4198400: the file was truncated while being read (it had 12582636 bytes when opened): use a file that is not being written"
    ]
    .assert_eq(&errors.join("\n"));
}

#[test]
fn record_above_29_bits_is_not_written() {
    let error = write_record(&vec![0; MAX_RECORD_LENGTH + 1], &mut Vec::new()).expect_err("too long").to_string();
    expect!["536870912 bytes exceed the limit of a record, 536870911: use a smaller image"].assert_eq(&error);
}

#[test]
fn record_above_its_limit_is_rejected_unread() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.rec");
    let file = std::fs::File::create(&path).expect("made");
    // A record of 4 GB in 8 parts, a sparse file that contains only the headers, followed by a small record.
    let length = MAX_RECORD_LENGTH & !3;
    for part in 0..8 {
        let flag = if part == 0 {
            Flag::First
        } else if part == 7 {
            Flag::Last
        } else {
            Flag::Middle
        };
        let head = PartHeader { flag, length };
        file.write_all_at(&head.bytes(), part * head.size() as u64).expect("written");
    }
    let end = 8 * (HEAD + length) as u64;
    file.write_all_at(&written(&[b"next"]), end).expect("written");
    let source = open(&path).expect("opened");
    let mut buffer = Vec::new();
    let by_offset = read_record(&source, 0, end, &ImageLimits::default(), &mut buffer).expect_err("too large");
    let mut reader = RecordReader::from_source(&source);
    let in_turn = reader.next_record().expect_err("too large");
    for error in [by_offset, in_turn] {
        assert!(error.is::<OverLimit>());
        let expected = format!(
            "{}, byte 0: the record has at least {} bytes; the limit is 100000000: raise it with --image-limits \
             bytes={1}",
            path.display(),
            HEAD + length
        );
        assert_eq!(format!("{error:#}"), expected);
    }
    assert!(buffer.capacity() <= FIRST_READ, "{}", buffer.capacity());
    // The stream continues after it.
    assert_eq!(reader.next_record().expect("read"), Some(Record { offset: end, bytes: b"next" }));
    assert!(reader.next_record().expect("read").is_none());
    let limits = ImageLimits::default().with(ImageLimit::Bytes, 11);
    read_record(&source, end, u64::MAX, &limits, &mut buffer).expect_err("12 bytes");
    RecordReader::new(&source, end..end + 12, limits).next_record().expect_err("12 bytes");
}
