//! The table of a session's runs: printed row by row on a terminal, as separate lines elsewhere.

use std::io::{self, IsTerminal};

use crate::launch::sweep::benchmark::{PlannedJob, Report};
use crate::launch::sweep::live::Live;
use crate::launch::sweep::live::lines::{table_head, table_line, table_row};
use crate::output::message::Printer;

/// Table of a session, printed row by row.
pub struct SessionTable<'a> {
    live: &'a Live,
    printer: &'a Printer,
    is_terminal: bool,
    /// Width of the longest title.
    width: usize,
    rows: usize,
    /// Warnings printed below the table, each with the titles of its runs.
    notes: Vec<(String, Vec<String>)>,
}

impl<'a> SessionTable<'a> {
    /// Creates the table with columns wide enough for the jobs of `plan`.
    pub fn new(plan: &[PlannedJob], live: &'a Live, printer: &'a Printer) -> SessionTable<'a> {
        let width = plan.iter().map(|job| job.title.len()).max().unwrap_or_default();
        let is_terminal = io::stdout().is_terminal();
        SessionTable { live, printer, is_terminal, width, rows: 0, notes: Vec::new() }
    }

    /// Adds a run of an earlier session; its warnings were printed then.
    pub fn add_earlier(&mut self, report: Report) {
        self.add(Report { lines: Vec::new(), ..report });
    }

    /// Adds a run that has just ended.
    pub fn add(&mut self, Report { run, lines }: Report) {
        let Some(run) = run else { return lines.iter().for_each(|line| self.printer.line(line)) };
        if self.is_terminal {
            if self.rows == 0 {
                self.printer.line(&table_head(&run, self.width));
            }
            self.printer.line(&table_row(&run, self.width));
            lines.into_iter().for_each(|line| self.note(line, &run.title));
        } else {
            // Runs of an earlier session are in its own output.
            if run.took.is_some() {
                self.printer.line(&table_line(&run));
            }
            lines.iter().for_each(|line| self.printer.line(&format!("    warning: {line}")));
        }
        self.rows += 1;
        self.live.finish_run(run);
    }

    fn note(&mut self, line: String, title: &str) {
        match self.notes.iter_mut().find(|(known, _)| *known == line) {
            Some((_, titles)) => titles.push(title.to_owned()),
            None => self.notes.push((line, vec![title.to_owned()])),
        }
    }

    /// Prints the collected warnings.
    pub fn end(self) {
        for (line, titles) in self.notes {
            self.printer.line(&format!("warning: {}: {line}", titles.join(", ")));
        }
    }
}
