//! Calls of `ringmark report`, generated folders for it, its pages and drawings, and the script that inspects a page in a browser.

use std::path::Path;

use ringmark::read::report::{ReportFormat, document, read, render};
use ringmark_core::benchmark::bandwidth::{BandwidthRecord, MemoryLimit};
use ringmark_core::benchmark::train::RunRecord;
use ringmark_core::dimension::{Bytes, GigabytesPerSecond};

use crate::support::bandwidth::{self, result};
use crate::support::runs::{Folder, record};
use crate::support::sandbox::{ringmark, run};

/// Runs `ringmark report` with these arguments; returns status, standard output and standard error.
pub fn report(words: &[&str]) -> (i32, String, String) {
    let (status, stdout, stderr) = run(ringmark("report").args(words));
    (status.expect("no signal"), stdout, stderr)
}

pub fn path(path: &Path) -> &str {
    path.to_str().expect("ASCII")
}

/// Returns the page of a folder, rendered in this process.
pub fn page(folder: &Path) -> String {
    shown(folder, ReportFormat::Html)
}

pub fn shown(folder: &Path, format: ReportFormat) -> String {
    let results = read(&[folder.to_owned()], None).expect("it can be read");
    render(&document(&results, true, &[]), format, 100)
}

/// Checks that elements are properly nested, as required by XML.
pub fn assert_well_formed(svg: &str) {
    let mut open = Vec::new();
    for tag in svg.split('<').skip(1).map(|rest| rest.split('>').next().expect("a tag's end")) {
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "{tag}"),
            None => open.push(tag.split(' ').next().expect("a name")),
        }
    }
    assert_eq!(open, [""; 0]);
}

/// Counts a tag in a page's drawings. Legend samples do not count: they are drawings with a class.
pub fn count_drawn(page: &str, tag: &str) -> usize {
    let drawings = page.split("<svg viewBox=").skip(1).map(|rest| rest.split("</svg>").next().expect("its end"));
    drawings.map(|drawing| drawing.matches(tag).count()).sum()
}

/// Script that returns a frame's page width, and reports if its script has finished, what is shown under the pointer,
/// if a name was executed, which blocks are side by side, how many tables are narrower than their column, and which labels
/// a drawing cuts off.
pub const LOOK: &str = "(frame) => { const page = frame.contentDocument, root = page.documentElement; \
    const ready = Number(root.dataset.ready), mark = page.querySelector('.hit'); \
    mark.dispatchEvent(new frame.contentWindow.PointerEvent('pointermove', { bubbles: true, clientX: 60, clientY: 60 })); \
    const tip = page.querySelector('.tip'); const box = tip.getBoundingClientRect(); \
    return { width: root.scrollWidth, room: root.clientWidth, ready, tip: tip.textContent, shown: box.width > 0 && box.left >= 0, \
    hacked: page.hacked === 1 || page.images.length > 0, drawings: page.querySelectorAll('figure > svg').length, \
    empty: [...page.querySelectorAll('figure > svg')].filter((svg) => svg.getBoundingClientRect().height < 40).length, \
    pairs: [...page.querySelectorAll('article + article')].filter((article) => { const other = article.previousElementSibling; \
        return other.offsetTop === article.offsetTop && other.offsetLeft + other.offsetWidth < article.offsetLeft; }) \
        .map((article) => [article.previousElementSibling, article].map((block) => block.firstChild.textContent)), \
    beside: [...page.querySelectorAll('.beside')].filter((article) => { const table = article.querySelector('.table'); \
        return article.querySelector('figure').getBoundingClientRect().right < table.getBoundingClientRect().left; }).length, \
    narrow: [...page.querySelectorAll('.wide')].filter((wide) => wide.firstChild.offsetWidth < wide.clientWidth - 1).length, \
    clipped: [...page.querySelectorAll('figure > svg text')].filter((text) => { const label = text.getBoundingClientRect(); \
        const drawing = text.closest('figure > svg').getBoundingClientRect(); \
        return label.left < drawing.left - 1 || label.right > drawing.right + 1 || label.bottom > drawing.bottom + 1; }) \
        .map((text) => text.textContent) }; }";

pub const DESKTOP: u32 = 1280;
pub const PHONE: u32 = 390;

/// Creates two cases of two runs, one of which waits for a slow rank.
pub fn small_folder() -> Folder {
    let folder = Folder::new();
    for (case, step) in [("1n1g", 0.5), ("1n2g", 0.625)] {
        folder.run(&record(case, 1, step));
        folder.run(&record(case, 2, 1.01 * step));
    }
    folder
}

/// Creates two runs of each of these cases.
pub fn folder_of(cases: &[&str]) -> Folder {
    let folder = Folder::new();
    for case in cases {
        folder.run(&record(case, 1, 0.5));
        folder.run(&record(case, 2, 0.505));
    }
    folder
}

/// Creates a bandwidth record of two ranks.
pub fn bandwidth(device: &RunRecord) -> String {
    bandwidth_of(device, &[(8, 1e-6), (1 << 20, 1e-3)], None)
}

/// Creates the record from sizes and out-of-place seconds; in-place calls take half as long. `limit` is the memory
/// limit in GB/s.
pub fn bandwidth_of(device: &RunRecord, messages: &[(u64, f64)], limit: Option<f64>) -> String {
    let message = |(bytes, seconds): &(u64, f64)| result(*bytes, 2, 1, [Some(*seconds), Some(seconds / 2.0)]);
    let memory = |busbw| MemoryLimit {
        rate: GigabytesPerSecond(4.0 * busbw),
        by: "copy".to_owned(),
        busbw: GigabytesPerSecond(busbw),
        array: Bytes(0),
        is_in_cache: false,
    };
    let record = bandwidth::record(device, messages.iter().map(message).collect());
    bandwidth::text(&BandwidthRecord { memory: limit.map(memory), ..record })
}
