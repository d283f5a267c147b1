//! A real browser in headless mode that renders pages of tests: Chromium or Chrome (scripts/dev/browser.sh).

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;

use super::prerequisite::not_tested;
use crate::support::processes_of;
use crate::support::sandbox::wait_until;

/// Height of the window and of each frame, in CSS pixels.
pub const HEIGHT: u32 = 2400;

pub struct Browser {
    program: &'static str,
    /// Contains the pages and the browser's own files.
    pub folder: TempDir,
}

pub struct Picture {
    width: usize,
    /// Red, green and blue, row by row.
    pixels: Vec<[u8; 3]>,
}

impl Browser {
    /// Finds a browser; prints a message and returns `None` if there is none.
    pub fn find() -> Option<Browser> {
        let is_there = |program: &&str| {
            let version = Command::new(program).arg("--version").stderr(Stdio::null()).output();
            version.is_ok_and(|output| output.status.success())
        };
        let program = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(is_there);
        if program.is_none() {
            not_tested("there is no Chromium, which scripts/dev/browser.sh installs");
        }
        Some(Browser { program: program?, folder: TempDir::new().expect("a temporary folder") })
    }

    /// Writes a page with frames (file, width) side by side that runs `script` for each frame after loading.
    pub fn frames(&self, name: &str, frames: &[(&str, u32)], script: &str) {
        let frame = |(page, width): &(&str, u32)| {
            format!("<iframe src='{page}' style='border:0' width={width} height={HEIGHT}></iframe>")
        };
        let frames: String = frames.iter().map(frame).collect();
        let page = format!(
            "<!doctype html><meta charset=utf-8><body style='margin:0;white-space:nowrap'>{frames}<pre id=said></pre>\
             <script>onload = () => {{ const said = []; for (const frame of document.querySelectorAll('iframe')) \
             said.push(({script})(frame)); document.getElementById('said').textContent = JSON.stringify(said); }}</script>"
        );
        fs::write(self.folder.path().join(name), page).expect("written");
    }

    /// Returns the script's result for each frame. Fails if the browser logs a console message.
    pub fn evaluate(&self, name: &str, width: u32) -> serde_json::Value {
        let output = self.run(&["--enable-logging=stderr", "--dump-dom"], name, width);
        let (page, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let complaint = log.lines().find(|line| line.contains("CONSOLE"));
        assert_eq!(complaint, None, "the browser complains of a page");
        let output_text = page.split_once("<pre id=\"said\">").and_then(|(_, rest)| rest.split_once("</pre>"));
        serde_json::from_str(output_text.expect("the script's words").0).expect("JSON")
    }

    /// Takes a screenshot with the dark or the light color scheme.
    pub fn picture(&self, name: &str, width: u32, is_dark: bool) -> Picture {
        let file = self.folder.path().join("picture.png");
        let scheme = if is_dark { 0 } else { 1 };
        let words =
            [format!("--screenshot={}", file.display()), format!("--blink-settings=preferredColorScheme={scheme}")];
        self.run(&words.each_ref().map(String::as_str), name, width);
        let picture = Picture::read(&file);
        assert_eq!(picture.width, width as usize);
        picture
    }

    /// Returns the number of A4 pages on which a page is printed.
    pub fn printed_pages(&self, name: &str) -> usize {
        let file = self.folder.path().join("printed.pdf");
        self.run(&[&format!("--print-to-pdf={}", file.display()), "--no-pdf-header-footer"], name, 1280);
        let text = String::from_utf8_lossy(&fs::read(file).expect("a PDF")).replace("/Type/", "/Type /");
        text.matches("/Type /Page").count() - text.matches("/Type /Pages").count()
    }

    /// Runs the browser, one instance at a time: it needs more than one core.
    fn run(&self, words: &[&str], page: &str, width: u32) -> Output {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = self.folder.path();
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", "900", self.program, "--headless", "--disable-gpu", "--hide-scrollbars"]);
        // Chromium's sandbox does not work as root; these pages are trusted. Pages may access their frames' files.
        command.args([
            "--no-sandbox",
            "--allow-file-access-from-files",
            "--no-first-run",
            "--virtual-time-budget=10000",
        ]);
        command.arg(format!("--user-data-dir={}", folder.join("browser").display()));
        command.arg(format!("--window-size={width},{HEIGHT}")).args(words);
        command.arg(format!("file://{}", folder.join(page).display()));
        let output = command.output().expect("the browser starts");
        assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        wait_until("the browser's processes end", || processes_of(folder).is_empty());
        output
    }
}

impl Picture {
    fn read(path: &Path) -> Picture {
        let mut decoder = png::Decoder::new(std::io::BufReader::new(File::open(path).expect("a picture")));
        decoder.set_transformations(png::Transformations::EXPAND | png::Transformations::STRIP_16);
        let mut reader = decoder.read_info().expect("a PNG");
        let mut bytes = vec![0; reader.output_buffer_size().expect("it fits")];
        let frame = reader.next_frame(&mut bytes).expect("a frame");
        let samples = frame.color_type.samples();
        let pixels = bytes[..frame.buffer_size()].chunks_exact(samples).map(|pixel| [pixel[0], pixel[1], pixel[2]]);
        Picture { width: frame.width as usize, pixels: pixels.collect() }
    }

    /// Returns the number of pixels between these columns that have this color, within rounding.
    pub fn count(&self, columns: std::ops::Range<u32>, color: u32) -> usize {
        let [_, wanted @ ..] = color.to_be_bytes();
        let is_selected = |pixel: &[u8; 3]| pixel.iter().zip(wanted).all(|(one, other)| one.abs_diff(other) <= 2);
        let rows = self.pixels.chunks_exact(self.width);
        rows.flat_map(|row| &row[columns.start as usize..columns.end as usize])
            .filter(|pixel| is_selected(pixel))
            .count()
    }
}
